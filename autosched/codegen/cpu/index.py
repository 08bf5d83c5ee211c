"""Emits integer index arithmetic: constants and multiples are kept apart until an address is needed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from llvmlite import ir

from autosched.codegen.cpu.affine import Affine
from autosched.codegen.cpu.division import signed_division
from autosched.codegen.cpu.types import I1, I32, I64, Isa, call_intrinsic, constant, element_of, lanes_of, splat, suffix
from autosched.errors import CodegenError
from autosched.ir.node import Node, children
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_int
from autosched.tir.expr import PrimExpr, Var, const_int
from autosched.tir.simplify import Analyzer

T = TypeVar("T")
Index: TypeAlias = "Affine | ir.Value"  # a value: an LLVM vector of i64 where lanes do not lie at equal distances


class IndexEmitter:
    """State of the code of one tile, and its index arithmetic.

    lanes  the lanes of the vectorised loop that is being emitted, 1 outside of one
    mask   which of them take part: None is all, a number m the first m, else an LLVM vector of i1
    """

    index_type: ir.Type = I64  # of index arithmetic

    def __init__(self, builder: ir.IRBuilder, isa: Isa, analyzer: Analyzer):
        self.builder = builder
        self.isa = isa
        self.analyzer = analyzer
        self.env: dict[Var, Index] = {}
        self.lanes = 1
        self.mask: ir.Value | int | None = None
        self.scopes: list[dict[Hashable, object]] = [{}]
        self.count = 0
        self.pure: dict[int, tuple[Node, bool]] = {}

    # --- values that are made once ------------------------------------------------------------------------------

    def known(self, key: Hashable) -> Any:
        """A value made before at a place that comes before this one on every path, or None."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        return None

    def remember(self, key: Hashable, value: T) -> T:
        self.scopes[-1][key] = value
        return value

    def in_lanes(self, value: ir.Value, lanes: int) -> ir.Value:
        """A scalar in every lane, made once for each; a vector as it is."""
        if lanes == 1 or isinstance(value, ir.Constant) or lanes_of(value) > 1:
            return splat(self.builder, value, lanes)
        key = ("lanes", id(value), lanes)
        known = self.known(key)
        if known is None:  # the value is kept so that its id stays its own
            known = self.remember(key, (splat(self.builder, value, lanes), value))
        return known[0]

    def atom(self, value: ir.Value) -> Affine:
        """An LLVM integer of the index type as an index value."""
        if isinstance(value, ir.Constant):
            return Affine(int(value.constant))
        self.count += 1
        return Affine.of(value, self.count)

    @contextmanager
    def assigned(self, values: Mapping[Var, Affine]) -> Iterator[None]:
        """The variables with these values, for as long as a block of code runs."""
        old = {v: self.env[v] for v in values if v in self.env}
        self.env.update(values)
        try:
            yield
        finally:
            for v in values:
                del self.env[v]
            self.env.update(old)

    # --- from expressions ---------------------------------------------------------------------------------------

    def index(self, e: PrimExpr) -> Index:
        """The value of an integer expression, wide enough for any address."""
        match e:
            case E.IntImm():
                return Affine(e.value)
            case Var():
                return self.variable(e)
            case E.Add() | E.Sub():
                return self.sum(self.index(e.a), self.index(e.b), -1 if isinstance(e, E.Sub) else 1)
            case E.Mul():
                return self.product(self.index(e.a), self.index(e.b))
            case E.Cast() if is_int(e.value.dtype) and e.value.dtype != "bool":
                return self.index(e.value)
            case E.FloorDiv() | E.FloorMod() | E.Div() | E.Mod():
                return self.division(e)
            case E.Min() | E.Max():
                return self.extremum(e)
            case _:
                return self.from_value(self.value(e), e.dtype)

    def variable(self, var: Var) -> Index:
        value = self.env.get(var)
        if value is None:
            raise CodegenError(f"variable '{var.name}' is used outside the loop that defines it")
        return value if isinstance(value, Affine) else self.from_value(value, var.dtype)

    def from_value(self, value: ir.Value, dtype: str) -> Index:
        wide = self.widen(value, dtype)
        return wide if lanes_of(wide) > 1 else self.atom(wide)

    def widen(self, value: ir.Value, dtype: str) -> ir.Value:
        """An integer value in the type of indices (in each lane)."""
        if isinstance(value, ir.Constant) and lanes_of(value) == 1:
            return self.index_type(int(value.constant))
        return self.resize(value, self.index_type, dtype.startswith("int"))

    def resize(self, value: ir.Value, to: ir.Type, signed: bool = True) -> ir.Value:
        """An integer (in each lane) in another width."""
        width = element_of(value.type).width
        if width == to.width:
            return value
        kind = to if lanes_of(value) == 1 else ir.VectorType(to, lanes_of(value))
        if width > to.width:
            return self.builder.trunc(value, kind)
        return self.builder.sext(value, kind) if signed else self.builder.zext(value, kind)

    def value(self, e: PrimExpr) -> ir.Value:
        raise NotImplementedError

    def is_pure(self, e: Node) -> bool:
        """Whether an integer expression is made of variables and constants alone: then it is exact in 64 bits."""
        found = self.pure.get(id(e))
        if found is None:
            if isinstance(e, Var):
                pure = isinstance(self.env.get(e, Affine()), Affine)
            elif isinstance(e, E.Cast) and not (is_int(e.value.dtype) and e.value.dtype != "bool"):
                pure = False
            else:
                opaque = isinstance(e, BufferLoad | E.Call | E.Let | E.Select)
                pure = not opaque and all(map(self.is_pure, children(e)))
            found = self.pure[id(e)] = (e, pure)  # the expression is kept so that its id stays its own
        return found[1]

    # --- arithmetic ---------------------------------------------------------------------------------------------

    def sum(self, a: Index, b: Index, scale: int = 1) -> Index:
        if isinstance(a, Affine) and isinstance(b, Affine):
            return a.plus(b, scale)
        left, right = self.table(a), self.table(b)
        if left is not None and right is not None:
            return self.from_table([m + scale * n for m, n in zip(left, right, strict=True)])
        found = self.sum_of_parts(a, b, scale)
        if found is not None and isinstance(found[1], Affine):
            return found[0].plus(found[1])
        x, y = self.vector(a), self.vector(b)
        total = self.builder.add(x, y) if scale == 1 else self.builder.sub(x, y)
        if found is not None:
            self.remember(("parts", id(total)), (total, *found))  # the total is kept so that its id stays its own
        return total

    def sum_of_parts(self, a: Index, b: Index, scale: int) -> tuple[Affine, Index] | None:
        """The parts of a + scale * b; None where both have uneven ones that are no constants."""
        (even, rest), (more, other) = self.parts(a), self.parts(b)
        even = even.plus(more, scale)
        left, right = self.table(rest), self.table(other)
        if left is not None and right is not None:
            return even, self.from_table([m + scale * n for m, n in zip(left, right, strict=True)])
        if isinstance(other, Affine):
            return even.plus(other, scale), rest
        return (even.plus(rest), other) if isinstance(rest, Affine) and scale == 1 else None

    def parts(self, a: Index) -> tuple[Affine, Index]:
        """(what lanes differ in by equal steps, by others) of an index value, as far as sums tell them apart."""
        if isinstance(a, Affine):
            return a, Affine()
        known = self.known(("parts", id(a)))
        return (Affine(), a) if known is None else known[1:]

    def product(self, a: Index, b: Index) -> Index:
        if isinstance(a, Affine) and isinstance(b, Affine):
            if a.is_const:
                return b.times(a.const)
            if b.is_const:
                return a.times(b.const)
            if not b.lane and not a.lane:
                return self.spread(a, b)
        left, right = self.table(a), self.table(b)
        if left is not None and right is not None:
            return self.from_table([m * n for m, n in zip(left, right, strict=True)])
        total = self.builder.mul(self.vector(a), self.vector(b))
        if isinstance(b, Affine) and b.is_const:
            even, rest = self.parts(a)
            known = self.table(rest)
            if known is not None:
                scaled = self.from_table([n * b.const for n in known])
                self.remember(("parts", id(total)), (total, even.times(b.const), scaled))
        return total

    def spread(self, a: Affine, b: Affine) -> Affine:
        """a * b, term by term of `a`: places that are a constant number of rows apart share all but that constant."""
        total, factor = b.times(a.const), self.scalar(b)
        for number, coefficient, value in a.terms:
            key = ("product", number, b.key, b.const)
            known = self.known(key)
            if known is None:
                known = self.remember(key, self.atom(self.builder.mul(value, factor)))
            total = total.plus(known, coefficient)
        return total

    def scalar(self, a: Affine) -> ir.Value:
        """The value as an LLVM integer; it must not depend on the lane."""
        assert not a.lane, "a lane's own value is a vector"
        if not a.terms:
            return self.index_type(a.const)
        key = ("sum", a.key, a.const)
        found = self.known(key)
        if found is not None:
            return found
        if a.const:
            return self.remember(key, self.builder.add(self.scalar(Affine(0, a.terms)), self.index_type(a.const)))
        total = None
        for _, c, v in a.terms:
            term = v if c == 1 else self.builder.mul(v, self.index_type(c))
            total = term if total is None else self.builder.add(total, term)
        return self.remember(key, total)

    def vector(self, a: Index) -> ir.Value:
        """The value as an LLVM vector of integers, one per lane."""
        if not isinstance(a, Affine):
            return self.in_lanes(a, self.lanes)
        if self.lanes == 1:
            return self.scalar(a)
        steps = ir.Constant(
            ir.VectorType(self.index_type, self.lanes),
            [self.index_type(a.lane * i + (0 if a.terms else a.const)) for i in range(self.lanes)],
        )
        if not a.terms:
            return steps
        base = self.in_lanes(self.scalar(a.without_lane()), self.lanes)
        return self.builder.add(base, steps) if a.lane else base

    def table(self, a: Index) -> list[int] | None:
        """The value in each lane where all are constants."""
        if isinstance(a, Affine) and not a.terms:
            return [a.const + a.lane * i for i in range(self.lanes)]
        if isinstance(a, ir.Constant):
            return [int(number.constant) for number in a.constant]
        return None

    def from_table(self, numbers: list[int]) -> Index:
        steps = {y - x for x, y in zip(numbers, numbers[1:], strict=False)}
        if len(steps) <= 1:
            return Affine(numbers[0], (), steps.pop() if steps else 0)
        return ir.Constant(ir.VectorType(self.index_type, len(numbers)), [self.index_type(n) for n in numbers])

    def division(self, e: E.BinaryOp) -> Index:
        a, b = self.index(e.a), self.index(e.b)
        floor = isinstance(e, E.FloorDiv | E.FloorMod)
        modulo = isinstance(e, E.FloorMod | E.Mod)
        divisor = b.const if isinstance(b, Affine) and b.is_const else None
        numbers = self.table(a)
        if divisor and numbers is not None and (floor or min(numbers) >= 0 < divisor):
            return self.from_table([n % divisor if modulo else n // divisor for n in numbers])
        if divisor and divisor > 0 and isinstance(a, Affine):
            low = self.analyzer.bound(e.a)[0]
            if low is not None and low >= 0:
                return self.unsigned_division(a, divisor, modulo)
        x, y = self.vector(a), self.vector(b)
        return self.rewrap(signed_division(self.builder, x, y, floor, modulo))

    def rewrap(self, value: ir.Value) -> Index:
        return value if lanes_of(value) > 1 else self.atom(value)

    def unsigned_division(self, a: Affine, divisor: int, modulo: bool) -> Index:
        x = self.vector(a) if a.lane else self.scalar(a)
        d = constant(x.type, divisor)
        if divisor & (divisor - 1) == 0:
            if modulo:
                return self.rewrap(self.builder.and_(x, constant(x.type, divisor - 1)))
            return self.rewrap(self.builder.lshr(x, constant(x.type, divisor.bit_length() - 1)))
        return self.rewrap(self.builder.urem(x, d) if modulo else self.builder.udiv(x, d))

    def extremum(self, e: E.Min | E.Max) -> Index:
        a, b = self.index(e.a), self.index(e.b)
        left, right = self.table(a), self.table(b)
        pick = min if isinstance(e, E.Min) else max
        if left is not None and right is not None:
            return self.from_table([pick(x, y) for x, y in zip(left, right, strict=True)])
        wide = not (isinstance(a, Affine) and isinstance(b, Affine) and not a.lane and not b.lane)
        x, y = (self.vector(a), self.vector(b)) if wide else (self.scalar(a), self.scalar(b))
        name = f"llvm.{'smin' if isinstance(e, E.Min) else 'smax'}.{suffix(x.type)}"
        return self.rewrap(call_intrinsic(self.builder, name, x.type, [x, y]))

    # --- masks --------------------------------------------------------------------------------------------------

    def compare_index(self, kind: type[E.CmpOp], a: Index, b: Index) -> ir.Value:
        """An i1 (constant where it can be) or one per lane."""
        difference = self.sum(a, b, -1)
        op = {E.LT: "<", E.LE: "<=", E.GT: ">", E.GE: ">=", E.EQ: "==", E.NE: "!="}[kind]
        numbers = self.table(difference)
        if numbers is not None:
            truths = [_holds(op, n) for n in numbers]
            if len(set(truths)) == 1:
                return I1(int(truths[0]))
            return ir.Constant(ir.VectorType(I1, len(truths)), [I1(int(t)) for t in truths])
        if isinstance(difference, Affine):
            if not difference.lane:
                key = ("compare", op, difference.key, difference.const)
                known = self.known(key)
                if known is None:
                    zero = self.index_type(0)
                    known = self.remember(key, self.builder.icmp_signed(op, self.scalar(difference), zero))
                return known
            if abs(difference.lane) == 1 and op not in ("==", "!="):
                return self.lane_limit(op, difference)
        x = self.vector(difference)
        return self.builder.icmp_signed(op, x, constant(x.type, 0))

    def lane_limit(self, op: str, d: Affine) -> ir.Value:
        """`d op 0` for d = base ± lane, as a comparison of the lane's number with a clamped scalar."""
        base = d.without_lane() if d.lane == 1 else d.without_lane().times(-1)
        op = op if d.lane == 1 else {"<": ">", "<=": ">=", ">": "<", ">=": "<="}[op]
        limit = self.scalar(base.times(-1))  # lane op limit
        name = "llvm.{}.i64"
        limit = call_intrinsic(self.builder, name.format("smax"), I64, [limit, I64(-1)])
        limit = call_intrinsic(self.builder, name.format("smin"), I64, [limit, I64(self.lanes)])
        narrow = splat(self.builder, self.builder.trunc(limit, I32), self.lanes)
        return self.builder.icmp_signed(op, self.iota(I32), narrow)

    def iota(self, element: ir.Type) -> ir.Value:
        return ir.Constant(ir.VectorType(element, self.lanes), [element(i) for i in range(self.lanes)])

    def mask_vector(self) -> ir.Value | None:
        """The mask as a vector of i1, or None."""
        if isinstance(self.mask, int):
            return ir.Constant(ir.VectorType(I1, self.lanes), [I1(int(i < self.mask)) for i in range(self.lanes)])
        return self.mask

    def with_mask(self, condition: ir.Value) -> ir.Value | int:
        """The mask that holds where the present one and a vector condition hold."""
        if isinstance(condition, ir.Constant):
            bits = [bool(c.constant) for c in condition.constant]
            length = bits.index(False) if False in bits else len(bits)
            if not any(bits[length:]) and length and (self.mask is None or isinstance(self.mask, int)):
                return length if self.mask is None else min(length, self.mask)
        present = self.mask_vector()
        return condition if present is None else self.builder.and_(present, condition)


def _holds(op: str, n: int) -> bool:
    return {"<": n < 0, "<=": n <= 0, ">": n > 0, ">=": n >= 0, "==": n == 0, "!=": n != 0}[op]


def strides_of(buffer: Buffer) -> list[int]:
    """Distances in elements between neighbours of each dimension. Raises CodegenError for symbolic shapes."""
    found = [const_int(stride) for stride in stride_extents(buffer)]
    if any(s is None for s in found):
        raise CodegenError(f"buffer '{buffer.name}' has a symbolic shape", hint="give all dimensions as numbers")
    return [s for s in found if s is not None]


def stride_extents(buffer: Buffer) -> list[PrimExpr]:
    """The same, as expressions of the symbols in the shape."""
    if buffer.strides:
        return list(buffer.strides)
    found: list[PrimExpr] = []
    step: PrimExpr = E.const(1, "int64")
    for size in reversed(buffer.shape):
        found.insert(0, step)
        step = E.mul(step, E.cast("int64", size))
    return found
