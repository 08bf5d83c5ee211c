"""Numbers of shapes."""

from __future__ import annotations

import pytest

from autosched import te, tir
from autosched.topi import utils

N = te.var("n")


def test_constants() -> None:
    assert utils.get_const_int(tir.IntImm("int32", 3) + 4) == 7
    assert utils.get_const_tuple((2, tir.IntImm("int64", 3), N)) == (2, 3, N)
    assert utils.get_float_tuple((1, 2.5)) == (1.0, 2.5)
    assert utils.equal_const_int(N - N, 0) and not utils.equal_const_int(N, 0)
    assert utils.prod((2, 3, 4)) == 24 and utils.get_const_int(utils.prod(())) == 1
    assert utils.is_dynamic_shape((2, N)) and not utils.is_dynamic_shape((2, 3)) and utils.is_empty_shape((2, 0))
    assert utils.get_max_power2_factor(24) == 8 and utils.get_max_power2_factor(24, 5) == 4
    assert utils.ceil_div(7, 2) == 4 and utils.swap([1, 2, 3], 0) == [3, 2, 1]


def test_positions() -> None:
    assert utils.unravel_index(17, (2, 3, 4)) == [1, 1, 1] and utils.ravel_index((1, 1, 1), (2, 3, 4)) == 17
    flat = utils.ravel_index((N, 2), (5, 4))
    assert utils.get_const_int(tir.arith.Analyzer().simplify(flat - N * 4)) == 2


def test_refused() -> None:
    with pytest.raises(ValueError, match="constant integer"):
        utils.get_const_int(N)
    with pytest.raises(TypeError, match=r"tensor\.shape"):
        utils.get_const_tuple(te.placeholder((2,)))
    with pytest.raises(ValueError, match="not positive"):
        utils.get_max_power2_factor(0)
    with pytest.raises(ValueError, match="vector"):
        utils.const_vector([[1]])
