"""How the gradient of a pooling's result reaches its data, of images [N, C, H, W]."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.expr import PrimExpr
from autosched.topi.conv_nd import Spatial
from autosched.topi.pool_nd import pool_nd
from autosched.topi.shapes import compute_over, int_shape


def _taps(kernel: Sequence[int]) -> list[IterVar]:
    return [te.reduce_axis((0, E.const(k, "int64")), name) for k, name in zip(kernel, ("ry", "rx"), strict=True)]


def pool_backward(
    grads: Tensor, data: Tensor, kernel: Sequence[int], windows: Spatial, kind: str, count_include_pad: bool
) -> Tensor:
    """The gradient of the data: of a "max" for the first largest element of each window, of an "avg" for all."""
    shape, (rows, columns) = int_shape(data), int_shape(grads)[2:]
    height, width = shape[2:]
    starts = [windows.around(a)[0] for a in (0, 1)]

    def place(i: PrimExpr, tap: PrimExpr, a: int) -> PrimExpr:
        return i * windows.strides[a] + tap * windows.dilation[a] - starts[a]

    share: Callable[..., PrimExpr]
    if kind == "max":
        ry, rx = _taps(kernel)
        best = pool_nd(data, kernel, windows, "max", False, False)
        most = E.const(kernel[0] * kernel[1], "int32")

        def first(*i: PrimExpr) -> PrimExpr:
            y, x = place(i[2], ry.var, 0), place(i[3], rx.var, 1)
            inside = te.all(y >= 0, y < height, x >= 0, x < width)
            tap = E.cast("int32", ry.var * kernel[1] + rx.var)
            is_best = E.compare(E.EQ, data(i[0], i[1], y, x), best(*i))
            return te.min(E.if_then_else(inside, E.select(is_best, tap, most), most), axis=[ry, rx])

        chosen = compute_over(int_shape(best), first, "T_first")

        def share(i: Sequence[PrimExpr], ty: PrimExpr, tx: PrimExpr) -> PrimExpr:
            is_chosen = E.compare(E.EQ, chosen(*i), E.cast("int32", ty * kernel[1] + tx))
            return E.select(is_chosen, grads(*i), E.const(0, grads.dtype))
    else:

        def counted(i: PrimExpr, a: int) -> PrimExpr:
            size, step = shape[2 + a], windows.dilation[a]
            before, after = windows.around(a)
            low, high = (-before, size + after) if count_include_pad else (0, size)
            start = place(i, E.const(0, "int64"), a)
            least = E.maximum(E.floordiv(low - start + step - 1, step), 0)
            return E.minimum(E.floordiv(high - start + step - 1, step), kernel[a]) - least

        def share(i: Sequence[PrimExpr], ty: PrimExpr, tx: PrimExpr) -> PrimExpr:
            count = E.maximum(counted(i[2], 0) * counted(i[3], 1), 1)
            return grads(*i) / E.cast(grads.dtype, count)

    ty, tx = _taps(kernel)

    def gathered(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        apart = [p + s - t.var * d for p, s, t, d in zip((y, x), starts, (ty, tx), windows.dilation, strict=True)]
        at = [E.floordiv(p, s) for p, s in zip(apart, windows.strides, strict=True)]
        hits = [E.compare(E.EQ, E.floormod(p, s), 0) for p, s in zip(apart, windows.strides, strict=True)]
        inside = te.all(*hits, *(b for p, n in zip(at, (rows, columns), strict=True) for b in (p >= 0, p < n)))
        near = [E.maximum(E.minimum(p, n - 1), 0) for p, n in zip(at, (rows, columns), strict=True)]
        value = share((n, c, *near), ty.var, tx.var)
        return te.sum(E.if_then_else(inside, value, E.const(0, grads.dtype)), axis=[ty, tx])

    return compute_over(shape, lambda *i: gathered(*i), f"T_{kind}_pool_backward")
