"""Random operators of ONNX models, by NumPy's generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched.errors import AutoschedError

KINDS = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE,
         "bfloat16": TensorProto.BFLOAT16}  # fmt: skip


def run(op: str, *arrays: np.ndarray, opset: int = 15, **attrs: Any) -> np.ndarray:
    names = [f"x{i}" for i in range(len(arrays))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attrs)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
         for n, a in zip(names, arrays, strict=True)],
        [onnx.ValueInfoProto(name="y")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    found = autosched.build(made, target="cpu", threads=1)(*arrays)
    return found.numpy() if hasattr(found, "numpy") else np.asarray(found)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("opset", [15, 22])
def test_normal_and_uniform_numbers(dtype: str, opset: int) -> None:
    kind = KINDS[dtype]
    x = run("RandomNormal", opset=opset, shape=[100, 300], dtype=kind, mean=2.0, scale=3.0)
    assert str(x.dtype) == dtype and x.shape == (100, 300)
    assert abs(x.astype("f8").mean() - 2) < 0.1 and abs(x.astype("f8").std() - 3) < 0.1
    x = run("RandomUniform", opset=opset, shape=[100, 300], dtype=kind, low=-2.0, high=1.0)
    assert str(x.dtype) == dtype and -2 <= x.min() < -1.9 and 0.9 < x.max() <= 1
    assert abs(x.astype("f8").mean() + 0.5) < 0.05
    if dtype == "bfloat16" and opset < 22:
        return
    like = np.zeros((100, 300), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for op in ("RandomNormalLike", "RandomUniformLike"):
        x = run(op, like, opset=opset)
        assert x.dtype == like.dtype and x.shape == like.shape and len(np.unique(x)) > 100
        assert run(op, np.zeros((2, 3), "i4"), opset=opset, dtype=kind).dtype == like.dtype
        assert run(op, like[:0], opset=opset).shape == (0, 300)


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_seeds(op: str) -> None:
    """A seed gives the same numbers, another one (which differs behind the point only) others; none always others."""
    first, again, other = (run(op, shape=[50], seed=s) for s in (1.0, 1.0, 1.5))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert not np.array_equal(run(op, shape=[50]), run(op, shape=[50]))


def model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """From x of three numbers to y."""
    inputs, outputs = ([helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("x", [3]), ("y", None)))
    initial = [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=10)


def drawn() -> onnx.ModelProto:
    return model([helper.make_node("RandomNormal", [], ["n"], shape=[3]), helper.make_node("Add", ["x", "n"], ["y"])])


def drawn_like_a_constant() -> onnx.ModelProto:
    nodes = [helper.make_node("RandomUniformLike", ["w"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    return model(nodes, {"w": np.zeros(3, "f4")})


def drawn_in_a_branch() -> onnx.ModelProto:
    value = helper.make_tensor_value_info("t", TensorProto.FLOAT, [3])
    then = helper.make_graph([helper.make_node("RandomNormal", [], ["t"], shape=[3])], "then", [], [value])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["t"])], "else", [], [value])
    return model([helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)], {"c": np.array(True)})


def drawn_in_a_loop() -> onnx.ModelProto:
    given = [("i", TensorProto.INT64, []), ("k", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, [3])]
    made = [("k2", TensorProto.BOOL, []), ("s2", TensorProto.FLOAT, [3]), ("r", TensorProto.FLOAT, [3])]
    nodes = [
        helper.make_node("RandomNormal", [], ["r"], shape=[3]), helper.make_node("Identity", ["k"], ["k2"]),
        helper.make_node("Add", ["s", "r"], ["s2"]),
    ]  # fmt: skip
    sides = ([helper.make_tensor_value_info(*v) for v in side] for side in (given, made))
    body = helper.make_graph(nodes, "body", *sides)
    return model([helper.make_node("Loop", ["m", "", "x"], ["", "y"], body=body)], {"m": np.array(3)})


@pytest.mark.parametrize("make", [drawn, drawn_like_a_constant, drawn_in_a_branch, drawn_in_a_loop])
def test_each_call_draws_anew(make: Callable[[], onnx.ModelProto]) -> None:
    """Although all inputs of what draws are known when the model is imported."""
    built = autosched.build(make(), target="cpu", threads=1)
    x = np.zeros(3, "f4")
    found = np.stack([built(x).numpy().reshape(-1) for _ in range(3)])
    assert len(np.unique(found)) == found.size


def test_classes_are_drawn_by_their_shares() -> None:
    shares = np.array([[0.2, 0.0, 0.5, 0.3, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]])
    with np.errstate(divide="ignore"):
        x = np.log(shares).astype("f4") + np.array([[3.0], [-70.0]], "f4")
    for dtype, kind in (("int32", TensorProto.INT32), ("int64", TensorProto.INT64)):
        found = run("Multinomial", x, sample_size=20000, dtype=kind)
        assert found.dtype == dtype and found.shape == (2, 20000)
        for row, share in zip(found, shares, strict=True):
            counts = np.bincount(row, minlength=5) / 20000
            np.testing.assert_allclose(counts, share, atol=0.02)
            assert not counts[share == 0].any()
    assert run("Multinomial", x, sample_size=3).dtype == np.int32
    assert np.array_equal(*(run("Multinomial", x, sample_size=50, seed=3.0) for _ in range(2)))
    assert run("Multinomial", x[:0], sample_size=3).shape == (0, 3)


def test_what_has_no_distribution_is_refused() -> None:
    with pytest.raises(AutoschedError, match="no distribution"):
        run("Multinomial", np.full((2, 3), -np.inf, "f4"))
    with pytest.raises(AutoschedError):
        run("RandomNormalLike", np.zeros((2, 3), "i4"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ones_have_the_probability_that_is_given(dtype: str) -> None:
    """ONNX's own definition gives zeros that often."""
    p = np.array([0.0, 0.25, 1.0], dtype).repeat(10000).reshape(3, 10000)
    found = run("Bernoulli", p)
    assert found.dtype == dtype and set(np.unique(found)) == {0, 1}
    np.testing.assert_allclose(found.astype("f8").mean(1), [0, 0.25, 1], atol=0.03)
    for kind in (TensorProto.BOOL, TensorProto.INT64, TensorProto.FLOAT):
        found = run("Bernoulli", p, dtype=kind, seed=2.0)
        assert found.dtype == helper.tensor_dtype_to_np_dtype(kind) and abs(found[1].mean() - 0.25) < 0.03
        assert np.array_equal(found, run("Bernoulli", p, dtype=kind, seed=2.0))
