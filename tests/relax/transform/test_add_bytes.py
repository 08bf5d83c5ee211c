"""Sums that read quantised values as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.expr import Call
from autosched.relax.transform import AddBytes


def dequantised(bb: relax.BlockBuilder, q: Any, zero: int, scale: float) -> Any:
    whole = bb.emit(op.subtract(bb.emit(op.astype(q, "int32")), relax.const(np.asarray(zero, "int32"))))
    return bb.emit(op.multiply(bb.emit(op.astype(whole, "float32")), relax.const(np.asarray(scale, "float32"))))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("other", "is_changed"), [((4, 5), True), ((5,), False)])
def test_a_sum_with_bytes(dtype: str, other: tuple[int, ...], is_changed: bool) -> None:
    x, q = (
        relax.Var("x", relax.TensorStructInfo(other, "float32")),
        relax.Var("q", relax.TensorStructInfo((4, 5), dtype)),
    )
    bb = relax.BlockBuilder()
    with bb.function("main", [x, q]):
        with bb.dataflow():
            result = bb.emit_output(op.add(bb.emit(op.nn.relu(x)), dequantised(bb, q, 7, 0.05)))
        bb.emit_func_output(result)
    module = bb.get()
    changed = AddBytes()(module)
    names = [b.value.op_name for b in changed["main"].bindings() if isinstance(b.value, Call)]
    assert ("relax.add_dequantised" in names) == is_changed
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(other).astype("f"), rng.integers(0, 100, (4, 5)).astype(dtype)]
    np.testing.assert_array_equal(relax.evaluate(changed, arrays), relax.evaluate(module, arrays))


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_that_is_read_whose_product_comes_first(first: int) -> None:
    """The other one stays in the registers of the kernel that makes it."""
    q = [relax.Var(f"q{i}", relax.TensorStructInfo((4, 5), "uint8")) for i in range(2)]
    bb = relax.BlockBuilder()
    with bb.function("main", q):
        with bb.dataflow():
            pools = {i: bb.emit(op.flip(q[i], axis=0)) for i in (first, 1 - first)}
            values = [dequantised(bb, pools[i], i + 1, 0.1) for i in range(2)]
            result = bb.emit_output(op.add(*values))
        bb.emit_func_output(result)
    changed = AddBytes()(bb.get())["main"]
    (call,) = (b.value for b in changed.bindings() if getattr(b.value, "op_name", "") == "relax.add_dequantised")
    assert call.args[1] is pools[first] and call.attrs["zero"] == first + 1
