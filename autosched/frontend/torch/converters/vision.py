"""Operators of torchvision: regions of images, and deformable convolutions; `nms` is PyTorch's."""

from __future__ import annotations

from autosched.frontend import regions
from autosched.frontend.deformable import DeformableConv
from autosched.frontend.torch.emitter import Emitter, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


@converter("torchvision::roi_align")
def roi_align(
    t: Emitter, input: Expr, rois: Expr, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Expr:  # fmt: skip
    """`rois` [R, 5]: the image of a region, and x1, y1, x2, y2."""
    if sampling_ratio < 1:
        raise t.fail("regions with as many samples as their sizes say have no kernel")
    if not all(isinstance(s, int) for s in (pooled_height, pooled_width)):
        raise t.fail("regions of open sizes")
    boxes = t(op.strided_slice(rois, axes=(1,), begin=(1,), end=(5,)))
    image = t(op.strided_slice(rois, axes=(1,), begin=(0,), end=(1,)))
    image = t.reshape(t.cast(image, "int64"), (t.shape(rois)[0],))
    return regions.roi_align(
        t, t.builder.call_te, input, boxes, image, high=pooled_height, wide=pooled_width, scale=spatial_scale,
        samples=sampling_ratio, from_corners=aligned, mode="avg",
    )  # fmt: skip


@converter("torchvision::deform_conv2d")
def deform_conv2d(
    t: Emitter, input: Expr, weight: Expr, offset: Expr, mask: Expr, bias: Expr, stride_h: int, stride_w: int,
    pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Expr:  # fmt: skip
    if not all(info_of(x).is_static for x in (input, weight, offset, mask)):
        raise t.fail("a deformable convolution of images of open sizes")
    convolution = DeformableConv(
        t, t.builder.call_te, input, weight, offset, bias, mask if use_mask else None, strides=(stride_h, stride_w),
        pads=(pad_h, pad_w, pad_h, pad_w), dilations=(dilation_h, dilation_w), groups=groups,
        offset_groups=offset_groups,
    )  # fmt: skip
    return convolution.result()
