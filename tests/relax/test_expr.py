"""Nodes of the graph level."""

from __future__ import annotations

import numpy as np

from autosched.relax.expr import Constant, const


def test_a_constant_of_a_numpy_scalar_holds_an_array() -> None:
    """Arithmetic on arrays without dimensions gives scalars: `np.asarray(2.0) * 3` is no array."""
    constant = Constant(np.float32(2.5))
    assert isinstance(constant.data, np.ndarray) and constant.data.shape == () and constant.data.dtype == "float32"
    assert isinstance(Constant(np.asarray(2.0) * 3).data, np.ndarray)
    array = np.ones(3)
    assert np.shares_memory(Constant(array).data, array) and Constant(array).identity == Constant(array).identity
    assert Constant(array).data.numpy() is not array and const(1.5).struct_info.dtype == "float32"
