"""Elements chosen by a tensor of positions; a negative position counts from the end."""

from __future__ import annotations

from typing import Any

from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.topi.manipulate import _compute
from autosched.topi.shapes import int_shape


def _position(value: Any, size: int) -> Any:
    index = E.cast("int64", value)
    return E.select(E.compare(E.LT, index, 0), index + size, index)


def take(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """x[..., indices, ...] along `axis`: the positions' shape replaces that dimension."""
    size, width = int_shape(x)[axis], indices.ndim

    def compute(*i: Any) -> Any:
        chosen = _position(indices(*i[axis : axis + width]), size)
        return x(*i[:axis], chosen, *i[axis + width :])

    return _compute((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), compute, "T_take")


def gather(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """For each element of `indices`, the element of x at the same place but for `axis`."""
    size = int_shape(x)[axis]

    def compute(*i: Any) -> Any:
        chosen = _position(indices(*i), size)
        return x(*(chosen if a == axis else v for a, v in enumerate(i)))

    return _compute(indices.shape, compute, "T_gather")


def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    """The elements (or slices) of x at the index vectors that lie along the last dimension of `indices`."""
    shape, depth = int_shape(x), int_shape(indices)[-1]
    outer = indices.ndim - 1

    def compute(*i: Any) -> Any:
        vector = [_position(indices(*i[:outer], d), shape[d]) for d in range(depth)]
        return x(*vector, *i[outer:])

    return _compute((*indices.shape[:-1], *x.shape[depth:]), compute, "T_gather_nd")
