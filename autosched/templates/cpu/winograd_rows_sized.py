"""Winograd's algorithm along rows of images whose sizes come with the call: first layers, see `winograd_rows`.

    for (n, chunk of rows, segment of a row) in parallel:
        for channel: for row of the inputs:
            line = the segment's part of the row, zero beyond the image
            columns = line, with the inputs of one place in all units side by side
            V[products, tiles of a unit, channel, row, units] = transformed columns
        for row of the output: for tile of a unit: for panel: for register tile of units:
            for point: M[point, units, panel] = sum over parts, channels, window's rows: V * weight_packed
            out = epilogue(transformed M)                           # outputs beyond the image are left out

A segment has a bounded number of units, as equal ones as can be, so that scratch has known sizes. So have its register
tiles; the kernel has a body for most numbers of units in one, and computes one more where it has none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from autosched.ir.node import FrozenDict
from autosched.target import Target
from autosched.te import ceildiv
from autosched.templates.accuracy import is_strict
from autosched.templates.base import Applied
from autosched.templates.classify import extents, reduced, spatial
from autosched.templates.core_nests import load, one_of, store
from autosched.templates.cpu.conv_blocks import find_conv
from autosched.templates.cpu.conv_sized import choose_tile, padding_of
from autosched.templates.cpu.register_tile import cycles
from autosched.templates.cpu.sized import sized
from autosched.templates.cpu.winograd_cost import MOST_ROWS
from autosched.templates.cpu.winograd_rows import RowConv, find_row_conv
from autosched.templates.cpu.winograd_rows_cost import RowLayer, Units, best_row_plan
from autosched.templates.nests import lanes, loop, nested, value_at
from autosched.templates.pack import packed_params
from autosched.templates.winograd_row_filter import OUTPUTS, RowPack
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var, all_of
from autosched.tir.function import make_root
from autosched.tir.functor import substitute
from autosched.tir.stmt import BufferStore, IfThenElse, LetStmt, LoopKind, Stmt, seq

STAND_IN = 160  # rows and columns of results, for which tiles are chosen
MOST_COLUMNS = 768  # of the inputs, in a segment
MOST_CHUNK = 16  # rows of results in a piece of work
INDEX = "int64"
PARALLEL = LoopKind.PARALLEL


@dataclass(frozen=True)
class Form:
    """A register tile's units at most and vectors, rows of results in a chunk, and a segment's units.

    held   units in buffers, whole vectors of them
    size   inputs of a unit
    tiles  of a unit
    reach  units behind one that it reads too
    """

    rows: int
    vectors: int
    chunk: int
    held: int
    size: int
    tiles: int
    reach: int

    @property
    def units(self) -> int:
        """Of a segment at most: one more is computed by register tiles that have no body for fewer."""
        return self.held - self.reach - 1

    @property
    def bodies(self) -> tuple[int, ...]:
        """Units of the register tiles that there is code for."""
        half = max(self.rows // 2, 1)
        return (*(n for n in (1, 2, 4) if n < half), *range(half, self.rows + 1))


def schedule_winograd_rows(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a convolution of plain images over symbols along rows; None for what it does not suit."""
    found = find_conv(func)
    if found is None or is_strict(func):
        return None
    conv = find_row_conv(found.chain.anchor, found.data, found.weight, found.chain)
    if conv is None or any(padding_of(b) is None for b in found.chain.before):
        return None
    form = choose_form(conv, target)
    if form is None:
        return None
    weight, width = conv.conv.weight, target.lanes("float32")
    pack = RowPack(weight.const_shape(), conv.stride, form.vectors * width)
    packed = Buffer(f"{weight.name}_packed", tuple(E.const(n, INDEX) for n in pack.packed_shape), weight.dtype)
    writer = _Writer(conv, form, pack, packed, width)
    body = writer.body()
    buffers = FrozenDict({p: packed if b is weight else b for p, b in func.buffer_map.items()})
    made = replace(func, buffer_map=buffers, body=make_root(body, tuple(writer.buffers)))
    return Applied(sized(func, made).func, packed_params(func, weight, pack))  # type: ignore[arg-type]


def choose_form(conv: RowConv, target: Target) -> Form | None:
    """The form for a large image; None where direct convolution is expected to take as long."""
    _, channels, *_, lane = spatial(conv.conv.result)
    (n_blocks, block), width = extents((channels, lane)), target.lanes("float32")
    outputs, n_inputs, window, taps = conv.conv.weight.const_shape()
    if block % width:
        return None
    layer = RowLayer(
        1, n_inputs, n_blocks * block, STAND_IN, STAND_IN, window, conv.row_stride, conv.dilation, conv.filter
    )
    time, plan = best_row_plan(layer, target)
    steps = n_inputs * window * taps
    tile = choose_tile(n_blocks, block, steps, n_blocks, True, target)
    vectors, count = tile.blocks * block // width, STAND_IN**2 // tile.pixels
    if time >= cycles([(tile.pixels, count)], vectors, n_blocks * block // width, steps, target):
        return None
    vectors = plan.vectors if plan.vectors * width % block == 0 else block // width
    rows = min(MOST_ROWS, (target.num_registers - vectors - 1) // vectors)
    units = Units.of(conv.filter, 1, width)
    held = max(MOST_COLUMNS // units.size // width, 2) * width
    reach = (units.size - conv.filter.step + conv.filter.inputs - 1) // units.size
    form = Form(rows, vectors, min(plan.chunk, MOST_CHUNK), held, units.size, units.tiles, reach)
    return form if min(rows, form.units) > 0 else None


class _Writer:
    """The statements of one function."""

    def __init__(self, conv: RowConv, form: Form, pack: RowPack, packed: Buffer, width: int):
        self.conv, self.form, self.pack, self.packed, self.lanes = conv, form, pack, packed, width
        self.filter = pack.filter
        self.chain, self.padded = conv.chain, conv.conv.data
        anchor = conv.conv.result
        self.images, self.out_blocks, self.height, self.width, _ = (iv.dom.extent for iv in spatial(anchor))
        self.block = extents(spatial(anchor)[4:])[0]
        self.channels, self.window, _ = extents(reduced(anchor))
        self.sums = anchor.writes[0].buffer
        self.out = self.chain.after[-1].writes[0].buffer if self.chain.after else self.sums
        self.makers = {b.writes[0].buffer: b for b in (*self.chain.before, *self.chain.after)}
        f, held, chunk = self.filter, form.held, form.chunk
        rows = (chunk - 1) * conv.row_stride + (self.window - 1) * conv.dilation + 1
        whole = held + -(-form.reach // width) * width
        in_cache = partial(one_of, scope="global")
        self.line = in_cache("line", "float32", held * form.size)
        self.columns = in_cache("columns", "float32", form.size, whole)
        self.inputs = in_cache("inputs", "float32", f.products, form.tiles, self.channels, rows, held)
        self.products = in_cache("products", "float32", len(f.points), form.rows, pack.width)
        self.tiles = {n: one_of(f"sums_{n}", "float32", n, pack.width) for n in form.bodies}
        self.buffers = [self.line, self.columns, self.inputs, self.products, *self.tiles.values()]

    def body(self) -> Stmt:
        form = self.form
        units = ceildiv(self.width, form.tiles * OUTPUTS)
        segments = ceildiv(units, form.units)

        def task(n: Var, chunk: Var, segment: Var) -> Stmt:
            start = E.mul(chunk, form.chunk)
            rows = E.minimum(E.const(form.chunk, INDEX), E.sub(self.height, start))
            begin, count = Var("begin", INDEX), Var("units", INDEX)
            end = E.floordiv(E.mul(E.add(segment, 1), units), segments)
            stmt = seq(self.transformed(n, start, rows, begin, count), self.rows_of(n, start, rows, begin, count))
            stmt = LetStmt(count, E.minimum(E.sub(end, begin), form.units), stmt)
            return LetStmt(begin, E.floordiv(E.mul(segment, units), segments), stmt)

        def nest(n: Var) -> Stmt:
            chunks = ceildiv(self.height, form.chunk)
            return loop("chunk", chunks, lambda c: loop("segment", segments, partial(task, n, c), PARALLEL), PARALLEL)

        return loop("n", self.images, nest, PARALLEL)

    def transformed(self, n: Var, start: PrimExpr, rows: PrimExpr, begin: Var, count: Var) -> Stmt:
        """All inputs of a task."""
        conv, form = self.conv, self.form
        first = E.mul(start, conv.row_stride)
        n_rows = E.add(E.mul(E.sub(rows, 1), conv.row_stride), (self.window - 1) * conv.dilation + 1)
        squares = ceildiv(E.add(count, form.reach + 1), self.lanes)

        def row(c: Var, r: Var) -> Stmt:
            line = self.line_of(n, c, E.add(first, r), begin, E.add(count, form.reach + 1))
            return seq(line, self.turned(squares), self.points(c, r, ceildiv(E.add(count, 1), self.lanes)))

        return nested("channel row", (E.const(self.channels, INDEX), n_rows), row)

    def line_of(self, n: Var, c: Var, y: PrimExpr, begin: Var, units: PrimExpr) -> Stmt:
        """So many units of a row of the padded data, from unit `begin` on."""
        height, width = self.padded.shape[2:]
        (top, bottom), (left, right), pad = (E.const(0, INDEX), height), (E.const(0, INDEX), width), None
        border: PrimExpr = E.const(0.0, "float32")
        if self.conv.conv.source is not None:
            pad = padding_of(self.conv.conv.source)
            assert pad is not None, "schedule_winograd_rows looked"
            (top, bottom), (left, right), border = pad.rows, pad.columns, pad.border
        is_row = all_of(E.compare(E.LE, top, y), E.compare(E.LT, y, bottom))

        def value(x: PrimExpr) -> PrimExpr:
            place = (n, c, y, x)
            if pad is None:
                return BufferLoad(self.padded, place)
            return substitute(pad.inside, {iv.var: v for iv, v in zip(pad.block.iter_vars, place, strict=True)})

        def vector(v: Var) -> Stmt:
            at = E.mul(v, self.lanes)
            x = Var("x", INDEX)

            def element(is_inside: bool, lane: PrimExpr) -> Stmt:
                here = E.add(x, E.cast(INDEX, lane))
                found = value(here)
                if not is_inside:
                    held = all_of(is_row, E.compare(E.LE, left, here), E.compare(E.LT, here, right))
                    found = E.if_then_else(held, found, border)
                return BufferStore(self.line, found, (E.add(at, E.cast(INDEX, lane)),))

            ends = E.compare(E.LE, left, x), E.compare(E.LE, E.add(x, self.lanes), right)
            parts = (lanes(self.lanes, partial(element, is_inside)) for is_inside in (True, False))
            return LetStmt(x, E.add(E.mul(begin, self.form.size), at), IfThenElse(all_of(is_row, *ends), *parts))

        return loop("vector", E.mul(units, self.form.size // self.lanes), vector)

    def turned(self, squares: PrimExpr) -> Stmt:
        """The inputs of one place in all units side by side."""

        def square(u: Var, x: Var) -> Stmt:
            def row(i: Var) -> Stmt:
                def element(lane: PrimExpr) -> Stmt:
                    unit = E.add(E.mul(u, self.lanes), E.cast(INDEX, i))
                    place = E.add(E.mul(x, self.lanes), E.cast(INDEX, lane))
                    value = BufferLoad(self.line, (E.add(E.mul(unit, self.form.size), place),))
                    return BufferStore(self.columns, value, (place, unit))

                return lanes(self.lanes, element)

            return loop("i", self.lanes, row, LoopKind.UNROLLED)

        across = E.const(self.form.size // self.lanes, INDEX)
        return loop("u", squares, lambda u: loop("x", across, partial(square, u)))

    def points(self, c: Var, r: Var, vectors: PrimExpr) -> Stmt:
        """The inputs of a row, transformed."""
        f, size = self.filter, self.form.size

        def vector(u: Var) -> Stmt:
            def tile(e: int) -> Stmt:
                def point(q: int, lane: PrimExpr) -> Stmt:
                    unit = E.add(E.mul(u, self.lanes), E.cast(INDEX, lane))
                    places = [e * f.step + j for j in range(f.inputs)]
                    read: list[PrimExpr] = [
                        BufferLoad(self.columns, (E.const(x % size, INDEX), E.add(unit, x // size))) for x in places
                    ]
                    at = (E.const(q, INDEX), E.const(e, INDEX), c, r, unit)
                    return BufferStore(self.inputs, f.transform_inputs(read)[q], at)

                return seq(*(lanes(self.lanes, partial(point, q)) for q in range(f.products)))

            return seq(*map(tile, range(self.form.tiles)))

        return loop("u", vectors, vector)

    def rows_of(self, n: Var, start: PrimExpr, rows: PrimExpr, begin: Var, count: Var) -> Stmt:
        """The results of a task."""
        panels, tiles = (E.const(x, INDEX) for x in (self.pack.packed_shape[0], self.form.tiles))
        register_tiles = ceildiv(count, self.form.rows)

        def tile(y: Var, e: Var, panel: Var, t: Var) -> Stmt:
            first, end = Var("first", INDEX), E.floordiv(E.mul(E.add(t, 1), count), register_tiles)
            held = Var("held", INDEX)
            bodies = self.form.bodies
            stmt = self.multiplied(y, e, panel, first, bodies[-1])
            for size in reversed(bodies[:-1]):
                stmt = IfThenElse(E.compare(E.LE, held, size), self.multiplied(y, e, panel, first, size), stmt)
            stmt = seq(stmt, self.results(n, E.add(start, y), E.add(begin, first), e, panel, held))
            stmt = LetStmt(held, E.minimum(E.sub(end, first), self.form.rows), stmt)
            return LetStmt(first, E.floordiv(E.mul(t, count), register_tiles), stmt)

        return nested("y e panel t", (rows, tiles, panels, register_tiles), tile)

    def multiplied(self, y: Var, e: Var, panel: Var, first: Var, size: int) -> Stmt:
        """The products of a register tile of `size` units from `first` on, at all points."""
        f, conv, sums = self.filter, self.conv, self.tiles[size]
        at = Var("unit", INDEX)

        def over(body: Callable[[Var, PrimExpr], Stmt]) -> Stmt:
            return loop("r", size, lambda r: lanes(self.pack.width, partial(body, r)), LoopKind.UNROLLED)

        def point(i: Var) -> Stmt:
            parts: PrimExpr = E.const(len(f.parts), INDEX)
            if f.longer:
                parts = E.Select(E.compare(E.LT, i, f.common), parts, E.const(f.longer, INDEX))

            def part(g: Var) -> Stmt:
                q = Var("q", INDEX)

                def step(c: Var, k: Var) -> Stmt:
                    row = E.add(E.mul(y, conv.row_stride), E.mul(k, conv.dilation))

                    def added(r: Var, v: PrimExpr) -> Stmt:
                        value = BufferLoad(self.inputs, (q, e, c, row, E.add(at, E.cast(INDEX, r))))
                        tap = BufferLoad(self.packed, (panel, q, c, k, E.cast(INDEX, v)))
                        return store(sums, E.add(load(sums, r, v), E.mul(value, tap)), r, v)

                    return over(added)

                steps = nested("c k", [E.const(x, INDEX) for x in (self.channels, self.window)], step)
                return LetStmt(q, E.minimum(E.add(E.mul(i, len(f.parts)), g), f.products - 1), steps)

            def kept(r: Var, v: PrimExpr) -> Stmt:
                return BufferStore(self.products, load(sums, r, v), (i, E.cast(INDEX, r), E.cast(INDEX, v)))

            start = over(lambda r, v: store(sums, E.const(0.0, "float32"), r, v))
            return seq(start, loop("g", parts, part), over(kept))

        place = E.maximum(E.minimum(first, self.form.held - size), 0)  # says that it is inside
        return LetStmt(at, place, loop("point", E.const(len(f.points), INDEX), point))

    def results(self, n: Var, y: PrimExpr, unit: PrimExpr, e: Var, panel: Var, count: Var) -> Stmt:
        """The outputs of one tile in each of the units of a register tile, the first of which is `unit`."""
        f, per_panel = self.filter, self.pack.width // self.block
        begin = E.mul(panel, per_panel)

        def tile(u: Var) -> Stmt:
            x = Var("x", INDEX)

            def block(b: Var) -> Stmt:
                def result(k: int, lane: PrimExpr) -> Stmt:
                    channel = E.add(E.mul(b, self.block), E.cast(INDEX, lane))
                    terms = [BufferLoad(self.products, (E.const(i, INDEX), u, channel)) for i in range(len(f.points))]
                    total = f.transform_outputs(terms)[k]
                    place = (n, E.add(begin, b), y, E.add(x, k), E.cast(INDEX, lane))
                    value = value_at(self.makers, self.out, place, {self.sums: lambda _: total})
                    return BufferStore(self.out, value, place)

                parts = [lanes(self.block, partial(result, k)) for k in range(OUTPUTS)]
                ends = (E.compare(E.LT, E.add(x, k), self.width) for k in range(OUTPUTS))
                some = seq(*(IfThenElse(end, part) for end, part in zip(ends, parts, strict=True)))
                return IfThenElse(E.compare(E.LE, E.add(x, OUTPUTS), self.width), seq(*parts), some)

            held: PrimExpr = E.const(per_panel, INDEX)
            if extents(spatial(self.conv.conv.result)[1:2])[0] % per_panel:
                held = E.minimum(held, E.sub(self.out_blocks, begin))
            at = E.mul(E.add(E.mul(E.add(unit, u), self.form.tiles), e), OUTPUTS)
            return LetStmt(x, at, loop("b", held, block))

        return loop("u", count, tile)
