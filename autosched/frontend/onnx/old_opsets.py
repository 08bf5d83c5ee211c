"""Nodes of opsets 1 to 8 as later opsets write them: broadcasting by attributes, sizes and types by attributes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from autosched.frontend.onnx.node import Node
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr

Update = Callable[[Node], Node]
UPDATES: dict[str, tuple[tuple[int, Update], ...]] = {}


def updated(node: Node) -> Node:
    """The node as the newest of these opsets would write it. Raises ImportModelError for what that cannot say."""
    for before, update in UPDATES.get(node.op_type, ()):
        if node.opset < before:
            node = update(node)
    return node


def _update(before: int, *names: str) -> Callable[[Update], Update]:
    """Register what is done to operators of opsets older than `before`."""

    def register(function: Update) -> Update:
        for name in names:
            UPDATES[name] = (*UPDATES.get(name, ()), (before, function))
        return function

    return register


def _with(node: Node, inputs: list[Expr | None] | None = None, **attrs: object) -> Node:
    return dataclasses.replace(node, inputs=node.inputs if inputs is None else inputs, attrs={**node.attrs, **attrs})


@_update(7, "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less")
def _broadcast(node: Node) -> Node:
    """`broadcast` lets the second operand fit the dimensions of the first from `axis` on, or the last ones."""
    a, b = node.shape(0), node.shape(1)
    if a == b:
        return node
    if not node.attr("broadcast", 0):
        raise node.fail(f"operands of {list(a)} and {list(b)} without broadcast=1")
    axis = node.attr("axis")
    start = len(a) - len(b) if axis is None else node.axis(axis)
    behind = len(a) - start - len(b)
    if behind < 0 or any(m not in (1, n) for n, m in zip(a[start:], b)):
        raise node.fail(f"an operand of {list(b)} does not fit {list(a)} from axis {start} on")
    if not behind:
        return node
    wide = node.emit(op.reshape(node.input(1), ShapeExpr((*b, *(1,) * behind))))
    return _with(node, [node.input(0), wide])


@_update(7, "PRelu")
def _slope_by_channel(node: Node) -> Node:
    """One slope for all, or one for each channel, which is dimension 1."""
    shape, slope = node.shape(0), node.shape(1)
    if len(slope) != 1 or slope == (1,) or len(shape) < 3:
        return node
    wide = node.emit(op.reshape(node.input(1), ShapeExpr((*slope, *(1,) * (len(shape) - 2)))))
    return _with(node, [node.input(0), wide])


@_update(9, "BatchNormalization")
def _batch_norm(node: Node) -> Node:
    if node.opset < 7 and not node.attr("is_test", 0):
        if node.num_outputs > 1:
            raise node.fail("is_test=0 with the outputs of training is not supported")
        return _with(node, training_mode=1)
    return node


@_update(7, "Dropout")
def _dropout(node: Node) -> Node:
    return _with(node, [node.input(0)])


@_update(6, "Cast")
def _cast(node: Node) -> Node:
    """The type is a text."""
    from onnx import TensorProto

    try:
        return _with(node, to=TensorProto.DataType.Value(str(node.attr("to")).upper()))
    except ValueError:
        raise node.fail(f"there is no type '{node.attr('to')}'") from None


@_update(6, "Selu")
def _selu(node: Node) -> Node:
    return _with(node, alpha=node.attr("alpha", 1.6732), gamma=node.attr("gamma", 1.0507))


@_update(6, "Tile")
def _tile(node: Node) -> Node:
    """Repeats along one axis, both as inputs."""
    times, axis = node.integers(1)[0], node.axis(node.integers(2)[0])
    repeats = np.ones(len(node.shape(0)), np.int64)
    repeats[axis] = times
    return _with(node, [node.input(0), Constant(repeats)])


@_update(2, "Pad")
def _pad(node: Node) -> Node:
    return _with(node, pads=node.attr("paddings"))


@_update(2, "Split")
def _split(node: Node) -> Node:
    return _with(node, [node.input(0)], split=node.integers(1)) if node.has(1) else node


@_update(2, "LpPool", "GlobalLpPool")
def _lp_pool(node: Node) -> Node:
    p = float(node.attr("p", 2.0))
    if p != int(p):
        raise node.fail(f"p={p} is not supported", hint="whole numbers are")
    return _with(node, p=int(p))


@_update(9, "Upsample")
def _upsample(node: Node) -> Node:
    """Scales are an attribute, first one for the height and one for the width."""
    scales = node.attr("scales")
    if node.opset < 7 and scales is None:
        scales = [1.0, 1.0, node.attr("height_scale"), node.attr("width_scale")]
    mode = {"bilinear": "linear"}.get(node.attr("mode", "nearest"), node.attr("mode", "nearest"))
    return _with(node, [node.input(0), Constant(np.asarray(scales, np.float32))], mode=mode)
