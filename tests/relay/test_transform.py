"""Relay's passes: what they change, what they refuse, and what those that are absent say."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relay
from autosched.contrib import graph_executor
from autosched.ir import IRModule
from autosched.relay import transform

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def module() -> IRModule:
    x = relay.var("x", shape=(2, 3))
    y = relay.nn.relu(relay.exp(x))
    return IRModule.from_expr(relay.Function([x], relay.add(y, relay.exp(x))))


def result(mod: IRModule, data: np.ndarray = X) -> np.ndarray:
    lib = relay.build(mod, "llvm")
    run = graph_executor.GraphModule(lib["default"](autosched.cpu()))
    run.set_input(0, data)
    run.run()
    out: np.ndarray = run.get_output(0).numpy()
    return out


def calls(mod: IRModule, name: str) -> int:
    return sum(getattr(b.value, "op_name", "") == name for b in mod["main"].bindings())


def test_equal_calls_once_but_for_those_that_are_skipped() -> None:
    mod = module()
    assert calls(transform.EliminateCommonSubexpr()(mod), "relax.exp") == 1
    skipped = transform.EliminateCommonSubexpr(lambda call: call.op_name == "relax.exp")(mod)
    assert calls(skipped, "relax.exp") == 2


def test_groups_and_back() -> None:
    mod = module()
    fused = transform.FuseOps()(mod)
    assert len(fused) > len(transform.FuseOps(0)(mod))
    assert len(transform.DefuseOps()(fused)) < len(fused)
    np.testing.assert_allclose(result(mod), np.maximum(np.exp(X), 0) + np.exp(X), rtol=1e-6)


def test_needless_calls_go() -> None:
    x = relay.var("x", shape=(2, 3))
    mod = IRModule.from_expr(relay.Function([x], relay.exp(relay.reshape(relay.reshape(x, (6,)), (2, 3)))))
    assert calls(transform.SimplifyExpr()(mod), "relax.reshape") == 0


def test_functions_that_nobody_calls_go() -> None:
    mod = IRModule({"main": module()["main"], "other": module()["main"]})
    assert [gv.name for gv in transform.RemoveUnusedFunctions()(mod).get_global_vars()] == ["main"]
    assert [gv.name for gv in transform.RemoveUnusedFunctions(["other"])(mod).get_global_vars()] == ["other"]


def test_inlined_functions() -> None:
    inner = module()["main"].with_attr("Inline", 1)
    x = relay.var("x", shape=(2, 3))
    name = relay.GlobalVar("inner")
    mod = IRModule({"inner": inner, "main": relay.Function([x], relay.exp(relay.Call(name, [x])))})
    made = transform.Inline()(mod)
    assert [gv.name for gv in made.get_global_vars()] == ["main"]


def test_layouts() -> None:
    x, w = relay.var("x", shape=(1, 3, 5, 5)), relay.var("w", shape=(4, 3, 3, 3))
    mod = IRModule.from_expr(relay.Function([x, w], relay.nn.conv2d(x, w)))
    made = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)
    found = [
        b.value.attrs["data_layout"]
        for b in made["main"].bindings()
        if getattr(b.value, "op_name", "") == "relax.nn.conv2d"
    ]
    assert found == ["NHWC"]


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: transform.FoldConstant(fold_qnn=True), "fold_qnn"),
        (lambda: transform.DeadCodeElimination(inline_once=True), "inline_once"),
        (lambda: transform.DeadCodeElimination(ignore_impurity=True), "ignore_impurity"),
        (lambda: transform.ToMixedPrecision("float16", 2), "missing_op_mode"),
        (lambda: transform.ToMixedPrecision("bfloat16"), "bfloat16"),
    ],
)
def test_options_are_refused_by_name(make, option: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(RuntimeError, match=option):
        make()


@pytest.mark.parametrize("name", sorted(transform.ABSENT))
def test_what_is_absent_says_what_to_do(name: str) -> None:
    assert not hasattr(transform, name)
    with pytest.raises(AttributeError, match=f"no pass relay.transform.{name} .*; ..."):
        getattr(transform, name)


def test_every_name_makes_a_pass() -> None:
    for name in transform.NAMES:
        assert not name.startswith("_") and callable(getattr(transform, name)), name
