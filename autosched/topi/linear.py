"""Matrix products."""

from __future__ import annotations

from autosched import te
from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir.checked_index import position
from autosched.tir.expr import ExprLike, PrimExpr, as_int, cast, const_int
from autosched.topi.broadcast import broadcast_shape
from autosched.topi.shapes import dims


class _Batched:
    """A tensor whose last dimensions are a matrix: reads with broadcast batch indices."""

    def __init__(self, x: Tensor, matrix_dims: int):
        self.x, self.batch = x, x.shape[: x.ndim - matrix_dims]
        self.matrix_dims = matrix_dims

    def __call__(self, batch: tuple[PrimExpr, ...], *matrix: ExprLike) -> PrimExpr:
        own = batch[len(batch) - len(self.batch) :]
        picked = [0 if const_int(s) == 1 else i for s, i in zip(self.batch, own, strict=True)]
        return self.x(*picked, *matrix)


def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None) -> Tensor:
    """NumPy's matmul: [..., M, K] x [..., K, N] with broadcast batch dimensions; vectors lose their dimension.

    out_dtype  what products are summed in; the arguments' dtype by default
    """
    if a.ndim and b.ndim:
        inner, other = const_int(a.shape[-1]), const_int(b.shape[-2 if b.ndim > 1 else -1])
        if None not in (inner, other) and inner != other:
            raise ShapeError(f"matmul: {inner} columns and {other} rows do not fit")
    left, right = _Batched(a, min(a.ndim, 2)), _Batched(b, min(b.ndim, 2))
    a_vector, b_vector = a.ndim == 1, b.ndim == 1
    batch = broadcast_shape(left.batch, right.batch) if left.batch or right.batch else ()
    shape = (*batch, *(() if a_vector else a.shape[-2:-1]), *(() if b_vector else b.shape[-1:]))
    k = te.reduce_axis((0, dims(a.shape[-1:])[0]), name="k")
    dtype = out_dtype or a.dtype

    def compute(*indices: PrimExpr) -> PrimExpr:
        outer, matrix = indices[: len(batch)], list(indices[len(batch) :])
        row = [] if a_vector else [matrix.pop(0)]
        x, y = left(outer, *row, k), right(outer, k, *matrix)
        return te.sum(cast(dtype, x) * cast(dtype, y), axis=k)

    return te.compute(dims(shape), compute, name="matmul")


def squared_distance(x: Tensor, points: Tensor) -> Tensor:
    """[rows, points]: the sum over features of (x[row, feature] - points[feature, point])².

    By differences: |x|² - 2 x·p + |p|² is a product, but large squares cancel in it.
    """
    k = te.reduce_axis((0, dims(x.shape[1:])[0]), name="k")

    def compute(row: PrimExpr, point: PrimExpr) -> PrimExpr:
        far = x(row, k) - points(k, point)
        return te.sum(far * far, axis=k)

    return te.compute(dims((x.shape[0], points.shape[1])), compute, name="squared_distance")


def grouped_matmul(x: Tensor, weight: Tensor, groups: Tensor) -> Tensor:
    """[rows, N]: each row of x [rows, K] by the matrix of weight [groups, K, N] that `groups` [rows] names.

    Groups that are negative or beyond the last are the first and the last.
    """
    k = te.reduce_axis((0, dims(x.shape[1:])[0]), name="k")
    count = as_int(weight.shape[0])

    def compute(row: PrimExpr, column: PrimExpr) -> PrimExpr:
        group = position(groups(row), count, "grouped_matmul", "clip")
        return te.sum(x(row, k) * weight(group, k, column), axis=k)

    return te.compute(dims((x.shape[0], weight.shape[2])), compute, name="grouped_matmul")
