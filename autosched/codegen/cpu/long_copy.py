"""Long runs of elements that are only moved are copied by memcpy, which writes lines without reading them first.

    for i in range(47): for j in vectorized(64): out[64 * i + j] = x[64 * i + j]
 -> memcpy(out, x, 47 * 64 * 4)

A run may be of one of several buffers, as a part of a concatenation is: which one, no loop variable says.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.emitter import Emitter, Place
from autosched.codegen.cpu.types import BYTES, I1, I64, VOID, call_intrinsic
from autosched.codegen.lower.loops import enter
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import BufferStore, For

# Zen 5: rows of 12100 bytes take .78 to .91 of the time of vectors, of 4100 .9 to 1.0, of 2052 .9 to 1.6. Where all
# lies in the first cache, memcpy takes 1.5 times as long.
LEAST_BYTES, LEAST_WHOLE_BYTES = 8192, 65536


@dataclass(frozen=True, slots=True)
class LongCopy:
    """A store of elements as they are, by the variables of loops that it runs along, and how many bytes that is."""

    store: BufferStore
    variables: tuple[Var, ...]
    size_bytes: int


def long_copy(emitter: Emitter, loop: For) -> LongCopy | None:
    """What a nest of loops copies, if that is one long run; None where it does anything else."""
    if emitter.lanes != 1 or emitter.mask is not None:
        return None
    loops = [loop]
    while isinstance(inner := loops[-1].body, For):
        loops.append(inner)
    counts = [const_int(x.extent) for x in loops]
    sizes = [n for n in counts if n is not None]
    store = loops[-1].body
    if not isinstance(store, BufferStore) or len(sizes) < len(loops) or any(const_int(x.start) != 0 for x in loops):
        return None
    item = item_bytes(store.buffer.dtype)
    shape, size_bytes = [const_int(n) for n in store.buffer.shape], math.prod(sizes) * item
    whole = math.prod(n for n in shape if n is not None) * item
    if size_bytes < LEAST_BYTES or (whole < LEAST_WHOLE_BYTES and None not in shape):
        return None
    variables = tuple(x.loop_var for x in loops)
    steps = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    wanted = dict(zip(variables, steps, strict=True))
    reads = _reads(store.value, frozenset(variables))
    if reads is None or any(x.buffer is store.buffer or x.dtype != store.buffer.dtype for x in reads):
        return None
    accesses: list[BufferStore | BufferLoad] = [store, *reads]
    analyzer = functools.reduce(enter, loops[1:], emitter.analyzer)
    if all(_runs_along(emitter, analyzer, x, wanted) for x in accesses):
        return LongCopy(store, variables, size_bytes)
    return None


def _reads(value: PrimExpr, variables: frozenset[Var]) -> list[BufferLoad] | None:
    """The loads of which a value is one, where no loop variable says which; None for another value."""
    if isinstance(value, BufferLoad):
        return [value]
    choice = _choice(value)
    if choice is None or variables & set(free_vars(choice[0])):
        return None
    if any(isinstance(x, BufferLoad | E.Call) for x in preorder(choice[0])):
        return None
    sides = [_reads(x, variables) for x in choice[1:]]
    found = [x for side in sides if side is not None for x in side]
    return None if None in sides else found


def _choice(value: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr] | None:
    """(condition, value where it holds, value where not)."""
    match value:
        case E.Select():
            return value.condition, value.true_value, value.false_value
        case E.Call(op="if_then_else", args=(condition, a, b)):
            return condition, a, b
    return None


def _runs_along(emitter: Emitter, analyzer: Analyzer, x: BufferStore | BufferLoad, steps: dict[Var, int]) -> bool:
    """Whether an access moves by so many elements in an iteration of each loop."""
    place = emitter.places.get(x.buffer)
    if place is None or place.is_local or id(x.indices) in emitter.guards:
        return False
    index = _place_in(place, x.indices)
    if index is None or not all(emitter.is_pure(i) for i in x.indices):
        return False
    terms = analyzer.linear(index).terms.values()
    along = {atom: k for k, atom in terms if isinstance(atom, Var) and atom in steps}
    return along == steps and not any(
        steps.keys() & set(free_vars(atom)) for _, atom in terms if not isinstance(atom, Var)
    )


def _place_in(place: Place, indices: Sequence[PrimExpr]) -> PrimExpr | None:
    """The distance in elements from a buffer's start; None where strides are no numbers."""
    strides = [s for s in place.strides[: len(indices)] if isinstance(s, int)]
    if len(strides) < len(indices) or not indices:
        return None
    parts = [E.mul(E.cast("int64", i), E.const(s, "int64")) for i, s in zip(indices, strides, strict=True)]
    return functools.reduce(E.add, parts)


def emit_long_copy(emitter: Emitter, copy: LongCopy) -> None:
    """The call of memcpy."""
    b = emitter.builder
    with emitter.assigned(dict.fromkeys(copy.variables, Affine())):
        out = _pointer(emitter, copy.store)
        source = _source(emitter, copy.store.value)
    arguments = [out, source, I64(copy.size_bytes), I1(0)]
    call_intrinsic(b, "llvm.memcpy.p0i8.p0i8.i64", VOID, arguments)


def _source(emitter: Emitter, value: PrimExpr) -> ir.Value:
    if isinstance(value, BufferLoad):
        return _pointer(emitter, value)
    choice = _choice(value)
    assert choice is not None, "long_copy looked"
    condition, a, b = choice
    return emitter.builder.select(emitter.value(condition), _source(emitter, a), _source(emitter, b))


def _pointer(emitter: Emitter, x: BufferStore | BufferLoad) -> ir.Value:
    place = emitter.places[x.buffer]
    at = emitter.offset(place, x.indices)
    assert isinstance(at, Affine) and not at.lane, "long_copy looked"
    return emitter.builder.bitcast(emitter.address(place, at), BYTES)
