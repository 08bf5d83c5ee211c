"""Further operators under TVM's names in `topi`, made of the others."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.expr import ExprLike, PrimExpr, const_int
from autosched.topi.broadcast import Operand, elementwise
from autosched.topi.create import full, full_like
from autosched.topi.manipulate import concatenate, expand_dims
from autosched.topi.shapes import axis_names, dims, int_shape, normal_axes
from autosched.topi.sort import argsort, take_along


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape. Raises ValueError for none, or for different shapes."""
    tensors = list(xs)
    if not tensors:
        raise InvalidValueError("elemwise_sum needs at least one tensor")
    for t in tensors:
        if not isinstance(t, Tensor):
            raise InvalidTypeError(f"elemwise_sum takes tensors, not {type(t).__name__}")
        if [const_int(n) for n in t.shape] != [const_int(n) for n in tensors[0].shape]:
            raise ShapeError(f"elemwise_sum: '{t.name}' has another shape than '{tensors[0].name}'")

    def total(*i: PrimExpr) -> PrimExpr:
        result: PrimExpr = tensors[0](*i)
        for t in tensors[1:]:
            result = E.add(result, t(*i))
        return result

    shape = dims(tensors[0].shape)
    return te.compute(shape, total, name="T_elemwise_sum", varargs_names=axis_names(len(shape)))


def mod(x: Operand, y: Operand) -> Tensor:
    """x % y with the sign of x, as C has it."""
    return elementwise(E.truncmod, "T_mod", x, y)


def floor_mod(x: Operand, y: Operand) -> Tensor:
    """x % y with the sign of y."""
    return elementwise(E.floormod, "T_floor_mod", x, y)


def left_shift(x: Operand, y: Operand) -> Tensor:
    """x << y."""
    return elementwise(lambda a, b: a << b, "T_left_shift", x, y)


def right_shift(x: Operand, y: Operand) -> Tensor:
    """x >> y."""
    return elementwise(lambda a, b: a >> b, "T_right_shift", x, y)


def bitwise_and(x: Operand, y: Operand) -> Tensor:
    """x & y."""
    return elementwise(lambda a, b: a & b, "T_bitwise_and", x, y)


def bitwise_or(x: Operand, y: Operand) -> Tensor:
    """x | y."""
    return elementwise(lambda a, b: a | b, "T_bitwise_or", x, y)


def bitwise_xor(x: Operand, y: Operand) -> Tensor:
    """x ^ y."""
    return elementwise(lambda a, b: a ^ b, "T_bitwise_xor", x, y)


def bitwise_not(x: Tensor) -> Tensor:
    """~x."""
    return elementwise(lambda a: ~a, "T_bitwise_not", x)


def trunc(x: Tensor) -> Tensor:
    """x without its fraction."""
    return elementwise(lambda a: E.call("trunc", a), "T_trunc", x)


def tan(x: Tensor) -> Tensor:
    """The tangent."""
    return elementwise(lambda a: E.call("tan", a), "T_tan", x)


def isnan(x: Tensor) -> Tensor:
    """Whether an element is no number."""
    return elementwise(lambda a: E.call("isnan", a, dtype="bool"), "T_isnan", x)


def zeros(shape: Sequence[int], dtype: str = "float32") -> Tensor:
    """Zeros."""
    return full(shape, dtype, 0)


def ones(shape: Sequence[int], dtype: str = "float32") -> Tensor:
    """Ones."""
    return full(shape, dtype, 1)


def zeros_like(x: Tensor) -> Tensor:
    """Zeros of a tensor's shape and dtype."""
    return full_like(x, 0)


def ones_like(x: Tensor) -> Tensor:
    """Ones of a tensor's shape and dtype."""
    return full_like(x, 1)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    return concatenate([expand_dims(t, axis) for t in tensors], axis)


def flip(x: Tensor, axis: int = 0) -> Tensor:
    """The elements along an axis in the opposite order."""
    (place,) = normal_axes(x, axis)

    def compute(*i: PrimExpr) -> PrimExpr:
        return x(*(E.sub(x.shape[k] - 1, v) if k == place else v for k, v in enumerate(i)))

    return te.compute(dims(x.shape), compute, name="T_flip", varargs_names=axis_names(x.ndim))


def repeat(x: Tensor, repeats: int, axis: int = 0) -> Tensor:
    """Each element along an axis several times."""
    (place,) = normal_axes(x, axis)
    shape = [n * repeats if k == place else n for k, n in enumerate(int_shape(x))]

    def compute(*i: PrimExpr) -> PrimExpr:
        return x(*(E.floordiv(v, repeats) if k == place else v for k, v in enumerate(i)))

    return te.compute(dims(shape), compute, name="T_repeat", varargs_names=axis_names(x.ndim))


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

    return te.compute(dims(shape), compute, name="T_one_hot", varargs_names=axis_names(len(shape)))


def ndarray_size(x: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements, as a tensor of shape ()."""
    total = 1
    for n in int_shape(x):
        total *= n
    return full((), dtype, total)


def floordiv(x: Operand, y: Operand) -> Tensor:
    """x / y rounded down."""
    return elementwise(E.floordiv, "T_floordiv", x, y)


def div(x: Operand, y: Operand) -> Tensor:
    """x / y, of integers rounded to zero."""
    return elementwise(E.div, "T_div", x, y)


def atan2(x: Operand, y: Operand) -> Tensor:
    """The angle of the point (y, x)."""
    return elementwise(lambda a, b: E.call("atan2", a, b), "T_atan2", x, y)


def fast_exp(x: Tensor) -> Tensor:
    """e ** x: kernels compute it by a polynomial in any case, as they do the next two."""
    return elementwise(te.exp, "T_fast_exp", x)


def fast_tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return elementwise(te.tanh, "T_fast_tanh", x)


def fast_erf(x: Tensor) -> Tensor:
    """The error function."""
    return elementwise(te.erf, "T_fast_erf", x)


def ceil_log2(x: Tensor) -> Tensor:
    """The logarithm to base 2, rounded up."""
    return elementwise(lambda a: E.call("ceil", E.call("log2", a)), "T_ceil_log2", x)


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """The elements' bits as another type of as many."""
    return elementwise(lambda a: E.call("reinterpret", a, dtype=dtype), "T_reinterpret", x)


def expand_like(a: Tensor, shape_like: Tensor, axis: Sequence[int]) -> Tensor:
    """The tensor repeated along new dimensions `axis`, with the shape of another one."""
    added = normal_axes(shape_like, axis)
    if a.ndim + len(added) != shape_like.ndim and not (a.ndim == 1 and len(added) == shape_like.ndim):
        raise ShapeError(f"expand_like: {a.shape} with new dimensions {added} as {shape_like.shape}")

    def compute(*i: PrimExpr) -> PrimExpr:
        kept = [v for k, v in enumerate(i) if k not in added]
        return a(*kept) if kept or not a.ndim else a(0)

    return te.compute(dims(shape_like.shape), compute, name="T_expand_like", varargs_names=axis_names(shape_like.ndim))


def sort(data: Tensor, axis: int = -1, is_ascend: bool = True) -> Tensor:
    """The elements along an axis in order; NaN is greater than all numbers."""
    (place,) = normal_axes(data, axis)
    return take_along(data, argsort(data, place, not is_ascend, "int32"), place)


floormod = floor_mod

__all__ = [
    "atan2", "ceil_log2", "div", "expand_like", "fast_erf", "fast_exp", "fast_tanh", "floordiv", "floormod",
    "reinterpret", "sort",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "elemwise_sum", "flip", "floor_mod", "isnan",
    "left_shift", "mod", "ndarray_size", "one_hot", "ones", "ones_like", "repeat", "right_shift", "stack", "tan",
    "trunc", "zeros", "zeros_like",
]  # fmt: skip
