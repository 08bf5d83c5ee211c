"""Floats of 16 bits: sums in registers are float32; what a CPU cannot convert is bits, computed as float32."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from autosched.codegen.lower.instructions import PLACES
from autosched.ir.node import map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferData, BufferLoad
from autosched.tir.expr import Call, FloatImm, PrimExpr, Var
from autosched.tir.functor import replace_buffers, rewrite, statements
from autosched.tir.stmt import Allocate, BufferStore, LetStmt, Stmt

HALVES = ("float16", "bfloat16")
IN_REGISTERS = ("local", "wmma.accumulator", "wgmma.accumulator")
WIDE = "float32"
BITS = "uint16"  # what bfloat16 is stored as


def widen_sums(body: Stmt, buffers: Iterable[Buffer]) -> tuple[Stmt, dict[Buffer, Buffer]]:
    """(the statement with register buffers of halves that are summed up in as float32, the buffers replaced).

    Before:  C_local[i] = C_local[i] + A[i, k] * B[k]                    all float16
    After:   C_local[i] = C_local[i] + float32(A[i, k]) * float32(B[k])
    """
    candidates = {b for b in buffers if b.scope in IN_REGISTERS and b.dtype in HALVES}
    sums = {
        s.buffer
        for s in preorder(body)
        if isinstance(s, BufferStore) and s.buffer in candidates
        for x in preorder(s.value)
        if isinstance(x, BufferLoad) and x.buffer is s.buffer
    }
    wide = {b: dataclasses.replace(b, dtype=WIDE) for b in sums}
    if not wide:
        return body, {}

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in wide:
            return E.Cast(BufferLoad(wide[x.buffer], x.indices), x.dtype)
        if isinstance(x, BufferStore) and x.buffer in wide:
            return BufferStore(wide[x.buffer], widened(x.value, set(wide.values())), x.indices)
        return x

    return rewrite(body, step), wide


def widened(e: PrimExpr, sums: set[Buffer]) -> PrimExpr:
    """An expression of halves in float32, rounded nowhere but in its operands."""
    if e.dtype not in HALVES:
        return E.cast(WIDE, e)
    match e:
        case E.Cast(value=BufferLoad() as load) if load.buffer in sums:
            return load
        case FloatImm():
            return FloatImm(e.value, WIDE)
        case E.BinaryOp():
            return type(e)(widened(e.a, sums), widened(e.b, sums))
        case E.Select():
            return E.Select(e.condition, widened(e.true_value, sums), widened(e.false_value, sums))
        case Call(op="if_then_else"):
            return Call(e.op, (e.args[0], *(widened(a, sums) for a in e.args[1:])), WIDE)
        case Call():
            return Call(e.op, tuple(widened(a, sums) if a.dtype in HALVES else a for a in e.args), WIDE)
    return E.cast(WIDE, e)


def lower_halves(
    body: Stmt, buffers: Iterable[Buffer], dtypes: Iterable[str] = ("bfloat16",)
) -> tuple[Stmt, dict[Buffer, Buffer]]:
    """(the statement without values of the types, buffers of their bits for those of the types).

    dtypes  of bfloat16 and float16 those that the target has no values of

    Before:  B[i] = A[i] * bfloat16(2)
    After:   B[i] = round_to_bits(bits_to_float32(A[i]) * 2)
    """
    types = frozenset(dtypes)
    bits = {b: dataclasses.replace(b, dtype=BITS) for b in dict.fromkeys(buffers) if b.dtype in types}
    inner = {n.buffer for n in statements(body) if isinstance(n, Allocate) and n.buffer.dtype in types}
    bits |= {b: dataclasses.replace(b, dtype=BITS) for b in inner if b not in bits}
    if not bits and not any(isinstance(x, PrimExpr) and x.dtype in types for x in preorder(body)):
        return body, {}
    return _Narrow(types, bits, {}).statement(body), bits


@dataclasses.dataclass(slots=True)
class _Narrow:
    types: frozenset[str]
    bits: Mapping[Buffer, Buffer]
    variables: dict[Var, Var]

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, BufferStore) and stmt.buffer in self.bits:
            value = self.bits_of(stmt.value)
            return BufferStore(self.bits[stmt.buffer], value, tuple(map(self.expression, stmt.indices)))
        if isinstance(stmt, LetStmt) and stmt.var.dtype in self.types:
            self.variables[stmt.var] = Var(stmt.var.name, WIDE)
            return LetStmt(self.variables[stmt.var], self.expression(stmt.value), self.statement(stmt.body))
        return map_children(stmt, self.child)

    def bits_of(self, e: PrimExpr) -> PrimExpr:
        """The bits of a value of one of the types: a copy is one of bits, without a way through float32."""
        match e:
            case BufferLoad() if e.buffer in self.bits:
                return BufferLoad(self.bits[e.buffer], tuple(map(self.expression, e.indices)))
            case Call(op="if_then_else"):
                return Call(e.op, (self.expression(e.args[0]), *map(self.bits_of, e.args[1:])), BITS)
            case FloatImm():
                return E.const(_rounded_bits(e.value, e.dtype), BITS)
            case E.Cast() if e.value.dtype not in self.types:
                return round_to_bits(self.expression(e.value), e.dtype)
        return round_to_bits(self.expression(e), e.dtype)

    def child(self, x: object) -> object:
        if isinstance(x, Buffer):
            return self.bits.get(x, x)
        if isinstance(x, Stmt):
            return self.statement(x)
        return self.expression(x) if isinstance(x, PrimExpr) else x

    def expression(self, e: PrimExpr) -> PrimExpr:
        """The expression; one of the types as float32."""
        of_places = isinstance(e, Call) and e.op in ("prefetch", *PLACES)
        if of_places or isinstance(e, Call) and any(isinstance(x, BufferData) for x in preorder(e)):
            return replace_buffers(e, self.bits)  # an instruction that takes the bits, or their place
        new = map_children(e, self.child)
        match new:
            case Var():
                return self.variables.get(new, new)
            case BufferLoad() if e.dtype in self.types:
                return from_bits(new, e.dtype)
            case FloatImm() if new.dtype in self.types:
                return FloatImm(_rounded(new.value, new.dtype), WIDE)
            case E.Cast() if new.dtype in self.types:
                return from_bits(round_to_bits(new.value, new.dtype), new.dtype)
            case E.Cast():
                return E.cast(new.dtype, new.value)
            case Call() if new.dtype in self.types:
                return Call(new.op, new.args, WIDE)
            case E.Let() if new.var.dtype in self.types:
                var = Var(new.var.name, WIDE)
                return rewrite(E.Let(var, new.value, new.body), lambda x: var if x is new.var else x)
        return new


def from_bits(x: PrimExpr, dtype: str = "bfloat16") -> PrimExpr:
    """The float32 of a bfloat16, whose upper half its 16 bits are, or of the bits of a float16."""
    word = E.cast("uint32", x)
    if dtype == "float16":
        return Call(READ_FLOAT16, (word,), WIDE)
    return Call("reinterpret", (E.bitwise("shift_left", word, E.const(16, "uint32")),), WIDE)


def round_to_bits(x: PrimExpr, dtype: str = "bfloat16") -> PrimExpr:
    """The bits of the 16-bit float next to a number, of two the even one; a NaN stays one.

    A float64 becomes a bfloat16 by way of the nearest float32, as in PyTorch, and a float16 at once, as in NumPy.
    """
    if dtype == "bfloat16":
        return E.cast(BITS, Call(ROUND_BFLOAT16, (E.cast(WIDE, x),), "uint32"))
    wide = Call(ROUND_ODD, (x,), WIDE) if x.dtype == "float64" else E.cast(WIDE, x)
    return E.cast(BITS, Call(ROUND_FLOAT16, (wide,), "uint32"))


ROUND_BFLOAT16 = "round_bfloat16"  # a float32 to the 16 bits of the nearest bfloat16, as a uint32
ROUND_FLOAT16 = "round_float16"  # the same of the nearest float16
READ_FLOAT16 = "read_float16"  # the bits of a float16, in a uint32, as a float32
ROUND_ODD = "round_odd"  # a float64 to float32 such that rounding it on to 16 bits is as rounding once


def _rounded_bits(value: float, dtype: str) -> int:
    import numpy as np

    if dtype == "float16":
        with np.errstate(over="ignore"):
            return int(np.float16(value).view(np.uint16))
    bits = int(np.float32(value).view(np.uint32))
    return 0x7FC0 if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _rounded(value: float, dtype: str) -> float:
    import numpy as np

    if value != value:
        return value
    bits = _rounded_bits(value, dtype)
    return float(np.uint16(bits).view(np.float16) if dtype == "float16" else np.uint32(bits << 16).view(np.float32))
