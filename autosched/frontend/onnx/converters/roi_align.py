"""Parts of images, given as boxes, sampled to one size (RoiAlign)."""

from __future__ import annotations

import numpy as np

from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.topi.indexing import checked, weighted_rows

NEIGHBOURS = 2  # along an axis, of which a sample between pixels is made


@converter("RoiAlign")
def roi_align(node: Node) -> Expr:
    """Images [N, C, H, W], boxes [R, 4] as (x1, y1, x2, y2), the image [R] of each; gives [R, C, high, wide].

    Each pixel of the result is the mean, or the maximum, of samples of its part of the box; a sample is a weighted sum
    of four pixels, so the result is a sum of weighted rows of channels. Source: He et al. 2017, Mask R-CNN.
    """
    n, c, h, w = node.info(0).dims
    boxes, dtype, mode = node.info(1).dims[0], node.info(0).dtype, node.attr("mode", "avg")
    samples, shift = node.attr("sampling_ratio", 0), _half_pixel(node)
    high, wide = node.attr("output_height", 1), node.attr("output_width", 1)
    if samples < 1 or mode not in ("avg", "max") or not (isinstance(h, int) and isinstance(w, int)) or 0 in (h, w):
        raise node.no_kernel(f"{samples} samples a part, mode '{mode}', of {[n, c, h, w]}")
    real = dtype if dtype == "float64" else "float32"
    scaled = op.multiply(op.astype(node.input(1), real), constant(node.attr("spatial_scale", 1.0), real))
    corners = node.emit(op.subtract(scaled, constant(0.5 if shift else 0.0, real)))

    def along(first: int, size: int, parts: int, shape: tuple[Dim, ...]) -> tuple[Expr, Expr]:
        """Positions and weights of the neighbours of each sample, [R, parts, samples, 2] in a wider shape."""
        start, end = (op.strided_slice(corners, axes=(1,), begin=(k,), end=(k + 1,)) for k in (first, first + 2))
        extent = op.subtract(end, start)
        step = op.divide(extent if shift else op.maximum(extent, constant(1, real)), constant(parts, real))
        part = np.repeat(np.arange(parts), samples)
        inside = np.tile(np.arange(samples) + 0.5, parts)
        within = op.divide(op.multiply(constant(inside, real), step), constant(samples, real))
        at = node.emit(op.add(op.add(start, op.multiply(constant(part, real), step)), within))
        counts = op.logical_and(op.greater_equal(at, constant(-1, real)), op.less_equal(at, constant(size, real)))
        at = node.emit(op.clip(at, 0.0, size - 1.0))
        low = node.emit(op.floor(at))
        share = node.emit(op.subtract(at, low))
        weights = op.stack([op.subtract(constant(1, real), share), share], axis=2)
        weights = op.where(op.expand_dims(counts, 2), weights, constant(0, real))
        places = op.stack([low, op.minimum(op.add(low, constant(1, real)), constant(size - 1, real))], axis=2)
        wanted = ShapeExpr(shape)
        return (
            node.emit(op.reshape(node.emit(op.astype(places, "int64")), wanted)),
            node.emit(op.reshape(node.emit(weights), wanted)),
        )

    y, weight_y = along(1, h, high, (boxes, high, 1, samples, NEIGHBOURS, 1, 1))
    x, weight_x = along(0, w, wide, (boxes, 1, wide, 1, 1, samples, NEIGHBOURS))
    image = node.emit(node.call_te(checked, node.input(2), n, "the image of a region"))
    image = node.emit(op.reshape(image, ShapeExpr((boxes, 1, 1, 1, 1, 1, 1))))
    row = op.add(op.multiply(image, constant(h, "int64")), y)
    share = constant(1 / samples**2 if mode == "avg" else 1, real)
    place, weight = (
        node.emit(op.reshape(node.emit(value), ShapeExpr((boxes, high * wide, (samples * NEIGHBOURS) ** 2))))
        for value in (
            op.add(op.multiply(row, constant(w, "int64")), x),
            op.multiply(op.multiply(weight_y, weight_x), share),
        )
    )
    seen = node.emit(op.permute_dims(op.astype(node.input(0), real), (0, 2, 3, 1)))
    pixels = node.emit(op.reshape(seen, ShapeExpr((n * h * w, c))))
    joined = node.emit(node.call_te(weighted_rows, pixels, place, weight, "sum" if mode == "avg" else "max"))
    result = node.emit(op.permute_dims(op.astype(joined, dtype), (0, 2, 1)))
    return op.reshape(result, ShapeExpr((boxes, c, high, wide)))


def _half_pixel(node: Node) -> bool:
    """Whether boxes are counted from the corners of pixels; older versions count from their centres."""
    known = ("half_pixel", "output_half_pixel")
    how = node.attr("coordinate_transformation_mode", known[0]) if node.opset >= 16 else known[1]
    if how not in known:
        raise node.fail(f"there is no coordinate_transformation_mode '{how}'", hint=f"one of {', '.join(known)}")
    return how == known[0]
