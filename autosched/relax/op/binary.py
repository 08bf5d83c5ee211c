"""Element-wise operators of several tensors, broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched import topi
from autosched.errors import InvalidTypeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.registry import Limit, OpDef, define_op, sample, some_elements
from autosched.relax.op.types import broadcast, broadcast_dims, common_dtype, compare, tensor
from autosched.relax.struct_info import ShapeStructInfo, StructInfo, TensorStructInfo, same_dim, to_dim
from autosched.te import Tensor

PAIRS = (((3, 5), (3, 5)), ((2, 3, 5), (5,)), ((1, 4, 1), (3, 1, 2)), ((), (2,)))
INT_PAIR = (((4,), "int32"), ((1,), "int32"))


def _binary(
    name: str,
    compute: Callable[..., Tensor],
    reference: Callable[..., object],
    infer: Callable[..., StructInfo] = broadcast,
    low: float = -2.0,
) -> OpDef:
    samples = [*(sample(a, b, low=low) for a, b in PAIRS), sample(*INT_PAIR, low=1, high=9)]
    return define_op(name, inputs=("x1", "x2"), infer_type=infer, compute=compute, reference=reference, samples=samples)


def _divide(x: Array, y: Array) -> Array:
    """Integers divide rounding to zero; by zero it is 0, as in kernels."""
    if not np.issubdtype(x.dtype, np.integer):
        quotient: Array = x / y
        return quotient
    with np.errstate(all="ignore"):
        down = x // y
        is_low = (x - down * y != 0) & ((x < 0) != (y < 0)) & (y != 0)
    found: Array = (down + is_low).astype(x.dtype)
    return found


def _power(x: Array, y: Array) -> Array:
    """Of integers with a negative exponent, rounded towards zero: 0 unless x is 1 or -1."""
    if not np.issubdtype(x.dtype, np.integer):
        power: Array = np.power(x, y)
        return power
    inverse = np.where((x == 1) | (x == -1), np.where(y % 2 == 0, 1, x), 0)
    found: Array = np.where(y < 0, inverse, np.power(x, np.maximum(y, 0))).astype(x.dtype)
    return found


add = _binary("add", topi.add, np.add)
subtract = _binary("subtract", topi.subtract, np.subtract)
multiply = _binary("multiply", topi.multiply, np.multiply)
divide = _binary("divide", topi.divide, _divide, low=0.5)
floor_divide = _binary("floor_divide", topi.floor_divide, np.floor_divide, low=0.5)
power = _binary("power", topi.power, _power, low=0.1)
maximum = _binary("maximum", topi.maximum, np.maximum)
minimum = _binary("minimum", topi.minimum, np.minimum)

equal = _binary("equal", topi.equal, np.equal, compare)
not_equal = _binary("not_equal", topi.not_equal, np.not_equal, compare)
less = _binary("less", topi.less, np.less, compare)
less_equal = _binary("less_equal", topi.less_equal, np.less_equal, compare)
greater = _binary("greater", topi.greater, np.greater, compare)
greater_equal = _binary("greater_equal", topi.greater_equal, np.greater_equal, compare)

_BOOLS = [sample(((3, 4), "bool"), ((4,), "bool"))]
logical_and = define_op(
    "logical_and", inputs=("x1", "x2"), infer_type=broadcast, compute=topi.logical_and, reference=np.logical_and,
    samples=_BOOLS,
)  # fmt: skip
logical_or = define_op(
    "logical_or", inputs=("x1", "x2"), infer_type=broadcast, compute=topi.logical_or, reference=np.logical_or,
    samples=_BOOLS,
)  # fmt: skip


def _where_type(condition: StructInfo, x1: StructInfo, x2: StructInfo) -> TensorStructInfo:
    c, a, b = tensor(condition), tensor(x1), tensor(x2)
    if c.dtype != "bool":
        raise InvalidTypeError(f"the condition is a tensor of {c.dtype}, expected bool", hint="compare, or use astype")
    return TensorStructInfo(broadcast_dims(c.dims, a.dims, b.dims), common_dtype(a, b))


where = define_op(
    "where", inputs=("condition", "x1", "x2"), infer_type=_where_type, compute=topi.where, reference=np.where,
    samples=[sample(((3, 4), "bool"), (3, 4), (4,)), sample(((3, 1), "bool"), (), (1, 4))],
)  # fmt: skip


def _broadcast_to_type(x: StructInfo, shape: StructInfo) -> TensorStructInfo:
    t = tensor(x)
    assert isinstance(shape, ShapeStructInfo) and shape.values is not None, "the shape must be known"
    target = TensorStructInfo(shape.values, t.dtype)
    if not target.is_static and t.ndim <= target.ndim:  # whether symbols agree shows when the function is called
        return target
    return TensorStructInfo(broadcast_dims(t.dims, target.dims), t.dtype)


def _equal_or_one(x: StructInfo, shape: StructInfo) -> list[Limit]:
    """Dimensions that are not seen to be 1, nor the new ones, have to be those; none is less than 0."""
    target = TensorStructInfo(shape.values if isinstance(shape, ShapeStructInfo) else None).dims
    pairs = zip(reversed(tensor(x).dims), reversed(target), strict=False)
    equal = [(to_dim(n) - to_dim(m), 0, 0) for n, m in pairs if not same_dim(n, 1) and not same_dim(n, m)]
    return [*equal, *(limit for m in target for limit in some_elements(m))]


broadcast_to = define_op(
    "broadcast_to", inputs=("x", "shape"), infer_type=_broadcast_to_type, compute=topi.broadcast_to,
    limits=_equal_or_one,
    reference=lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, shape)),
    samples=[sample((3, 1), ShapeStructInfo((2, 3, 4))), sample((1,), ShapeStructInfo((2, 2)))],
)  # fmt: skip


def _shape(x: StructInfo, shape: StructInfo) -> TensorStructInfo:
    assert isinstance(shape, ShapeStructInfo) and shape.values is not None, "the shape must be known"
    return TensorStructInfo(shape.values, tensor(x).dtype)


def _one_or_equal(x: StructInfo, shape: StructInfo) -> list[Limit]:
    pairs = [(to_dim(n), to_dim(m)) for n, m in zip(tensor(x).dims, _shape(x, shape).dims) if not same_dim(n, m)]
    return [((n - m) * (n - 1), 0, 0) for n, m in pairs]


# Each dimension is 1 or that of the new shape; which one, a call says.
stretch = define_op(
    "stretch", inputs=("x", "shape"), infer_type=_shape, compute=topi.stretch, limits=_one_or_equal,
    reference=np.broadcast_to,
    samples=[sample((3, 1), ShapeStructInfo((3, 4))), sample((1, 2, 1), ShapeStructInfo((1, 2, 1)))],
)  # fmt: skip
