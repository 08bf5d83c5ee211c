"""Winograd convolution F(2x2, 3x3) and F(4x4, 3x3) of images [N, C, H, W] in float32: three launches.

    for channel, tile in blockIdx.x, threadIdx.x:               # (m + 2)² values in registers
        V[x, y, c, p] = B of the tile's rows and columns
    for x, y in blockIdx.z, m tile in blockIdx.y, n tile in blockIdx.x:
        M[x, y, o, p] += sum over c of U[x, y, c, o] * V[x, y, c, p]            # as in core_tiles.py
    for channel, tile in blockIdx.x, threadIdx.x:
        out = epilogue(A of the tile's products)

Weights are transformed once at build. A product then takes (m + 2)² / (9 m²) of the multiplications, and the transforms
write and read the inputs and outputs (m + 2)² / m² times; which of both weighs more is estimated.
Source  Lavin, Gray 2015, Fast Algorithms for Convolutional Neural Networks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from autosched import te
from autosched.errors import SpaceError
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.accuracy import is_strict
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, require, schedule_epilogue
from autosched.templates.classify import Contraction, extents, find_contraction, reduced, spatial
from autosched.templates.cuda.core_tiles import (
    GROUP,
    L2_BYTES_PER_CYCLE,
    LAUNCH_S,
    Cut,
    SharedCopy,
    bind_results,
    copies_itself,
    default_pipeline,
    default_tile,
    split_terms,
    stage_operands,
    tile_cycles,
)
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import MOST_GRID_YZ, VECTOR_BYTES, bind_flat, read_index
from autosched.templates.tf32 import allows_tf32
from autosched.templates.winograd_form import Convolution, Tiling, is_padding, is_sum, padded_reader, with_stages
from autosched.templates.winograd_pack import WinogradPack
from autosched.templates.winograd_transform import TAPS, make_filter, pick, transform_inputs, transform_outputs
from autosched.tir import PrimFunc, floormod
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.schedule import Schedule

PATCH, COLUMNS, INPUTS, PRODUCTS, HALF = (
    f"winograd_{name}" for name in ("patch", "columns", "inputs", "products", "half")
)
LEAST_CHANNELS = 8  # with fewer the transforms cost more than they save; inputs are a multiple of so many
TRANSFORM_THREADS = 128
THREADS_AT_ONCE = 1024  # of an SM: a tile takes about 60 registers
LOADS_AT_ONCE = 8  # of a thread
MEMORY_LATENCY = 600.0  # cycles
CLEARLY = 1.15  # so much faster than others it has to be
ITEM = 4  # bytes of a float32
WIDE = VECTOR_BYTES // ITEM


class Winograd:
    """3x3 convolutions of stride 1 without groups or dilation."""

    name = "winograd"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        if c is None or allows_tf32(func):
            return None
        chain = chain_around(func, c.block)
        conv = None if chain is None else _convolution(c, chain)
        if conv is None:
            return None
        n, outputs, height, width = conv.out.const_shape()
        channels = conv.weight.const_shape()[1]
        if (
            channels % LEAST_CHANNELS
            or min(channels, outputs) < LEAST_CHANNELS
            or outputs > MOST_GRID_YZ
            or n * height * width == 0
        ):
            return None
        sizes = {"images": n, "C": channels, "O": outputs, "OH": height, "OW": width, "bytes": ITEM}
        sizes["largest"] = 2 if is_strict(func) else 4
        return Anchor(conv.result.name_hint, "conv2d", sizes, (conv, chain))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, asynchronous=copies_itself(anchor.sizes, target.gpu))

    def default(self, anchor: Anchor, target: Target) -> Config:
        """The tile of outputs that is done first, and for its products the tile of these."""
        gpu = target.gpu
        choices = [m for m in (2, 4) if m <= anchor.sizes["largest"]]
        m = min(choices, key=lambda m: _cycles(anchor.sizes, m, default_tile(_product(anchor.sizes, m), gpu), gpu))
        product = _product(anchor.sizes, m)
        tile = default_tile(product, gpu)
        knobs = {"m": m, **dict(zip(("rows", "columns", "per_row", "per_column"), tile, strict=True))}
        pipeline = default_pipeline(product, tile, gpu, product["K"])
        while product["K"] % pipeline["step"]:
            pipeline["step"] //= 2
        return Config(self.name, {**knobs, **pipeline})

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a configuration is expected to take, and some more: it rounds more than a plain sum does."""
        tile = (config["rows"], config["columns"], config["per_row"], config["per_column"])
        return CLEARLY * _cycles(anchor.sizes, config["m"], tile, target.gpu)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        if config["m"] > anchor.sizes["largest"]:
            raise SpaceError(f"F({config['m']}, 3) is less accurate than was asked for", where="template winograd")
        require(anchor.sizes["C"] % config["step"] == 0, "steps divide the input channels")
        conv, chain = anchor.details
        pack = WinogradPack(conv.weight.const_shape(), config["m"], anchor.sizes["O"], 1)
        sch = Schedule(winograd_func(func, conv, pack))
        _schedule_result(sch, chain, config["m"])
        weight = sch.func.buffers[next(i for i, b in enumerate(func.buffers) if b is conv.weight)]
        _schedule_products(sch, weight.name, anchor.sizes, config)
        _schedule_inputs(sch)
        s = anchor.sizes
        flops = 2 * s["images"] * s["OH"] * s["OW"] * s["O"] * s["C"] * TAPS**2
        packs = tuple(pack if b is conv.weight else None for b in func.buffers)
        return Applied(sch.func.with_attr("flops", flops), packs, sch.trace.to_json_text())


def _convolution(c: Contraction, chain: Chain) -> Convolution | None:
    """The convolution's parts, where it is one that Winograd's algorithm computes."""
    results, terms = spatial(c.block), reduced(c.block)
    if len(results) != 4 or len(terms) != 3 or extents(terms)[1:] != (TAPS, TAPS):
        return None
    if len(chain.before) > 1 or not all(map(is_padding, chain.before)):
        return None
    if any(b.dtype != "float32" for b in (c.block.writes[0].buffer, c.a.buffer, c.b.buffer)):
        return None
    n, o, y, x = (iv.var for iv in results)
    i, kh, kw = (iv.var for iv in terms)
    for data, weight in ((c.a, c.b), (c.b, c.a)):
        if len(data.indices) != 4 or len(weight.indices) != 4 or weight.buffer.const_shape()[2:] != (TAPS, TAPS):
            continue
        wanted: tuple[tuple[PrimExpr, Mapping[Var, int]], ...] = (
            *zip(data.indices, ({n: 1}, {i: 1}, {y: 1, kh: 1}, {x: 1, kw: 1}), strict=True),
            *zip(weight.indices, ({o: 1}, {i: 1}, {kh: 1}, {kw: 1}), strict=True),
        )
        if not all(is_sum(index, parts) for index, parts in wanted):
            continue
        if data.buffer.const_shape()[1] != extents(terms)[0] or weight.buffer.const_shape()[1] != extents(terms)[0]:
            continue
        return Convolution(data.buffer, chain.before[0] if chain.before else None, weight.buffer, c.block)
    return None


def _product(s: Mapping[str, int], m: int) -> dict[str, int]:
    """The sizes of the products for tiles of m x m outputs."""
    tiles = s["images"] * -(-s["OH"] // m) * -(-s["OW"] // m)
    return {"batch": (m + TAPS - 1) ** 2, "M": s["O"], "N": tiles, "K": s["C"], "bytes": ITEM}


def _cycles(s: Mapping[str, int], m: int, tile: tuple[int, int, int, int], gpu: GpuFacts) -> float:
    """Of the products, and of two launches more, which write and read what the products read and write.

    A thread of the first one loads the inputs of a tile, m elements from those of its neighbours: each access touches m
    times the sectors that it needs. Threads of both wait for loads of which some are under way at one time.
    """
    product = _product(s, m)
    between = ITEM * product["batch"] * product["N"]  # bytes of a channel
    cached = L2_BYTES_PER_CYCLE * gpu.sm_count
    fits = between * max(s["C"], s["O"]) <= gpu.l2_bytes
    rate = cached if fits else min(cached, gpu.memory_bandwidth / gpu.clock_hz)
    waits = product["batch"] / LOADS_AT_ONCE * MEMORY_LATENCY
    cycles = max(tile_cycles(product, gpu, Cut(tile)), between * (s["C"] + s["O"]) / rate)
    written = ITEM * s["images"] * s["O"] * s["OH"] * s["OW"]
    for channels, moved in ((s["C"], (m + 1) * between * s["C"]), (s["O"], between * s["O"] + written)):
        waves = -(-channels * product["N"] // (gpu.sm_count * THREADS_AT_ONCE))
        cycles += LAUNCH_S * gpu.clock_hz + max(moved / rate, waves * waits)
    return cycles


@lru_cache(maxsize=32)
def winograd_func(func: PrimFunc, conv: Convolution, pack: WinogradPack) -> PrimFunc:
    """`func` with the convolution replaced by the stages; the weight comes packed, [1, x, y, 1, I, O].

    Tiles are filled up to a multiple of a vector, so that rows of products are aligned.
    """
    f = make_filter(pack.outputs)
    tiling = Tiling(f, conv.out.const_shape(), WIDE)
    size, m = f.inputs, f.outputs
    given, channels, outputs = conv.given, pack.shape[1], pack.shape[0]
    data = te.placeholder(given.const_shape(), "float32", name=given.name)
    weight = te.placeholder(pack.packed_shape, "float32", name=f"{conv.weight.name}_packed")
    read = padded_reader(conv, tiling, data)

    def patch(c: PrimExpr, p: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        n, y0, x0 = tiling.place(p)
        return read(n, c, y0 + i, x0 + j)

    d = te.compute((channels, tiling.filled, size, size), patch, name=PATCH)

    def columns(c: PrimExpr, p: PrimExpr, x: PrimExpr, j: PrimExpr) -> PrimExpr:
        return pick(x, transform_inputs(f, [d[c, p, i, j].as_expr() for i in range(size)]))

    t = te.compute((channels, tiling.filled, size, size), columns, name=COLUMNS)

    def inputs(x: PrimExpr, y: PrimExpr, c: PrimExpr, p: PrimExpr) -> PrimExpr:
        return pick(y, transform_inputs(f, [t[c, p, x, j].as_expr() for j in range(size)]))

    v = te.compute((size, size, channels, tiling.filled), inputs, name=INPUTS)
    k = te.reduce_axis((0, channels), "k")
    products = te.compute(
        (size, size, outputs, tiling.filled),
        lambda x, y, o, p: te.sum(weight[0, x, y, 0, k, o] * v[x, y, k, p], axis=k),
        name=PRODUCTS,
    )

    def half(o: PrimExpr, p: PrimExpr, i: PrimExpr, y: PrimExpr) -> PrimExpr:
        return pick(i, transform_outputs(f, [products[x, y, o, p].as_expr() for x in range(size)]))

    z = te.compute((outputs, tiling.filled, m, size), half, name=HALF)

    def result(n: PrimExpr, o: PrimExpr, oh: PrimExpr, ow: PrimExpr) -> PrimExpr:
        p = tiling.tile_of(n, oh, ow)
        terms = [z[o, p, floormod(oh, m), y].as_expr() for y in range(size)]
        return pick(floormod(ow, m), transform_outputs(f, terms))

    out = te.compute(tiling.shape, result, name=conv.result.name_hint)
    return with_stages(func, conv, data, weight, out)


def _schedule_result(sch: Schedule, chain: Chain, m: int) -> None:
    """A tile of outputs to each thread, neighbours along rows of tiles; a row of the tile is written at once."""
    out = schedule_epilogue(sch, chain)
    n, o, oh, ow = sch.get_loops(out)
    tile_row, i = sch.split(oh, [None, m])
    tile_column, j = sch.split(ow, [None, m])
    sch.reorder(o, n, tile_row, tile_column, i, j)
    thread = bind_flat(sch, sch.fuse(o, n, tile_row, tile_column), TRANSFORM_THREADS)
    sch.unroll(i)
    sch.vectorize(j)
    for name in (chain.anchor.name_hint, HALF):
        sch.compute_at(name, thread, True)
        _unroll_tile(sch, name)
    sch.set_scope(HALF, 0, "local")
    copy = sch.cache_read(HALF, read_index(sch, HALF, PRODUCTS), "local")
    sch.compute_at(copy, thread, True)
    for loop in sch.get_loops(copy)[-4:]:
        sch.unroll(loop)


def _schedule_products(sch: Schedule, weight: str, sizes: Mapping[str, int], config: Config) -> None:
    """A product for each (x, y), in register tiles."""
    copy = sch.get(sch.cache_write(PRODUCTS, 0, "local")).name_hint
    sch.compute_at(PRODUCTS, bind_results(sch, copy, config), True)
    at = split_terms(sch, PRODUCTS, config)
    copies = []
    for name, extent, per_thread in ((weight, sizes["O"], "per_row"), (INPUTS, WIDE, "per_column")):
        block = sch.cache_read(PRODUCTS, read_index(sch, PRODUCTS, name), "shared")
        copies.append(SharedCopy(block, math.gcd(config[per_thread], GROUP), math.gcd(WIDE, extent), False))
    stage_operands(sch, PRODUCTS, copies, at, config, ITEM)


def _schedule_inputs(sch: Schedule) -> None:
    """A tile of inputs to each thread, neighbours along rows of tiles."""
    x, y, c, p = sch.get_loops(INPUTS)
    sch.reorder(c, p, x, y)
    thread = bind_flat(sch, sch.fuse(c, p), TRANSFORM_THREADS)
    _unroll_tile(sch, INPUTS)
    for name in (COLUMNS, PATCH):
        sch.compute_at(name, thread, True)
        sch.set_scope(name, 0, "local")
        _unroll_tile(sch, name)


def _unroll_tile(sch: Schedule, block: str) -> None:
    for loop in sch.get_loops(block)[-2:]:
        sch.unroll(loop)
