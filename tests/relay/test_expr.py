"""Nested expressions become bindings: shared parts once, branches where they are needed."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import relay
from autosched.ir import IRModule
from autosched.relax import If, evaluate, well_formed
from autosched.relax.expr import Call


def calls(function: object) -> list[str]:
    return [b.value.op_name for b in function.bindings() if isinstance(b.value, Call)]  # type: ignore[attr-defined]


def test_variables() -> None:
    assert relay.var("x", shape=(1, 2), dtype="int8").struct_info.static_shape == (1, 2)
    assert relay.var("x", "float64").struct_info.dtype == "float64"
    assert relay.var("x", relay.TensorType((3,), "int32")).checked_type.concrete_shape == (3,)
    with pytest.raises(ValueError, match="either"):
        relay.var("x", relay.TensorType((3,)), shape=(3,))
    with pytest.raises(TypeError, match="no type"):
        relay.var("x", 3)


def test_constants_have_tvm_s_dtypes() -> None:
    assert [str(relay.const(v).data.dtype) for v in (1, 1.0, True)] == ["int32", "float32", "bool"]
    assert str(relay.const(np.zeros(2)).data.dtype) == "float64"
    with pytest.raises(TypeError, match="no number"):
        relay.const("text")


def test_a_shared_expression_is_bound_once() -> None:
    x = relay.var("x", shape=(2,))
    shared = relay.exp(x)
    function = relay.Function([x], (shared + shared) * shared)
    assert calls(function) == ["relax.exp", "relax.add", "relax.multiply"]
    assert well_formed(IRModule({"main": function}))


def test_deep_expressions_are_no_problem() -> None:
    x = relay.var("x", shape=(2,))
    y = x
    for _ in range(3000):
        y = y + x
    assert len(calls(relay.Function([x], y))) == 3000


def test_let_and_functions_inside() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    v = relay.var("v", shape=(2,))
    double = relay.Function([v], v + v)
    body = relay.Let(y, x * relay.const(3.0), relay.Call(double, [y]))
    mod = IRModule.from_expr(relay.Function([x], body))
    np.testing.assert_array_equal(evaluate(mod, [np.ones(2, np.float32)]), [6, 6])


def test_branches_hold_what_only_they_need() -> None:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2,))
    function = relay.Function([c, x], relay.If(c, relay.exp(x), relay.sqrt(x)))
    (binding,) = function.bindings()
    assert isinstance(binding.value, If)
    mod = IRModule.from_expr(function)
    np.testing.assert_array_equal(evaluate(mod, [np.array(False), np.full(2, 9, np.float32)]), [3, 3])
    with pytest.raises(TypeError, match="not a bool"):
        relay.If(x, x, x)


def test_free_variables() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    assert relay.free_vars(y * x + y) == [y, x]
    with pytest.raises(ValueError, match="'y' is no parameter"):
        relay.Function([x], x + y)
    assert list(relay.from_expr(y * x)["main"].params) == [y, x]


def test_several_results() -> None:
    x = relay.var("x", shape=(2, 6))
    parts = relay.split(x, 3, axis=1)
    assert len(parts) == 3 and len(list(parts)) == 3
    mod = IRModule.from_expr(relay.Function([x], relay.Tuple([parts[0], parts[-1]])))
    data = np.arange(12, dtype=np.float32).reshape(2, 6)
    first, last = evaluate(mod, [data])
    np.testing.assert_array_equal(first, data[:, :2])
    np.testing.assert_array_equal(last, data[:, 4:])
    with pytest.raises(IndexError):
        parts[3]
