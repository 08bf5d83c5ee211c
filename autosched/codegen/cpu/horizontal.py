"""Reduces the lanes of a local buffer to one value by a tree: for k: total = op(total, partial[k])."""

from __future__ import annotations

import math

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Emitter
from autosched.codegen.cpu.types import I32, call_intrinsic, is_signed, suffix
from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import is_float
from autosched.tir.expr import const_int
from autosched.tir.extrema import LastingMax, LastingMin, NumberMax
from autosched.tir.functor import free_vars
from autosched.tir.stmt import BufferStore, For, LoopKind

_OPS = (E.Add, E.Mul, E.Max, E.Min)
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_LEAST = 4  # elements that are worth vectors


def lane_reduction(emitter: Emitter, loop: For) -> BufferLoad | None:
    """What a loop reduces into one element, where it is a row of a local buffer in whole vectors; else None."""
    body, count = loop.body, const_int(loop.extent)
    if loop.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED) or emitter.lanes != 1 or not isinstance(body, BufferStore):
        return None
    value = body.value
    if not isinstance(value, _OPS) or not (is_float(value.dtype) or value.dtype in _INTEGERS):
        return None
    if count is None or count < _LEAST:
        return None
    own, part = value.a, value.b
    if not is_own(own, body) or not isinstance(part, BufferLoad) or part.buffer is body.buffer:
        return None
    place = emitter.places.get(part.buffer)
    if place is None or not place.is_local or any(loop.loop_var in free_vars(i) for i in body.indices):
        return None
    lanes = _lanes(emitter, part, count)
    if count % lanes or lanes < _LEAST:
        return None
    return part if emitter.distance(part.buffer, part.indices, loop.loop_var, lanes) == 1 else None


def _lanes(emitter: Emitter, part: BufferLoad, count: int) -> int:
    widest = emitter.isa.lanes(part.buffer.dtype)
    return widest if count >= widest else count & -count


def emit_lane_reduction(emitter: Emitter, loop: For, part: BufferLoad) -> None:
    """Vectors combined pairwise, then halves of the last vector, then the element that was there before."""
    assert isinstance(loop.body, BufferStore), "lane_reduction looked"
    assert isinstance(loop.body.value, E.BinaryOp), "lane_reduction looked"
    count = const_int(loop.extent)
    assert count is not None, "lane_reduction looked"
    lanes = _lanes(emitter, part, count)
    start = const_int(loop.start) or 0
    values: list[ir.Value] = []
    emitter.lanes = lanes
    for k in range(0, count, lanes):
        emitter.env[loop.loop_var] = Affine(start + k, (), 1)
        values.append(emitter.value(part))
    emitter.lanes = 1
    kind, dtype = type(loop.body.value), part.buffer.dtype
    while len(values) > 1:
        pairs = [combine(emitter, kind, dtype, *values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = pairs + values[len(values) // 2 * 2 :]
    vector, has_nan = values[0], None
    if issubclass(kind, LastingMax | LastingMin) and is_float(dtype):  # one look at all lanes instead of one a level
        has_nan = _any(emitter, emitter.builder.fcmp_unordered("uno", vector, vector), lanes)
        kind = E.Max if issubclass(kind, E.Max) else E.Min
    half = lanes // 2
    while half:
        moved = [I32((i + half) % lanes) for i in range(lanes)]
        other = emitter.builder.shuffle_vector(
            vector, ir.Constant(vector.type, ir.Undefined), ir.Constant(ir.VectorType(I32, lanes), moved)
        )
        vector = combine(emitter, kind, dtype, vector, other)
        half //= 2
    total = emitter.builder.extract_element(vector, I32(0))
    if has_nan is not None:
        total = emitter.builder.select(has_nan, ir.Constant(total.type, math.nan), total)
    before = emitter.value(loop.body.value.a)
    emitter.store(loop.body.buffer, combine(emitter, type(loop.body.value), dtype, before, total), loop.body.indices)


def _any(emitter: Emitter, bits: ir.Value, lanes: int) -> ir.Value:
    """Whether one of the lanes is true."""
    word = ir.IntType(lanes)
    return emitter.builder.icmp_unsigned("!=", emitter.builder.bitcast(bits, word), ir.Constant(word, 0))


def combine(emitter: Emitter, kind: type[E.PrimExpr], dtype: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """One step of a reduction; a NaN stays one, of maxima where they are lasting ones."""
    b = emitter.builder
    if not is_float(dtype):
        if kind in (E.Add, E.Mul):
            return b.add(x, y) if kind is E.Add else b.mul(x, y)
        compare = b.icmp_signed if is_signed(dtype) else b.icmp_unsigned
        return b.select(compare(">" if issubclass(kind, E.Max) else "<", y, x), y, x)
    if kind is E.Add:
        return b.fadd(x, y)
    if kind is E.Mul:
        return b.fmul(x, y)
    if issubclass(kind, LastingMax | LastingMin):
        return emitter.lasting(x, y, ">" if issubclass(kind, E.Max) else "<")
    if issubclass(kind, NumberMax):
        return call_intrinsic(b, f"llvm.maxnum.{suffix(x.type)}", x.type, [x, y])
    return b.select(b.fcmp_ordered(">" if kind is E.Max else "<", y, x), y, x)
