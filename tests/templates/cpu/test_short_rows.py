"""Reductions over rows of few elements: a row in each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.relax import op
from autosched.templates import default_config
from tests.relax.transform.graphs import graph

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "softmax": (topi.nn.softmax, lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    "max": (lambda x: topi.max(x, axis=-1), lambda x: x.max(-1)),
    "share": (lambda x: topi.divide(x, topi.sum(x, axis=-1, keepdims=True)), lambda x: x / x.sum(-1, keepdims=True)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(4, 25, 2), (7, 5), (263, 7), (3, 2, 259, 3)])
def test_short_rows(name: str, shape: tuple[int, ...]) -> None:
    compute, reference = CASES[name]
    x = te.placeholder(shape, name="x")
    func = te.create_prim_func([x, compute(x)])
    assert default_config(func, autosched.Target("cpu")).template == "short_rows"
    data = np.random.default_rng(0).random(shape, np.float32) + 0.5
    want = reference(data)
    out = autosched.nd.empty(want.shape)
    autosched.build(func, target="cpu")(autosched.nd.array(data), out)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize(("length", "k"), [(4, 2), (4, 1), (1, 1), (12, 1)])
def test_two_results_of_one_row(length: int, k: int) -> None:
    """The best of few, with their places: a block before the last one writes a result."""
    x = np.random.default_rng(0).standard_normal((16, length)).astype(np.float32)
    module = graph({"x": x.shape}, lambda bb, v: op.topk(v, k=k, dtype="int64"))
    values, places = autosched.build(module, "cpu", threads=1)(x)
    np.testing.assert_array_equal(np.asarray(places), np.argsort(-x, 1, kind="stable")[:, :k])
    np.testing.assert_array_equal(np.asarray(values), -np.sort(-x, 1)[:, :k])
