"""Relay's operators that choose, place and order elements: relax's with Relay's signatures."""

from __future__ import annotations

from typing import SupportsInt

import numpy as np

from autosched.errors import InvalidValueError, ShapeError, refuse
from autosched.relax import Expr, op
from autosched.relay.expr import TupleWrapper, const, info, unwrap


def take(data: object, indices: object, axis: int | None = None, batch_dims: int = 0, mode: str = "clip") -> Expr:
    """Elements, or slices along an axis, at positions; `mode` "clip", "wrap" or "fast" (here: those out are errors)."""
    if mode not in ("clip", "wrap", "fast"):
        raise InvalidValueError(f"take: mode '{mode}'", hint='use "clip", "wrap" or "fast"')
    if batch_dims:
        raise InvalidValueError("take: batch_dims is not available")
    x = unwrap(data)
    if axis is None:
        x, axis = op.reshape(x, (-1,)), 0
    return op.take(x, unwrap(indices), axis, mode)


def gather(data: object, axis: int, indices: object) -> Expr:
    """For each position the element there along an axis."""
    return op.gather_elements(unwrap(data), unwrap(indices), axis)


def gather_nd(data: object, indices: object, batch_dims: int = 0, index_rank: SupportsInt | None = None) -> Expr:
    """Elements at positions whose coordinates stand along the first axis.

    batch_dims  so many first axes of the data are those of the positions: each batch is looked up in its own data
    Raises      ShapeError where the positions have not `index_rank` coordinates, or other batches than the data
    """
    x = unwrap(indices)
    coordinates, *places = info(x).static_shape
    if index_rank is not None and int(index_rank) != coordinates:
        raise ShapeError(f"gather_nd: index_rank {index_rank}, and the positions have {coordinates} coordinates")
    if batch_dims:
        batches = info(unwrap(data)).static_shape[:batch_dims]
        if tuple(places[:batch_dims]) != tuple(batches):
            raise ShapeError(f"gather_nd: positions for batches {places[:batch_dims]}, data for {list(batches)}")
        own = np.indices(places)[:batch_dims].astype(info(x).dtype)
        x = op.concat([const(own), x], 0)
    return op.gather_nd(unwrap(data), op.permute_dims(x, [*range(1, info(x).ndim), 0]))


def scatter_elements(data: object, indices: object, updates: object, axis: int = 0, reduction: str = "update") -> Expr:
    """Values put at positions along an axis."""
    return op.scatter_elements(unwrap(data), unwrap(indices), unwrap(updates), axis, reduction)


def scatter(data: object, indices: object, updates: object, axis: int) -> Expr:
    """Values put at positions along an axis."""
    return scatter_elements(data, indices, updates, axis)


def one_hot(
    indices: object, on_value: object, off_value: object, depth: int, axis: int = -1, dtype: str = "float32"
) -> Expr:
    """`on_value` at the position, `off_value` elsewhere."""
    values = [op.astype(unwrap(v if isinstance(v, Expr) else const(v)), dtype) for v in (on_value, off_value)]
    return op.one_hot(unwrap(indices), *values, depth=depth, axis=axis)


def topk(
    data: object, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int32"
) -> Expr | TupleWrapper:
    """The k largest values along an axis, their positions, or both."""
    found = op.topk(unwrap(data), k, axis, ret_type, not is_ascend, dtype)
    return found if ret_type != "both" else _pair(found)


def _pair(found: Expr) -> TupleWrapper:
    from autosched.relay.expr import TupleWrapper

    return TupleWrapper(found, 2)


def sort(data: object, axis: int = -1, is_ascend: bool = True) -> Expr:
    """The elements in order along an axis."""
    return op.sort(unwrap(data), axis, not is_ascend)


def argsort(
    data: object, valid_count: object = None, axis: int = -1, is_ascend: bool = True, dtype: str = "int32"
) -> Expr:
    """The positions in order along an axis. Raises ValueError for valid_count."""
    refuse("argsort", hint="slice the data to what is valid", valid_count=valid_count is not None)
    return op.argsort(unwrap(data), axis, not is_ascend, dtype)
