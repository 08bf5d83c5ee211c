"""Many narrow tensors side by side."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import te, topi
from autosched.templates import default_config


@pytest.mark.parametrize("widths", [(1,) * 12, (3, 1, 17, 2, 33, 1)])
@pytest.mark.parametrize("rows", [(), (3, 5)])
def test_narrow_parts(widths: tuple[int, ...], rows: tuple[int, ...]) -> None:
    inputs = [te.placeholder((*rows, n), name=f"x{i}") for i, n in enumerate(widths)]
    doubled = topi.add(inputs[0], inputs[0])
    func = te.create_prim_func([*inputs, topi.negative(topi.concatenate((doubled, *inputs[1:]), axis=-1))])
    assert default_config(func, autosched.Target("cpu")).template == "concat"
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((*rows, n)).astype(np.float32) for n in widths]
    want = -np.concatenate([data[0] + data[0], *data[1:]], -1)
    out = autosched.nd.empty(want.shape)
    autosched.build(func, target="cpu")(*map(autosched.nd.array, data), out)
    np.testing.assert_array_equal(out.numpy(), want)
