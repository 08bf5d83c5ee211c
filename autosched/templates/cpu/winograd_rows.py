"""Winograd's algorithm along rows, for convolutions of plain images of few channels with wide windows: first layers.

    for (n, chunk of rows) in parallel:
        V = inputs of the chunk's rows, with their borders, transformed         # scratch, once for all windows
        for row of the output: for tile of a unit: for panel:
            for point: for units of the row:                                    # a register tile
                M[point, units, panel] = sum over parts, channels, window's rows: V * weight_packed
            out = epilogue(transformed M)                                       # four pixels of each tile

The parts of a window's row and their points are those of `winograd_row_filter`: 7 x 7 with stride 2 takes 13 products
instead of 28 for four pixels. Rows of the window stay in the sums, since few channels alone make short ones: transforms
in both directions would save more products and cost more time.

A row of inputs is cut into units of whole vectors, which have several tiles each. Turned squares of vectors give the
inputs of one place in all units side by side, and the transform works on as many units as a vector has lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched import te
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.te import Tensor
from autosched.templates.accuracy import is_strict
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain
from autosched.templates.classify import extents, is_injective, reduced, spatial
from autosched.templates.cpu.conv2d import match_blocked_conv
from autosched.templates.cpu.winograd_cost import Core
from autosched.templates.cpu.winograd_rows_cost import RowLayer, RowPlan, Units, best_row_plan, row_cycles
from autosched.templates.winograd_form import Convolution, is_padding, is_sum, reader_beyond, with_stages
from autosched.templates.winograd_row_filter import OUTPUTS, RowFilter, RowPack, row_filter
from autosched.templates.winograd_transform import pick
from autosched.tir import Block, BufferLoad, PrimExpr, PrimFunc, Var, as_int, floordiv, floormod
from autosched.tir.expr import const_int
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.simplify import Analyzer

MOST_COLUMNS = 32  # of a window: its transforms are written out, and those of 128 columns are too deep an expression
COLUMNS, INPUTS, PRODUCTS, REST = "row_columns", "row_inputs", "row_products", "row_products_rest"


@dataclass(frozen=True)
class RowConv:
    """A convolution with its steps: strides of both directions, and the distance of a window's rows."""

    conv: Convolution
    chain: Chain
    row_stride: int
    stride: int
    dilation: int

    @property
    def filter(self) -> RowFilter:
        return row_filter(self.conv.weight.const_shape()[3], self.stride)

    @property
    def layer(self) -> RowLayer:
        n, ob, oh, ow, block = self.conv.out.const_shape()
        _, channels, window, _ = self.conv.weight.const_shape()
        return RowLayer(n, channels, ob * block, oh, ow, window, self.row_stride, self.dilation, self.filter)


class WinogradRows:
    """Convolutions of plain float32 data, without groups, whose taps along a row lie side by side."""

    name = "winograd_rows"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = match_blocked_conv(func)
        if found is None or is_strict(func):
            return None
        conv = find_row_conv(found[0].block, found[1].data, found[1].weight, found[1].chain)
        if conv is None:
            return None
        n, ob, oh, ow, block = conv.conv.out.const_shape()
        _, channels, kh, kw = conv.conv.weight.const_shape()
        sizes = {"N": n, "C": channels, "O": ob * block, "OH": oh, "OW": ow, "block": block, "KH": kh, "KW": kw}
        sizes |= {"row_stride": conv.row_stride, "stride": conv.stride, "dilation": conv.dilation}
        return Anchor(found[0].block.name_hint, "conv2d", sizes, conv)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        s = anchor.sizes
        units = _units(anchor.details, target.lanes("float32"))
        values = {**s, "units": units.count, "lanes": target.lanes("float32"), "registers": target.num_registers}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        _, plan = best_row_plan(anchor.details.layer, target)
        return Config(self.name, {"rows": plan.rows, "vectors": plan.vectors, "chunk": plan.chunk})

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a configuration is expected to take on one core."""
        plan = RowPlan(config["rows"], config["vectors"], config["chunk"])
        return row_cycles(anchor.details.layer, plan, Core.of(target))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv, s, lanes = anchor.details, anchor.sizes, target.lanes("float32")
        weight = conv.conv.weight
        pack = RowPack(weight.const_shape(), conv.stride, config["vectors"] * lanes)
        sch = Schedule(_rows_func(func, conv, pack, lanes))
        task, panel = _schedule_result(sch, conv.chain, s, _units(conv, lanes), pack, config)
        for products in (PRODUCTS, REST) if conv.filter.longer else (PRODUCTS,):
            _schedule_products(sch, products, panel, pack, config)
        _schedule_inputs(sch, task, lanes)
        packs = tuple(pack if b is weight else None for b in func.buffers)
        flops = 2 * s["N"] * s["OH"] * s["OW"] * s["O"] * s["C"] * s["KH"] * s["KW"]
        return Applied(sch.func.with_attr("flops", flops), packs, sch.trace.to_json_text())


def _units(conv: RowConv, lanes: int) -> Units:
    return Units.of(conv.filter, conv.layer.tiles, lanes)


def find_row_conv(anchor: Block, data: BufferLoad, weight: BufferLoad, chain: Chain) -> RowConv | None:
    """A convolution of plain images and its steps; None for others. Its images may be of any sizes."""
    loops = reduced(anchor)
    if len(loops) != 3 or len(data.indices) != 4:
        return None
    if len(chain.before) > 1 or not all(is_injective(b) and is_padding(b) for b in chain.before):
        return None
    if any(b.dtype != "float32" for b in (data.buffer, weight.buffer, anchor.writes[0].buffer)):
        return None
    n, ob, oh, ow, oi = (iv.var for iv in spatial(anchor))
    ic, kh, kw = (iv.var for iv in loops)
    row, column = (_steps(index) for index in data.indices[2:])
    row_stride, stride, dilation = row.get(oh, 1), column.get(ow, 1), row.get(kh, 1)
    (block,) = extents(spatial(anchor)[4:])
    wanted: tuple[tuple[PrimExpr, Mapping[Var, int]], ...] = (
        *zip(data.indices, ({n: 1}, {ic: 1}, {oh: row_stride, kh: dilation}, {ow: stride, kw: 1}), strict=True),
        *zip(weight.indices, ({ob: block, oi: 1}, {ic: 1}, {kh: 1}, {kw: 1}), strict=True),
    )
    if min(row_stride, stride, dilation) < 1 or not all(is_sum(index, terms) for index, terms in wanted):
        return None
    shape, is_empty = weight.buffer.const_shape(), 0 in map(const_int, anchor.writes[0].buffer.shape)
    if is_empty or shape[1:] != extents(loops) or not stride < shape[3] <= MOST_COLUMNS:
        return None
    conv = Convolution(data.buffer, chain.before[0] if chain.before else None, weight.buffer, anchor, stride)
    return RowConv(conv, chain, row_stride, stride, dilation)


def _steps(index: PrimExpr) -> dict[PrimExpr, int]:
    """What an index is multiples of, with the factors."""
    return {atom: c for c, atom in Analyzer().linear(index).terms.values()}


def _rows_func(func: PrimFunc, conv: RowConv, pack: RowPack, lanes: int) -> PrimFunc:
    """`func` with the convolution replaced by the stages."""
    given, padded = conv.conv.given, conv.conv.data.const_shape()
    data = te.placeholder(given.const_shape(), given.dtype, name=given.name)
    weight = te.placeholder(pack.packed_shape, given.dtype, name=f"{conv.conv.weight.name}_packed")
    units = _units(conv, lanes)
    read = reader_beyond(conv.conv, (False, False, units.size * units.read > padded[3]), data)
    columns = te.compute(
        (*padded[:3], units.size, units.read), lambda n, c, y, x, u: read(n, c, y, u * units.size + x), name=COLUMNS
    )
    return with_stages(func, conv.conv, data, weight, _stages(conv, units, columns, weight, pack))


def _stages(conv: RowConv, units: Units, columns: Tensor, weight: Tensor, pack: RowPack) -> Tensor:
    f, parts = conv.filter, len(conv.filter.parts)
    batch, blocks, height, width, block = conv.conv.out.const_shape()
    _, channels, window, _ = conv.conv.weight.const_shape()
    outputs = pack.packed_shape[0] * pack.width

    def inputs(n: PrimExpr, c: PrimExpr, y: PrimExpr, q: PrimExpr, e: PrimExpr, u: PrimExpr) -> PrimExpr:
        places = [e * f.step + j for j in range(f.inputs)]
        read = [columns[n, c, y, floormod(x, units.size), u + floordiv(x, units.size)].as_expr() for x in places]
        return pick(q, f.transform_inputs(read))

    shape = tuple(as_int(x) for x in columns.shape[:3])
    v = te.compute((*shape, f.products, units.tiles, units.count), inputs, name=INPUTS)

    def products(name: str, points: int, first: int, parts: int) -> Tensor:
        g, c, k = (te.reduce_axis((0, e), x) for e, x in ((parts, "part"), (channels, "c"), (window, "k")))

        def product(i: PrimExpr, n: PrimExpr, y: PrimExpr, e: PrimExpr, u: PrimExpr, o: PrimExpr) -> PrimExpr:
            q = first + i * parts + g.var
            value = v[n, c.var, y * conv.row_stride + k.var * conv.dilation, q, e, u].as_expr()
            tap = weight[floordiv(o, pack.width), q, c.var, k.var, floormod(o, pack.width)].as_expr()
            return te.sum(value * tap, axis=[g, c, k])

        return te.compute((points, batch, height, units.tiles, units.count, outputs), product, name=name)

    of_all = products(PRODUCTS, f.common, 0, parts)
    of_longer = products(REST, 1, f.common * parts, f.longer) if f.longer else None

    def result(n: PrimExpr, ob: PrimExpr, y: PrimExpr, x: PrimExpr, oi: PrimExpr) -> PrimExpr:
        tile = floordiv(x, OUTPUTS)
        at = (n, y, floormod(tile, units.tiles), floordiv(tile, units.tiles), ob * block + oi)
        terms = [of_all[(i, *at)].as_expr() for i in range(f.common)]
        terms += [of_longer[(0, *at)].as_expr()] if of_longer is not None else []
        return pick(floormod(x, OUTPUTS), f.transform_outputs(terms))

    return te.compute((batch, blocks, height, width, block), result, name=conv.conv.result.name_hint)


def _schedule_result(
    sch: Schedule, chain: Chain, s: Mapping[str, int], units: Units, pack: RowPack, config: Config
) -> tuple[LoopRV, LoopRV]:
    """Chunks of rows, rows, tiles of a unit, panels; units, blocks of channels, a tile's outputs, which are unrolled.

    Gives the loops over chunks and over panels. What is stored of a panel is so little that it leaves for memory while
    the next products are computed: after all panels, stores would wait for each other.
    """
    *inner, last_block = (chain.anchor, *chain.after)
    for block in inner:
        sch.compute_inline(block.name_hint)
    n, ob, oh, ow, oi = sch.get_loops(last_block.name_hint)
    chunks = -(-s["OH"] // config["chunk"])
    chunk, row = sch.split(oh, [None, -(-s["OH"] // chunks)])
    unit, tile, j = sch.split(ow, [None, units.tiles, OUTPUTS])
    panel, ob = sch.split(ob, [None, math.lcm(pack.width, s["block"]) // s["block"]])
    sch.reorder(n, chunk, row, tile, panel, unit, ob, j, oi)
    task = sch.fuse(n, chunk)
    sch.parallel(task)
    sch.unroll(j)
    sch.vectorize(oi)
    return task, panel


def _schedule_products(sch: Schedule, products: str, at: LoopRV, pack: RowPack, config: Config) -> None:
    """A matrix product for each point, a register tile over parts, channels and the window's rows."""
    copy = sch.get(sch.cache_write(products, 0, "local")).name_hint
    sch.compute_at(copy, at, True)
    *_, u, o = sch.get_loops(copy)
    tile, u_in = sch.split(u, [None, config["rows"]])
    panel, o_in = sch.split(o, [None, pack.width])
    sch.reorder(panel, tile, u_in, o_in)
    sch.unroll(u_in)
    sch.vectorize(o_in)
    sch.compute_at(products, tile, True)
    *_, u_in, o_in, g, c, k = sch.get_loops(products)
    sch.reorder(g, c, k, u_in, o_in)
    sch.unroll(u_in)
    sch.vectorize(o_in)
    sch.decompose_reduction(products, g)


def _schedule_inputs(sch: Schedule, task: LoopRV, lanes: int) -> None:
    sch.compute_at(INPUTS, task, True)
    *_, channel, row, q, e, u = sch.get_loops(INPUTS)
    u, u_in = sch.split(u, [None, lanes])
    sch.reorder(u, q, e, u_in)
    sch.unroll(q)
    sch.unroll(e)
    sch.vectorize(u_in)
    sch.compute_at(COLUMNS, channel, True)
    *_, x, u = sch.get_loops(COLUMNS)
    x, x_in = sch.split(x, [None, lanes])
    u, u_in = sch.split(u, [None, lanes])
    sch.reorder(x, u, u_in, x_in)
    sch.unroll(u_in)
    sch.vectorize(x_in)
