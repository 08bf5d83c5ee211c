"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str | None]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of float32 inputs (a dimension may be a name or None)."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """A node from space-separated names; "_" leaves an input out."""
    names = ["" if i == "_" else i for i in inputs.split()]
    return helper.make_node(op, names, outputs.split(), name=f"n_{outputs.split()[0]}", **attrs)


def small_conv_net(opset: int = 13) -> onnx.ModelProto:
    """Convolution, batch normalisation, pooling, a flattened fully connected layer."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype("float32")

    weights = {
        "w": draw(4, 3, 3, 3), "b": draw(4), "g": draw(4), "beta": draw(4), "m": draw(4), "v": np.abs(draw(4)) + 0.5,
        "fc": draw(5, 64), "fb": draw(5), "shape": np.array([0, -1], "int64"),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c g beta m v", "bn"),
        node("Relu", "bn", "r"), node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Reshape", "p shape", "f"), node("Gemm", "f fc fb", "y", transB=1),
    ]  # fmt: skip
    return make(nodes, {"x": (2, 3, 8, 8)}, ["y"], weights, opset)
