"""Buffers, reads and stores of them, and `decl_buffer`, which makes one as TVM's scripts declare it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn
from weakref import WeakKeyDictionary

from autosched.errors import InvalidTypeError, InvalidValueError, refuse
from autosched.ir import printing
from autosched.ir.node import IGNORED, Node
from autosched.tir.dtypes import check_dtype, is_int
from autosched.tir.expr import Call, ExprLike, IntImm, PrimExpr, StringImm, as_int, cast, const_int, mul, sub, to_expr

_SCOPES = ("global", "local", "shared", "warp", "texture", "wmma", "m16n8k8", "metal", "trn")


Indices = ExprLike | tuple[ExprLike, ...]


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

    def __getitem__(self, indices: Indices) -> BufferLoad:
        return load(self, indices)

    def __iter__(self) -> NoReturn:  # without it, Python would index for ever
        raise InvalidTypeError(f"buffer '{self.name}' cannot be iterated", hint="index it")

    @property
    def data(self) -> BufferData:
        """The buffer's memory as an argument of calls; always the same object."""
        if self not in _DATA:
            _DATA[self] = BufferData(self)
        return _DATA[self]

    def vload(self, begin: object, dtype: str | None = None) -> BufferLoad:
        """The element at `begin`. Raises InvalidValueError for a vector's dtype: vectorize the loop instead."""
        if dtype is not None and dtype != self.dtype:
            raise InvalidValueError(
                f"vload of '{self.name}' as {dtype}: the buffer holds {self.dtype}", hint="vectorize the loop instead"
            )
        return load(self, tuple(begin) if isinstance(begin, list) else begin)

    def vstore(self, begin: object, value: object) -> BufferStore:
        """A statement that stores `value` at `begin`."""
        at = load(self, tuple(begin) if isinstance(begin, list) else begin).indices
        return BufferStore(self, cast(self.dtype, to_expr(value, self.dtype)), at)

    def access_ptr(
        self,
        access_mask: int | str,
        ptr_type: str = "handle",
        content_lanes: int = 1,
        offset: ExprLike = 0,
        extent: ExprLike | None = None,
    ) -> PrimExpr:
        """A pointer to the buffer's memory for a call of outside code; access_mask "r", "w" or "rw"."""
        refuse(
            "access_ptr",
            hint="vectorize the loop instead",
            content_lanes=content_lanes != 1,
            ptr_type=ptr_type != "handle",
        )
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


class Stmt(Node):
    """Base of all statements; the others are in `stmt.py`."""

    __slots__ = ()

    def __str__(self) -> str:
        return printing.text(self)


@dataclass(frozen=True, slots=True, eq=False)
class BufferStore(Stmt):
    buffer: Buffer
    value: PrimExpr
    indices: tuple[PrimExpr, ...]


def load(buffer: Buffer, indices: object) -> BufferLoad:
    """buffer[indices]. Raises InvalidValueError on a wrong number of indices."""
    items = indices if isinstance(indices, tuple) else (indices,)
    if len(items) != len(buffer.shape):
        raise InvalidValueError(f"buffer '{buffer.name}' has {len(buffer.shape)} dimensions, got {len(items)} indices")
    return BufferLoad(buffer, tuple(to_expr(i) for i in items))


def extents(shape: object, what: str) -> tuple[PrimExpr, ...]:
    """A shape as expressions. Raises InvalidTypeError for what is no shape, InvalidValueError for negative extents."""
    if isinstance(shape, str):
        raise InvalidTypeError(f"{what}: a shape is a tuple of integers or expressions, got {shape!r}")
    items = tuple(shape) if isinstance(shape, Sequence) or hasattr(shape, "__iter__") else (shape,)
    found = []
    for item in items:
        try:
            extent = to_expr(item)
        except InvalidTypeError:
            raise InvalidTypeError(
                f"{what}: extent {item!r} of the shape is a {type(item).__name__}, no integer"
            ) from None
        if not is_int(extent.dtype):
            raise InvalidTypeError(f"{what}: extent {item!r} of the shape is {extent.dtype}, no integer")
        if (number := const_int(extent)) is not None and number < 0:
            raise InvalidValueError(f"{what}: extent {number} is negative")
        found.append(extent)
    return tuple(found)


def decl_buffer(
    shape: Sequence[ExprLike] | ExprLike, dtype: str | None = None, name: str = "buffer", data: object = None,
    strides: Sequence[ExprLike] | None = None, elem_offset: ExprLike | None = None,
    scope: str = "", data_alignment: int = -1,
    offset_factor: int = 0, buffer_type: str = "",
    axis_separators: Sequence[int] | None = None, span: object = None,
) -> Buffer:  # fmt: skip
    """A buffer; float32 by default. Raises TypeError and ValueError for a shape or dtype that is none."""
    refuse(
        "decl_buffer",
        hint="match_buffer names a part of another",
        data=data is not None,
        buffer_type=buffer_type not in ("", "default"),
    )
    del span
    if not isinstance(name, str):
        raise InvalidTypeError(f"decl_buffer: name is a {type(name).__name__}, expected a string")
    if scope and scope.split(".")[0] not in _SCOPES:
        raise InvalidValueError(f"decl_buffer: unknown storage scope '{scope}'")
    found = extents(shape, f"decl_buffer '{name}'")
    kind = check_dtype("float32" if dtype is None else dtype, f"decl_buffer '{name}'")
    return Buffer(
        name, found, kind, tuple(to_expr(s) for s in strides or ()),
        None if elem_offset is None else to_expr(elem_offset), scope or "global",
        data_alignment if data_alignment > 0 else 64, offset_factor or 1, tuple(axis_separators or ()),
    )  # fmt: skip
