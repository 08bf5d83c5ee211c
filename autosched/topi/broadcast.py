"""Element-wise functions of several tensors, broadcast as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.size_expr import same_extent
from autosched.topi.shapes import Dim, axis_names, dims


def broadcast_shape(*shapes: Sequence[Dim]) -> tuple[PrimExpr, ...]:
    """The common shape; in every column the dimension that is not 1."""
    ndim = max(map(len, shapes))
    result = []
    for axis in range(-ndim, 0):
        column = [s[axis] for s in shapes if len(s) >= -axis]
        wide = [d for d in column if const_int(d) != 1]
        if len({const_int(d) for d in wide if const_int(d) is not None}) > 1:
            shown = ", ".join(str([const_int(d) or str(d) for d in s]) for s in shapes)
            raise ShapeError(f"shapes {shown} cannot be broadcast together")
        result.append(wide[0] if wide else column[0])
    return dims(result)


def element(x: Tensor, indices: Sequence[PrimExpr], shape: Sequence[PrimExpr]) -> PrimExpr:
    """The element of `x` that stands at `indices` of the broadcast result; 0 stands only where `x` is repeated."""
    start = len(indices) - x.ndim
    dims_of = zip(x.shape, indices[start:], shape[start:], strict=True)
    return x(*(IntImm(0, "int64") if const_int(s) == 1 != const_int(whole) else i for s, i, whole in dims_of))


Operand = Tensor | int | float | bool


def elementwise(f: Callable[..., PrimExpr], name: str, *operands: Operand) -> Tensor:
    """f of corresponding elements; numbers take the dtype of the last tensor."""
    for x in operands:
        if not isinstance(x, Tensor | PrimExpr | bool | int | float | np.generic):
            raise InvalidTypeError(f"{name.removeprefix('T_')}: expected a tensor or a number, got {type(x).__name__}")
    tensors = [x for x in operands if isinstance(x, Tensor)]
    shape = broadcast_shape(*(t.shape for t in tensors))
    dtype = tensors[-1].dtype

    def compute(*i: PrimExpr) -> PrimExpr:
        return f(*(element(x, i, shape) if isinstance(x, Tensor) else E.const(x, dtype) for x in operands))

    return te.compute(shape, compute, name=name, varargs_names=axis_names(len(shape)))


def add(x: Operand, y: Operand) -> Tensor:
    return elementwise(E.add, "T_add", x, y)


def subtract(x: Operand, y: Operand) -> Tensor:
    return elementwise(E.sub, "T_subtract", x, y)


def multiply(x: Operand, y: Operand) -> Tensor:
    return elementwise(E.mul, "T_multiply", x, y)


def divide(x: Operand, y: Operand) -> Tensor:
    """x / y; integers round to zero."""
    return elementwise(E.div, "T_divide", x, y)


def floor_divide(x: Operand, y: Operand) -> Tensor:
    def f(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return te.floor(a / b) if is_float(a.dtype) else E.floordiv(a, b)

    return elementwise(f, "T_floor_divide", x, y)


def power(x: Operand, y: Operand) -> Tensor:
    """x to the power y; of integers an integer, rounded towards zero and cut to the bits there are."""
    return elementwise(te.power, "T_power", x, y)


def _with_nan(pick: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    """`pick`, which gives its first operand where one is NaN, so that a NaN in the second is kept too."""

    def choose(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if isinstance(a, E.FloatImm | int | float):
            a, b = b, a
        if isinstance(b, E.FloatImm | int | float) or not is_float(b.dtype):
            return pick(a, b)
        return E.select(E.compare(E.NE, b, b), b, pick(a, b))

    return choose


def maximum(x: Operand, y: Operand) -> Tensor:
    """The larger of each two; NaN where one is NaN."""
    return elementwise(_with_nan(E.maximum), "T_maximum", x, y)


def minimum(x: Operand, y: Operand) -> Tensor:
    """The smaller of each two; NaN where one is NaN."""
    return elementwise(_with_nan(E.minimum), "T_minimum", x, y)


def _compare(kind: type[E.CmpOp], name: str) -> Callable[[Operand, Operand], Tensor]:
    return lambda x, y: elementwise(lambda a, b: E.compare(kind, a, b), name, x, y)


equal, not_equal = _compare(E.EQ, "T_equal"), _compare(E.NE, "T_not_equal")
less, less_equal = _compare(E.LT, "T_less"), _compare(E.LE, "T_less_equal")
greater, greater_equal = _compare(E.GT, "T_greater"), _compare(E.GE, "T_greater_equal")


def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return elementwise(E.logical_and, "T_logical_and", x, y)


def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return elementwise(E.logical_or, "T_logical_or", x, y)


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """x where the condition holds, else y."""
    return elementwise(E.select, "T_where", condition, x, y)


def cast(x: Tensor, dtype: str) -> Tensor:
    """The values as another dtype; floats become integers by dropping the fraction."""

    def convert(*i: PrimExpr) -> PrimExpr:
        value = x(*i)
        return E.compare(E.NE, value, 0) if dtype == "bool" and x.dtype != "bool" else E.cast(dtype, value)

    return te.compute(x.shape, convert, name="compute")


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x repeated along its dimensions of size 1 and along new ones in front."""
    full = broadcast_shape(x.shape, dims(shape))
    result = te.compute(
        full, lambda *i: element(x, i, full), name="T_broadcast_to", varargs_names=axis_names(len(full))
    )
    return result


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


floormod = floor_mod


def floordiv(x: Operand, y: Operand) -> Tensor:
    """x / y rounded down."""
    return elementwise(E.floordiv, "T_floordiv", x, y)


def div(x: Operand, y: Operand) -> Tensor:
    """x / y, of integers rounded to zero."""
    return elementwise(E.div, "T_div", x, y)


def atan2(x: Operand, y: Operand) -> Tensor:
    """The angle of the point (y, x)."""
    return elementwise(lambda a, b: E.call("atan2", a, b), "T_atan2", x, y)


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


def stretch(x: Tensor, shape: Sequence[Dim]) -> Tensor:
    """x repeated along the dimensions that turn out to be 1, to a shape that has the size of all others."""
    full = dims(shape)

    def compute(*i: PrimExpr) -> PrimExpr:
        return x(*(j if same_extent(n, m) else E.minimum(j, n - 1) for n, m, j in zip(x.shape, full, i, strict=True)))

    return te.compute(full, compute, name="T_stretch", varargs_names=axis_names(len(full)))
