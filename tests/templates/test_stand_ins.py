"""Sizes that stand for open ones: no axis becomes nothing or one by them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import autosched
from autosched import te
from autosched.runtime.dynamic import DynamicExecutable
from autosched.templates.classify import blocks_of
from autosched.templates.stand_ins import with_stand_ins
from autosched.tir.expr import const_int


@pytest.mark.parametrize("step, scale", [(1, 1), (160, 16), (3000, 256)])
def test_sizes_are_multiplied_where_an_axis_would_be_short(step: int, scale: int) -> None:
    n = te.var("n", "int64")
    x = te.placeholder((n // step, 8), "float32", name="x")
    func = te.create_prim_func([x, te.compute((n // step, 8), lambda i, j: x[i, j] + 1.0, name="y")])
    known = with_stand_ins(func, [n], [137], 8)
    assert known is not None
    assert [const_int(axis.dom.extent) for axis in blocks_of(known)[0].iter_vars] == [137 * scale // step, 8]
    assert with_stand_ins(func, [n], [137], 10**9) is None and with_stand_ins(func, [n], [], 1) is None


def test_rows_of_a_part_of_an_open_size() -> None:
    """Sums along frames, whose number is n // 160 - 1: at n = 137 there would be less than none."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["y"], strides=[160]),
            helper.make_node("Mul", ["y", "y"], ["z"]),
            helper.make_node("ReduceSum", ["z", "axes"], ["s"], keepdims=0),
        ],
        "frames",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "n"])],
        [helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.random.default_rng(0).standard_normal((6, 1, 320)).astype("f4"), "w"),
            numpy_helper.from_array(np.array([1], "i8"), "axes"),
        ],
    )
    built = autosched.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), threads=1)
    w = numpy_helper.to_array(graph.initializer[0])
    for n in (320, 480, 5000):
        x = np.random.default_rng(n).standard_normal((1, 1, n)).astype("f4")
        frames = np.lib.stride_tricks.sliding_window_view(x[0, 0], 320)[::160]
        want = ((frames @ w[:, 0].T) ** 2).sum(-1)[None]
        np.testing.assert_allclose(built(x).numpy(), want, rtol=1e-4)


def test_products_of_rows_that_an_expression_counts_have_blocks() -> None:
    """Frames times a weight: their number n // 160 - 1 counts blocks as a symbol does, and the weight is packed."""
    rng = np.random.default_rng(0)
    window, weight = rng.standard_normal((6, 1, 320)).astype("f4"), rng.standard_normal((6, 40)).astype("f4")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "window"], ["y"], strides=[160]),
            helper.make_node("Transpose", ["y"], ["t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["t", "weight"], ["z"]),
        ],
        "frames",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 1, "n"])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(window, "window"), numpy_helper.from_array(weight, "weight")],
    )
    built = autosched.build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), threads=1)
    assert isinstance(built, DynamicExecutable) and sum(name.startswith("matmul_") for name in built.kernels) > 1
    for batch, n in ((1, 320), (2, 480), (3, 5000)):
        x = rng.standard_normal((batch, 1, n)).astype("f4")
        frames = np.lib.stride_tricks.sliding_window_view(x[:, 0], 320, axis=1)[:, ::160]
        want = frames.astype("f8") @ window[:, 0].T @ weight
        np.testing.assert_allclose(built(x).numpy(), want, atol=2e-6 * np.abs(want).max())
