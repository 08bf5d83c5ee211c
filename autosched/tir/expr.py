"""Scalar expressions of the loop level.

Operators build expressions (`a == b` as well: it is a node, not a truth); nodes compare by identity. Integer
constants fold as they are built, so `x * 1 + 0` is `x`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Union
from weakref import WeakKeyDictionary

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir import printing
from autosched.ir.node import DEFINES, IGNORED, Node, Span

ExprLike = Union["PrimExpr", int, float, bool]


class PrimExpr(Node):
    """Base of all scalar expressions; `dtype` is a string such as "float32", "int64", "bool" or "handle"."""

    __slots__ = ()
    dtype: str

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

    def __hash__(self) -> int:
        return id(self)

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IntImm(PrimExpr):
    """An integer (or, with dtype "bool", a truth) constant."""

    value: int
    dtype: str = "int32"

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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BinaryOp(PrimExpr):
    """Base of two-operand expressions; both operands have one dtype."""

    a: PrimExpr
    b: PrimExpr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.a.dtype


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


class Scope(str):
    """A memory scope's name; TVM reads it as `buffer.scope()`."""

    __slots__ = ()

    def __call__(self) -> str:
        return str(self)


_DATA: WeakKeyDictionary[Buffer, BufferData] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Buffer(Node):
    """A typed, shaped piece of memory. `scope`: "global", or "local" for what lives in registers.

    Identity matters: two buffers of one name are different. `strides` is empty for row-major.
    """

    is_variable: ClassVar[bool] = True
    name: str
    shape: tuple[PrimExpr, ...]
    dtype: str = "float32"
    strides: tuple[PrimExpr, ...] = ()
    elem_offset: PrimExpr | None = None
    scope: str = "global"
    data_alignment: int = 64
    offset_factor: int = 1
    axis_separators: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if type(self.scope) is not Scope:
            object.__setattr__(self, "scope", Scope(self.scope))

    def __getitem__(self, indices: Any) -> Any:
        return load(self, indices)

    def __iter__(self) -> Any:  # without it, Python would index for ever
        raise InvalidTypeError(f"buffer '{self.name}' cannot be iterated", hint="index it")

    @property
    def data(self) -> BufferData:
        """The buffer's memory as an argument of calls; always the same object."""
        if self not in _DATA:
            _DATA[self] = BufferData(self)
        return _DATA[self]

    def vload(self, begin: Any, dtype: str | None = None) -> BufferLoad:
        """The element at `begin`. Raises InvalidValueError for a vector's dtype: vectorize the loop instead."""
        if dtype is not None and dtype != self.dtype:
            raise InvalidValueError(
                f"vload of '{self.name}' as {dtype}: the buffer holds {self.dtype}", hint="vectorize the loop instead"
            )
        return load(self, tuple(begin) if isinstance(begin, list) else begin)

    def vstore(self, begin: Any, value: Any) -> Any:
        """A statement that stores `value` at `begin`."""
        from autosched.tir.stmt import BufferStore

        at = load(self, tuple(begin) if isinstance(begin, list) else begin).indices
        return BufferStore(self, cast(self.dtype, to_expr(value, self.dtype)), at)

    def access_ptr(
        self, access_mask: Any, ptr_type: str = "handle", content_lanes: int = 1, offset: Any = 0, extent: Any = None
    ) -> PrimExpr:
        """A pointer to the buffer's memory for a call of outside code; access_mask "r", "w" or "rw"."""
        del ptr_type, content_lanes
        mask = access_mask if isinstance(access_mask, int) else sum({"r": 1, "w": 2}[c] for c in access_mask)
        size: PrimExpr = IntImm(1)
        for n in self.shape:
            size = mul(size, n)
        rest = sub(size, offset) if extent is None else to_expr(extent)
        return Call("tvm_access_ptr", (StringImm(self.dtype), self.data, to_expr(offset), rest, IntImm(mask)), "handle")

    def get_flattened_buffer(self) -> Buffer:
        """A buffer of the same memory with one dimension."""
        size: PrimExpr = IntImm(1)
        for n in self.shape:
            size = mul(size, n)
        return Buffer(self.name, (size,), self.dtype, (), self.elem_offset, self.scope)

    def __str__(self) -> str:
        return self.name

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def const_shape(self) -> tuple[int, ...]:
        """The shape as integers. Raises InvalidValueError where a dimension is symbolic."""
        return tuple(as_int(s) for s in self.shape)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferData(PrimExpr):
    """The memory of a buffer, as `A.data` in a call."""

    buffer: Buffer
    dtype: str = "handle"

    @property
    def name(self) -> str:
        return self.buffer.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferLoad(PrimExpr):
    buffer: Buffer
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProducerLoad(PrimExpr):
    """An element of a tensor expression (te.Tensor), before it has a buffer."""

    producer: Any = field(metadata=IGNORED)
    indices: tuple[PrimExpr, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return str(self.producer.dtype)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Range(Node):
    """[min, min + extent)."""

    min: PrimExpr
    extent: PrimExpr

    def __repr__(self) -> str:
        return f"range(min={_shown(self.min)}, ext={_shown(self.extent)})"

    @staticmethod
    def from_min_extent(start: ExprLike, extent: ExprLike) -> Range:
        return Range(to_expr(start), to_expr(extent))


def _shown(x: PrimExpr) -> str:
    return str(x.value) if isinstance(x, IntImm) else str(x)


SPATIAL, REDUCE, SCAN, OPAQUE = "S", "R", "scan", "opaque"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(Node):
    """A block's (or te axis's) iteration variable: its domain and kind, SPATIAL ("S") or REDUCE ("R")."""

    dom: Range
    var: Var = field(metadata=DEFINES)
    kind: str = SPATIAL
    thread_tag: str = ""

    def __str__(self) -> str:
        return self.var.name

    def __repr__(self) -> str:
        return f"iter_var({self.var.name}, {self.dom!r})"

    @property
    def name(self) -> str:
        return self.var.name

    @property
    def iter_type(self) -> str:
        """TVM's name of `kind`; `IterVar.DataPar`, `IterVar.CommReduce` … are its values."""
        return self.kind

    @property
    def dtype(self) -> str:
        return self.var.dtype

    # an axis may stand in an expression wherever its variable may
    def __add__(self, o: Any) -> PrimExpr:
        return self.var + _unwrap(o)

    def __radd__(self, o: Any) -> PrimExpr:
        return _unwrap(o) + self.var

    def __sub__(self, o: Any) -> PrimExpr:
        return self.var - _unwrap(o)

    def __rsub__(self, o: Any) -> PrimExpr:
        return _unwrap(o) - self.var

    def __mul__(self, o: Any) -> PrimExpr:
        return self.var * _unwrap(o)

    def __rmul__(self, o: Any) -> PrimExpr:
        return _unwrap(o) * self.var

    def __floordiv__(self, o: Any) -> PrimExpr:
        return self.var // _unwrap(o)

    def __mod__(self, o: Any) -> PrimExpr:
        return self.var % _unwrap(o)

    def __lt__(self, o: Any) -> PrimExpr:
        return self.var < _unwrap(o)

    def __ge__(self, o: Any) -> PrimExpr:
        return self.var >= _unwrap(o)


@dataclass(frozen=True, slots=True, eq=False)
class CommReducer(Node):
    """A commutative, associative combination: `result[i]` in terms of `lhs` and `rhs`, and its identity."""

    lhs: tuple[Var, ...] = field(metadata=DEFINES)
    rhs: tuple[Var, ...] = field(metadata=DEFINES)
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(PrimExpr):
    """A reduction of te: combine `source[value_index]` over `axis` where `condition`, from `init` or the identity."""

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr
    value_index: int = 0
    init: tuple[PrimExpr, ...] = ()

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.source[self.value_index].dtype


# IterVar kinds under TVM's names: `iv.iter_type == tir.IterVar.DataPar`
for _name, _kind in (
    ("DataPar", SPATIAL),
    ("CommReduce", REDUCE),
    ("Ordered", SCAN),
    ("Opaque", OPAQUE),
    ("ThreadIndex", "thread"),
    ("DimInfo", "dim"),
    ("Unrolled", "unrolled"),
    ("Vectorized", "vectorized"),
    ("Parallelized", "parallelized"),
    ("Tensorized", "tensorized"),
):
    setattr(IterVar, _name, _kind)  # fmt: skip


# --- making expressions ------------------------------------------------------------------------------------------


def is_int(dtype: str) -> bool:
    """Whether `dtype` is a signed or unsigned integer or bool."""
    return dtype.startswith(("int", "uint", "bool"))


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


DTYPES = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16",
))  # fmt: skip


def check_dtype(dtype: Any, what: str, *also: str) -> str:
    """The name of a dtype. Raises InvalidTypeError for what is no name, InvalidValueError for an unknown one."""
    if not isinstance(dtype, str):
        name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None)  # np.float32, np.dtype
        if not isinstance(name, str) or name not in DTYPES:
            raise InvalidTypeError(f"{what}: a dtype is a string such as 'float32', got {dtype!r}")
        return name
    if dtype in DTYPES or dtype in also:
        return str(dtype)
    if dtype in ("int", "float"):
        return f"{dtype}32"
    raise InvalidValueError(f"{what}: unknown dtype '{dtype}'", hint=f"one of {', '.join(sorted(DTYPES))}")


def _unwrap(x: Any) -> ExprLike:
    if isinstance(x, IterVar):
        return x.var
    plain: ExprLike = x
    return plain


def const(value: float | int | bool, dtype: str | None = None) -> PrimExpr:
    """A constant; without `dtype`: bool, int32 or float32 after the Python type."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else "int32" if isinstance(value, int) else "float32"
    try:
        if is_int(dtype):
            return IntImm(int(value), dtype)
        if is_float(dtype):
            return FloatImm(float(value), dtype)
    except (TypeError, ValueError):
        raise InvalidTypeError(f"const: expected a number, got {value!r} of type {type(value).__name__}") from None
    raise InvalidValueError(f"no constants of dtype '{dtype}'")


def to_expr(x: Any, dtype: str | None = None) -> PrimExpr:
    """A number, axis or expression as an expression; numbers take `dtype`."""
    x = _unwrap(x)
    if isinstance(x, PrimExpr):
        return x
    if hasattr(x, "item") and not isinstance(x, bool | int | float):
        x = x.item()
    if isinstance(x, bool | int | float):
        return const(x, dtype)
    if hasattr(x, "as_expr"):
        return x.as_expr()  # type: ignore[no-any-return]
    raise InvalidTypeError(f"expected an expression or a number, got {type(x).__name__}")


def as_int(x: Any) -> int:
    """The value of an integer constant. Raises InvalidValueError for anything else."""
    if isinstance(x, int):
        return x
    if isinstance(x, IntImm):
        return x.value
    raise InvalidValueError(f"expected a constant integer, got {x}")


def const_int(x: Any) -> int | None:
    """The value of an integer constant, or None."""
    return x if isinstance(x, int) else x.value if isinstance(x, IntImm) else None


def _same(a: PrimExpr, b: PrimExpr) -> bool:
    if a is b:
        return True
    if isinstance(a, IntImm | FloatImm) and isinstance(b, IntImm | FloatImm):
        return a.value == b.value
    if type(a) is type(b) and isinstance(a, BinaryOp) and isinstance(b, BinaryOp):
        return _same(a.a, b.a) and _same(a.b, b.b)
    return False


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
    a, b = _unwrap(a), _unwrap(b)
    if isinstance(a, PrimExpr) and not isinstance(b, PrimExpr):
        b = to_expr(b, _number_dtype(a, b))
    elif isinstance(b, PrimExpr) and not isinstance(a, PrimExpr):
        a = to_expr(a, _number_dtype(b, a))
    left, right = to_expr(a), to_expr(b)
    dtype = _common(left.dtype, right.dtype)
    return cast(dtype, left), cast(dtype, right)


def _number_dtype(expr: PrimExpr, number: Any) -> str | None:
    if isinstance(number, float) and is_int(expr.dtype):
        return "float32"
    if isinstance(number, int) and expr.dtype == "bool" and not isinstance(number, bool):
        return "int32"
    return expr.dtype


def _fold(kind: type[BinaryOp], f: Callable[[Any, Any], Any], a: ExprLike, b: ExprLike) -> PrimExpr:
    x, y = match_types(a, b)
    if isinstance(x, IntImm) and isinstance(y, IntImm):
        return IntImm(int(f(x.value, y.value)), x.dtype)
    if isinstance(x, FloatImm) and isinstance(y, FloatImm):
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
            if const_int(x) == 1:
                return y
            if const_int(x) == 0:
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
    if const_int(_unwrap(b)) == 0:
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
    return _fold(Mod, math.fmod, a, b)


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
        return IntImm(_BITS[op](x.value, y.value), x.dtype)
    return Call(op, (x, y), x.dtype)


def minimum(a: ExprLike, b: ExprLike) -> PrimExpr:
    """The smaller of two scalars (`tir.min`, `te.min` reduces)."""
    return _fold(Min, min, a, b)


def maximum(a: ExprLike, b: ExprLike) -> PrimExpr:
    return _fold(Max, max, a, b)


_COMPARE: dict[type[CmpOp], Callable[[Any, Any], bool]] = {
    EQ: operator.eq, NE: operator.ne, LT: operator.lt, LE: operator.le, GT: operator.gt, GE: operator.ge,
}  # fmt: skip


def compare(kind: type[CmpOp], a: ExprLike, b: ExprLike) -> PrimExpr:
    """A comparison; constants fold to a bool constant."""
    x, y = match_types(a, b)
    if isinstance(x, IntImm | FloatImm) and isinstance(y, IntImm | FloatImm):
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
        return const(bool(x.value) if dtype == "bool" else x.value, dtype)
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


def load(buffer: Buffer, indices: Any) -> BufferLoad:
    """buffer[indices]. Raises InvalidValueError on a wrong number of indices."""
    items = indices if isinstance(indices, tuple) else (indices,)
    if len(items) != len(buffer.shape):
        raise InvalidValueError(f"buffer '{buffer.name}' has {len(buffer.shape)} dimensions, got {len(items)} indices")
    return BufferLoad(buffer, tuple(to_expr(i) for i in items))
