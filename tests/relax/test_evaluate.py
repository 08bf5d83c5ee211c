"""Running graph functions on NumPy references."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import relax
from autosched.errors import InvalidValueError
from autosched.ir import IRModule
from autosched.relax import BlockBuilder, TensorStructInfo, Var, op


def module() -> IRModule:
    x, w = Var("x", TensorStructInfo((2, 3))), Var("w", TensorStructInfo((3, 4)))
    bb = BlockBuilder()
    with bb.function("main", [x, w]):
        with bb.dataflow():
            parts = bb.emit(op.split(op.matmul(x, w), 2, axis=1))
            gv = bb.emit_output(op.concat([parts[1], parts[0]], axis=1))
        bb.emit_func_output(gv)
    return bb.get()


def test_by_order_and_by_name(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 3)).astype("f"), rng.standard_normal((3, 4)).astype("f")
    want = np.roll(x @ w, 2, axis=1)
    np.testing.assert_allclose(relax.evaluate(module(), [x, w]), want, rtol=1e-6)
    np.testing.assert_allclose(relax.evaluate(module(), {"w": w, "x": x}), want, rtol=1e-6)


def test_double_precision() -> None:
    result = relax.evaluate(module(), [np.ones((2, 3), "f"), np.ones((3, 4), "f")], dtype="float64")
    assert result.dtype == np.float64


def test_wrong_inputs() -> None:
    x, w = np.ones((2, 3), "f"), np.ones((3, 4), "f")
    with pytest.raises(InvalidValueError, match="arguments are needed"):
        relax.evaluate(module(), [x])
    with pytest.raises(InvalidValueError, match=r"\['w'\] are missing"):
        relax.evaluate(module(), {"x": x})
    with pytest.raises(InvalidValueError, match="'x' is"):
        relax.evaluate(module(), [w, w])


def test_kernels_need_a_runner() -> None:
    bb = BlockBuilder()
    x = Var("x", TensorStructInfo((3,)))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit_te(lambda t: t_copy(t), x))
    with pytest.raises(InvalidValueError, match="run_tir"):
        relax.evaluate(bb.get(), [np.ones(3, "f")])


def t_copy(t):  # type: ignore[no-untyped-def]
    from autosched import topi

    return topi.identity(t)
