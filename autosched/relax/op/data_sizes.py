"""Operators whose result's size follows from data: registered functions compute them between kernels."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidTypeError, ShapeError
from autosched.relax.expr import Call, PrimValue, as_expr
from autosched.relax.op.call import call_pure_packed
from autosched.relax.op.create import size_values
from autosched.relax.op.types import axis_index, tensor
from autosched.relax.struct_info import Expr, ShapeExpr, ShapeStructInfo, StructInfo, TensorStructInfo, TupleStructInfo
from autosched.tir.expr import const


def _type(x: Expr) -> TensorStructInfo:
    return tensor(as_expr(x).struct_info)


def _run(name: str, info: StructInfo | Sequence[StructInfo], *args: object) -> Call:
    return call_pure_packed(f"relax.run.{name}", *args, sinfo_args=info)


def nonzero(x: Expr) -> Call:
    """The positions of all elements that are not 0: int64 [dimensions of x (1 at least), how many]."""
    _type(x)
    return _run("nonzero", TensorStructInfo(None, "int64", 2), x)


def unique(
    x: Expr,
    sorted: bool = True,  # noqa: A002
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Call:
    """The distinct elements of `x`, or the distinct parts along `axis`; always sorted.

    The result is a tuple where more is asked for: the first position of each, the position of each element of `x`
    in the result, and how often each is there, all int64 and of one dimension.
    """
    del sorted  # as sorted is one of the orders that "unsorted" allows
    t = _type(x)
    if axis is not None and t.ndim >= 0:
        axis_index(axis, t.ndim)
    first = TensorStructInfo(None, t.dtype, 1 if axis is None else t.ndim)
    asked = (return_index, return_inverse, return_counts)
    infos = [first, *(TensorStructInfo(None, "int64", 1) for wanted in asked if wanted)]
    flags = [PrimValue(const(int(wanted), "int64")) for wanted in asked]
    along = () if axis is None else (PrimValue(const(axis, "int64")),)
    return _run("unique", infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos)), x, *flags, *along)


def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> Call:
    """A part of `x` whose bounds in each dimension, int64 [dimensions], are values: x[begin:end:strides]."""
    t = _type(x)
    for name, bound in (("begin", begin), ("end", end), ("strides", strides)):
        b = _type(bound)
        if b.dtype not in ("int64", ""):
            raise InvalidTypeError(f"dynamic_strided_slice: {name} is {b.dtype}, expected int64")
        if b.ndim not in (1, -1) or (b.is_static and t.ndim >= 0 and b.static_shape != (t.ndim,)):
            raise ShapeError(f"dynamic_strided_slice: {name} is {b!r}, expected one of {t.ndim} elements")
    return _run("dynamic_strided_slice", TensorStructInfo(None, t.dtype, t.ndim), x, begin, end, strides)


def shape_to_tensor(expr: Expr) -> Expr:
    """The sizes of a shape as an int64 tensor of one dimension."""
    value = as_expr(expr)
    info = value.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise InvalidTypeError("shape_to_tensor takes a shape")
    if info.values is not None:
        return size_values(ShapeExpr(info.values))
    return _run("shape_to_tensor", TensorStructInfo(None if info.ndim < 0 else (info.ndim,), "int64", 1), value)


def tensor_to_shape(expr: Expr) -> Call:
    """The elements of an int64 tensor of one dimension as a shape."""
    t = _type(expr)
    if t.dtype not in ("int64", "") or t.ndim not in (1, -1):
        raise InvalidTypeError(f"tensor_to_shape takes int64 of one dimension, not {t!r}")
    count = t.dims[0] if t.shape is not None else None
    return _run("tensor_to_shape", ShapeStructInfo(ndim=count if isinstance(count, int) else -1), expr)
