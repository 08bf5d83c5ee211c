"""Seeded random weights for an ONNX model, scaled so that activations stay of order one through all layers.

A model whose weights are all equal, or whose activations die out or explode, hides errors: every mistake rounds to
the same answer. Here each weight is drawn by its role (He's scale for products, near one for scales and variances,
small for biases); then the model is run node by node, and a product whose output strays gets its weight multiplied
by a power of two, so that the result does not depend on the last bits of the run.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter

import numpy as np
import onnx
from onnx import helper, numpy_helper

PRODUCTS = ("Conv", "Gemm", "MatMul")


def randomise(model: onnx.ModelProto, inputs: dict[str, np.ndarray], seed: int = 0) -> onnx.ModelProto:
    """Replace the weights of a model whose constants are initialisers; returns a new model.

    inputs  one array for each input of the model, of order one; the scales are fitted to them
    """
    result = onnx.ModelProto()
    result.CopyFrom(_without_tensors(model))
    arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    roles = find_roles(model.graph, arrays)
    for name, role in roles.items():
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        arrays[name] = draw(generator, role, arrays[name].shape)
    _fit_scales(result, arrays, inputs, roles)
    result.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in arrays.items())
    return result


def _without_tensors(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without its initialisers, which may be hundreds of megabytes."""
    graph = onnx.GraphProto(name=model.graph.name, node=model.graph.node, input=model.graph.input)
    graph.output.extend(model.graph.output)
    result = onnx.ModelProto(ir_version=model.ir_version, producer_name=model.producer_name, graph=graph)
    result.opset_import.extend(model.opset_import)
    return result


def find_roles(graph: onnx.GraphProto, arrays: dict[str, np.ndarray]) -> dict[str, str]:
    """Tell for each float initialiser what it is used as; those that are no weights (a clip's limits) are left out."""
    origin = {name: name for name in arrays}
    roles: dict[str, str] = {}
    for node in graph.node:
        if node.op_type in ("Unsqueeze", "Reshape", "Transpose", "Identity", "Cast") and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
            continue
        for position, name in enumerate(node.input):
            weight = origin.get(name)
            if weight is None or arrays[weight].dtype != np.float32 or arrays[weight].size == 1:
                continue
            if role := _role(node, position):
                roles.setdefault(weight, role)
    return roles


def _role(node: onnx.NodeProto, position: int) -> str:
    match node.op_type, position:
        case "Conv", 1:
            return "conv"
        case "Gemm", 1:
            transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            return "matmul_transposed" if transposed else "matmul"
        case "MatMul", 1:
            return "matmul"
        case ("BatchNormalization", 1) | ("LayerNormalization", 1) | ("Mul", _):
            return "scale"
        case "BatchNormalization", 4:
            return "variance"
        case ("Conv" | "Gemm" | "LayerNormalization", 2) | ("BatchNormalization", 2 | 3) | ("Add", _):
            return "bias"
    return ""


def draw(generator: np.random.Generator, role: str, shape: tuple[int, ...]) -> np.ndarray:
    """Draw one weight of a shape: products by fan-in, scales and variances in [0.8, 1.2], biases with deviation 0.1."""
    if role in ("scale", "variance"):
        return generator.uniform(0.8, 1.2, shape).astype(np.float32)
    values = generator.standard_normal(shape, dtype=np.float32)
    if role == "bias":
        return values * np.float32(0.1)
    fan_in = {
        "conv": math.prod(shape[1:]),
        "matmul": shape[-2] if len(shape) > 1 else 1,
        "matmul_transposed": shape[-1],
    }
    values *= np.float32(math.sqrt(2 / fan_in[role]))
    return values


def _fit_scales(
    model: onnx.ModelProto, arrays: dict[str, np.ndarray], inputs: dict[str, np.ndarray], roles: dict[str, str]
) -> None:
    """Run the graph once, node by node, and bring the root mean square of each product's output into [0.7, 1.5]."""
    values: dict[str, np.ndarray] = {**arrays, **inputs}
    left = Counter(name for node in model.graph.node for name in node.input)
    fitted: set[str] = set()
    for node in model.graph.node:
        outputs = run_node(node, values, model)
        weight = node.input[1] if node.op_type in PRODUCTS else ""
        if roles.get(weight) in ("conv", "matmul", "matmul_transposed") and weight not in fitted:
            fitted.add(weight)
            size = float(np.sqrt(np.mean(np.square(outputs[0], dtype=np.float64))))
            if not 0.7 <= size <= 1.5:
                arrays[weight] *= np.float32(2.0 ** -round(math.log2(size)))
                outputs = run_node(node, values, model)
        values.update(zip(node.output, outputs, strict=False))
        for name in node.input:
            left[name] -= 1
            if not left[name]:
                values.pop(name, None)


def run_node(node: onnx.NodeProto, values: dict[str, np.ndarray], model: onnx.ModelProto) -> list[np.ndarray]:
    """Run one node under ONNX Runtime on arrays; returns its outputs."""
    import onnxruntime

    names = [name for name in dict.fromkeys(node.input) if name]
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values[name].dtype), values[name].shape)
            for name in names
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    single = onnx.ModelProto(ir_version=model.ir_version, graph=graph)
    single.opset_import.extend(model.opset_import)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(single.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs: list[np.ndarray] = session.run(None, {name: values[name] for name in names})
    return outputs


def activation_sizes(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """Give (standard deviation, largest magnitude) of every float tensor that the model computes."""
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer} | inputs
    left = Counter(name for node in model.graph.node for name in node.input)
    sizes: dict[str, tuple[float, float]] = {}
    constant = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        for name, value in zip(node.output, run_node(node, values, model), strict=False):
            values[name] = value
            if all(source in constant for source in node.input):
                constant.add(name)
            elif value.dtype == np.float32:
                sizes[name] = float(value.std(dtype=np.float64)), float(np.abs(value).max())
        for name in node.input:
            left[name] -= 1
            if not left[name]:
                values.pop(name, None)
    return sizes
