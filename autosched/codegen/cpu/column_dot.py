"""Depthwise windows of bytes: for n: for k in rows: acc[n] += int32(x[k, n]) * int32(w[n, k]), in vectors over n.

x holds unsigned bytes, w signed ones, those of four rows of the window side by side, zeros behind the last. The bytes
of up to four rows of x are put side by side by one instruction (vpermb), and multiplied and added by another
(vpdpbusd). A window of 3 x 3 then takes three products instead of nine, and no conversions.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.byte_dot import GROUP
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.narrow_products import added_product, byte_factors
from autosched.codegen.cpu.types import I8, I32, call_intrinsic, undefined, value_type
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.stmt import BufferStore, For, LoopKind

COLUMN = "column"  # the annotation of the loop over rows: weights have whole words, with zeros behind the last row
MOST_ROWS = 2 * GROUP  # of a window
LANES = 16  # of the instructions


@dataclass(frozen=True, slots=True)
class Column:
    """The parts of the loops: sums, before and after, bytes of the rows, weights, the loop over rows."""

    store: BufferStore
    before: BufferLoad
    data: BufferLoad
    weight: BufferLoad
    rows: For


def column_sum(emitter: Emitter, loop: For) -> Column | None:
    """The parts where a vectorised loop is such a sum and the CPU has both instructions; None for any other."""
    rows, isa = loop.body, emitter.isa
    if loop.kind != LoopKind.VECTORIZED or not isinstance(rows, For):
        return None
    if not rows.annotations.get(COLUMN) or emitter.lanes != 1 or emitter.mask is not None:
        return None
    if not (isa.has_byte_dots and isa.permutes_bytes) or isa.lanes("int32") != LANES:
        return None
    count = const_int(rows.extent)
    if count is None or not 1 < count <= MOST_ROWS or const_int(rows.start) != 0 or const_int(loop.extent) != LANES:
        return None
    if rows.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        return None
    found = added_product(rows.body)
    factors = None if found is None else byte_factors(found[1])
    if found is None or factors is None or any(loads(i) for f in factors for i in f.indices):
        return None
    assert isinstance(rows.body, BufferStore), "added_product looked"
    column = Column(rows.body, found[0], *factors, rows)
    lane, row = loop.loop_var, rows.loop_var
    if any(row in free_vars(i) for i in column.store.indices):
        return None
    if any(id(x.indices) in emitter.guards for x in (column.store, column.data, column.weight)):
        return None
    steps = [
        emitter.distance(x.buffer, x.indices, lane, LANES, (row,)) for x in (column.store, column.data, column.weight)
    ]
    within = emitter.distance(column.weight.buffer, column.weight.indices, row, min(count, GROUP), (lane,))
    return column if steps == [1, 1, GROUP] and within == 1 else None


def emit_column_sum(emitter: Emitter, loop: For, column: Column) -> None:
    """One vector of sums, four rows of the window at once."""
    b, row = emitter.builder, column.rows.loop_var
    start, count = emitter.index(loop.start), const_int(column.rows.extent) or 0
    assert isinstance(start, Affine), "outside of a vectorised loop no value depends on the lane"
    vector = value_type("int32", LANES)
    bytes_ = ir.VectorType(I8, GROUP * LANES)
    emitter.lanes = LANES
    emitter.env[loop.loop_var] = Affine(start.const, start.terms, 1)
    emitter.env[row] = Affine()
    total = emitter.load(column.before.buffer, column.before.indices)
    for first in range(0, count, GROUP):
        parts = []
        for k in range(first, min(count, first + GROUP)):
            emitter.env[row] = Affine(k)
            parts.append(emitter.load(column.data.buffer, column.data.indices))
        emitter.env[row] = Affine(first)
        words = _words(emitter, column.weight, bytes_)
        total = call_intrinsic(b, "llvm.x86.avx512.vpdpbusd.512", vector, [total, _side_by_side(emitter, parts), words])
    emitter.store(column.store.buffer, total, column.store.indices)
    emitter.lanes = 1


def _words(emitter: Emitter, load: BufferLoad, kind: ir.Type) -> ir.Value:
    """The weights of four rows for each lane."""
    place = emitter.places[load.buffer]
    at = emitter.offset(place, load.indices)
    assert isinstance(at, Affine), "column_sum looked"
    pointer = emitter.builder.bitcast(emitter.address(place, at.without_lane()), kind.as_pointer())
    return emitter.builder.load(pointer, align=1)


def _side_by_side(emitter: Emitter, rows: list[ir.Value]) -> ir.Value:
    """Byte n of each row in lane n; where there are less than four rows, of the first once more, times zero."""
    b = emitter.builder
    parts = [*rows, *[undefined(rows[0].type)] * (GROUP - len(rows))]
    for lanes in (LANES, 2 * LANES):
        whole = ir.Constant(ir.VectorType(I32, 2 * lanes), list(range(2 * lanes)))
        parts = [b.shuffle_vector(parts[n], parts[n + 1], whole) for n in range(0, len(parts), 2)]
    (joined,) = parts
    order = [LANES * (k if k < len(rows) else 0) + lane for lane in range(LANES) for k in range(GROUP)]
    name = "llvm.x86.avx512.permvar.qi.512"
    return call_intrinsic(b, name, joined.type, [joined, _unknown(emitter, ir.Constant(joined.type, order))])


def _unknown(emitter: Emitter, order: ir.Constant) -> ir.Value:
    """An order that LLVM cannot look at: it would take two instructions more (vpermt2b)."""
    key = ("order", order.get_reference())
    found = emitter.known(key)
    if found is None:
        same = ir.InlineAsm(ir.FunctionType(order.type, [order.type]), "", "=v,0")
        found = emitter.remember(key, emitter.entry.call(same, [order]))
    return found


__all__ = ["COLUMN", "MOST_ROWS", "Column", "column_sum", "emit_column_sum"]
