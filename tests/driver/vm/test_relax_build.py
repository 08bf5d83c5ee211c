"""`relax.build` and its virtual machine: branches, calls, symbols, errors, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import counters
from autosched.errors import TVMError
from autosched.relax.block_builder import BlockBuilder
from autosched.script import ir as I
from autosched.script import relax as R
from autosched.script import tir as T
from autosched.tir import Schedule
from autosched.tir.expr import Var


@I.ir_module
class Dense:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        y = R.matmul(x, w)
        return y


@I.ir_module
class Branch:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((2, 3), "float32"):
        cls = Branch
        if c:
            y = R.add(x, R.const(1.0, "float32"))
        else:
            y = cls.twice(x)
        z = R.multiply(y, y)
        return z

    @R.function(private=True)
    def twice(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        gv = R.add(x, x)
        return gv


@I.ir_module
class Symbolic:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        y = R.nn.softmax(x, axis=-1)
        return y


X = np.arange(6, dtype="float32").reshape(2, 3)
W = np.ones((3, 4), "float32")


def machine(module: Any) -> relax.VirtualMachine:
    return relax.VirtualMachine(relax.build(module, "llvm"), autosched.cpu())


@pytest.fixture(scope="module")
def dense() -> relax.VirtualMachine:
    return machine(Dense)


def test_branches_and_calls() -> None:
    vm = machine(Branch)
    assert np.array_equal(vm["main"](X, np.array(True)).numpy(), (X + 1) ** 2)
    assert np.array_equal(vm["main"](X, np.array(False)).numpy(), (2 * X) ** 2)


def test_parsed_branch_round_trips() -> None:
    assert autosched.ir.structural_equal(autosched.script.from_source(Branch.script()), Branch)


def test_symbolic_shapes_are_built_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    vm = machine(Symbolic)
    before = counters.COMPILES.value
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    for n in (2, 5, 70):
        assert np.allclose(vm["main"](np.zeros((n, 4), "float32")).numpy(), 0.25)
    assert counters.COMPILES.value == before
    with pytest.raises(ValueError, match=r"shape \[2, 2, 4\] instead of \[n, 4\]"):
        vm["main"](np.zeros((2, 2, 4), "float32"))


def test_symbolic_shapes_that_no_kernel_serves_whole_are_built_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, x = BlockBuilder(), relax.Var("x", relax.TensorStructInfo((Var("n", "int64"), 4), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.repeat(x, 2, 0)))
    vm = relax.VirtualMachine(relax.build(builder.get(), "llvm"), autosched.cpu())
    assert "repeat" in vm.executable.late.reasons["main"]
    for n in (2, 5):
        x = np.arange(4 * n, dtype="float32").reshape(n, 4)
        assert np.array_equal(vm["main"](x).numpy(), x.repeat(2, 0))
    monkeypatch.setenv("AUTOSCHED_STRICT", "1")
    assert vm["main"](np.zeros((5, 4), "float32")).shape == (10, 4)  # known already
    with pytest.raises(ValueError, match="'main' was never called with n=7, and AUTOSCHED_STRICT forbids"):
        vm["main"](np.zeros((7, 4), "float32"))


def test_results_are_fresh(dense: relax.VirtualMachine) -> None:
    first = dense["main"](X, W)
    second = dense["main"](2 * X, W)
    assert np.array_equal(first.numpy() * 2, second.numpy())


def test_inputs_kept_and_functions_saved(dense: relax.VirtualMachine) -> None:
    dense.set_input("main", X, w=W)
    dense.invoke_stateful("main")
    assert np.array_equal(dense.get_outputs("main").numpy(), X @ W)
    dense.save_function("main", "saved", X, W)
    assert np.array_equal(dense["saved"]().numpy(), X @ W)
    assert len(dense.time_evaluator("saved", autosched.cpu(), number=1, repeat=2)().results) == 2


def test_torch_in_torch_out(dense: relax.VirtualMachine) -> None:
    torch = pytest.importorskip("torch")
    result = dense["main"](torch.from_numpy(X), torch.from_numpy(W))
    assert isinstance(result, torch.Tensor)


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ((X,), TypeError, r"1 arguments instead of 2 \(in main\(x: Tensor\(\[2, 3\], float32\)"),
        ((X, W.T.copy()), ValueError, "argument 'w' has shape"),
        ((X, W.astype("float64")), TypeError, "argument 'w' has dtype float64"),
    ],
)
def test_wrong_arguments(dense: relax.VirtualMachine, args: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        dense["main"](*args)
    assert isinstance(caught.value, TVMError)


def test_wrong_names_and_devices(dense: relax.VirtualMachine) -> None:
    with pytest.raises(AttributeError, match="no function 'nobody'"):
        dense["nobody"]
    with pytest.raises(TypeError, match="device"):
        relax.VirtualMachine(relax.build(Dense, "llvm"), "cpu")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="relax.build takes an IRModule"):
        relax.build(3)
    with pytest.raises(ValueError, match="no code generator for target 'opencl'"):
        relax.build(Dense, "opencl")
    with pytest.raises(ValueError, match="unknown pipeline"):
        relax.build(Dense, "llvm", relax_pipeline="nothing")


def test_files(tmp_path: Path) -> None:
    relax.build(Branch, "llvm").export_library(tmp_path / "branch.so")
    loaded = autosched.runtime.load_module(tmp_path / "branch.so")
    result = relax.VirtualMachine(loaded, autosched.cpu())["main"](X, np.array(True))
    assert np.array_equal(result.numpy(), (X + 1) ** 2)


def test_functions_with_symbols_are_saved(tmp_path: Path) -> None:
    relax.build(Symbolic, "llvm").export_library(tmp_path / "symbolic.so")
    vm = relax.VirtualMachine(autosched.runtime.load_module(tmp_path / "symbolic.so"), autosched.cpu())
    for n in (2, 5):
        assert np.allclose(vm["main"](np.ones((n, 4), "float32")).numpy(), np.full((n, 4), 0.25))
    report = vm.profile("main", np.ones((2, 4), "float32"))
    assert len(report.calls) == 1 and report.calls[0]["Duration (us)"] < report.device_metrics["cpu0"]["Duration (us)"]


def test_instrument_sees_calls() -> None:
    seen: list[tuple[str, bool]] = []
    vm = machine(Dense)
    vm.set_instrument(lambda func, name, before, result, *args: seen.append((name, before)))
    vm["main"](X, W)
    assert seen == [("main", True), ("main", False)]


def test_what_build_gives_runs_too() -> None:
    executable = autosched.compile(Dense, target="llvm")
    assert np.array_equal(relax.VirtualMachine(executable, autosched.cpu())["main"](X, W).numpy(), X @ W)


@I.ir_module
class ByHand:
    @T.prim_func
    def mm(A: T.Buffer((16, 32), "float32"), B: T.Buffer((32, 16), "float32"), C: T.Buffer((16, 16), "float32")):
        for i, j, k in T.grid(16, 16, 32):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]

    @R.function
    def main(x: R.Tensor((16, 32), "float32"), w: R.Tensor((32, 16), "float32")) -> R.Tensor((16, 16), "float32"):
        cls = ByHand
        with R.dataflow():
            lv = R.call_tir(cls.mm, (x, w), out_sinfo=R.Tensor((16, 16), "float32"))
            gv = R.nn.relu(lv)
            R.output(gv)
        return gv


@pytest.mark.parametrize("scheduled", [False, True])
def test_functions_written_by_hand(scheduled: bool) -> None:
    module = ByHand
    if scheduled:
        sch = Schedule(ByHand)
        sch.work_on("mm")
        i, _, k = sch.get_loops("C")
        sch.parallel(sch.split(i, [None, 4])[0])
        sch.decompose_reduction("C", k)
        module = sch.mod
    x, w = np.ones((16, 32), "float32"), np.ones((32, 16), "float32")
    executable = relax.build(module, "llvm")
    assert np.array_equal(machine(module)["main"](x, w).numpy(), x @ w)
    stored = "".join(segment.manifest["functions"]["mm"] for segment in executable.program.segments)
    assert ("autosched.config" in stored) is not scheduled  # what a template adds
