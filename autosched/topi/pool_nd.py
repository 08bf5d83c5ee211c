"""Pooling over any number of dimensions of plain images, [N, C, …]."""

from __future__ import annotations

from collections.abc import Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.dtypes import is_float, largest_finite
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.conv_nd import Spatial
from autosched.topi.pool import pooled_size
from autosched.topi.shapes import axis_names, dims, int_shape


def pool_shape(
    shape: Sequence[int], kernel: Sequence[int], windows: Spatial, ceil_mode: bool
) -> tuple[int, ...]:  # fmt: skip
    """The result's shape."""
    sizes = (
        as_int(pooled_size(s, k, windows.strides[a], windows.dilation[a], *windows.around(a), ceil_mode))
        for a, (s, k) in enumerate(zip(shape[2:], kernel, strict=True))
    )
    return (*shape[:2], *sizes)


def _window_axes(kernel: Sequence[int]) -> list[IterVar]:
    return [te.reduce_axis((0, size), f"rv{a}") for a, size in enumerate(dims(kernel))]


def pool_nd(
    x: Tensor, kernel: Sequence[int], windows: Spatial, kind: str, ceil_mode: bool, count_include_pad: bool
) -> Tensor:
    """The largest value ("max") or the mean ("avg") of each window; padding never wins, and counts if that is asked."""
    shape = int_shape(x)
    result = pool_shape(shape, kernel, windows, ceil_mode)
    over = _window_axes(kernel)
    names = axis_names(len(result))

    def at(i: Sequence[PrimExpr]) -> list[PrimExpr]:
        return [
            i[2 + a] * windows.strides[a] + k.var * windows.dilation[a] - windows.around(a)[0]
            for a, k in enumerate(over)
        ]

    def read(i: Sequence[PrimExpr], outside: PrimExpr) -> PrimExpr:
        place = at(i)
        inside = te.all(*(c for p, size in zip(place, shape[2:], strict=True) for c in (p >= 0, p < size)))
        return E.if_then_else(inside, x(i[0], i[1], *place), outside)

    if kind == "max":
        lowest = E.const(-largest_finite(x.dtype), x.dtype) if is_float(x.dtype) else te.min_value(x.dtype)
        return te.compute(
            dims(result), lambda *i: te.max(read(i, lowest), axis=over), name="pool_max", varargs_names=names
        )
    zero = E.const(0, x.dtype)
    total = te.compute(dims(result), lambda *i: te.sum(read(i, zero), axis=over), name="pool_sum", varargs_names=names)

    def count(i: PrimExpr, a: int) -> PrimExpr:
        """How many elements of a window count along one dimension."""
        before, after = windows.around(a)
        low, high = (-before, shape[2 + a] + after) if count_include_pad else (0, shape[2 + a])
        step, start = windows.dilation[a], i * windows.strides[a] - before
        first = E.maximum(E.floordiv(low - start + step - 1, step), 0)
        return E.minimum(E.floordiv(high - start + step - 1, step), kernel[a]) - first

    def mean(*i: PrimExpr) -> PrimExpr:
        elements = count(i[2], 0)
        for a in range(1, len(kernel)):
            elements = elements * count(i[2 + a], a)
        return total(*i) / E.cast(x.dtype, E.maximum(elements, 1))

    return te.compute(dims(result), mean, name="pool_avg", varargs_names=names)


def adaptive_pool_nd(x: Tensor, output_size: Sequence[int], kind: str = "avg") -> Tensor:
    """The mean or the maximum of windows that divide the image as evenly as possible into `output_size`.

    Window i of n over a size s reaches from floor(i s / n) to ceil((i + 1) s / n).
    """
    shape = int_shape(x)
    result = (*shape[:2], *output_size)
    names = axis_names(len(result))
    widest = [
        max(-(-(i + 1) * s // n) - i * s // n for i in range(n))
        for s, n in zip(shape[2:], output_size, strict=True)
    ]  # fmt: skip
    over = _window_axes(widest)

    def bounds(i: PrimExpr, a: int) -> tuple[PrimExpr, PrimExpr]:
        s, n = shape[2 + a], output_size[a]
        start = E.floordiv(i * s, n)
        return start, E.floordiv((i + 1) * s + n - 1, n) - start

    def element(*i: PrimExpr) -> PrimExpr:
        parts = [bounds(i[2 + a], a) for a in range(len(over))]
        inside = te.all(*(k.var < length for k, (_, length) in zip(over, parts, strict=True)))
        place = [start + k.var for k, (start, _) in zip(over, parts, strict=True)]
        reduce = te.max if kind == "max" else te.sum
        return reduce(x(i[0], i[1], *place), axis=over, where=inside)

    pooled = te.compute(dims(result), element, name=f"adaptive_pool_{kind}", varargs_names=names)
    if kind == "max":
        return pooled

    def mean(*i: PrimExpr) -> PrimExpr:
        elements: PrimExpr = E.const(1, "int64")
        for a in range(len(over)):
            elements = elements * bounds(i[2 + a], a)[1]
        return pooled(*i) / E.cast(x.dtype, elements)

    return te.compute(dims(result), mean, name="adaptive_pool_mean", varargs_names=names)
