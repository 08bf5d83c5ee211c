"""`decl_buffer`: a buffer as TVM's scripts declare it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.tir.expr import Buffer, PrimExpr, check_dtype, const_int, is_int, to_expr

_SCOPES = ("global", "local", "shared", "warp", "texture", "wmma", "m16n8k8", "metal", "trn")


def extents(shape: Any, what: str) -> tuple[PrimExpr, ...]:
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
    shape: Any, dtype: Any = None, name: str = "buffer", data: Any = None, strides: Sequence[Any] | None = None,
    elem_offset: Any = None, scope: str = "", data_alignment: int = -1, offset_factor: int = 0, buffer_type: str = "",
    axis_separators: Sequence[int] | None = None, span: Any = None,
) -> Buffer:  # fmt: skip
    """A buffer; float32 unless told. Raises TypeError and ValueError for a shape or dtype that is none."""
    del data, buffer_type, span
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
