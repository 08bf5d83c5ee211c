"""Vectors of element-wise functions on GPUs where an operand has one value for the innermost axes."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config
from autosched.templates.classify import blocks_of
from autosched.templates.cuda.elementwise import widest_vector
from autosched.testing.gpu import run_in_all_ways

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")


@pytest.mark.parametrize(
    ("shape", "other", "vector"),
    [((5, 8, 3, 3), (5, 1, 1, 1), 4), ((5, 6, 2, 2), (6, 1, 1), 4), ((5, 4, 3, 3), (4, 1, 1), 1)],
)
def test_axes_of_which_an_operand_has_one_value(shape: tuple[int, ...], other: tuple[int, ...], vector: int) -> None:
    a, b = te.placeholder(shape, name="a"), te.placeholder(other, name="b")
    func = create_prim_func([a, b, topi.multiply(a, b)])
    (block,) = blocks_of(func)
    assert widest_vector(block) == vector
    rng = np.random.default_rng(0)
    x, y = rng.random(shape, np.float32), rng.random(other, np.float32)
    scheduled = apply_config(func, Config("elementwise", {"block_size": 32, "vector": vector}), TARGET).func
    for way, (found,) in run_in_all_ways(scheduled, TARGET, [x, y], [np.zeros(shape, np.float32)]):
        np.testing.assert_array_equal(found, x * y, err_msg=str(way))
