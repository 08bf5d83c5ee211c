"""Elements chosen by a tensor of positions.

`mode` says what becomes of positions that are negative or out of range: see `tir.checked_index.position`.
"""

from __future__ import annotations

import math

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.checked_index import position
from autosched.tir.expr import ExprLike, PrimExpr
from autosched.topi.broadcast import element
from autosched.topi.shapes import compute_over, extent_of, int_shape, open_shape


def take(x: Tensor, indices: Tensor, axis: int, mode: str = "raise") -> Tensor:
    """x[..., indices, ...] along `axis`: the positions' shape replaces that dimension.

    mode  as in `position`, or "nan": there is no number at positions out of range
    """
    size, width = open_shape(x)[axis], indices.ndim

    def compute(*i: PrimExpr) -> PrimExpr:
        if mode == "nan":
            at = E.cast("int64", indices(*i[axis : axis + width]))
            nearest = E.maximum(E.minimum(at, size - 1), E.const(0, "int64"))
            inside = te.all(at >= 0, at < size)
            value = x(*i[:axis], nearest, *i[axis + width :])
            return E.if_then_else(inside, value, E.const(math.nan, x.dtype))
        chosen = position(indices(*i[axis : axis + width]), size, f"take along axis {axis}", mode)
        return x(*i[:axis], chosen, *i[axis + width :])

    return compute_over((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), compute, "T_take")


def gather(x: Tensor, indices: Tensor, axis: int, mode: str = "raise") -> Tensor:
    """For each element of `indices`, the element of x at the same place but for `axis`."""
    size = open_shape(x)[axis]

    def compute(*i: PrimExpr) -> PrimExpr:
        chosen = position(indices(*i), size, f"gather along axis {axis}", mode)
        return x(*(chosen if a == axis else v for a, v in enumerate(i)))

    return compute_over(indices.shape, compute, "T_gather")


def take_along_axis(x: Tensor, indices: Tensor, axis: int, mode: str = "raise") -> Tensor:
    """The elements of x at positions along `axis`; in dimensions where `indices` have one element, for all of x."""
    size = open_shape(x)[axis]
    full = (*x.shape[:axis], indices.shape[axis], *x.shape[axis + 1 :])

    def compute(*i: PrimExpr) -> PrimExpr:
        chosen = position(element(indices, i, full), size, f"gather along axis {axis}", mode)
        return x(*(chosen if a == axis else v for a, v in enumerate(i)))

    return compute_over(full, compute, "T_take_along")


def gather_nd(x: Tensor, indices: Tensor, mode: str = "raise", batch_dims: int = 0) -> Tensor:
    """The elements (or slices) of x at the index vectors that lie along the last dimension of `indices`.

    batch_dims  leading dimensions of both that go together: vectors are positions in those behind
    """
    shape, depth = open_shape(x), extent_of(indices, indices.ndim - 1)
    outer = indices.ndim - 1

    def compute(*i: PrimExpr) -> PrimExpr:
        vector = [
            position(indices(*i[:outer], d), shape[batch_dims + d], f"gather_nd along axis {batch_dims + d}", mode)
            for d in range(depth)
        ]
        return x(*i[:batch_dims], *vector, *i[outer:])

    return compute_over((*indices.shape[:-1], *x.shape[batch_dims + depth :]), compute, "T_gather_nd")


def checked(indices: Tensor, size: int | PrimExpr, what: str) -> Tensor:
    """Positions along a dimension of `size` as int64; those outside of [0, size) are reported under the name `what`."""
    return compute_over(indices.shape, lambda *i: position(indices(*i), size, what, "positive"), "T_checked")


def weighted_rows(data: Tensor, rows: Tensor, weights: Tensor, joined: str = "sum") -> Tensor:
    """[..., n]: the rows of data [m, n] at the positions `rows` [..., k], times `weights` [..., k], joined over k.

    joined  "sum" or "max"
    """
    count, lead = open_shape(data)[0], rows.ndim - 1
    k = te.reduce_axis((0, open_shape(rows)[lead]), "k")

    def compute(*i: PrimExpr) -> PrimExpr:
        chosen = position(rows(*i[:lead], k), count, "rows of a weighted sum", "positive")
        term = data(chosen, i[lead]) * weights(*i[:lead], k)
        return te.sum(term, axis=k) if joined == "sum" else te.max(term, axis=k)

    return compute_over((*rows.shape[:lead], data.shape[1]), compute, "T_weighted_rows")


def one_hot(
    indices: Tensor, on_value: ExprLike, off_value: ExprLike, depth: int, axis: int = -1, dtype: str = "float32"
) -> Tensor:
    """`on_value` at the position that an index names along a new axis of `depth`, `off_value` elsewhere."""
    shape = list(int_shape(indices))
    place = axis % (len(shape) + 1)
    shape.insert(place, depth)
    on, off = (E.const(v, dtype) if isinstance(v, int | float) else v for v in (on_value, off_value))

    def compute(*i: PrimExpr) -> PrimExpr:
        rest = [v for k, v in enumerate(i) if k != place]
        return E.select(E.compare(E.EQ, indices(*rest), E.cast(indices.dtype, i[place])), on, off)

    return compute_over(shape, compute, "T_one_hot")
