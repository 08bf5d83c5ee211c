"""Nodes of the graph level."""

from __future__ import annotations

import numpy as np

import autosched
from autosched import relax
from autosched.relax.expr import Constant, const
from autosched.script import from_source


def test_a_constant_of_a_numpy_scalar_holds_an_array() -> None:
    """Arithmetic on arrays without dimensions gives scalars: `np.asarray(2.0) * 3` is no array."""
    constant = Constant(np.float32(2.5))
    assert isinstance(constant.data, np.ndarray) and constant.data.shape == () and constant.data.dtype == "float32"
    assert isinstance(Constant(np.asarray(2.0) * 3).data, np.ndarray)
    array = np.ones(3)
    assert np.shares_memory(Constant(array).data, array) and Constant(array).identity == Constant(array).identity
    assert Constant(array).data.numpy() is not array and const(1.5).struct_info.dtype == "float32"


def test_one_hot_of_numbers() -> None:
    module = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        '    def main(a: R.Tensor((3,), "int64")) -> R.Tensor((3, 4), "float32"):\n'
        "        y = R.one_hot(a, R.prim_value(T.float32(2)), R.prim_value(T.float32(-1)), depth=4, axis=-1)\n"
        "        return y\n"
    )
    vm = relax.VirtualMachine(relax.build(module, "llvm"), autosched.cpu())
    result = vm["main"](np.array([3, 0, 2])).numpy()
    np.testing.assert_array_equal(result, np.where(np.eye(4)[[3, 0, 2]], 2, -1).astype("float32"))
