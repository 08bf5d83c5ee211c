"""Chains of layers with distinct weights as ONNX models, so that a layer is measured as it runs inside of a network.

One layer alone flatters: its weights stay in the cache, and whoever works in another layout pays for the change at both
ends. The time of N layers minus that of one, divided by N - 1, holds neither; the same is done for every peer.

A layer whose output has its input's shape follows the one before. Others read the same input, and each adds its
output to the sum so far, as a residual network does (`fan`). Element-wise layers would melt into one kernel if they
followed each other, so each has inputs and outputs of its own (`apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


@dataclass
class GraphBuilder:
    """Collects nodes, weights, inputs and outputs of a model."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)

    def add_input(self, name: str, shape: Sequence[int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
        return name

    def add_output(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def weight(self, shape: Sequence[int], scale: float) -> str:
        """A new random weight."""
        name = f"w{len(self.weights)}"
        values = self.rng.standard_normal(tuple(shape), dtype=np.float32) * np.float32(scale)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def call(self, op: str, *inputs: str, **attributes: object) -> str:
        """A new node; gives the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def model(self) -> onnx.ModelProto:
        plain = helper.make_graph(self.nodes, "chain", self.inputs, self.outputs, self.weights)
        others = sorted({node.domain for node in self.nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in others)]
        made = helper.make_model(plain, opset_imports=opsets, ir_version=8)
        inferred: onnx.ModelProto = onnx.shape_inference.infer_shapes(made)  # gives the outputs their shapes
        return inferred


Layer = Callable[[GraphBuilder, str], str]


def follow(shape: Sequence[int], layer: Layer, count: int) -> onnx.ModelProto:
    """x -> layer -> layer … -> y."""
    builder = GraphBuilder()
    x = builder.add_input("x", shape)
    for _ in range(count):
        x = layer(builder, x)
    builder.add_output(x)
    return builder.model()


def fan(shape: Sequence[int], out_shape: Sequence[int], layer: Layer, count: int) -> onnx.ModelProto:
    """y = relu(layer(x) + y), again and again with other weights; the first y is an input."""
    builder = GraphBuilder()
    x, y = builder.add_input("x", shape), builder.add_input("y", out_shape)
    for _ in range(count):
        y = builder.call("Relu", builder.call("Add", layer(builder, x), y))
    builder.add_output(y)
    return builder.model()


def apart(
    shapes: Sequence[Sequence[int]], layer: Callable[[GraphBuilder, Sequence[str]], str], count: int
) -> onnx.ModelProto:
    """The layer once for each of `count` sets of inputs, each with its own output."""
    builder = GraphBuilder()
    for i in range(count):
        names = [builder.add_input(f"x{i}_{j}", shape) for j, shape in enumerate(shapes)]
        builder.add_output(layer(builder, names))
    return builder.model()


@dataclass(frozen=True)
class Conv:
    """A convolution's geometry; the image is square."""

    size: int
    c_in: int
    c_out: int
    kernel: int
    stride: int = 1
    pad: int = 0
    groups: int = 1

    @property
    def out_size(self) -> int:
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, self.c_in, self.size, self.size)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (1, self.c_out, self.out_size, self.out_size)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return (self.c_out, self.c_in // self.groups, self.kernel, self.kernel)

    @property
    def flops(self) -> int:
        return 2 * self.out_size**2 * int(np.prod(self.weight_shape))

    @property
    def is_square(self) -> bool:
        """Whether such layers can follow each other."""
        return self.shape == self.out_shape

    @property
    def scale(self) -> float:
        """Of random weights, so that values keep their size through ReLUs."""
        return float(np.sqrt(2 / np.prod(self.weight_shape[1:])))

    def layer(self, builder: GraphBuilder, x: str) -> str:
        weight, bias = builder.weight(self.weight_shape, self.scale), builder.weight((self.c_out,), 0.1)
        return builder.call(
            "Conv", x, weight, bias,
            kernel_shape=[self.kernel] * 2, strides=[self.stride] * 2, pads=[self.pad] * 4, group=self.groups,
        )  # fmt: skip

    def chain(self, count: int) -> onnx.ModelProto:
        """Convolution, bias and ReLU, after each other or as a fan."""
        if self.is_square:
            return follow(self.shape, lambda b, x: b.call("Relu", self.layer(b, x)), count)
        return fan(self.shape, self.out_shape, self.layer, count)


def matmul_chain(m: int, widths: Sequence[int], count: int) -> onnx.ModelProto:
    """x @ w for each pair of neighbouring widths (the last one leads back to the first), `count` times."""

    def layer(builder: GraphBuilder, x: str) -> str:
        for k, n in zip(widths, [*widths[1:], widths[0]], strict=True):
            x = builder.call("MatMul", x, builder.weight((k, n), float(np.sqrt(1 / k))))
        return x

    return follow((m, widths[0]), layer, count)


def attention_chain(heads: int, tokens: int, width: int, count: int) -> onnx.ModelProto:
    """q = softmax(q kᵀ / √width) v with other k and v, which are inputs, each time."""
    shape = (1, heads, tokens, width)
    builder = GraphBuilder()
    q = builder.add_input("q", shape)
    scale = builder.constant(np.array(1 / np.sqrt(width), np.float32))
    for i in range(count):
        k, v = builder.add_input(f"key{i}", shape), builder.add_input(f"value{i}", shape)
        scores = builder.call("MatMul", q, builder.call("Transpose", k, perm=[0, 1, 3, 2]))
        q = builder.call("MatMul", builder.call("Softmax", builder.call("Mul", scores, scale), axis=-1), v)
    builder.add_output(q)
    return builder.model()


def gelu(builder: GraphBuilder, x: str) -> str:
    """x · (1 + erf(x / √2)) / 2 as PyTorch's exporters write it."""
    root, one, half = (builder.constant(np.array(v, np.float32)) for v in (np.sqrt(2), 1, 0.5))
    error = builder.call("Erf", builder.call("Div", x, root))
    return builder.call("Mul", builder.call("Mul", x, builder.call("Add", error, one)), half)
