"""Operators as opsets 1 to 8 have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched import relax
from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype("f4")


def run(op: str, opset: int, x: np.ndarray, *weights: np.ndarray, outputs: int = 1, **attrs: Any) -> Any:
    names = [f"w{i}" for i in range(len(weights))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], [f"y{i}" for i in range(outputs)], **attrs)],
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.UNDEFINED, None) for i in range(outputs)],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, names)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    return relax.evaluate(from_onnx(onnx.ModelProto.FromString(model.SerializeToString())), {"x": x})


def test_second_operand_fits_from_an_axis_on() -> None:
    w = np.arange(12, dtype="f4").reshape(3, 4)
    np.testing.assert_array_equal(run("Add", 6, X, w, broadcast=1, axis=1), X + w[:, :, None])
    np.testing.assert_array_equal(run("Mul", 1, X, w[0, :3], broadcast=1, axis=-3), X * w[0, :3, None, None])
    np.testing.assert_array_equal(run("Greater", 6, X, X[0, 0, 0], broadcast=1), X[0, 0, 0] < X)
    with pytest.raises(ImportModelError, match="without broadcast=1"):
        run("Sub", 6, X, w[:, :1])
    with pytest.raises(ImportModelError, match="does not fit"):
        run("Sub", 6, X, w, broadcast=1)


def test_prelu_has_a_slope_for_each_channel() -> None:
    slope = np.array([0.1, 0.2, 0.3], "f4")
    np.testing.assert_allclose(run("PRelu", 6, X, slope), np.where(X > 0, X, X * slope[:, None, None]))
    assert run("PRelu", 16, np.zeros((1, 3), "f4"), np.full(3, np.inf, "f4")).tolist() == [[0, 0, 0]]  # not negative


def test_sizes_and_types_that_were_attributes() -> None:
    assert run("Cast", 1, X, to="INT32").dtype == np.int32
    with pytest.raises(ImportModelError, match="no type"):
        run("Cast", 1, X, to="NUMBER")
    np.testing.assert_array_equal(run("Tile", 1, X, np.array([2], "i8"), np.array([1], "i8")), np.tile(X, (1, 2, 1, 1)))
    np.testing.assert_array_equal(run("Pad", 1, X, paddings=[0, 0, 1, 0, 0, 0, 0, 2], value=3.0),
                                  np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=3))  # fmt: skip
    np.testing.assert_array_equal(run("Upsample", 1, X, height_scale=2.0, width_scale=1.0), X.repeat(2, axis=2))
    np.testing.assert_array_equal(run("Upsample", 7, X, scales=[1.0, 1.0, 1.0, 3.0]), X.repeat(3, axis=3))
    np.testing.assert_array_equal(run("Dropout", 6, X, ratio=0.9), X)
    low = np.where(X > 0, X, np.float32(1.6732) * (np.exp(X) - 1))
    np.testing.assert_allclose(run("Selu", 1, X), np.float32(1.0507) * low, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_padding_with_elements(mode: str) -> None:
    got = run("Pad", 10, X, mode=mode, pads=[0, 0, 2, 6, 0, 1, 3, 0])
    np.testing.assert_array_equal(got, np.pad(X, ((0, 0), (0, 1), (2, 3), (6, 0)), mode=mode))
    got = run("Pad", 10, X, mode=mode, pads=[0, 1, 2, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(got, np.pad(X, ((0, 0), (1, 0), (2, 1), (0, 0)), mode=mode))


def test_negative_padding_cuts() -> None:
    want = np.pad(X[:, 1:, :, :-2], ((0, 0), (0, 0), (1, 0), (2, 0)))
    np.testing.assert_array_equal(run("Pad", 10, X, pads=[0, -1, 1, 2, 0, 0, 0, -2]), want)
    with pytest.raises(ImportModelError, match="around"):
        run("Pad", 10, X, pads=[0, -4, 0, 0, 0, 0, 0, 0])


def test_batch_normalization_by_the_batch() -> None:
    rng = np.random.default_rng(1)
    scale, bias, mean, variance = (rng.random(3).astype("f4") + 0.5 for _ in range(4))
    x = X.astype("f8")
    own_mean, own_variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    shape = (3, 1, 1)
    want = (x - own_mean.reshape(shape)) / np.sqrt(own_variance.reshape(shape) + 1e-5) * scale.reshape(shape)
    want += bias.reshape(shape)
    np.testing.assert_allclose(run("BatchNormalization", 6, X, scale, bias, mean, variance), want, rtol=1e-4, atol=1e-5)
    y, new_mean, new_variance = run(
        "BatchNormalization", 15, X, scale, bias, mean, variance, outputs=3, training_mode=1, momentum=0.7
    )
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_mean, mean * 0.7 + own_mean * 0.3, rtol=1e-5)
    np.testing.assert_allclose(new_variance, variance * 0.7 + own_variance * 0.3, rtol=1e-5)
    x = run("BatchNormalization", 6, X, scale, bias, mean, variance, is_test=1)
    want = (X - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + 1e-5) * scale.reshape(shape)
    np.testing.assert_allclose(x, want + bias.reshape(shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 6, 7, 8])
def test_batch_normalization_of_elements(opset: int) -> None:
    rng = np.random.default_rng(1)
    scale, bias, mean, variance = (rng.random((3, 4, 5)).astype("f4") + 0.5 for _ in range(4))
    attrs: dict[str, Any] = {"spatial": 0, **({"consumed_inputs": [0, 0, 0, 1, 1]} if opset < 6 else {})}
    if opset < 7:
        own_mean, own_variance = X.mean(0), X.var(0)
        want = (X - own_mean) / np.sqrt(own_variance + 1e-5) * scale + bias
        np.testing.assert_allclose(
            run("BatchNormalization", opset, X, scale, bias, mean, variance, **attrs), want, rtol=1e-3, atol=1e-4
        )
    if opset < 7:
        attrs["is_test"] = 1
    want = (X - mean) / np.sqrt(variance + 1e-5) * scale + bias
    found = run("BatchNormalization", opset, X, scale, bias, mean, variance, **attrs)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ImportModelError, match=r"scales \[3\] for images"):
        run("BatchNormalization", opset, X, *(v[:, 0, 0] for v in (scale, bias, mean, variance)), **attrs)
