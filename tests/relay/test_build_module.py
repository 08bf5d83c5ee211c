"""`relay.build` and the executors of `create_executor`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relay
from autosched.autotvm import tophub
from autosched.contrib import graph_executor
from autosched.records import DispatchContext, FallbackContext
from tests.relay.models import PARAMS, X, convolution, expected


@pytest.fixture(scope="module")
def lib() -> autosched.Executable:
    with pytest.MonkeyPatch.context() as patch, autosched.transform.PassContext(opt_level=3):
        patch.setenv("TOPHUB_LOCATION", "NONE")
        return relay.build(convolution(), target="llvm", params={**PARAMS, "stranger": PARAMS["b"]})


def test_a_built_model_runs(lib: autosched.Executable) -> None:
    module = graph_executor.GraphModule(lib["default"](autosched.cpu(0)))
    module.set_input("x", autosched.nd.array(X))
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), expected(), rtol=1e-4)
    assert list(module.get_input_info()[0]) == ["x"] and module.get_num_inputs() == 1 + len(lib.get_params())


def test_it_runs_from_its_parts_and_from_files(lib: autosched.Executable, tmp_path: Path) -> None:
    lib.export_library(tmp_path / "model.so")
    loaded = autosched.runtime.load_module(tmp_path / "model.so")
    lib.get_lib().export_library(tmp_path / "kernels.tar")
    kernels = autosched.runtime.load_module(tmp_path / "kernels.tar")
    parts = graph_executor.create(lib.get_graph_json(), kernels, autosched.cpu(0))
    parts.load_params(relay.save_param_dict(lib.get_params()))
    for module in (graph_executor.GraphModule(loaded["default"](autosched.cpu(0))), parts):
        module.run(x=X)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected(), rtol=1e-4)


@pytest.mark.parametrize("kind", ["graph", "vm", "debug"])
def test_executors(kind: str) -> None:
    run = relay.create_executor(kind, convolution(), autosched.cpu(0), "llvm", PARAMS).evaluate()
    np.testing.assert_allclose(run(X).numpy(), expected(), rtol=1e-4)
    first = run(x=X)
    assert run(X) is not first
    with pytest.raises(TypeError, match="instead of 1"):
        run()
    with pytest.raises(TypeError, match="no parameter"):
        run(y=X)


def test_expressions_are_evaluated() -> None:
    executor = relay.create_executor()
    assert executor.evaluate(relay.const(1.0) + relay.const(2.0)).numpy() == 3
    x = relay.var("x", shape=(2,))
    assert executor.evaluate(relay.Function([x], x + x))(np.ones(2, np.float32)).numpy().tolist() == [2, 2]
    assert executor.evaluate(x * x, {x: np.full(2, 3, np.float32)}).numpy().tolist() == [9, 9]


def test_wrong_use() -> None:
    with pytest.raises(RuntimeError, match="unknown execution strategy"):
        relay.create_executor("rocket", convolution())
    with pytest.raises(TypeError, match=r"IRModule or a relay\.Function"):
        relay.build("model", "llvm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one target"):
        relay.build(convolution(), ["llvm", "cuda"])
    with pytest.raises(ValueError, match="unknown target"):
        relay.build(convolution(), "llvn")


def test_tophub_is_entered_under_the_fallback_context_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    context = tophub.context

    def note(target: object, extra_files: object = None) -> object:
        asked.append(target)
        return context(target)

    monkeypatch.setattr(tophub, "context", note)
    x = relay.var("x", shape=(2,))
    mod = autosched.IRModule.from_expr(relay.Function([x], x + x))
    assert isinstance(DispatchContext.current, FallbackContext)
    relay.build(mod, "llvm")
    assert len(asked) == 1
    with autosched.autotvm.apply_history_best([]):
        relay.build(mod, "llvm")
        relay.vm.compile(mod, "llvm")
    assert len(asked) == 1
