"""Rows of one element: their reductions have one step, and no lanes."""

import numpy as np
import pytest

import autosched
from autosched import te, topi


@pytest.mark.parametrize("shape", [(8, 10, 1), (3, 1), (1, 1, 1), (5, 7, 2)])
def test_softmax_over_a_short_last_dimension(shape):
    x = te.placeholder(shape, name="x")
    module = autosched.build(te.create_prim_func([x, topi.softmax(x, -1)]), threads=1)
    values, out = np.random.default_rng(0).standard_normal(shape).astype("float32"), np.empty(shape, "float32")
    module(values, out)
    powers = np.exp(values - values.max(-1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(-1, keepdims=True), rtol=1e-5)
