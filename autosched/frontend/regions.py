"""Parts of images, given as boxes, sampled to one size, as all importers write them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.frontend.size_arithmetic import info_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.struct_info import Dim
from autosched.topi.indexing import checked, weighted_rows

NEIGHBOURS = 2  # along an axis, of which a sample between pixels is made
Emit = Callable[[Expr], Expr]  # binds a value


def roi_align(
    emit: Emit, call_te: Callable[..., Expr], images: Expr, boxes: Expr, image_of_box: Expr, *, high: int, wide: int,
    scale: float, samples: int, from_corners: bool, mode: str,
) -> Expr:  # fmt: skip
    """Images [N, C, H, W], boxes [R, 4] as (x1, y1, x2, y2), the image [R] of each; gives [R, C, high, wide].

    Each pixel of the result is the mean, or the maximum, of samples of its part of the box; a sample is a weighted sum
    of four pixels, so the result is a sum of weighted rows of channels. Source: He et al. 2017, Mask R-CNN.

    scale         of the boxes: pixels of the images for one of theirs
    samples       of each part along an axis, 1 at least
    from_corners  boxes are counted from the corners of pixels, and may be of any size; else from their centres, and a
                  box is one pixel wide at least
    mode          "avg" or "max"
    """
    (n, c, h, w), dtype, n_boxes = info_of(images).dims, info_of(images).dtype, info_of(boxes).dims[0]
    real = dtype if dtype == "float64" else "float32"
    scaled = op.multiply(op.astype(boxes, real), _constant(scale, real))
    corners = emit(op.subtract(scaled, _constant(0.5 if from_corners else 0.0, real)))

    def along(first: int, size: Dim, parts: int, shape: tuple[Dim, ...]) -> tuple[Expr, Expr]:
        """Positions and weights of the neighbours of each sample, [R, parts, samples, 2] in a wider shape."""
        most = emit(_size(size, real))
        last = emit(op.subtract(most, _constant(1, real)))
        start, end = (op.strided_slice(corners, axes=(1,), begin=(k,), end=(k + 1,)) for k in (first, first + 2))
        extent = op.subtract(end, start)
        step = op.divide(extent if from_corners else op.maximum(extent, _constant(1, real)), _constant(parts, real))
        part = np.repeat(np.arange(parts), samples)
        inside = np.tile(np.arange(samples) + 0.5, parts)
        within = op.divide(op.multiply(_constant(inside, real), step), _constant(samples, real))
        at = emit(op.add(op.add(start, op.multiply(_constant(part, real), step)), within))
        counts = op.logical_and(op.greater_equal(at, _constant(-1, real)), op.less_equal(at, most))
        at = emit(op.minimum(op.maximum(at, _constant(0, real)), last))
        low = emit(op.floor(at))
        share = emit(op.subtract(at, low))
        weights = op.stack([op.subtract(_constant(1, real), share), share], axis=2)
        weights = op.where(op.expand_dims(counts, 2), weights, _constant(0, real))
        places = op.stack([low, op.minimum(op.add(low, _constant(1, real)), last)], axis=2)
        wanted = ShapeExpr(shape)
        return (
            emit(op.reshape(emit(op.astype(places, "int64")), wanted)),
            emit(op.reshape(emit(weights), wanted)),
        )

    y, weight_y = along(1, h, high, (n_boxes, high, 1, samples, NEIGHBOURS, 1, 1))
    x, weight_x = along(0, w, wide, (n_boxes, 1, wide, 1, 1, samples, NEIGHBOURS))
    image = emit(call_te(checked, image_of_box, n, "the image of a region"))
    image = emit(op.reshape(image, ShapeExpr((n_boxes, 1, 1, 1, 1, 1, 1))))
    row = op.add(op.multiply(image, _size(h, "int64")), y)
    share = _constant(1 / samples**2 if mode == "avg" else 1, real)
    place, weight = (
        emit(op.reshape(emit(value), ShapeExpr((n_boxes, high * wide, (samples * NEIGHBOURS) ** 2))))
        for value in (
            op.add(op.multiply(row, _size(w, "int64")), x),
            op.multiply(op.multiply(weight_y, weight_x), share),
        )
    )
    pixels = emit(op.reshape(emit(op.permute_dims(op.astype(images, real), (0, 2, 3, 1))), ShapeExpr((n * h * w, c))))
    joined = emit(call_te(weighted_rows, pixels, place, weight, "sum" if mode == "avg" else "max"))
    return op.reshape(emit(op.permute_dims(op.astype(joined, dtype), (0, 2, 1))), ShapeExpr((n_boxes, c, high, wide)))


def _size(size: Dim, dtype: str) -> Expr:
    """A size as a number of kernels."""
    return _constant(size, dtype) if isinstance(size, int) else op.size_values((size,), is_scalar=True, dtype=dtype)


def _constant(value: object, dtype: str) -> Constant:
    return Constant(np.asarray(value, dtype))
