"""Further operators of Relay: those for which relax has the same one, under Relay's signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsInt

import numpy as np

from autosched.errors import ShapeError, refuse
from autosched.relax import Constant, Expr, op
from autosched.relax.expr import Op
from autosched.relax.op.registry import OPERATORS
from autosched.relay.expr import TupleWrapper, const, unwrap
from autosched.relay.op.tensor import _binary, _reduction, _unary, info

tan, asin, acos, atan, sinh, cosh = map(_unary, ("tan", "asin", "acos", "atan", "sinh", "cosh"))
asinh, acosh, atanh, trunc, isnan, isinf = map(_unary, ("asinh", "acosh", "atanh", "trunc", "isnan", "isinf"))
isfinite, bitwise_not = map(_unary, ("isfinite", "bitwise_not"))
logical_xor, mod, floor_mod, left_shift = map(_binary, ("logical_xor", "mod", "floor_mod", "left_shift"))
right_shift, bitwise_and, bitwise_or, bitwise_xor = map(
    _binary, ("right_shift", "bitwise_and", "bitwise_or", "bitwise_xor")
)
std = _reduction("std")


def mean_variance(
    data: object, axis: object = None, keepdims: bool = False, exclude: bool = False
) -> tuple[Expr, Expr]:
    """Mean and variance over axes."""
    x = unwrap(data)
    return _reduction("mean")(x, axis, keepdims, exclude), _reduction("variance")(x, axis, keepdims, exclude)


def mean_std(data: object, axis: object = None, keepdims: bool = False, exclude: bool = False) -> tuple[Expr, Expr]:
    """Mean and standard deviation over axes."""
    x = unwrap(data)
    return _reduction("mean")(x, axis, keepdims, exclude), std(x, axis, keepdims, exclude)


def reshape_like(data: object, shape_like: object) -> Expr:
    """The same elements in another tensor's shape."""
    return op.reshape(unwrap(data), info(unwrap(shape_like)).static_shape)


def broadcast_to_like(data: object, broadcast_type: object) -> Expr:
    """A tensor repeated to another one's shape."""
    return op.broadcast_to(unwrap(data), info(unwrap(broadcast_type)).static_shape)


def collapse_sum_like(data: object, collapse_type: object) -> Expr:
    """A tensor summed to another one's shape."""
    return op.collapse_sum_like(unwrap(data), unwrap(collapse_type))


def collapse_sum_to(data: object, shape: Sequence[int]) -> Expr:
    """A tensor summed to a shape."""
    return op.collapse_sum_to(unwrap(data), tuple(shape))


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


def cumsum(data: object, axis: int | None = None, dtype: str | None = None, exclusive: object = None) -> Expr:
    """Running sums."""
    return op.cumsum(unwrap(data), axis, dtype, bool(exclusive))


def cumprod(data: object, axis: int | None = None, dtype: str | None = None, exclusive: object = None) -> Expr:
    """Running products."""
    return op.cumprod(unwrap(data), axis, dtype, bool(exclusive))


def flip(data: object, axis: int) -> Expr:
    """A tensor back to front along an axis."""
    return op.flip(unwrap(data), axis)


def trilu(data: object, k: Constant | int = 0, upper: bool = True) -> Expr:
    """The upper or lower triangle."""
    number = int(k.data if isinstance(k, Constant) else k)
    return (op.triu if upper else op.tril)(unwrap(data), number)


def all(data: object, axis: int | Sequence[int] | None = None, keepdims: bool = False, exclude: bool = False) -> Expr:
    """Whether all elements along axes hold."""
    return op.astype(_reduction("min")(op.astype(unwrap(data), "int32"), axis, keepdims, exclude), "bool")


def any(data: object, axis: int | Sequence[int] | None = None, keepdims: bool = False, exclude: bool = False) -> Expr:  # noqa: A001
    """Whether one element along axes holds."""
    return op.astype(_reduction("max")(op.astype(unwrap(data), "int32"), axis, keepdims, exclude), "bool")


def log2(data: object) -> Expr:
    """The logarithm to the base 2."""
    return op.multiply(op.log(unwrap(data)), 1.4426950408889634)


def log10(data: object) -> Expr:
    """The logarithm to the base 10."""
    return op.multiply(op.log(unwrap(data)), 0.4342944819032518)


def get(op_name: str) -> Op:
    """The operator of a name; where relax has none of that name, one that stands for the name alone."""
    return OPERATORS[op_name].op if op_name in OPERATORS else Op(f"relay.{op_name}")
