"""Tensors that take their form from another one, triangles and unit matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidTypeError, ShapeError
from autosched.relax.expr import Call
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import OpDef, define_op, sample
from autosched.relax.op.types import axis_index, tensor
from autosched.relax.struct_info import Expr, ObjectStructInfo, PrimStructInfo, StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import PrimExpr
from autosched.topi.shapes import axis_names, dims


def _like_type(x: StructInfo, *_: object, dtype: str | None = None, **__: object) -> TensorStructInfo:
    t = tensor(x)
    return TensorStructInfo(t.shape, dtype or t.dtype, t.ndim)


def _like(name: str, value: float) -> OpDef:
    return define_op(
        name, attributes={"dtype": None}, infer_type=_like_type,
        compute=lambda x, dtype: topi.full(x.shape, dtype or x.dtype, value),
        reference=lambda x, dtype: np.full(x.shape, value, dtype or x.dtype),
        samples=[sample((3, 4)), sample((2,), dtype="int32")],
    )  # fmt: skip


zeros_like = _like("zeros_like", 0)
ones_like = _like("ones_like", 1)
full_like = define_op(
    "full_like", inputs=("x", "fill_value"), attributes={"dtype": None}, infer_type=_like_type,
    compute=lambda x, value, dtype: te.compute(
        x.shape, lambda *_: E.cast(dtype or x.dtype, value()), name="T_full_like"
    ),
    reference=lambda x, value, dtype: np.full(x.shape, value, dtype or x.dtype),
    samples=[sample((3, 4), ())],
)  # fmt: skip


def _triangle_type(x: StructInfo, k: int) -> TensorStructInfo:
    t = tensor(x)
    if t.ndim < 2:
        raise ShapeError(f"a triangle of a tensor of {t.ndim} dimensions")
    return t


def _triangle(name: str, keep: Callable[..., PrimExpr], reference: Callable[..., object]) -> OpDef:
    def compute(x: Tensor, k: int) -> Tensor:
        zero = E.const(0, x.dtype)
        return te.compute(
            x.shape, lambda *i: E.select(keep(i[-2] + k, i[-1]), x(*i), zero), name=f"T_{name}",
            varargs_names=axis_names(x.ndim),
        )  # fmt: skip

    return define_op(
        name, attributes={"k": 0}, infer_type=_triangle_type, compute=compute, reference=reference,
        samples=[sample((4, 5)), sample((2, 3, 3), k=1), sample((4, 3), k=-1)],
    )  # fmt: skip


tril = _triangle("tril", lambda row, column: column <= row, np.tril)
triu = _triangle("triu", lambda row, column: column >= row, np.triu)


def _eye_compute(n: int, m: int | None, k: int, dtype: str) -> Tensor:
    one, zero = E.const(1, dtype), E.const(0, dtype)
    shape = dims((n, n if m is None else m))
    return te.compute(shape, lambda i, j: E.select(E.compare(E.EQ, i + k, j), one, zero), name="T_eye")


eye = define_op(
    "eye", inputs=(), attributes={"n": 1, "m": None, "k": 0, "dtype": "float32"},
    infer_type=lambda n, m, k, dtype: TensorStructInfo((n, n if m is None else m), dtype),
    compute=_eye_compute, reference=lambda n, m, k, dtype: np.eye(n, m, k, dtype=dtype),
    samples=[sample(n=4), sample(n=2, m=5, k=1, dtype="int32")],
)  # fmt: skip


def _one_hot_type(indices: StructInfo, on: StructInfo, off: StructInfo, depth: int, axis: int) -> TensorStructInfo:
    t, values = tensor(indices), on if isinstance(on, PrimStructInfo) else tensor(on)
    if isinstance(on, PrimStructInfo) != isinstance(off, PrimStructInfo):
        raise InvalidTypeError("on_value and off_value must both be tensors, or both numbers")
    if not t.dtype.startswith(("int", "uint")):
        raise InvalidTypeError(f"positions must be integers, got {t.dtype}")
    a = axis_index(axis, t.ndim + 1)
    return TensorStructInfo((*t.dims[:a], depth, *t.dims[a:]), values.dtype)


def _one_hot_compute(
    indices: Tensor, on: Tensor | PrimExpr, off: Tensor | PrimExpr, depth: int, axis: int
) -> Tensor:  # fmt: skip
    """`on` and `off` are tensors of one element, or numbers."""
    values = [x() if isinstance(x, Tensor) else x for x in (on, off)]
    a = axis % (indices.ndim + 1)
    shape = dims((*indices.shape[:a], depth, *indices.shape[a:]))

    def element(*i: PrimExpr) -> PrimExpr:
        chosen = E.compare(E.EQ, E.cast("int64", indices(*i[:a], *i[a + 1 :])), E.cast("int64", i[a]))
        return E.select(chosen, *values)

    return te.compute(shape, element, name="T_one_hot", varargs_names=axis_names(len(shape)))


def _one_hot(indices: Array, on: Array, off: Array, depth: int, axis: int) -> Array:
    hot = np.where(indices[..., None] == np.arange(depth), on, off)
    return np.moveaxis(hot, -1, axis).astype(np.asarray(on).dtype)


one_hot = define_op(
    "one_hot", inputs=("indices", "on_value", "off_value"), attributes={"depth": 1, "axis": -1},
    infer_type=_one_hot_type, compute=_one_hot_compute, reference=_one_hot,
    samples=[sample(((3,), "int64"), (), (), depth=4, low=0, high=4)],
)  # fmt: skip


def eye_like(x: Expr, k: int = 0, dtype: str | None = None) -> Call:
    """A unit matrix of the shape of a matrix."""
    info = tensor(x.struct_info or ObjectStructInfo())
    n, m = info.static_shape
    return eye(n, m, k, dtype or info.dtype)
