"""The k best, running sums, images of another size, RMS normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.frontend.onnx.node import Node, constant
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, TupleGetItem


@converter("TopK")
def topk(node: Node) -> tuple[Expr, ...]:
    k = node.integers(1)[0] if node.opset >= 10 else node.attr("k")
    if k < 0:
        raise node.fail(f"the {k} best")
    if not k:
        none = tuple(0 if i == node.axis(node.attr("axis", -1)) else d for i, d in enumerate(node.shape(0)))
        return Constant(np.zeros(none, node.info(0).dtype)), Constant(np.zeros(none, np.int64))
    best = op.topk(
        node.input(0), k=int(k), axis=node.attr("axis", -1), largest=bool(node.attr("largest", 1)), dtype="int64"
    )
    both = node.emit(best)
    return TupleGetItem(both, 0), TupleGetItem(both, 1)


@converter("CumSum")
def cumsum(node: Node) -> Expr:
    axis = int(node.number(1))
    if not node.attr("reverse", 0):
        return op.cumsum(node.input(0), axis=axis, exclusive=bool(node.attr("exclusive", 0)))
    x = node.input(0)
    total = node.emit(op.sum(x, axis=axis, keepdims=True))  # what is behind an element is all less what is before it
    before = node.emit(op.cumsum(x, axis=axis, exclusive=not node.attr("exclusive", 0)))
    return op.subtract(total, before)


@converter("CumProd")
def cumprod(node: Node) -> Expr:
    """Running products; backwards they are those of the flipped tensor, flipped."""
    x, axis = node.input(0), int(node.number(1))
    exclusive, reverse = bool(node.attr("exclusive", 0)), node.attr("reverse", 0)
    value = node.emit(op.flip(x, axis=axis)) if reverse else x
    result = op.cumprod(value, axis=axis, exclusive=exclusive)
    return op.flip(node.emit(result), axis=axis) if reverse else result


@converter("Resize", "Upsample")
def resize(node: Node) -> Expr:
    """Height and width of images."""
    shape = node.shape(0)
    position = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    scales: Any = [float(s) for s in node.array(position)] if node.has(position) and node.array(position).size else None
    sizes = [int(s) for s in node.integers(3)] if position == 2 and node.has(3) else None
    if node.attr("axes") is not None or len(shape) != 4 or node.attr("antialias", 0):
        raise node.no_kernel("only height and width of images [N, C, H, W] are resized, without antialias")
    if sizes is None:
        if scales is None:
            raise node.fail("neither sizes nor scales are known")
        sizes = [
            int(np.float32(s) * np.float32(f)) for s, f in zip(shape, scales, strict=True)
        ]  # as ONNX Runtime rounds
    if len(sizes) != 4 or min(sizes) < 1:
        raise node.fail(f"images of {shape} to {sizes}")
    if tuple(sizes[:2]) != tuple(shape[:2]):
        raise node.no_kernel(f"only height and width are resized, not {shape} to {sizes}")
    mode = node.attr("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise node.no_kernel(f"mode '{mode}'")
    how = node.attr("coordinate_transformation_mode", "half_pixel" if position == 2 else "asymmetric")
    if how not in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"):
        raise node.no_kernel(f"coordinate_transformation_mode '{how}'")
    if how == "align_corners" and scales is not None and any(s * f != n for s, f, n in zip(shape, scales, sizes)):
        raise node.no_kernel("scales that give no whole sizes, with align_corners")
    rounding = node.attr("nearest_mode", "round_prefer_floor" if position == 2 else "floor")
    return op.image.resize2d(
        node.input(0), ShapeExpr(tuple(sizes[2:])), layout="NCHW",
        method="nearest_neighbor" if mode == "nearest" else "linear", coordinate_transformation_mode=how,
        rounding_method="round" if rounding == "round_prefer_ceil" else rounding,
        scales=None if scales is None else tuple(scales[2:]),
    )  # fmt: skip


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(node: Node) -> Expr:
    """x * rsqrt(mean(x²) + epsilon) * scale over the dimensions from `axis` on."""
    x, dtype = node.input(0), node.info(0).dtype
    shape = node.shape(0)
    axes = tuple(range(node.attr("axis", -1) % len(shape), len(shape)))
    if node.shape(1) == shape[axes[0] :]:
        return op.nn.rms_norm(x, node.input(1), axes=axes, epsilon=node.attr("epsilon", 1e-5))
    square = node.emit(op.mean(node.emit(op.multiply(x, x)), axis=axes, keepdims=True))
    inverse = node.emit(op.rsqrt(op.add(square, constant(node.attr("epsilon", 1e-5), dtype))))
    return op.multiply(op.multiply(x, inverse), node.input(1))
