"""Parts of images, given as boxes, sampled to one size (RoiAlign)."""

from __future__ import annotations

from autosched.frontend import regions
from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax.expr import Expr


@converter("RoiAlign")
def roi_align(node: Node) -> Expr:
    """Images [N, C, H, W], boxes [R, 4] as (x1, y1, x2, y2), the image [R] of each; gives [R, C, high, wide]."""
    n, c, h, w = node.info(0).dims
    samples, mode = node.attr("sampling_ratio", 0), node.attr("mode", "avg")
    from_corners = _half_pixel(node)
    if samples < 1 or mode not in ("avg", "max") or 0 in (h, w):
        raise node.no_kernel(f"{samples} samples a part, mode '{mode}', of {[n, c, h, w]}")
    return regions.roi_align(
        node.emit, node.call_te, node.input(0), node.input(1), node.input(2), high=node.attr("output_height", 1),
        wide=node.attr("output_width", 1), scale=node.attr("spatial_scale", 1.0), samples=samples,
        from_corners=from_corners, mode=mode,
    )  # fmt: skip


def _half_pixel(node: Node) -> bool:
    """Whether boxes are counted from the corners of pixels; older versions count from their centres."""
    known = ("half_pixel", "output_half_pixel")
    how = node.attr("coordinate_transformation_mode", known[0]) if node.opset >= 16 else known[1]
    if how not in known:
        raise node.fail(f"there is no coordinate_transformation_mode '{how}'", hint=f"one of {', '.join(known)}")
    return how == known[0]
