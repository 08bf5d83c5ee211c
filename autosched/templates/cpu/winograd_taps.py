"""Winograd convolution F(4x4, 3x3) of few tiles, whose weights are transformed in registers where they are read.

    V = transformed inputs                                  # a phase of its own
    for panel of output channels in parallel:
        M = 0
        for block of input channels:
            for x in 6 (unrolled): for group of tiles:
                for c in block: P[y, tiles] += V[x, y, tiles, c] * (G g Gᵀ)[x, y, c]    # 6 products in a register tile
                M[x, y, tiles] += P
        out = epilogue(transformed M)

Transformed weights are four times as many as the weights. Where few tiles meet them (7 x 7 pixels are four), they take
longer to come from memory than the products, on several cores all the more. Here 9 numbers are read instead of 36 (16
of F(2), whose weights are read fastest otherwise); `transform_taps` takes about 70 sums beside 144 multiply-adds of
four tiles. 7x7x512 takes .94 of F(2)'s time on one core of a Zen 5, .78 on two.

More tiles are groups of four, which transform the same weights. That is worth it where sums cost nothing: on a Zen 4,
whose cores add beside multiply-adds that take two turns, 14x14x256 takes .99 of F(4)'s time, .94 on two cores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from autosched import te
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.te import Tensor
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain
from autosched.templates.cpu.register_tile import FLOAT_BYTES, FMA_PER_CYCLE, adds_apart, runs_in_halves
from autosched.templates.cpu.task_order import LEAST_THREADS
from autosched.templates.cpu.winograd import match_winograd
from autosched.templates.cpu.winograd_cost import INPUT_CYCLES, LEAST_TASKS, OUTPUT_CYCLES, Core, weight_cycles
from autosched.templates.cpu.winograd_stages import COLUMNS, HALF, INPUTS, PRODUCTS
from autosched.templates.winograd_form import Convolution, Read, Tiling, padded_reader, with_stages
from autosched.templates.winograd_pack import TapPack
from autosched.templates.winograd_transform import (
    TAPS,
    make_filter,
    pick,
    transform_inputs,
    transform_outputs,
    transform_taps,
)
from autosched.tir import PrimExpr, PrimFunc, as_int, floordiv, floormod
from autosched.tir.prefetch import PREFETCH_NEXT
from autosched.tir.schedule import Schedule

PARTS = "winograd_parts"
OUTPUTS, SIZE = 4, 6  # of a tile in each direction: its outputs and inputs
MOST_ROWS = 4  # of the register tile
# Packed weights are faster with more groups, or groups of three, or where transformed inputs fill the second-level
# cache: 25 tiles of 20x20x192 take 1.09 of the time, 9 of 12x12x256 1.05, 16 of 13x13x384 1.06 (Zen 4).
MOST_TILES, L2_PART = 16, 5 / 8
SUMS = 8  # registers beside those of products: taps, and what they become
OTHER_STEPS = 12  # of a step beside its multiply-adds: loads of taps, or sums where the same units compute them
ADD_STEPS = 20  # which sums take at least, in units of their own
SUM_CYCLES = 72  # to add a register tile of four tiles to what memory has of it


class WinogradTaps:
    """3x3 convolutions of stride 1 without groups or dilation, of blocked data in float32."""

    name = "winograd_taps"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = match_winograd(func)
        if found is None or found[2]["largest"] < OUTPUTS or found[0].out.dtype != "float32":
            return None
        if (found[0].stride, found[0].dilation, found[0].taps, found[0].groups) != (1, 1, TAPS, 1):
            return None
        conv, sizes = found[0], found[2]
        tiles, data_block, lanes = _tiling(conv).tiles, conv.data.const_shape()[4], target.lanes("float32")
        threads = min(max(target.num_cores, LEAST_THREADS), LEAST_TASKS)
        rows = _tiling(conv).block
        if SIZE * rows + SUMS > target.num_registers or (tiles > MOST_ROWS and not _takes_groups(sizes, tiles, target)):
            return None
        if lanes % sizes["block"] or sizes["O"] < threads * lanes or _channels(sizes["C"], data_block) is None:
            return None
        sizes |= {"tiles": tiles, "data_block": data_block}
        return Anchor(conv.result.name_hint, "conv2d", sizes, found[:2])

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        s = anchor.sizes
        space = load_space(target.backend, self.name, {"C": s["C"], "block": s["data_block"]})
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s = anchor.sizes
        channels = _channels(s["C"], s["data_block"])
        assert channels is not None, "others do not match"
        return Config(self.name, {"channels": channels})

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a configuration is expected to take on one core."""
        s, core = anchor.sizes, Core.of(target)
        tiles, rows, panels = s["tiles"], _tiling(anchor.details[0]).block, -(-s["O"] // core.lanes)
        step = max(SIZE * rows, ADD_STEPS) if adds_apart(target) else SIZE * rows + OTHER_STEPS
        sums = SUM_CYCLES * rows / MOST_ROWS / int(config["channels"])
        products = SIZE * panels * s["C"] * -(-tiles // rows) * (step / FMA_PER_CYCLE + sums)
        n_vectors = s["C"] / core.lanes * INPUT_CYCLES[OUTPUTS] + panels * OUTPUT_CYCLES[OUTPUTS]
        return products + tiles * n_vectors + weight_cycles(s["C"] * s["O"] * TAPS**2, 1, products, core)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv, chain = anchor.details
        pack = TapPack(conv.weight.const_shape(), OUTPUTS, target.lanes("float32"))
        sch = Schedule(_taps_func(func, conv, pack, config["channels"], adds_apart(target)))
        _schedule_result(sch, chain, pack)
        rows = _tiling(conv).block
        _schedule_products(sch, f"{conv.weight.name}_packed", pack, rows, config)
        _schedule_inputs(sch, anchor.sizes["data_block"], rows, config["channels"])
        packs = tuple(pack if b is conv.weight else None for b in func.buffers)
        s = anchor.sizes
        flops = 2 * s["N"] * s["OH"] * s["OW"] * s["O"] * s["C"] * TAPS**2
        return Applied(sch.func.with_attr("flops", flops), packs, sch.trace.to_json_text())


def _takes_groups(sizes: Mapping[str, int], tiles: int, target: Target) -> bool:
    """Whether groups of tiles may be worth it: full ones, whose transformed inputs stay in the second-level cache."""
    inputs = SIZE**2 * tiles * sizes["C"] * FLOAT_BYTES
    fits = tiles <= MOST_TILES and tiles % MOST_ROWS == 0 and inputs <= L2_PART * target.cache.l2_bytes
    return fits and runs_in_halves(target)


def _channels(channels: int, block: int) -> int | None:
    """Input channels of a block by default: with their taps, inputs and sums it fills the first-level cache."""
    return next((c for c in (32, 64, 16, 128) if channels % c == 0 and c % block == 0), None)


def _tiling(conv: Convolution) -> Tiling:
    """Blocks are the rows of register tiles, as even as can be."""
    tiling = Tiling(make_filter(OUTPUTS), conv.out.const_shape(), MOST_ROWS)
    return dataclasses.replace(tiling, block=-(-tiling.tiles // -(-tiling.tiles // MOST_ROWS)))


def _taps_func(func: PrimFunc, conv: Convolution, pack: TapPack, step: int, by_sums: bool) -> PrimFunc:
    """`func` with the convolution replaced by the stages."""
    given, tiling = conv.given, _tiling(conv)
    data = te.placeholder(given.const_shape(), given.dtype, name=given.name)
    weight = te.placeholder(pack.packed_shape, conv.weight.dtype, name=f"{conv.weight.name}_packed")
    read = padded_reader(conv, tiling, data)
    out = _stages(tiling, conv, read, weight, step, by_sums)
    return with_stages(func, conv, data, weight, out)


def _stages(tiling: Tiling, conv: Convolution, read: Read, weight: Tensor, step: int, by_sums: bool) -> Tensor:
    """Those of `winograd_stages`, with products over blocks of `step` input channels and over all of them."""
    f, tiles, out_block = make_filter(OUTPUTS), tiling.filled, tiling.shape[4]
    _, data_blocks, _, _, data_block = conv.data.const_shape()
    panels, channels, *_, width = (as_int(n) for n in weight.shape)

    def columns(p: PrimExpr, cb: PrimExpr, x: PrimExpr, j: PrimExpr, ci: PrimExpr) -> PrimExpr:
        n, y0, x0 = tiling.place(p)
        return pick(x, transform_inputs(f, [read(n, cb, y0 + i, x0 + j, ci) for i in range(SIZE)], is_scaled=True))

    def inputs(x: PrimExpr, y: PrimExpr, p: PrimExpr, c: PrimExpr) -> PrimExpr:
        block, lane = floordiv(c, data_block), floormod(c, data_block)
        terms = [t[p, block, x, j, lane].as_expr() for j in range(SIZE)]
        return pick(y, transform_inputs(f, terms, is_scaled=True))

    def part(b: PrimExpr, x: PrimExpr, y: PrimExpr, p: PrimExpr, o: PrimExpr) -> PrimExpr:
        at, panel, lane = b * step + c.var, floordiv(o, width), floormod(o, width)
        columns = ([weight[panel, at, i, k, lane].as_expr() for i in range(TAPS)] for k in range(TAPS))
        rows = [pick(x, transform_taps(f, taps, by_sums)) for taps in columns]
        return te.sum(v[x, y, p, at].as_expr() * pick(y, transform_taps(f, rows, by_sums)), axis=c)

    def half(p: PrimExpr, ob: PrimExpr, i: PrimExpr, y: PrimExpr, oi: PrimExpr) -> PrimExpr:
        terms = [products[x, y, p, ob * out_block + oi].as_expr() for x in range(SIZE)]
        return pick(i, transform_outputs(f, terms))

    def result(n: PrimExpr, ob: PrimExpr, oh: PrimExpr, ow: PrimExpr, oi: PrimExpr) -> PrimExpr:
        p = tiling.tile_of(n, oh, ow)
        terms = [z[p, ob, floormod(oh, OUTPUTS), y, oi].as_expr() for y in range(SIZE)]
        return pick(floormod(ow, OUTPUTS), transform_outputs(f, terms))

    t = te.compute((tiles, data_blocks, SIZE, SIZE, data_block), columns, name=COLUMNS)
    v = te.compute((SIZE, SIZE, tiles, channels), inputs, name=INPUTS)
    c, b = te.reduce_axis((0, step), "c"), te.reduce_axis((0, channels // step), "b")
    shape = (SIZE, SIZE, tiles, panels * width)
    parts = te.compute((channels // step, *shape), part, name=PARTS)
    products = te.compute(shape, lambda *i: te.sum(parts[(b.var, *i)].as_expr(), axis=b), name=PRODUCTS)
    z = te.compute((tiles, tiling.shape[1], OUTPUTS, SIZE, out_block), half, name=HALF)
    return te.compute(tiling.shape, result, name=conv.result.name_hint)


def _schedule_result(sch: Schedule, chain: Chain, pack: TapPack) -> None:
    """A panel is a piece of work, in which its products are computed and transformed, tile by tile."""
    *inner, last_block = (chain.anchor, *chain.after)
    for block in inner:
        sch.compute_inline(block.name_hint)
    n, ob, oh, ow, oi = sch.get_loops(last_block.name_hint)
    tile_row, i = sch.split(oh, [None, OUTPUTS])
    tile_column, j = sch.split(ow, [None, OUTPUTS])
    panel, ob = sch.split(ob, [None, pack.width // as_int(sch.get(oi).extent)])
    sch.reorder(panel, n, tile_row, tile_column, ob, i, j, oi)
    sch.parallel(panel)
    sch.annotate(panel, "keep_whole", True)
    for loop in (i, j):
        sch.unroll(loop)
    sch.vectorize(oi)
    sch.compute_at(HALF, ob, True)
    sch.set_scope(HALF, 0, "local")
    _unroll_tile(sch, HALF)
    sch.compute_at(PRODUCTS, panel, True)


def _schedule_products(sch: Schedule, weight: str, pack: TapPack, rows: int, config: Config) -> None:
    """Blocks of input channels; in each the rows of points, whose six products of `rows` tiles are a register tile."""
    *_, x, y, p, o, b = sch.get_loops(PRODUCTS)
    group, p = sch.split(p, [None, rows])
    sch.reorder(b, x, group, y, p, o)
    for loop in (x, y, p):
        sch.unroll(loop)
    sch.vectorize(o)
    sch.compute_at(PARTS, group, True)
    sch.set_scope(PARTS, 0, "local")
    *_, y, p, o, c = sch.get_loops(PARTS)
    sch.reorder(c, y, p, o)
    for loop in (y, p):
        sch.unroll(loop)
    sch.vectorize(o)
    sch.annotate(x, PREFETCH_NEXT, {weight: config["channels"] * TAPS**2 * pack.width})
    sch.decompose_reduction(PARTS, c)
    sch.decompose_reduction(PRODUCTS, b)


def _schedule_inputs(sch: Schedule, data_block: int, rows: int, channels: int) -> None:
    """A phase of its own, which stores what a register tile reads of a block of channels side by side."""
    *_, x, y, p, c = sch.get_loops(INPUTS)
    cb, ci = sch.split(c, [None, data_block])
    sch.reorder(p, cb, x, y, ci)
    sch.parallel(p)
    _unroll_tile(sch, INPUTS)
    sch.transform_layout(
        INPUTS,
        ("write", 0),
        lambda x, y, p, c: (x, floordiv(c, channels), floordiv(p, rows), y, floormod(p, rows), floormod(c, channels)),
    )
    sch.compute_at(COLUMNS, cb, True)
    sch.set_scope(COLUMNS, 0, "local")
    _unroll_tile(sch, COLUMNS)


def _unroll_tile(sch: Schedule, block: str) -> None:
    """The last three loops of a transform: two are a tile's own, the last one are the lanes."""
    *_, a, b, lanes = sch.get_loops(block)
    sch.unroll(a)
    sch.unroll(b)
    sch.vectorize(lanes)
