"""Integers in ONNX's operators: sums that wrap, constants that no float holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import autosched


def run(
    nodes: list[tuple[str, list[str], str]], x: np.ndarray, results: list[str], **constants: Any
) -> list[np.ndarray]:
    """The results of nodes, given as operator, inputs and output."""
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    made = [helper.make_node(kind, inputs, [output]) for kind, inputs, output in nodes]
    weights = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    graph = helper.make_graph(made, "g", [given], [onnx.ValueInfoProto(name=name) for name in results], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    found = autosched.build(model, target="cpu", threads=1, records=[])(x)
    return [result.numpy() for result in (found if len(results) > 1 else [found])]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_sums_that_wrap(dtype: str) -> None:
    """What is compared, limited or divided is what the type holds."""
    ends = np.iinfo(dtype)
    x = np.array([0, 1, 2, 5, 100, ends.max, ends.max - 1, ends.max // 2 + 1, ends.min], dtype)
    k, m = np.array(ends.max // 2 + 3, dtype), np.array(7, dtype)
    nodes = [
        ("Mul", ["x", "k"], "product"), ("Mod", ["product", "m"], "hash"),
        ("Add", ["x", "k"], "sum"), ("Add", ["x", "m"], "other"), ("Max", ["sum", "other"], "larger"),
        ("Add", ["x", "m"], "more"), ("Greater", ["more", "x"], "grows"),
        ("Max", ["x", "m"], "least"), ("Add", ["least", "k"], "late"), ("Max", ["late", "m"], "limited"),
    ]  # fmt: skip
    with np.errstate(over="ignore"):
        expected = [np.mod(x * k, m), np.maximum(x + k, x + m), x + m > x, np.maximum(np.maximum(x, m) + k, m)]
    found = run(nodes, x, ["hash", "larger", "grows", "limited"], k=k, m=m)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_less_than_no_value() -> None:
    x = np.array([0, 1, 300, 65535], "uint16")
    np.testing.assert_array_equal(run([("Neg", ["x"], "less")], x, ["less"])[0], np.negative(x))


@pytest.mark.parametrize("value", [2**53 + 1, 2**64 - 2])
def test_padding_that_no_float_holds(value: int) -> None:
    x = np.array([3, 4], "uint64")
    (found,) = run([("Pad", ["x", "widths", "value"], "y")], x, ["y"], widths=[1, 0], value=np.array(value, "uint64"))
    assert found.tolist() == [value, 3, 4]
