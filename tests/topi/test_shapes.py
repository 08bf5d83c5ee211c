"""Index arithmetic of reshapes."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.ir.node import preorder
from autosched.te import create_prim_func
from autosched.tir import FloorDiv, FloorMod
from autosched.tir.evaluate import evaluate


@pytest.mark.parametrize(
    ("old", "new", "divisions"),
    [
        ((2, 3, 4), (2, 12), 2),  # the last two joined: j // 4 and j % 4
        ((2, 12), (2, 3, 4), 0),  # split: j * 4 + k
        ((6,), (1, 6, 1), 0),
        ((2, 1, 5), (2, 5), 0),
        ((4, 6), (8, 3), 2),
    ],
)
def test_reshape_is_simplified(old: tuple[int, ...], new: tuple[int, ...], divisions: int) -> None:
    x = te.placeholder(old, name="x")
    func = create_prim_func([x, topi.reshape(x, new)], "int64")
    count = sum(isinstance(n, FloorDiv | FloorMod) for n in preorder(func.root.body) if not isinstance(n, type(None)))
    reads = 2  # the value and the declared region
    assert count <= divisions * reads
    data = np.arange(np.prod(old), dtype="f").reshape(old)
    np.testing.assert_array_equal(evaluate(func, [data])[0], data.reshape(new))
