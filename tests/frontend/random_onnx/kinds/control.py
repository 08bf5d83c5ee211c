"""Branches and loops."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.frontend.random_onnx.kinds.base import kind
from tests.frontend.random_onnx.maker import Maker, Size, Unfit, Value, value_info

UNARY = ("Relu", "Neg", "Tanh", "Abs", "Sigmoid")


def _graph(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: dict[str, str]) -> onnx.GraphProto:
    """A branch's or a loop's graph; outputs are types by names."""
    return helper.make_graph(nodes, "inner", inputs, [value_info(n, d, None) for n, d in outputs.items()])


@kind(("float32",), weight=0.5)
def branch(m: Maker, x: Value) -> None:
    """One of two operators, by a condition of an input or of the value."""
    if m.chance(0.5):
        condition = m.input((), "bool")
    else:
        total = m.node("ReduceSum", x, shape=(), keepdims=0)
        condition = m.node("Greater", total, m.scalar(0, x), dtype="bool")
    sides = {}
    for side in ("then_branch", "else_branch"):
        result = m.name("b")
        sides[side] = _graph([helper.make_node(m.choose(*UNARY), [x.name], [result])], [], {result: x.dtype})
    m.node("If", condition, shape=x.shape, dtype=x.dtype, **sides)


@kind(("float32",), weight=0.5)
def loop(m: Maker, x: Value) -> None:
    """A value that each turn scales and adds to; of all turns one more result has each."""
    turns, kept = m.choose(1, 2, 5), m.chance(0.5)
    step, go, state, again, scaled, after = (m.name("l") for _ in range(6))
    factor = m.constant(np.float32(0.5))
    nodes = [
        helper.make_node("Identity", [go], [again]), helper.make_node("Mul", [state, factor.name], [scaled]),
        helper.make_node("Add", [scaled, x.name], [after]),
    ]  # fmt: skip
    inputs = [value_info(step, "int64", ()), value_info(go, "bool", ()), value_info(state, x.dtype, None)]
    body = _graph(nodes, inputs, {again: "bool", after: x.dtype, **({scaled: x.dtype} if kept else {})})
    results = [(x.shape, x.dtype), *([((turns, *x.shape), x.dtype)] if kept else [])]
    m.results("Loop", [m.constant(turns, "int64"), None, x], results, body=body)


@kind(("float32",), least_rank=2, weight=0.5)
def scan(m: Maker, x: Value) -> None:
    """A running sum along the first axis, and its last row."""
    if isinstance(x.shape[0], Size) or not 1 <= x.shape[0] <= 33:
        raise Unfit
    before, row, after, out = (m.name("s") for _ in range(4))
    nodes = [helper.make_node("Add", [before, row], [after]), helper.make_node(m.choose(*UNARY), [after], [out])]
    inputs = [value_info(before, x.dtype, None), value_info(row, x.dtype, None)]
    body = _graph(nodes, inputs, {after: x.dtype, out: x.dtype})
    start = m.other(x.shape[1:], x.dtype)
    results = [(x.shape[1:], x.dtype), (x.shape, x.dtype)]
    m.results("Scan", [start, x], results, body=body, num_scan_inputs=1, scan_input_directions=[m.random.randint(0, 1)])
