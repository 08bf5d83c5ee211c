"""Pooling over dimensions 2 and 3; other dimensions (also a channel block behind) stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched import te
from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr
from autosched.topi.conv2d import out_size, pad_spatial, slack
from autosched.topi.reduction import nan_attrs
from autosched.topi.shapes import Dim, ImageShape, axis_names, dims, image_shape, is_below, known


def pooled_size(size: Dim, kernel: int, stride: int, dilation: int, before: int, after: int, ceil_mode: bool) -> Dim:
    """How many windows there are; with `ceil_mode` one that begins inside but ends outside counts too."""
    if min(kernel, stride, dilation) < 1:
        raise ShapeError(
            f"a window of {kernel} with stride {stride} and dilation {dilation}", hint="all are at least 1"
        )
    count = out_size(size, kernel, stride, dilation, before, after)
    if not ceil_mode:
        return count
    count = known((slack(size, kernel, dilation, before, after) + (stride - 1)) // stride + 1)
    inside = known((size + before - 1) // stride + 1)  # windows that begin there
    if isinstance(count, int) and isinstance(inside, int):
        return min(count, inside)
    return count if stride + after <= (kernel - 1) * dilation + 1 else E.minimum(count, inside)


def _windows(
    x: Tensor, pool_size: Sequence[int], strides: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, outside: float,
) -> tuple[Tensor, ImageShape]:  # fmt: skip
    """The padded input, grown at the end so that every window lies inside it, and the result's shape."""
    shape = image_shape(x)
    sizes, grown = [], list(padding)
    for i in (0, 1):
        size = shape[2 + i]
        count = pooled_size(size, pool_size[i], strides[i], dilation[i], padding[i], padding[2 + i], ceil_mode)
        sizes.append(count)
        if not ceil_mode:
            continue
        needed = known((count - 1) * strides[i] + (pool_size[i] - 1) * dilation[i] + 1 - size - padding[i])
        grown[2 + i] = max(needed, padding[2 + i]) if isinstance(needed, int) else padding[2 + i] + strides[i] - 1
    return pad_spatial(x, grown, outside), (*shape[:2], *sizes, *shape[4:])


def _window_axes(pool_size: Sequence[Dim]) -> list[IterVar]:
    return [te.reduce_axis((0, dims((k,))[0]), f"rv{i}") for i, k in enumerate(pool_size)]


def max_pool2d(
    x: Tensor, pool_size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool, keep_nan: bool = False,
) -> Tensor:  # fmt: skip
    """The largest value of each window; padding never wins. A NaN is passed over, or kept with `keep_nan`.

    A window of -inf alone gives -inf with `keep_nan`, else the smallest finite number where it has padding.
    """
    lowest = te.min_value(x.dtype).value  # type: ignore[attr-defined]
    lowest = -math.inf if keep_nan and is_float(x.dtype) else lowest
    padded, shape = _windows(x, pool_size, strides, dilation, padding, ceil_mode, lowest)
    ry, rx = _window_axes(pool_size)

    def compute(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr, *rest: PrimExpr) -> PrimExpr:
        at = (i * strides[0] + ry * dilation[0], j * strides[1] + rx * dilation[1])
        return te.max(padded(n, c, *at, *rest), axis=[ry, rx])

    return te.compute(
        dims(shape), lambda *i: compute(*i), name="pool_max", attrs=nan_attrs(x, keep_nan),
        varargs_names=axis_names(len(shape)),
    )  # fmt: skip


def avg_pool2d(
    x: Tensor, pool_size: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    ceil_mode: bool, count_include_pad: bool,
) -> Tensor:  # fmt: skip
    """The mean of each window, over what lies in the image (or, with `count_include_pad`, in the padding as well)."""
    padded, shape = _windows(x, pool_size, strides, dilation, padding, ceil_mode, 0.0)
    ry, rx = _window_axes(pool_size)
    size: tuple[Dim, ...] = image_shape(x)[2:4]

    def total(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr, *rest: PrimExpr) -> PrimExpr:
        at = (i * strides[0] + ry * dilation[0], j * strides[1] + rx * dilation[1])
        return te.sum(padded(n, c, *at, *rest), axis=[ry, rx])

    names = axis_names(len(shape))
    pool_sum = te.compute(dims(shape), lambda *i: total(*i), name="pool_sum", varargs_names=names)

    def count(index: PrimExpr, axis: int) -> PrimExpr | int:
        """How many elements of a window count along one axis; a number where that is the same for all windows."""
        k, stride, step = pool_size[axis], strides[axis], dilation[axis]
        low, high = (-padding[axis], size[axis] + padding[2 + axis]) if count_include_pad else (0, size[axis])
        last = known((shape[2 + axis] - 1) * stride - padding[axis] + (k - 1) * step - high)
        are_inside = not ceil_mode and (count_include_pad or not padding[2 + axis])
        if -padding[axis] >= low and (are_inside or is_below(last, 0)):
            return k
        start = index * stride - padding[axis]
        # elements start + t * step with low <= element < high
        first = E.maximum(E.floordiv(low - start + step - 1, step), 0)
        end = E.minimum(E.floordiv(high - start + step - 1, step), k)
        return end - first

    def mean(*i: PrimExpr) -> PrimExpr:
        elements = count(i[2], 0) * count(i[3], 1)
        divisor = E.const(elements, x.dtype) if isinstance(elements, int) else E.cast(x.dtype, elements)
        return pool_sum(*i) / divisor

    return te.compute(dims(shape), mean, name="pool_avg", varargs_names=names)


def _widest(size: Dim, count: int) -> Dim:
    """The elements of the widest of `count` windows, or one more where the size is not known."""
    if isinstance(size, int):
        return max(-(-(i + 1) * size // count) - i * size // count for i in range(count))
    return size if count == 1 else known((size + count - 1) // count + 1)


def adaptive_avg_pool2d(x: Tensor, output_size: Sequence[int]) -> Tensor:
    """The mean over windows that divide the image as evenly as possible into `output_size`.

    Window i of n over a size s reaches from floor(i s / n) to ceil((i + 1) s / n).
    """
    shape = image_shape(x)
    result = (*shape[:2], *output_size, *shape[4:])
    size: tuple[Dim, ...] = shape[2:4]
    ry, rx = _window_axes([_widest(s, n) for s, n in zip(size, output_size, strict=True)])
    names = axis_names(len(shape))

    def start(i: PrimExpr, axis: int) -> PrimExpr:
        return i * size[axis] // output_size[axis]

    even = [is_below(known(s % n), 1) for s, n in zip(size, output_size, strict=True)]

    def length(i: PrimExpr, axis: int) -> PrimExpr | int:
        s, n = size[axis], output_size[axis]
        return known(s // n) if even[axis] else ((i + 1) * s + n - 1) // n - start(i, axis)

    def total(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr, *rest: PrimExpr) -> PrimExpr:
        inside = True if all(even) else te.all(ry < length(i, 0), rx < length(j, 1))
        at = (start(i, 0) + ry, start(j, 1) + rx)
        return te.sum(x(n, c, *at, *rest), axis=[ry, rx], where=inside)

    pool_sum = te.compute(dims(result), lambda *i: total(*i), name="adaptive_pool_sum", varargs_names=names)

    def mean(*i: PrimExpr) -> PrimExpr:
        elements = length(i[2], 0) * length(i[3], 1)
        divisor = E.const(elements, x.dtype) if isinstance(elements, int) else E.cast(x.dtype, elements)
        return pool_sum(*i) / divisor

    return te.compute(dims(result), mean, name="adaptive_pool_avg", varargs_names=names)
