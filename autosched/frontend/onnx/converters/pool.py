"""Pooling."""

from __future__ import annotations

from typing import Any

from autosched.frontend.onnx.converters.conv import require_images, window_padding
from autosched.frontend.onnx.node import Node
from autosched.frontend.onnx.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


def _window(node: Node) -> dict[str, Any]:
    shape = require_images(node)
    kernel = list(node.attr("kernel_shape"))
    strides, dilations = list(node.attr("strides", [1, 1])), list(node.attr("dilations", [1, 1]))
    return {
        "pool_size": kernel, "strides": strides, "dilation": dilations, "ceil_mode": bool(node.attr("ceil_mode", 0)),
        "padding": window_padding(node, shape[2:], kernel, strides, dilations),
    }  # fmt: skip


@converter("MaxPool")
def max_pool(node: Node) -> Expr:
    return op.nn.max_pool2d(node.input(0), **_window(node))


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    return op.nn.avg_pool2d(node.input(0), **_window(node), count_include_pad=bool(node.attr("count_include_pad", 0)))


@converter("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    if node.info(0).ndim == 4:
        return op.nn.adaptive_avg_pool2d(node.input(0), output_size=1)
    return op.mean(node.input(0), axis=tuple(range(2, node.info(0).ndim)), keepdims=True)


@converter("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    return op.max(node.input(0), axis=tuple(range(2, node.info(0).ndim)), keepdims=True)
