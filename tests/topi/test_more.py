"""Operators under TVM's names, against their NumPy references in `topi.testing`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as tvm
from autosched import te, topi
from autosched.errors import ShapeError
from autosched.tir.evaluate import evaluate

RNG = np.random.default_rng(0)


def value(result: te.Tensor, *inputs: tuple[te.Tensor, np.ndarray]) -> np.ndarray:
    out = tvm.nd.empty(tuple(int(n) for n in result.shape), result.dtype)
    with tvm.target.Target("llvm"):
        s = topi.generic.schedule_injective(result)
    f = tvm.build(s, [*(t for t, _ in inputs), result])
    f(*(tvm.nd.array(a) for _, a in inputs), out)
    return out.numpy()  # type: ignore[no-any-return]


A, B = te.placeholder((4, 6), name="A"), te.placeholder((6,), name="B")
a, b = RNG.random((4, 6), np.float32), RNG.random(6, np.float32)

CASES: dict[str, tuple[Callable[[], te.Tensor], np.ndarray]] = {
    "operators of whole tensors": (lambda: (A + B) * 2.0 - A / (B + 1.0), (a + b) * 2 - a / (b + 1)),
    "negative": (lambda: -A + B, -a + b),
    "elemwise_sum": (lambda: topi.elemwise_sum([A + B, A, A]), 3 * a + b),
    "flip": (lambda: topi.flip(A + B, 1), np.flip(a + b, 1)),
    "repeat": (lambda: topi.repeat(A + B, 2, 0), np.repeat(a + b, 2, 0)),
    "stack": (lambda: topi.stack([A + B, A], 1), np.stack([a + b, a], 1)),
    "bias_add": (lambda: topi.nn.bias_add(A, B, 1), a + b),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_numpy(name: str) -> None:
    make, want = CASES[name]
    np.testing.assert_allclose(value(make(), (A, a), (B, b)), want, rtol=1e-5)


def test_shapes_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="broadcast"):
        A + te.placeholder((5,))
    with pytest.raises(ShapeError, match="another shape"):
        topi.elemwise_sum([A, B])


@pytest.mark.parametrize(("stride", "pad", "groups"), [(1, 1, 1), (2, 0, 2)])
def test_conv2d(stride: int, pad: int, groups: int) -> None:
    x, w = te.placeholder((1, 4, 7, 7), name="X"), te.placeholder((6, 4 // groups, 3, 3), name="W")
    xs, ws = RNG.random((1, 4, 7, 7), np.float32), RNG.random((6, 4 // groups, 3, 3), np.float32)
    result: Any = topi.nn.group_conv2d_nchw(x, w, stride, pad, 1, groups)
    want = topi.testing.conv2d_nchw_python(xs, ws, stride, pad, groups)
    np.testing.assert_allclose(value(result, (x, xs), (w, ws)), want, rtol=1e-4)


def test_pool2d() -> None:
    x, xs = te.placeholder((1, 2, 6, 6), name="X"), RNG.random((1, 2, 6, 6), np.float32)
    for kind in ("max", "avg"):
        result = topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0), kind)
        want = topi.testing.poolnd_python(xs, (2, 2), (2, 2), (1, 1), (0, 0), (0, 0), kind)
        np.testing.assert_allclose(value(result, (x, xs)), want, rtol=1e-5)


def test_a_concatenation_of_many_searches_for_the_input() -> None:
    """One after the other they would nest deeper than Python calls."""
    sizes = [1 + n % 3 for n in range(300)]
    inputs = [te.placeholder((n, 2), name="x") for n in sizes]
    func = te.create_prim_func([*inputs, topi.concatenate(inputs, 0)], "int64")
    arrays = [np.full((n, 2), i, "f") for i, n in enumerate(sizes)]
    np.testing.assert_array_equal(evaluate(func, arrays)[0], np.concatenate(arrays))
