"""Small ONNX models of many operators, and mutations of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from autosched.driver.build.graph import prepare
from autosched.frontend.onnx.importer import from_onnx
from autosched.frontend.onnx.model_file import read_model
from autosched.target import Target
from tests.fuzz.mutate import mutate_bytes, odd_value

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=2 -l1-bytes=32768 -l2-bytes=524288 -l3-bytes=33554432")


def model(
    nodes: Sequence[Any], inputs: dict[str, Sequence[int]], weights: dict[str, Any], outputs: Sequence[str]
) -> bytes:
    """The bytes of a model with float32 inputs; outputs have no declared shape."""
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, FLOAT, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(made.SerializeToString())


def _ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _f(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, "f")


def seeds(_: Path) -> list[bytes]:
    """Models that between them use most families of operators."""
    node = helper.make_node
    branch = helper.make_graph(
        [node("Relu", ["x"], ["b"])], "then", [], [helper.make_tensor_value_info("b", FLOAT, None)]
    )
    other = helper.make_graph(
        [node("Neg", ["x"], ["c"])], "else", [], [helper.make_tensor_value_info("c", FLOAT, None)]
    )
    body = helper.make_graph(
        [node("Identity", ["go"], ["again"]), node("Add", ["v", "v"], ["w"])], "body",
        [helper.make_tensor_value_info("n", INT64, ()), helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("v", FLOAT, None)],
        [helper.make_tensor_value_info("again", TensorProto.BOOL, ()), helper.make_tensor_value_info("w", FLOAT, None)],
    )  # fmt: skip
    return [
        model(
            [
                node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
                node("BatchNormalization", ["c", "s", "b", "b", "v"], ["n"], epsilon=1e-5),
                node("Relu", ["n"], ["r"]),
                node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
                node("AveragePool", ["p"], ["a"], kernel_shape=[2, 2], auto_pad="SAME_UPPER", count_include_pad=1),
                node("Flatten", ["a"], ["f"], axis=1),
                node("Gemm", ["f", "g", "h"], ["y"], alpha=0.5, transB=1),
                node("Softmax", ["y"], ["z"], axis=-1),
            ],
            {"x": (1, 3, 8, 8)},
            {"w": _f(4, 3, 3, 3), "b": _f(4), "s": _f(4), "v": abs(_f(4)), "g": _f(5, 16), "h": _f(5)}, ["z"],
        ),
        model(
            [
                node("Slice", ["x", "starts", "ends", "axes", "steps"], ["s"]),
                node("Split", ["x", "sizes"], ["a", "b"], axis=1),
                node("Concat", ["a", "b", "s"], ["c"], axis=1),
                node("Pad", ["c", "pads"], ["p"], mode="constant"),
                node("Transpose", ["p"], ["t"], perm=[1, 0, 2]),
                node("Reshape", ["t", "shape"], ["r"], allowzero=0),
                node("Expand", ["r", "wide"], ["e"]),
                node("Tile", ["e", "repeats"], ["l"]),
                node("Gather", ["l", "at"], ["g"], axis=0),
                node("ReduceMean", ["g", "axes"], ["m"], keepdims=0),
                node("Unsqueeze", ["m", "axes"], ["u"]), node("Squeeze", ["u", "axes"], ["q"]),
            ],
            {"x": (2, 6, 5)},
            {"starts": _ints(1), "ends": _ints(5), "axes": _ints(1), "steps": _ints(2), "sizes": _ints(2, 4),
             "pads": _ints(0, 1, 1, 0, 1, 1), "shape": _ints(0, 14, -1), "wide": _ints(10, 14, 1),
             "repeats": _ints(1, 1, 2), "at": _ints(0, 3, -1)}, ["q"],
        ),
        model(
            [
                node("Shape", ["x"], ["h"], start=0), node("Gather", ["h", "one"], ["d"]),
                node("Mul", ["d", "d"], ["d2"]), node("Range", ["zero", "d", "step"], ["i"]),
                node("ConstantOfShape", ["h"], ["k"], value=helper.make_tensor("v", FLOAT, [1], [2.0])),
                node("Cast", ["i"], ["if"], to=FLOAT), node("Mul", ["k", "if"], ["m"]),
                node("Where", ["mask", "m", "x"], ["q"]), node("CumSum", ["q", "zero"], ["s"], reverse=1),
                node("TopK", ["s", "two"], ["v", "vi"], axis=1, largest=1), node("ArgMax", ["s"], ["am"], axis=1),
                node("OneHot", ["am", "depth", "vals"], ["oh"], axis=-1),
                node("Clip", ["v", "", "hi"], ["z"]), node("Trilu", ["z"], ["tr"], upper=0),
                node("If", ["cond"], ["o"], then_branch=branch, else_branch=other),
                node("Loop", ["trips", "cond", "x"], ["lo"], body=body),
            ],
            {"x": (3, 4)},
            {"one": _ints(1), "zero": np.int64(0), "step": np.int64(1), "mask": np.eye(3, 4).astype(bool),
             "two": _ints(2),
             "depth": np.int64(6), "vals": _f(2), "hi": np.float32(3), "cond": np.array(True), "trips": np.int64(3)},
            ["tr", "o", "lo", "oh"],
        ),
        model(
            [
                node("LSTM", ["x", "W", "R", "B"], ["y", "yh"], hidden_size=3, direction="bidirectional"),
                node("Resize", ["i", "", "scales"], ["r"], mode="linear", coordinate_transformation_mode="half_pixel"),
                node("ConvTranspose", ["i", "k"], ["t"], strides=[2, 2], output_padding=[1, 1], group=1),
                node("DepthToSpace", ["i4"], ["ds"], blocksize=2, mode="CRD"),
                node("LayerNormalization", ["x", "ls"], ["ln"], axis=-1),
                node("InstanceNormalization", ["i", "is", "is"], ["in"]), node("LRN", ["i"], ["lr"], size=3),
                node("QuantizeLinear", ["i", "sc", "zp"], ["q"]), node("DequantizeLinear", ["q", "sc", "zp"], ["dq"]),
                node("ScatterElements", ["x2", "ge", "su"], ["sn"], axis=1),
                node("GatherND", ["x2", "si"], ["gn"]),
                node("GatherElements", ["x2", "ge"], ["gel"], axis=1), node("Dropout", ["x"], ["dr"]),
                node("GlobalAveragePool", ["i"], ["ga"]),
                node("MatMul", ["x", "mm"], ["m"]), node("Erf", ["x"], ["gl"]),
            ],
            {"x": (5, 1, 2), "i": (1, 2, 4, 4), "i4": (1, 4, 2, 2), "x2": (3, 4)},
            {"W": _f(2, 12, 2), "R": _f(2, 12, 3), "B": _f(2, 24), "scales": np.array([1, 1, 2, 2], "f"),
             "k": _f(2, 3, 3, 3), "ls": _f(2), "is": _f(2), "sc": np.float32(0.1), "zp": np.uint8(128),
             "si": np.array([[0], [2]]), "su": _f(3, 2),
             "ge": np.array([[0, 1], [2, 3], [-1, 0]]), "mm": _f(2, 7)},
            ["y", "yh", "r", "t", "ds", "ln", "in", "lr", "dq", "sn", "gn", "gel", "dr", "ga", "m", "gl"],
        ),
    ]  # fmt: skip


def mutate(data: bytes, rng: Random) -> bytes:
    """A field of the message changed most of the time, else bytes."""
    if rng.random() < 0.25:
        return mutate_bytes(data, rng)
    proto = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _mutate_field(proto, rng)
    return bytes(proto.SerializeToString())


def _mutate_field(proto: Any, rng: Random) -> None:
    message, field, value = rng.choice(_fields(proto))
    try:
        if not field.is_repeated if hasattr(field, "is_repeated") else field.label != field.LABEL_REPEATED:
            if rng.random() < 0.15 or field.message_type is not None:
                message.ClearField(field.name)
            else:
                setattr(message, field.name, _like(value, rng))
            return
        entries = getattr(message, field.name)
        at = rng.randrange(len(entries))
        match rng.randrange(4):
            case 0:
                del entries[at]
            case 1:
                entries.append(entries[rng.randrange(len(entries))])
            case _ if field.message_type is None:
                entries[at] = _like(entries[at], rng)
            case _:
                entries[at].CopyFrom(entries[rng.randrange(len(entries))])
    except (ValueError, TypeError, OverflowError, UnicodeError):
        return  # a value that no message can hold


def _like(value: Any, rng: Random) -> Any:
    if isinstance(value, bytes):
        return mutate_bytes(value, rng)
    return odd_value(value, rng)


def _fields(proto: Any) -> list[tuple[Any, Any, Any]]:
    """(message, field, value) of every field that is set, at any depth."""
    found, stack = [], [proto]
    while stack:
        top = stack.pop()
        for field, value in top.ListFields():
            found.append((top, field, value))
            if field.message_type is not None:
                stack += [value] if hasattr(value, "ListFields") else list(value)
    return found


def read(path: Path) -> None:
    """Import a model and make kernels of it, which are not compiled."""
    prepare(from_onnx(read_model(path)), TARGET, {})
