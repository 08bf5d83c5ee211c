"""Winograd convolution F(2x2, 3x3) and F(4x4, 3x3) for blocked channels, stride 1 or 2; F(3x3, 2x2) and F(5x5, 2x2).

    for block of tiles in parallel:
        V = transformed inputs of the block's tiles                     # scratch that stays in the second-level cache
        for chunk of output channels:
            for x, y in (m + 2)²: for panel: for tiles of rows:         # a matrix product each, in a register tile
                M[x, y, tiles, panel] = V[x, y] @ weight_packed[chunk, x, y, panel]
            out = epilogue(transformed M)                               # outputs beyond the image are left out

Where there are few tiles, all inputs are transformed in a phase of their own and the chunks of output channels run in
parallel. A group of channels is such a chunk, and transforms its own inputs. Weights are transformed once at build; see
`winograd_stages` for the algorithm. Bytes with int8 weights become 16-bit integers by F(2x2, 3x3), whose sums are
exact, on CPUs that multiply these faster than bytes.

With stride 2 a tile has 2 m + 1 inputs and products in each direction: 25 instead of 36, or 81 instead of 144.
Windows of 2x2, as each phase of a transposed convolution has, take 16 instead of 36, or 36 instead of 100.
With a dilation d the tiles are those of d x d images: of every d-th row and column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.errors import SpaceError
from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.accuracy import is_strict
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain
from autosched.templates.classify import Contraction, extents, is_injective, reduced, spatial
from autosched.templates.cpu.byte_products import widens_bytes
from autosched.templates.cpu.conv2d import match_blocked_conv
from autosched.templates.cpu.register_tile import FLOAT_BYTES, is_cold
from autosched.templates.cpu.winograd_cost import MOST_VECTORS, PANELS, Core, Layer, Plan, best_plan, winograd_cycles
from autosched.templates.cpu.winograd_stages import (
    COLUMNS,
    HALF,
    INPUTS,
    PRODUCTS,
    winograd_func,
)  # fmt: skip
from autosched.templates.product import PAIR
from autosched.templates.winograd_form import Convolution, factor_of, is_padding, is_sum
from autosched.templates.winograd_pack import WinogradPack
from autosched.templates.winograd_transform import TAPS
from autosched.tir import BufferLoad, PrimExpr, PrimFunc, Var, as_int, floordiv
from autosched.tir.dtypes import item_bytes
from autosched.tir.prefetch import LINE_BYTES, PREFETCH_NEXT, PREFETCH_WITHIN, STEPS_AHEAD
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.simplify import Analyzer

LEAST_CHANNELS = 8  # with fewer the transforms cost more than they save
FLOATS, BYTES = ("float32",) * 3, ("uint8", "int8", "int32")  # of data, weight and result
MOST_BYTES = (2**31 - 1) // (4 * TAPS * TAPS * 255 * 128)  # channels of which int32 holds four times the sums
WORD_CYCLES = 0.75  # of the time in float32 that 16-bit integers take


class Winograd:
    """3x3 convolutions of blocked data in float32, of stride 1 or 2, and 2x2 ones of stride 1.

    Those of stride 1 may be dilated. Of bytes there are 3x3 ones of stride 1 without dilation and groups. Groups are of
    whole blocks and of whole vectors.
    """

    name = "winograd"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = match_winograd(func)
        if found is None or (_group(found[0]) > 1 and not widens_bytes(target)):
            return None
        conv, chain, sizes = found
        if conv.groups > 1 and not _fits_group(sizes["O"] // conv.groups, target.lanes("float32")):
            return None
        return Anchor(conv.result.name_hint, "conv2d", sizes, (conv, chain))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        layer, lanes, registers = _layer(anchor), target.lanes("float32"), target.num_registers
        values = {**anchor.sizes, "O": layer.outputs, "G": layer.groups, "lanes": lanes, "registers": registers}
        values["tiles"] = layer.tiles(layer.sizes[0])
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        layer = _layer(anchor)
        _, plan = best_plan(layer, anchor.sizes["largest"], target)
        knobs: dict[str, KnobValue] = {
            "m": plan.m,
            "rows": plan.rows,
            "vectors": plan.vectors,
            "blocks": plan.blocks,
            "panels": plan.panels,
            "tasks": plan.tasks,
            "unroll_c": 1,
            # of twice as many bytes as other products: 0.6 MB at 56x56x64 take .86 of the time (Emerald Rapids)
            "prefetch": is_cold(layer.weights(plan.m) * FLOAT_BYTES // 2, target.cache),
        }
        return Config(self.name, knobs)

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a configuration is expected to take on one core."""
        cycles = winograd_cycles(_layer(anchor), _plan(config), Core.of(target))
        return cycles if _group(anchor.details[0]) == 1 else WORD_CYCLES * cycles

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        layer, plan = _layer(anchor), _plan(config)
        if plan.m not in layer.sizes:
            raise SpaceError(f"there is no F({plan.m}, {layer.taps})", where="template winograd")
        if plan.m > anchor.sizes["largest"]:
            raise SpaceError(
                f"F({plan.m}, {layer.taps}) is less accurate than was asked for", where="template winograd"
            )
        conv, chain = anchor.details
        pack = WinogradPack(
            conv.weight.const_shape(),
            plan.m,
            plan.vectors * target.lanes("float32"),
            plan.panels,
            _group(conv),
            conv.stride,
        )
        block = plan.block_tiles(layer.tiles(plan.m))
        sch = Schedule(winograd_func(func, conv, pack, block))
        loops = _schedule_result(sch, chain, pack, block, config, conv.dilation)
        _schedule_half(sch, loops)
        weight = sch.func.buffers[next(i for i, b in enumerate(func.buffers) if b is conv.weight)]
        _schedule_products(sch, loops, pack, weight.name, config, conv.groups)
        _schedule_inputs(sch, loops, conv.data.const_shape()[4], config, conv.groups)
        packs = tuple(pack if b is conv.weight else None for b in func.buffers)
        flops = 2 * layer.n * layer.height * layer.width * anchor.sizes["O"] * layer.channels * layer.taps**2
        return Applied(sch.func.with_attr("flops", flops), packs, sch.trace.to_json_text())


def match_winograd(func: PrimFunc) -> tuple[Convolution, Chain, dict[str, int]] | None:
    """A convolution that the algorithm computes, what is around it, and its sizes; `largest` is that of tiles."""
    found = match_blocked_conv(func)
    if found is None:
        return None
    made = (_convolution(found[0], found[1].data, found[1].weight, found[1].chain, stride) for stride in (1, 2))
    conv = next((c for c in made if c is not None), None)
    if conv is None or (_group(conv) > 1 and (conv.stride, conv.dilation, conv.taps, conv.groups) != (1, 1, TAPS, 1)):
        return None
    n, ob, oh, ow, block = conv.out.const_shape()
    channels = conv.weight.const_shape()[1]
    if channels < LEAST_CHANNELS or n * oh * ow == 0 or (_group(conv) > 1 and channels > MOST_BYTES):
        return None
    sizes = {"N": n, "C": channels, "O": ob * block, "OH": oh, "OW": ow, "block": block, "stride": conv.stride}
    if conv.dilation > 1:
        sizes["dilation"] = conv.dilation
    if conv.taps != TAPS:
        sizes["taps"] = conv.taps
    if conv.groups > 1:
        sizes["groups"] = conv.groups
    sizes["largest"] = (2 if is_strict(func) or _group(conv) > 1 else 4) + TAPS - conv.taps
    return conv, found[1].chain, sizes


def _convolution(c: Contraction, data: BufferLoad, weight: BufferLoad, chain: Chain, stride: int) -> Convolution | None:
    """The convolution's parts, where it is one of this stride that Winograd's algorithm computes."""
    loops = reduced(c.block)
    if len(loops) != 4 or len(chain.before) > 1 or not all(is_injective(b) and is_padding(b) for b in chain.before):
        return None
    if tuple(b.dtype for b in (data.buffer, weight.buffer, c.block.writes[0].buffer)) not in (FLOATS, BYTES):
        return None
    n, ob, oh, ow, oi = (iv.var for iv in spatial(c.block))
    ic, kh, kw, ci = (iv.var for iv in loops)
    if extents(loops)[1:3] not in ((TAPS, TAPS), (2, 2)) or len(data.indices) != 5:
        return None
    dilation, taps = max(1, factor_of(data.indices[2], kh)), extents(loops)[1]
    if stride > 1 and (dilation, taps) != (1, TAPS):
        return None
    out_block, data_block = extents(spatial(c.block))[4], extents(loops)[3]
    shape, per_group = data.buffer.const_shape(), extents(loops)[0]
    groups, rest = divmod(shape[1], per_group)
    if rest or extents(spatial(c.block))[1] % groups:
        return None
    first = floordiv(ob, extents(spatial(c.block))[1] // groups) * per_group
    if groups > 1 and not Analyzer().can_prove_equal(data.indices[1], first + ic):
        return None
    rows, columns = {oh: stride, kh: dilation}, {ow: stride, kw: dilation}
    image = [index for d, index in enumerate(data.indices) if groups == 1 or d != 1]
    wanted: tuple[tuple[PrimExpr, Mapping[Var, int]], ...] = (
        *zip(image, ({n: 1}, *([{ic: 1}] if groups == 1 else []), rows, columns, {ci: 1}), strict=True),
        *zip(weight.indices, ({ob: out_block, oi: 1}, {ic: data_block, ci: 1}, {kh: 1}, {kw: 1}), strict=True),
    )
    if not all(is_sum(index, terms) for index, terms in wanted):
        return None
    if weight.buffer.const_shape()[1] != extents(loops)[0] * data_block:
        return None
    if shape[4] != data_block:
        return None
    source = chain.before[0] if chain.before else None
    return Convolution(data.buffer, source, weight.buffer, c.block, stride, dilation, groups)


def _group(conv: Convolution) -> int:
    """Channels that are multiplied at once."""
    return 1 if conv.out.dtype == "float32" else PAIR


def _fits_group(outputs: int, lanes: int) -> bool:
    """Whether the output channels of a group are a chunk of whole panels."""
    vectors, rest = divmod(outputs, lanes)
    return not rest and any(vectors == v * panels for v in range(1, MOST_VECTORS + 1) for panels in PANELS)


def _layer(anchor: Anchor) -> Layer:
    s = anchor.sizes
    conv: Convolution = anchor.details[0]
    is_whole, outputs = _group(conv) > 1, s["O"] // conv.groups
    return Layer(
        s["N"], s["C"], outputs, s["OH"], s["OW"], s["block"], is_whole, conv.stride, conv.dilation, conv.taps,
        conv.groups,
    )  # fmt: skip


def _plan(config: Config) -> Plan:
    return Plan(config["m"], config["rows"], config["vectors"], config["blocks"], config["panels"], config["tasks"])


@dataclass(frozen=True)
class _Loops:
    """The loops around the result that other stages are computed in: tile block, chunk of channels, channel block."""

    tiles: LoopRV
    chunk: LoopRV
    channels: LoopRV


def _schedule_result(
    sch: Schedule, chain: Chain, pack: WinogradPack, tiles: int, config: Config, dilation: int
) -> _Loops:
    """Blocks of tiles, chunks of channels, tiles, blocks of channels; the m x m outputs of a tile are unrolled."""
    *inner, last_block = (chain.anchor, *chain.after)
    for block in inner:
        sch.compute_inline(block.name_hint)
    last = last_block.name_hint
    n, ob, oh, ow, oi = sch.get_loops(last)
    in_block = as_int(sch.get(oi).extent)
    if dilation > 1:
        tile_row, i, first_row = sch.split(oh, [None, pack.outputs, dilation])
        tile_column, j, first_column = sch.split(ow, [None, pack.outputs, dilation])
        places = [n, tile_row, first_row, tile_column, first_column]
    else:
        tile_row, i = sch.split(oh, [None, pack.outputs])
        tile_column, j = sch.split(ow, [None, pack.outputs])
        places = [n, tile_row, tile_column]
    chunk, ob = sch.split(ob, [None, pack.width * pack.panels // in_block])
    sch.reorder(*places, chunk, ob, i, j, oi)
    tile_block, p = sch.split(sch.fuse(*places), [None, tiles])
    sch.reorder(tile_block, chunk, p, ob, i, j, oi)
    if config["tasks"] == "channels":
        tile_block = chunk = sch.fuse(tile_block, chunk)
    sch.parallel(tile_block)
    sch.annotate(tile_block, "keep_whole", True)  # else the last block, if ragged, would have all code a second time
    for loop in (i, j):
        sch.unroll(loop)
    sch.vectorize(oi)
    return _Loops(tile_block, chunk, ob)


def _unroll_tile(sch: Schedule, block: str) -> None:
    """The last three loops of a transform: two are a tile's own, the last one are the lanes."""
    *_, a, b, lanes = sch.get_loops(block)
    sch.unroll(a)
    sch.unroll(b)
    sch.vectorize(lanes)


def _schedule_half(sch: Schedule, loops: _Loops) -> None:
    sch.compute_at(HALF, loops.channels, True)
    sch.set_scope(HALF, 0, "local")
    _unroll_tile(sch, HALF)


def _schedule_products(
    sch: Schedule, loops: _Loops, pack: WinogradPack, weight: str, config: Config, groups: int
) -> None:
    """A matrix product for each (x, y), a register tile over all input channels; a panel meets all tiles."""
    copy = sch.get(sch.cache_write(PRODUCTS, 0, "local")).name_hint
    sch.compute_at(copy, loops.chunk, True)
    *_, x, y, p, o = sch.get_loops(copy)
    row_tile, p_in = sch.split(p, [None, config["rows"]])
    panel, o_in = sch.split(o, [None, pack.width])
    sch.reorder(x, y, panel, row_tile, p_in, o_in)
    sch.unroll(p_in)
    sch.vectorize(o_in)
    _align(sch, copy)
    sch.annotate(row_tile, "whole_tile", True)  # one function for all tiles of a panel: 64 channels are soon done
    sch.compute_at(PRODUCTS, row_tile, True)
    *_, p_in, o_in, c = sch.get_loops(PRODUCTS)
    channels, at_once = as_int(sch.get(c).extent), []
    if pack.group > 1:
        c, last = sch.split(c, [None, pack.group])
        at_once.append(last)
    steps = [c]
    line = LINE_BYTES // FLOAT_BYTES
    if config["unroll_c"] > 1:
        steps = list(sch.split(c, [None, config["unroll_c"]]))
        sch.unroll(steps[1])
    elif config["tasks"] == "channels" and groups == 1 and pack.group == 1 and channels % line == 0 and channels > line:
        steps = list(sch.split(c, [None, line]))  # half of the inputs were transformed on another core
        inputs = sch.get(sch.get_block(INPUTS)).writes[0].buffer.name
        sch.annotate(row_tile, PREFETCH_WITHIN, {inputs: STEPS_AHEAD})
    sch.reorder(*steps, p_in, o_in, *at_once)
    for loop in (p_in, *at_once):
        sch.unroll(loop)
    sch.vectorize(o_in)
    if config["prefetch"]:
        sch.annotate(row_tile, PREFETCH_NEXT, {weight: pack.width * channels})
    sch.decompose_reduction(PRODUCTS, steps[0])


def _schedule_inputs(sch: Schedule, loops: _Loops, data_block: int, config: Config, groups: int) -> None:
    in_task = config["tasks"] == "tiles" or groups > 1
    if in_task:
        sch.compute_at(INPUTS, loops.tiles, True)
    *_, x, y, p, c = sch.get_loops(INPUTS)
    cb, ci = sch.split(c, [None, data_block])
    sch.reorder(p, cb, x, y, ci)
    if not in_task:
        sch.parallel(p)
    _unroll_tile(sch, INPUTS)
    _align(sch, INPUTS)
    sch.compute_at(COLUMNS, cb, True)
    sch.set_scope(COLUMNS, 0, "local")
    _unroll_tile(sch, COLUMNS)


def _align(sch: Schedule, block: str) -> None:
    """Rows and planes of [x, y, p, c] an odd number of cache lines apart, so that they spread over a cache's sets."""
    line = LINE_BYTES // item_bytes(sch.get(sch.get_block(block)).writes[0].buffer.dtype)
    for axis in (1, 2):
        sch.storage_align(block, 0, axis, 2 * line, line)
