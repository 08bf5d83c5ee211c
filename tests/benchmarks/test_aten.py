"""A sample of PyTorch's core operators on its own test samples; `python -m benchmarks.aten` runs them all."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("expecttest")  # PyTorch's samples need it

import torch  # noqa: E402

from benchmarks import aten  # noqa: E402


@pytest.mark.parametrize(
    ("operator", "dtype"),
    [
        (torch.ops.aten.index.Tensor, "float32"),
        (torch.ops.aten.scatter_reduce.two, "float32"),
        (torch.ops.aten.remainder.Tensor, "int64"),
        (torch.ops.aten.bitwise_and.Tensor, "bool"),
        (torch.ops.aten.sum.dim_IntList, "bfloat16"),
        (torch.ops.aten.grid_sampler_2d.default, "float16"),  # PyTorch's own is further from the truth than 4e-3
    ],
)
def test_samples_pass(operator, dtype):
    outcome = aten.check(operator, dtype, most=2)
    assert outcome is not None and outcome.status == aten.PASS, outcome


def test_wrong_numbers_are_seen():
    a = np.arange(4, dtype=np.float32)
    assert aten._difference(a, a + 1) and not aten._difference(a, a)
    assert aten._difference(a.astype(np.int64), a)
    x = np.array([3, 1, 3], np.int64)
    assert aten._are_ties(x, np.array(2), np.array(0)) and not aten._are_ties(x, np.array(1), np.array(0))
