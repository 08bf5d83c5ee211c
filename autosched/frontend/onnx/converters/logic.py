"""Comparisons, choices, conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.frontend.onnx.node import KERNEL_DTYPES, Node
from autosched.frontend.onnx.registry import CONVERTERS, converter
from autosched.relax import op
from autosched.relax.expr import Expr

BINARY = {
    "Equal": op.equal, "Greater": op.greater, "GreaterOrEqual": op.greater_equal, "Less": op.less,
    "LessOrEqual": op.less_equal, "And": op.logical_and, "Or": op.logical_or,
    "Xor": op.logical_xor,
}  # fmt: skip


def _binary(definition: Callable[..., Expr]) -> Callable[[Node], Expr]:
    return lambda node: definition(node.input(0), node.input(1))


for _name, _definition in BINARY.items():
    CONVERTERS[_name] = _binary(_definition)


@converter("Not")
def logical_not(node: Node) -> Expr:
    return op.logical_not(node.input(0))


@converter("Where")
def where(node: Node) -> Expr:
    return op.where(node.input(0), node.input(1), node.input(2))


@converter("Cast")
def cast(node: Node) -> Expr:
    from onnx import helper

    dtype = str(np.dtype(helper.tensor_dtype_to_np_dtype(node.attr("to"))))
    if dtype not in KERNEL_DTYPES:
        raise node.no_kernel(f"to {dtype}")
    return node.input(0) if dtype == node.info(0).dtype else op.astype(node.input(0), dtype)


@converter("CastLike")
def cast_like(node: Node) -> Expr:
    dtype = node.info(1).dtype
    return node.input(0) if dtype == node.info(0).dtype else op.astype(node.input(0), dtype)
