"""Between [N, C, H, W] and channels in blocks, [N, C / c, H, W, c]."""

from __future__ import annotations

from autosched.te import Tensor
from autosched.tir.expr import PrimExpr, const, if_then_else
from autosched.topi.conv2d import channel_block
from autosched.topi.shapes import compute_over, image_shape


def layout_transform(x: Tensor, src_layout: str, dst_layout: str, channels: int) -> Tensor:
    """Reorder channels; into blocks, missing channels are zero; out of blocks, `channels` are kept."""
    source, target = channel_block(src_layout), channel_block(dst_layout)
    shape = image_shape(x)
    if source and target:
        return _between(x, source, target, channels)
    if target:
        n, total, *rest = shape

        def block(*i: PrimExpr) -> PrimExpr:
            channel = i[1] * target + i[-1]
            value = x(i[0], channel, *i[2:-1])
            return value if total % target == 0 else if_then_else(channel < total, value, const(0, x.dtype))

        return compute_over((n, -(-total // target), *rest, target), block, "T_layout_trans")
    n, _, *rest = shape[:-1]

    def unblock(*i: PrimExpr) -> PrimExpr:
        return x(i[0], i[1] // source, *i[2:], i[1] % source)

    return compute_over((n, channels, *rest), unblock, "T_layout_trans")


def _between(x: Tensor, source: int, target: int, channels: int) -> Tensor:
    n, _, *rest = image_shape(x)[:-1]

    def compute(*i: PrimExpr) -> PrimExpr:
        channel = i[1] * target + i[-1]
        value = x(i[0], channel // source, *i[2:-1], channel % source)
        return value if channels % target == 0 else if_then_else(channel < channels, value, const(0, x.dtype))

    return compute_over((n, -(-channels // target), *rest, target), compute, "T_layout_trans")
