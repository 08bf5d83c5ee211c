"""What tests and benchmarks share: suites for implementations of one interface, and the replay of recorded spaces."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.testing import env
from autosched.testing.numbers import (
    assert_prim_expr_equal, check_bool_expr_is_true, check_numerical_grads, generate_random_array, np_dtype_from_str,
)  # fmt: skip
from autosched.testing.tvm_names import *  # noqa: F403


def assert_allclose(actual: object, desired: object, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """TVM's `testing.assert_allclose`: shapes equal, values within both tolerances. Raises AssertionError."""
    a, b = (x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in (actual, desired))
    assert a.shape == b.shape, f"shapes {a.shape} and {b.shape} differ"
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, verbose=True)
