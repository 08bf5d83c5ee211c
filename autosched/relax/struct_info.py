"""What is known of a value before it is computed: its shape and dtype, as annotations of every graph expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.ir import printing
from autosched.ir.global_info import VDevice
from autosched.ir.node import IGNORED, Node, Span
from autosched.relax.op_table import get_op
from autosched.tir.dtypes import DTYPES, check_dtype
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.size_expr import same_extent

if TYPE_CHECKING:
    from autosched.topi.shapes import ImageShape

Dim = int | PrimExpr


def to_dim(x: object) -> PrimExpr:
    """A dimension as an int64 expression."""
    if isinstance(x, IntImm):
        return x if x.dtype == "int64" else IntImm(x.value, "int64")
    if isinstance(x, PrimExpr):
        return x
    if hasattr(x, "__index__"):
        return IntImm(int(x), "int64")
    raise InvalidTypeError(f"a dimension is an integer or an expression, got {type(x).__name__}")


class StructInfo(Node):
    """Base of all annotations."""

    __slots__ = ()

    def __str__(self) -> str:
        return printing.text(self)


class Expr(Node):
    """Base of all graph expressions; `struct_info` says what is known of the value (None before it is inferred)."""

    __slots__ = ()
    struct_info: StructInfo | None

    @property
    def ty(self) -> StructInfo | None:
        """TVM's newer spelling of `struct_info`."""
        return self.struct_info

    @property
    def checked_type(self) -> StructInfo | None:
        """TVM's older spelling of `struct_info`."""
        return self.struct_info

    def __iter__(self) -> Iterator[Any]:
        """The items of a tuple. Raises InvalidTypeError for what is no tuple: Python would index it for ever."""
        info = self.struct_info
        if not isinstance(info, TupleStructInfo):
            raise InvalidTypeError(f"a {type(self).__name__} of type {info!r} is no tuple to iterate over")
        return (self[index] for index in range(len(info.fields)))  # type: ignore[index]

    # Arithmetic makes calls of operators; those are defined above this module, and found when first used.

    def __add__(self, other: object) -> Expr:
        return _called("add", self, other)

    def __radd__(self, other: object) -> Expr:
        return _called("add", other, self)

    def __sub__(self, other: object) -> Expr:
        return _called("subtract", self, other)

    def __rsub__(self, other: object) -> Expr:
        return _called("subtract", other, self)

    def __mul__(self, other: object) -> Expr:
        return _called("multiply", self, other)

    def __rmul__(self, other: object) -> Expr:
        return _called("multiply", other, self)

    def __truediv__(self, other: object) -> Expr:
        return _called("divide", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return _called("divide", other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _called("floor_divide", self, other)

    def __pow__(self, other: object) -> Expr:
        return _called("power", self, other)

    def __mod__(self, other: object) -> Expr:
        return _called("mod", self, other)

    def __rmod__(self, other: object) -> Expr:
        return _called("mod", other, self)

    def __neg__(self) -> Expr:
        return _called("negative", self)

    def __lt__(self, other: object) -> Expr:
        return _called("less", self, other)

    def __le__(self, other: object) -> Expr:
        return _called("less_equal", self, other)

    def __gt__(self, other: object) -> Expr:
        return _called("greater", self, other)

    def __ge__(self, other: object) -> Expr:
        return _called("greater_equal", self, other)

    def astype(self, dtype: str) -> Expr:
        """The value converted to another dtype."""
        return _called("astype", self, dtype)

    def __str__(self) -> str:
        return printing.text(self)


def _called(name: str, *args: object) -> Expr:
    """The call of an operator."""
    made: Expr = get_op(name)(*args)
    return made


@dataclass(frozen=True, slots=True, eq=False)
class ShapeExpr(Expr):
    """A shape as a value: dimensions known (int64 constants) or symbolic."""

    values: tuple[Any, ...]  # int64 expressions; integers are accepted
    span: Span | None = field(default=None, metadata=IGNORED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(to_dim(v) for v in self.values))

    @property
    def struct_info(self) -> ShapeStructInfo:  # type: ignore[override]
        return ShapeStructInfo(self.values)

    @overload
    def __getitem__(self, index: SupportsIndex) -> PrimExpr: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PrimExpr, ...]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> PrimExpr | tuple[PrimExpr, ...]:
        found: PrimExpr | tuple[PrimExpr, ...] = self.values[index]
        return found

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[PrimExpr]:
        return iter(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class ObjectStructInfo(StructInfo):
    """A value of which nothing is known."""


@dataclass(frozen=True, slots=True, eq=False)
class PrimStructInfo(StructInfo):
    """A scalar, its value where it is known."""

    dtype: str
    value: PrimExpr | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _checked_dtype(self.dtype, "PrimStructInfo"))


@dataclass(frozen=True, slots=True, eq=False)
class ShapeStructInfo(StructInfo):
    """A shape value; `values` None when only the number of dimensions (or not even that: -1) is known."""

    values: tuple[Any, ...] | None = None  # int64 expressions; integers are accepted
    ndim: int = -1

    def __post_init__(self) -> None:
        if self.values is not None:
            object.__setattr__(self, "values", tuple(to_dim(v) for v in self.values))
            object.__setattr__(self, "ndim", len(self.values))


@dataclass(frozen=True, slots=True, eq=False)
class TensorStructInfo(StructInfo):
    """A tensor: `shape` as a ShapeExpr (None: unknown), dtype, number of dimensions (-1: unknown).

    With a `vdevice`, which TVM's programs give before `ndim`, it is a PlacedTensorStructInfo.
    """

    shape: Any = None  # ShapeExpr or None; a sequence of dimensions is accepted
    dtype: str = "float32"
    ndim: int = -1
    vdevice: VDevice | None = field(default=None, metadata=IGNORED)
    _dims: tuple[Dim, ...] | None = field(init=False, default=None, metadata=IGNORED)  # of `shape`
    is_static: bool = field(init=False, default=False, metadata=IGNORED)

    def __post_init__(self) -> None:
        if self.vdevice is not None or isinstance(self.ndim, VDevice):
            self._place()
        if self.shape is not None:
            if not isinstance(self.shape, ShapeExpr):
                object.__setattr__(self, "shape", shape_of(self.shape))
            if self.ndim not in (-1, len(self.shape)):
                raise InvalidValueError(
                    f"TensorStructInfo: ndim {self.ndim} of a shape of {len(self.shape)} dimensions"
                )
            dims = tuple([v.value if isinstance(v, IntImm) else v for v in self.shape.values])  # a list: half the time
            object.__setattr__(self, "ndim", len(dims))
            object.__setattr__(self, "_dims", dims)
            object.__setattr__(self, "is_static", all([isinstance(d, int) for d in dims]))
        if self.dtype not in DTYPES:
            object.__setattr__(self, "dtype", _checked_dtype(self.dtype, "TensorStructInfo"))

    def _place(self) -> None:
        ndim, vdevice = self.ndim, self.vdevice
        if isinstance(ndim, VDevice):
            ndim, vdevice = -1 if vdevice is None else vdevice, ndim
        if not isinstance(vdevice, VDevice):
            raise InvalidTypeError(f"TensorStructInfo: vdevice is a {type(vdevice).__name__}, expected a VDevice")
        object.__setattr__(self, "ndim", ndim)
        object.__setattr__(self, "vdevice", vdevice)
        object.__setattr__(self, "__class__", PlacedTensorStructInfo)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions, known ones as Python integers. Raises ShapeError where the shape is unknown."""
        if self._dims is None:
            raise ShapeError("the shape is not known")
        return self._dims

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as integers. Raises ShapeError naming a symbolic dimension."""
        if not self.is_static:
            unknown = next(d for d in self.dims if not isinstance(d, int))
            raise ShapeError(f"dimension '{unknown}' has no known size", hint="give the model's input shapes")
        return self._dims  # type: ignore[return-value]

    @property
    def image_shape(self) -> ImageShape:
        """The shape of images, as integers where they are known: of the channels, dimension 1, they have to be.

        Raises ShapeError as above.
        """
        dims = self.dims
        return (*dims[:1], *TensorStructInfo(dims[1:2], self.dtype).static_shape, *dims[2:])

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """TVM's older spelling of `static_shape`."""
        return self.static_shape

    def __repr__(self) -> str:
        if self.shape is None:
            return f'Tensor(ndim={self.ndim}, dtype="{self.dtype}")'
        dims = ", ".join(str(getattr(d, "name", d)) for d in self.dims)
        return f'Tensor(({dims}{"," if self.ndim == 1 else ""}), "{self.dtype}")'


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTensorStructInfo(TensorStructInfo):
    """A tensor on a device that its annotation names."""

    vdevice: VDevice | None = None


def vdevice_of(info: StructInfo | None) -> VDevice | None:
    """The device that an annotation, or the first of a tuple's, names."""
    if isinstance(info, TupleStructInfo):
        return next((found for f in info.fields if (found := vdevice_of(f)) is not None), None)
    return info.vdevice if isinstance(info, TensorStructInfo) else None


def placed(info: StructInfo, vdevice: VDevice | None) -> StructInfo:
    """An annotation whose tensors lie on a device; None: on no named one."""
    if isinstance(info, TupleStructInfo):
        return TupleStructInfo(tuple(placed(f, vdevice) for f in info.fields))
    if not isinstance(info, TensorStructInfo) or info.vdevice is vdevice:
        return info
    return TensorStructInfo(info.shape, info.dtype, info.ndim, vdevice)


@dataclass(frozen=True, slots=True, eq=False)
class TupleStructInfo(StructInfo):
    """Several values together."""

    fields: tuple[StructInfo, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        for i, item in enumerate(self.fields):
            if not isinstance(item, StructInfo):
                raise InvalidTypeError(f"TupleStructInfo: field {i} is a {type(item).__name__}, expected a StructInfo")


@dataclass(frozen=True, slots=True, eq=False)
class FuncStructInfo(StructInfo):
    """A function: parameters (None: unknown) and result."""

    params: tuple[StructInfo, ...] | None
    ret: StructInfo
    purity: bool = True

    @staticmethod
    def opaque_func(ret: StructInfo | None = None, purity: bool = False) -> FuncStructInfo:
        """The type of a function of which the parameters are not known."""
        return FuncStructInfo(None, ObjectStructInfo() if ret is None else ret, purity)


def _checked_dtype(dtype: object, what: str) -> str:
    """The name of a dtype; "" is unknown, for which TVM writes "void" too."""
    if dtype in (None, "", "void"):
        return ""
    return check_dtype(dtype, what, "object", "handle", "string")


def shape_of(shape: object) -> ShapeExpr:
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise InvalidTypeError(f"a shape is a sequence of dimensions, got {shape!r} of type {type(shape).__name__}")
    return ShapeExpr(tuple(shape))


# the names of TVM 0.27
TensorType, ShapeType, TupleType, PrimType, ObjectType, FuncType = (
    TensorStructInfo, ShapeStructInfo, TupleStructInfo, PrimStructInfo, ObjectStructInfo, FuncStructInfo,
)  # fmt: skip


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are certainly equal."""
    x, y = const_int(a), const_int(b)
    if x is not None or y is not None:
        return x == y
    return same_extent(a, b)


def same_dims(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(same_dim(x, y) for x, y in zip(a, b, strict=True))


def same_info(a: StructInfo | None, b: StructInfo | None) -> bool:
    """Whether two annotations say the same."""
    if a is b:
        return True
    if isinstance(a, TensorStructInfo) and isinstance(b, TensorStructInfo):
        if a.dtype != b.dtype or a.ndim != b.ndim or (a.shape is None) != (b.shape is None):
            return False
        if a.vdevice is not b.vdevice and not (a.vdevice and b.vdevice and a.vdevice.is_same(b.vdevice)):
            return False
        return a.shape is None or same_dims(a.dims, b.dims)
    if isinstance(a, TupleStructInfo) and isinstance(b, TupleStructInfo):
        return len(a.fields) == len(b.fields) and all(map(same_info, a.fields, b.fields))
    if isinstance(a, ShapeStructInfo) and isinstance(b, ShapeStructInfo):
        if a.values is None or b.values is None:
            return a.values is b.values and a.ndim == b.ndim
        return same_dims(a.values, b.values)
    if isinstance(a, PrimStructInfo) and isinstance(b, PrimStructInfo):
        return a.dtype == b.dtype
    return type(a) is type(b) and isinstance(a, ObjectStructInfo)


def covers(base: StructInfo | None, derived: StructInfo | None) -> bool:
    """Whether every value of type `derived` is of type `base`."""
    if base is None or isinstance(base, ObjectStructInfo):
        return True
    if isinstance(base, TensorStructInfo) and isinstance(derived, TensorStructInfo) and base.shape is None:
        return base.dtype in ("", "void", derived.dtype) and base.ndim in (-1, derived.ndim)
    if isinstance(base, TupleStructInfo) and isinstance(derived, TupleStructInfo):
        return len(base.fields) == len(derived.fields) and all(map(covers, base.fields, derived.fields))
    if isinstance(base, ShapeStructInfo) and isinstance(derived, ShapeStructInfo) and base.values is None:
        return base.ndim in (-1, derived.ndim)
    return same_info(base, derived)


def tensor_infos(info: StructInfo | None) -> tuple[TensorStructInfo, ...]:
    """The tensors of a value, tuples flattened. Raises TypeError for anything else."""
    if isinstance(info, TensorStructInfo):
        return (info,)
    if isinstance(info, TupleStructInfo):
        return tuple(t for f in info.fields for t in tensor_infos(f))
    raise InvalidTypeError(f"expected a tensor or a tuple of tensors, got {type(info).__name__}")
