"""Normalisations and softmax."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import numpy as np

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import are_same, is_empty, product_of
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, TupleGetItem


@converter("BatchNormalization")
def batch_norm(node: Node) -> Expr | tuple[Expr, ...]:
    if node.opset < 9 and not node.attr("spatial", 1) and node.info(0).ndim > 2:
        return _batch_norm_of_elements(node)
    arguments = [node.input(i) for i in range(5)]
    if node.attr("training_mode", 0):
        return _train(node, arguments)
    return TupleGetItem(
        node.emit(op.nn.batch_norm(*arguments, axis=1, epsilon=node.attr("epsilon", 1e-5), training=False)), 0
    )


def _batch_norm_of_elements(node: Node) -> tuple[Expr, ...]:
    """With spatial=0 each element of an image has a mean and a variance of its own, as channels have else."""
    whole, own = node.info(0).dims, node.sizes_from(1, 0)
    if not are_same(whole[1:], own):
        raise node.fail(f"spatial=0 and scales {list(own)} for images {list(whole[1:])}")
    flat = [node.emit(op.reshape(node.input(i), ShapeExpr((*whole[: int(not i)], math.prod(own))))) for i in range(5)]
    made = batch_norm(dataclasses.replace(node, inputs=flat, attrs={**node.attrs, "spatial": 1}))
    results = made if isinstance(made, tuple) else (made,)
    return tuple(op.reshape(node.emit(r), ShapeExpr(own if i else whole)) for i, r in enumerate(results))


def _train(node: Node, arguments: list[Expr]) -> tuple[Expr, ...]:
    """Normalise by the batch's own mean and variance; these also move the running ones by 1 - momentum."""
    x, scale, bias, old_mean, old_variance = arguments
    shape, dtype, keep = node.shape(0), node.info(0).dtype, node.attr("momentum", 0.9)
    axes = tuple(i for i in range(len(shape)) if i != 1)
    wide = ShapeExpr(tuple(n if i == 1 else 1 for i, n in enumerate(shape)))
    mean = node.emit(op.mean(x, axis=axes, keepdims=True))
    variance = node.emit(op.variance(x, axis=axes, keepdims=True))
    scale, bias = (node.emit(op.reshape(v, wide)) for v in (scale, bias))
    inverse = op.rsqrt(op.add(variance, constant(node.attr("epsilon", 1e-5), dtype)))
    whole = op.add(op.multiply(op.multiply(op.subtract(x, mean), inverse), scale), bias)

    def moved(old: Expr, new: Expr) -> Expr:
        kind = info_of(old).dtype
        own = node.emit(op.reshape(op.astype(new, kind) if kind != dtype else new, ShapeExpr((shape[1],))))
        return op.add(op.multiply(old, constant(keep, kind)), op.multiply(own, constant(1 - keep, kind)))

    return whole, moved(old_mean, mean), moved(old_variance, variance)


@converter("LRN")
def lrn(node: Node) -> Expr:
    size = node.attr("size")
    if size < 1:
        raise node.fail(f"over {size} channels")
    return op.nn.lrn(
        node.input(0), size=size, alpha=node.attr("alpha", 1e-4), beta=node.attr("beta", 0.75),
        bias=node.attr("bias", 1.0),
    )  # fmt: skip


def _softmax(node: Node, definition: Callable[..., Expr]) -> Expr:
    """Before opset 13 everything from `axis` on is one dimension."""
    x = node.input(0)
    if node.opset >= 13:
        return definition(x, axis=node.attr("axis", -1))  # type: ignore[no-any-return]
    dims = node.info(0).dims
    axis = node.axis(node.attr("axis", 1)) if dims else 0
    if product_of(dims[axis + 1 :]) == 1:
        return definition(x, axis=axis)  # type: ignore[no-any-return]
    flat = node.emit(op.reshape(x, ShapeExpr((product_of(dims[:axis]), product_of(dims[axis:])))))
    return op.reshape(node.emit(definition(flat, axis=1)), ShapeExpr(dims))


@converter("Softmax")
def softmax(node: Node) -> Expr:
    return _softmax(node, op.nn.softmax)


@converter("LogSoftmax")
def log_softmax(node: Node) -> Expr:
    return _softmax(node, op.nn.log_softmax)


@converter("LayerNormalization")
def layer_norm(node: Node) -> Expr | tuple[Expr, ...]:
    """The normalised tensor, and where they are asked for the mean and 1 / the deviation, in float32."""
    dtype, axis = node.info(0).dtype, node.axis(node.attr("axis", -1))
    own, epsilon = node.sizes_from(0, axis), node.attr("epsilon", 1e-5)
    axes = tuple(range(axis, axis + len(own)))
    gamma = _whole(node, node.input(1), own)
    beta = _whole(node, node.input(2), own) if node.has(2) else Constant(np.zeros(own, dtype))
    whole = op.nn.layer_norm(node.input(0), gamma, beta, axes=axes, epsilon=epsilon)
    if node.num_outputs < 2:
        return whole
    wide = node.input(0) if dtype in ("float32", "float64") else node.emit(op.astype(node.input(0), "float32"))
    mean = node.emit(op.mean(wide, axis=axes, keepdims=True))
    variance = node.emit(op.variance(wide, axis=axes, keepdims=True))
    return whole, mean, op.rsqrt(op.add(variance, constant(epsilon, info_of(wide).dtype)))


def _whole(node: Node, x: Expr, shape: tuple[int, ...]) -> Expr:
    """A scale or bias over the whole of the normalised dimensions."""
    info = x.struct_info
    same = getattr(info, "static_shape", None) == shape
    return x if same else node.emit(op.broadcast_to(x, ShapeExpr(shape)))


@converter("InstanceNormalization")
def instance_norm(node: Node) -> Expr:
    """Normalise every channel of every image: mean and variance over the spatial dimensions."""
    x, dtype = node.input(0), node.info(0).dtype
    _, channels, *spatial = node.info(0).image_shape
    axes = tuple(range(2, 2 + len(spatial)))
    wide = ShapeExpr((1, channels, *(1,) * len(axes)))
    scale, bias = (node.emit(op.reshape(node.input(i), wide)) for i in (1, 2))
    centred = node.emit(op.subtract(x, op.mean(x, axis=axes, keepdims=True)))
    variance = op.add(op.variance(x, axis=axes, keepdims=True), constant(node.attr("epsilon", 1e-5), dtype))
    return op.add(op.multiply(op.multiply(centred, op.rsqrt(variance)), scale), bias)


@converter("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    """x divided by the sum of its absolute values, or by the root of that of its squares; 0 where that is 0."""
    x, axis, p = node.input(0), node.attr("axis", -1), node.attr("p", 2)
    if p not in (1, 2):
        raise node.fail(f"p={p}", hint="1 and 2 are possible")
    total = node.emit((op.sum_abs if p == 1 else op.sum_squares)(x, axis=axis, keepdims=True))
    length = total if p == 1 else node.emit(op.sqrt(total))
    zero = constant(0, node.info(0).dtype)
    return op.where(op.equal(length, zero), zero, op.divide(x, length))


@converter("Hardmax")
def hardmax(node: Node) -> Expr:
    """One at the first of the largest elements along an axis, zero elsewhere."""
    return _softmax(node, partial(_is_first_of_largest, node))


def _is_first_of_largest(node: Node, x: Expr, axis: int) -> Expr:
    info = info_of(x)
    axis = node.axis(axis, info.ndim)
    if is_empty(x):
        return x
    at = node.emit(op.argmax(x, axis=axis, keepdims=True))
    return op.astype(op.equal(at, node.counted(info.dims[axis], axis, info.ndim)), info.dtype)
