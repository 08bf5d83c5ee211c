"""Scalar expressions of the loop level.

Operators build expressions (`a == b` as well: it is a node, not a truth); nodes compare by identity. Integer
constants fold as they are built, so `x * 1 + 0` is `x`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Union

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir import printing
from autosched.ir.node import DEFINES, IGNORED, Node, Span
from autosched.tir.dtypes import DTYPES, INT_RANGES, check_dtype, fits, is_float, is_int, wrapped


class HasExpr(Protocol):
    """What stands for one expression, such as an element of a tensor, and gives it when asked."""

    def as_expr(self) -> PrimExpr: ...


ExprLike = Union["PrimExpr", "StandsForVar", HasExpr, int, float]  # what operators of expressions accept


class PrimExpr(Node):
    """Base of all scalar expressions; `dtype` is a string such as "float32", "int64", "bool" or "handle"."""

    __slots__ = ("form",)
    is_scalar: ClassVar[bool] = True
    dtype: str
    form: object  # the key that `form_key` has found

    def __add__(self, other: ExprLike) -> PrimExpr:
        return add(self, other)

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return add(other, self)

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return sub(self, other)

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return sub(other, self)

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return mul(self, other)

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return mul(other, self)

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        return div(self, other)

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return div(other, self)

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return floordiv(self, other)

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return floordiv(other, self)

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return floormod(self, other)

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return floormod(other, self)

    def __and__(self, other: ExprLike) -> PrimExpr:
        return bitwise("bitwise_and", self, other)

    def __rand__(self, other: ExprLike) -> PrimExpr:
        return bitwise("bitwise_and", other, self)

    def __or__(self, other: ExprLike) -> PrimExpr:
        return bitwise("bitwise_or", self, other)

    def __ror__(self, other: ExprLike) -> PrimExpr:
        return bitwise("bitwise_or", other, self)

    def __xor__(self, other: ExprLike) -> PrimExpr:
        return bitwise("bitwise_xor", self, other)

    def __rxor__(self, other: ExprLike) -> PrimExpr:
        return bitwise("bitwise_xor", other, self)

    def __lshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("shift_left", self, other)

    def __rlshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("shift_left", other, self)

    def __rshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("shift_right", self, other)

    def __rrshift__(self, other: ExprLike) -> PrimExpr:
        return bitwise("shift_right", other, self)

    def __invert__(self) -> PrimExpr:
        return logical_not(self) if self.dtype == "bool" else call("bitwise_not", self)

    def __neg__(self) -> PrimExpr:
        return sub(const(0, self.dtype), self) if is_int(self.dtype) else mul(self, const(-1.0, self.dtype))

    def __lt__(self, other: ExprLike) -> PrimExpr:
        return compare(LT, self, other)

    def __le__(self, other: ExprLike) -> PrimExpr:
        return compare(LE, self, other)

    def __gt__(self, other: ExprLike) -> PrimExpr:
        return compare(GT, self, other)

    def __ge__(self, other: ExprLike) -> PrimExpr:
        return compare(GE, self, other)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, PrimExpr | int | float | bool):
            return False
        return compare(EQ, self, other)

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, PrimExpr | int | float | bool):
            return True
        return compare(NE, self, other)

    __hash__ = object.__hash__  # by identity

    def __bool__(self) -> bool:
        raise InvalidTypeError(
            "the truth of an expression is not known before it runs",
            hint="use tir.all, tir.any or tir.if_then_else instead of and, or and if",
        )

    def __str__(self) -> str:
        return printing.text(self)

    __repr__ = __str__

    def astype(self, dtype: str) -> PrimExpr:
        """The value converted to `dtype`."""
        return cast(dtype, self)

    def equal(self, other: ExprLike) -> PrimExpr:
        """An expression that is true where both are equal."""
        return compare(EQ, self, other)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(PrimExpr):
    """A variable; two variables of one name are different."""

    is_variable: ClassVar[bool] = True
    name: str
    dtype: str = "int32"
    span: Span | None = field(default=None, metadata=IGNORED)

    @property
    def name_hint(self) -> str:
        """TVM's older spelling of `name`."""
        return self.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SizeVar(Var):
    """A variable that is never negative (a symbolic extent)."""


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class IntImm(PrimExpr):
    """An integer (or, with dtype "bool", a truth) constant."""

    value: int
    dtype: str = "int32"

    def __init__(self, value: int, dtype: str = "int32"):
        _set_value(self, value)
        _set_dtype(self, dtype)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FloatImm(PrimExpr):
    """A floating-point constant."""

    value: float
    dtype: str = "float32"

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StringImm(PrimExpr):
    """A string argument of a call."""

    value: str
    dtype: str = "handle"


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class BinaryOp(PrimExpr):
    """Base of two-operand expressions; both operands have one dtype."""

    a: PrimExpr
    b: PrimExpr

    def __init__(self, a: PrimExpr, b: PrimExpr):
        _set_a(self, a)
        _set_b(self, b)

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.a.dtype


# Most nodes by far are of these two types: written so, they are made in two thirds of the time of `object.__setattr__`.
_set_value, _set_dtype = (vars(IntImm)[name].__set__ for name in ("value", "dtype"))
_set_a, _set_b = (vars(BinaryOp)[name].__set__ for name in ("a", "b"))


class Add(BinaryOp):
    __slots__ = ()


class Sub(BinaryOp):
    __slots__ = ()


class Mul(BinaryOp):
    __slots__ = ()


class Div(BinaryOp):
    """Division of floats; of integers rounding to zero (`truncdiv`)."""

    __slots__ = ()


class Mod(BinaryOp):
    """The remainder of a division that rounds to zero (`truncmod`)."""

    __slots__ = ()


class FloorDiv(BinaryOp):
    __slots__ = ()


class FloorMod(BinaryOp):
    __slots__ = ()


class Min(BinaryOp):
    __slots__ = ()


class Max(BinaryOp):
    __slots__ = ()


class CmpOp(BinaryOp):
    """Base of comparisons; the result is "bool"."""

    __slots__ = ()

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "bool"


class EQ(CmpOp):
    __slots__ = ()

    def __bool__(self) -> bool:
        return _same(self.a, self.b)


class NE(CmpOp):
    __slots__ = ()

    def __bool__(self) -> bool:
        return not _same(self.a, self.b)


class LT(CmpOp):
    __slots__ = ()


class LE(CmpOp):
    __slots__ = ()


class GT(CmpOp):
    __slots__ = ()


class GE(CmpOp):
    __slots__ = ()


class And(CmpOp):
    __slots__ = ()


class Or(CmpOp):
    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(PrimExpr):
    a: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "bool"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(PrimExpr):
    """`true_value` where `condition`, else `false_value`; both may be evaluated. (`if_then_else` is a Call.)"""

    condition: PrimExpr
    true_value: PrimExpr
    false_value: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.true_value.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(PrimExpr):
    value: PrimExpr
    dtype: str = "int32"


class OpName(str):
    """What a call calls: a text, with TVM's `name` ("tir.exp")."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The operator's full name in TVM."""
        return f"tir.{self}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(PrimExpr):
    """A pure intrinsic ("exp", "tanh", "if_then_else", …) or an external function; `op` is its name."""

    op: str
    args: tuple[PrimExpr, ...]
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if type(self.op) is not OpName:
            object.__setattr__(self, "op", OpName(self.op))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(PrimExpr):
    var: Var = field(metadata=DEFINES)
    value: PrimExpr
    body: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.body.dtype


# --- making expressions ------------------------------------------------------------------------------------------


class StandsForVar(Node):
    """What may stand in an expression in place of its variable `var`, such as an axis: `i + 1`."""

    __slots__ = ()
    var: Var

    def __add__(self, o: ExprLike) -> PrimExpr:
        return self.var + plain(o)

    def __radd__(self, o: ExprLike) -> PrimExpr:
        return plain(o) + self.var

    def __sub__(self, o: ExprLike) -> PrimExpr:
        return self.var - plain(o)

    def __rsub__(self, o: ExprLike) -> PrimExpr:
        return plain(o) - self.var

    def __mul__(self, o: ExprLike) -> PrimExpr:
        return self.var * plain(o)

    def __rmul__(self, o: ExprLike) -> PrimExpr:
        return plain(o) * self.var

    def __floordiv__(self, o: ExprLike) -> PrimExpr:
        return self.var // plain(o)

    def __mod__(self, o: ExprLike) -> PrimExpr:
        return self.var % plain(o)

    def __lt__(self, o: ExprLike) -> PrimExpr:
        return self.var < plain(o)

    def __ge__(self, o: ExprLike) -> PrimExpr:
        return self.var >= plain(o)


def plain(x: ExprLike) -> ExprLike:
    """The variable that `x` stands for, or `x` itself."""
    return x.var if isinstance(x, StandsForVar) else x


def const(value: float | int | bool, dtype: str | None = None) -> PrimExpr:
    """A constant; without `dtype`: bool, int32 or float32 after the Python type, int64 where int32 is too small.

    Raises InvalidValueError for an integer that the type has not, InvalidTypeError for what is no number.
    """
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else _int_dtype(value) if isinstance(value, int) else "float32"
    try:
        if dtype == "bool":
            return IntImm(int(bool(value)), dtype)
        number: float = int(value) if is_int(dtype) else float(value)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"const: expected a number, got {value!r} of type {type(value).__name__}") from None
    if is_int(dtype):
        return int_imm(int(number), dtype)
    if is_float(dtype):
        return FloatImm(number, dtype)
    raise InvalidValueError(f"no constants of dtype '{dtype}'")


def int_imm(value: int, dtype: str) -> IntImm:
    """An integer constant. Raises InvalidValueError where the type has no such value."""
    low, high = INT_RANGES.get(dtype, (value, value))
    if not low <= value <= high:
        what = f"is less than the smallest {dtype}, {low}" if value < low else f"exceeds the largest {dtype}, {high}"
        raise InvalidValueError(f"IntImm: the value {value} {what}")
    return IntImm(value, dtype)


def _int_dtype(value: int) -> str:
    """The type of an integer that none is given for."""
    return next((d for d in ("int32", "int64") if fits(value, d)), "uint64")


def to_expr(x: object, dtype: str | None = None) -> PrimExpr:
    """A number, axis or expression as an expression; numbers take `dtype`."""
    if isinstance(x, PrimExpr):
        return x
    if isinstance(x, StandsForVar):
        return x.var
    if hasattr(x, "item") and not isinstance(x, bool | int | float):
        x = x.item()
    if isinstance(x, bool | int | float):
        return const(x, dtype)
    if hasattr(x, "as_expr"):
        return x.as_expr()  # type: ignore[no-any-return]
    raise InvalidTypeError(f"expected an expression or a number, got {type(x).__name__}")


def as_int(x: object) -> int:
    """The value of an integer constant. Raises InvalidValueError for anything else."""
    if isinstance(x, int):
        return x
    if isinstance(x, IntImm):
        return x.value
    raise InvalidValueError(f"expected a constant integer, got {x}")


def const_int(x: object) -> int | None:
    """The value of an integer constant, or None."""
    return x if isinstance(x, int) else x.value if isinstance(x, IntImm) else None


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two expressions are the same arithmetic over the same nodes; each pair is compared once."""
    pairs, seen = [(a, b)], set()
    while pairs:
        x, y = pairs.pop()
        if x is y or (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        if isinstance(x, IntImm | FloatImm) and isinstance(y, IntImm | FloatImm):
            if x.value != y.value:
                return False
        elif type(x) is type(y) and isinstance(x, BinaryOp) and isinstance(y, BinaryOp):
            pairs += [(x.a, y.a), (x.b, y.b)]
        else:
            return False
    return True


_RANK = {"bool": 0, "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "uint32": 5, "int64": 6, "uint64": 7}


def _common(a: str, b: str) -> str:
    if a == b:
        return a
    if is_float(a) or is_float(b):
        if is_float(a) and is_float(b):
            return max(a, b, key=lambda d: int(d.lstrip("bfloat")))
        return a if is_float(a) else b
    if a not in _RANK or b not in _RANK:
        raise InvalidTypeError(f"no arithmetic between {a} and {b}")
    return max(a, b, key=lambda d: _RANK[d])


def match_types(a: ExprLike, b: ExprLike) -> tuple[PrimExpr, PrimExpr]:
    """Both as expressions of one dtype: numbers follow the expression, int32 grows to int64, ints become floats."""
    if isinstance(a, PrimExpr):
        if isinstance(b, PrimExpr) and a.dtype == b.dtype:
            return a, b
        if type(b) is int and (dtype := a.dtype) != "bool" and dtype in INT_RANGES and fits(b, dtype):
            return a, IntImm(b, dtype)
    a, b = plain(a), plain(b)
    if isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
        b = to_expr(b, _number_dtype(a, b))
    elif isinstance(b, PrimExpr) and not isinstance(a, PrimExpr):
        a = to_expr(a, _number_dtype(b, a))
    left, right = to_expr(a), to_expr(b)
    if left.dtype == right.dtype:
        return left, right
    dtype = _common(left.dtype, right.dtype)
    return cast(dtype, left), cast(dtype, right)


def _number_dtype(expr: PrimExpr, number: object) -> str | None:
    if isinstance(number, float) and is_int(expr.dtype):
        return "float32"
    if isinstance(number, int) and expr.dtype == "bool" and not isinstance(number, bool):
        return "int32"
    if isinstance(number, int) and expr.dtype in INT_RANGES and not fits(number, expr.dtype):
        return _int_dtype(number)
    return expr.dtype


def _fold(kind: type[BinaryOp], f: Callable[[float, float], float], a: ExprLike, b: ExprLike) -> PrimExpr:
    x, y = match_types(a, b)
    if isinstance(x, IntImm):
        if isinstance(y, IntImm):
            return IntImm(wrapped(int(f(x.value, y.value)), x.dtype), x.dtype)
    elif isinstance(x, FloatImm) and isinstance(y, FloatImm):
        return FloatImm(float(f(x.value, y.value)), x.dtype)
    return kind(x, y)


def add(a: ExprLike, b: ExprLike) -> PrimExpr:
    e = _fold(Add, operator.add, a, b)
    if isinstance(e, Add) and is_int(e.dtype):
        if const_int(e.b) == 0:
            return e.a
        if const_int(e.a) == 0:
            return e.b
    return e


def sub(a: ExprLike, b: ExprLike) -> PrimExpr:
    e = _fold(Sub, operator.sub, a, b)
    return e.a if isinstance(e, Sub) and is_int(e.dtype) and const_int(e.b) == 0 else e


def mul(a: ExprLike, b: ExprLike) -> PrimExpr:
    e = _fold(Mul, operator.mul, a, b)
    if isinstance(e, Mul) and is_int(e.dtype):
        for x, y in ((e.a, e.b), (e.b, e.a)):
            value = const_int(x)
            if value == 1:
                return y
            if value == 0:
                return x
    return e


def div(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a / b: true division of floats; integers divide rounding to zero."""
    x, y = match_types(a, b)
    if is_int(x.dtype):
        return truncdiv(x, y)
    if isinstance(y, FloatImm) and y.value == 0.0:
        return Div(x, y)
    return _fold(Div, operator.truediv, x, y)


def _check_divisor(b: ExprLike, action: str = "truncdiv") -> None:
    if const_int(plain(b)) == 0:
        raise InvalidValueError(f"{action}: division by the constant zero")


def floordiv(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a // b, rounding down."""
    _check_divisor(b, "floordiv")
    e = _fold(FloorDiv, operator.floordiv, a, b)
    return e.a if isinstance(e, FloorDiv) and const_int(e.b) == 1 else e


def floormod(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a % b, with the sign of b."""
    _check_divisor(b, "floormod")
    e = _fold(FloorMod, operator.mod, a, b)
    return const(0, e.dtype) if isinstance(e, FloorMod) and const_int(e.b) == 1 else e


def truncdiv(a: ExprLike, b: ExprLike) -> PrimExpr:
    """a / b, rounding to zero."""
    _check_divisor(b)
    return _fold(Div, lambda x, y: int(x / y) if abs(x) < 2**52 else abs(x) // abs(y) * (1 if x * y > 0 else -1), a, b)


def truncmod(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The remainder of truncdiv, with the sign of a."""
    _check_divisor(b)
    return _fold(Mod, lambda x, y: abs(x) % abs(y) * (1 if x > 0 else -1), a, b)


indexdiv, indexmod = floordiv, floormod


_BITS: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor,
    "shift_left": operator.lshift, "shift_right": operator.rshift,
}  # fmt: skip


def bitwise(op: str, a: ExprLike, b: ExprLike) -> PrimExpr:
    """Bits of integers combined: "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right".

    Of truths, and, or and exclusive or. Raises InvalidTypeError for floats.
    """
    x, y = match_types(a, b)
    if not is_int(x.dtype):
        raise InvalidTypeError(f"{op} takes integers, not {x.dtype}")
    if x.dtype == "bool":
        choices = {"bitwise_and": logical_and, "bitwise_or": logical_or}
        return choices[op](x, y) if op in choices else compare(NE, x, y)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return IntImm(wrapped(_BITS[op](x.value, y.value), x.dtype), x.dtype)
    return Call(op, (x, y), x.dtype)


def minimum(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The smaller of two scalars (`tir.min`, `te.min` reduces)."""
    return _fold(Min, min, a, b)


def maximum(a: ExprLike, b: ExprLike) -> PrimExpr:
    return _fold(Max, max, a, b)


_COMPARE: dict[type[CmpOp], Callable[[float, float], bool]] = {
    EQ: operator.eq, NE: operator.ne, LT: operator.lt, LE: operator.le, GT: operator.gt, GE: operator.ge,
}  # fmt: skip


def compare(kind: type[CmpOp], a: ExprLike, b: ExprLike) -> PrimExpr:
    """A comparison; constants fold to a bool constant."""
    x, y = match_types(a, b)
    if isinstance(x, (IntImm, FloatImm)) and isinstance(y, (IntImm, FloatImm)):
        return IntImm(int(_COMPARE[kind](x.value, y.value)), "bool")
    return kind(x, y)


def logical_and(a: ExprLike, b: ExprLike) -> PrimExpr:
    x, y = to_expr(a, "bool"), to_expr(b, "bool")
    for p, q in ((x, y), (y, x)):
        if isinstance(p, IntImm):
            return q if p.value else p
    return And(x, y)


def logical_or(a: ExprLike, b: ExprLike) -> PrimExpr:
    x, y = to_expr(a, "bool"), to_expr(b, "bool")
    for p, q in ((x, y), (y, x)):
        if isinstance(p, IntImm):
            return p if p.value else q
    return Or(x, y)


def logical_not(a: ExprLike) -> PrimExpr:
    x = to_expr(a, "bool")
    return IntImm(int(not x.value), "bool") if isinstance(x, IntImm) else Not(x)


def all_of(*conditions: ExprLike) -> PrimExpr:
    """True where all conditions are (`te.all`)."""
    result: PrimExpr = IntImm(1, "bool")
    for c in conditions:
        result = logical_and(result, c)
    return result


def any_of(*conditions: ExprLike) -> PrimExpr:
    """True where one condition is (`te.any`)."""
    result: PrimExpr = IntImm(0, "bool")
    for c in conditions:
        result = logical_or(result, c)
    return result


def cast(dtype: str, value: ExprLike) -> PrimExpr:
    """`value` as `dtype`; constants fold."""
    x = to_expr(value)
    if x.dtype == dtype:
        return x
    if dtype not in DTYPES:
        dtype = check_dtype(dtype, "cast", "handle")
    if isinstance(x, IntImm) and (is_int(dtype) or is_float(dtype)):
        return const(wrapped(x.value, dtype) if is_int(dtype) else x.value, dtype)
    if isinstance(x, FloatImm) and is_float(dtype):
        return FloatImm(x.value, dtype)
    return Cast(x, dtype)


def select(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """A choice of which both sides may be evaluated."""
    t, f = match_types(true_value, false_value)
    c = to_expr(condition, "bool")
    return (t if c.value else f) if isinstance(c, IntImm) else Select(c, t, f)


def if_then_else(condition: ExprLike, true_value: ExprLike, false_value: ExprLike) -> PrimExpr:
    """A choice of which only the taken side is evaluated (so it may guard a load out of bounds)."""
    t, f = match_types(true_value, false_value)
    c = to_expr(condition, "bool")
    return (t if c.value else f) if isinstance(c, IntImm) else Call("if_then_else", (c, t, f), t.dtype)


def call(op: str, *args: ExprLike, dtype: str | None = None) -> PrimExpr:
    """An intrinsic of the first argument's dtype (or `dtype`)."""
    exprs = tuple(to_expr(a) for a in args)
    return Call(op, exprs, dtype or exprs[0].dtype)
