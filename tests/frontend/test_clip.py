"""ONNX's Clip with one limit or two, of all types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper, numpy_helper

import autosched

LARGEST = 2**63 - 1
assert ml_dtypes.bfloat16  # registers it with NumPy


def clip(x: np.ndarray, low: int | None, high: int | None) -> np.ndarray:
    limits = {name: np.array(v, x.dtype) for name, v in (("low", low), ("high", high)) if v is not None}
    names = ["x", *(name if name in limits else "" for name in ("low", "high"))]
    given, made = (
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for name in "xy"
    )
    weights = [numpy_helper.from_array(v, name) for name, v in limits.items()]
    graph = helper.make_graph([helper.make_node("Clip", names, ["y"])], "g", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return autosched.build(model, target="cpu", threads=1)(x).numpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int8", "int64", "uint64"])
def test_one_limit_or_two(dtype: str) -> None:
    x = np.array([0, 1, 2, 3, 100], dtype)
    for low, high in ((2, None), (None, 2), (1, 3), (None, None)):
        found = clip(x, low, high)
        assert found.dtype == x.dtype
        expected = x if low is None else np.maximum(x, x.dtype.type(low))
        expected = expected if high is None else np.minimum(expected, x.dtype.type(high))
        np.testing.assert_array_equal(found.astype("float64"), expected.astype("float64"))


def test_limits_that_no_float_holds() -> None:
    x = np.array([LARGEST, LARGEST - 1, LARGEST - 2, LARGEST - 3, 5])
    assert clip(x, LARGEST - 2, LARGEST - 1).tolist() == [LARGEST - 1, LARGEST - 1, *[LARGEST - 2] * 3]
    assert clip(x, 2**53 + 1, None)[-1] == 2**53 + 1
