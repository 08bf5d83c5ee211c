"""The VM over Relay: compiling step by step, arguments, branches, calls, saved programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relay
from autosched.ir import IRModule
from autosched.runtime import profiler_vm
from autosched.runtime.vm import Executable, VirtualMachine
from tests.relay.models import PARAMS, X, convolution, expected

ONES = np.ones((2, 2), np.float32)
CPU = autosched.cpu(0)


@pytest.fixture(scope="module")
def difference() -> Executable:
    x, y = relay.var("x", shape=(2, 2)), relay.var("y", shape=(2, 2))
    with autosched.autotvm.apply_history_best([]):
        return relay.vm.compile(IRModule.from_expr(relay.Function([x, y], x - y)), target="llvm")


@pytest.fixture
def vm(difference: Executable) -> VirtualMachine:
    return VirtualMachine(difference, CPU)


def run(function: object, *args: object) -> object:
    return VirtualMachine(relay.vm.compile(IRModule.from_expr(function), "llvm"), CPU).run(*args)


def test_arguments_by_position_and_name(vm: VirtualMachine) -> None:
    two = 2 * ONES
    for result in (vm.run(ONES, two), vm.run(two, x=ONES), vm.run(y=two, x=ONES), vm.invoke("main", ONES, two)):
        np.testing.assert_array_equal(result.numpy(), -ONES)
    vm.set_input("main", ONES, two)
    first, second = vm.run(), vm.invoke("main")
    assert first is not second
    vm.set_one_input("main", "x", two)
    vm.set_one_input("main", y=ONES)
    vm.invoke_stateful("main")
    (output,) = vm.get_outputs()
    np.testing.assert_array_equal(output.numpy(), ONES)
    assert vm.get_input_index("y") == 1 and vm.get_input_index("z") == -1
    assert len(vm.benchmark(CPU, ONES, two, repeat=3, number=2, end_to_end=True).results) == 3


def test_wrong_arguments(vm: VirtualMachine) -> None:
    with pytest.raises(AssertionError, match="1 arguments instead of 2"):
        vm.run(ONES)
    with pytest.raises(ValueError, match="'y' has shape"):
        vm.run(ONES, ONES[:1])
    with pytest.raises(TypeError, match="'y' has dtype float64"):
        vm.run(ONES, ONES.astype("float64"))
    with pytest.raises(TypeError, match="not object"):
        vm.run(ONES, object())
    with pytest.raises(AttributeError, match="no function 'nope'"):
        vm.invoke("nope", ONES)
    with pytest.raises(ValueError, match="no parameter"):
        vm.run(ONES, z=ONES)
    fresh = VirtualMachine(vm._exec, CPU)
    with pytest.raises(ValueError, match="'x' is not set"):
        fresh.run()


def test_wrong_machines(difference: Executable) -> None:
    for wrong in ({"exe": "x"}, {"device": "cpu"}, {"device": [CPU, 3]}, {"memory_cfg": 3}):
        with pytest.raises(TypeError):
            VirtualMachine(**{"exe": difference, "device": CPU, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="naive"):
        VirtualMachine(difference, CPU, "huge")
    machine = VirtualMachine(difference, autosched.cpu(0), {CPU: "naive"})
    assert machine.memory_cfg == {CPU: VirtualMachine.NAIVE_ALLOCATOR}
    assert VirtualMachine(difference, [CPU]).memory_cfg == {CPU: VirtualMachine.POOLED_ALLOCATOR}


def test_a_program_is_saved_and_loaded(tmp_path: Path) -> None:
    executable = relay.vm.compile(convolution(), "llvm", params=PARAMS)
    code, lib = executable.save()
    assert isinstance(code, bytearray)
    lib.export_library(tmp_path / "lib.so")
    loaded = Executable.load_exec(bytes(code), autosched.runtime.load_module(tmp_path / "lib.so"))
    np.testing.assert_allclose(VirtualMachine(loaded, CPU).run(X).numpy(), expected(), rtol=1e-4)
    assert loaded.globals == ["main"] and loaded.get_function_params("main") == ["x"]
    assert loaded.primitive_ops and "ret" in loaded.bytecode and "NDArray" in loaded.constants
    assert "Globals" in loaded.stats and loaded.primitives and loaded.virtual_devices
    for wrong in ((3, lib), (code, "lib")):
        with pytest.raises(TypeError):
            Executable.load_exec(*wrong)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="no VM program"):
        Executable.load_exec(b"something", lib)
    with pytest.raises(RuntimeError, match="library is another's"):
        Executable.load_exec(code, None)


def test_constants_may_be_kept_apart(tmp_path: Path) -> None:
    executable = relay.vm.compile(convolution(), "llvm", params=PARAMS)
    before = len(executable.save()[0])
    executable.move_late_bound_consts(tmp_path / "constants", byte_limit=0)
    code, lib = executable.save()
    loaded = Executable.load_exec(code, lib)
    for one in (executable, loaded):
        with pytest.raises(RuntimeError, match="late-bound constants are not loaded"):
            VirtualMachine(one, CPU)
        one.load_late_bound_consts(tmp_path / "constants")
        np.testing.assert_allclose(VirtualMachine(one, CPU).run(X).numpy(), expected(), rtol=1e-4)
    with pytest.raises(ValueError, match="does not exist"):
        executable.load_late_bound_consts(tmp_path / "none")
    assert before > 0


def test_the_compiler_step_by_step() -> None:
    x, y = relay.var("x", shape=(2, 2)), relay.var("y", shape=(2, 2))
    mod = IRModule.from_expr(relay.Function([x, y], x - y))
    compiler = relay.backend.vm.VMCompiler()
    with pytest.raises(RuntimeError, match="nothing is lowered"):
        compiler.codegen()
    compiler.set_params({"y": ONES})
    compiler.lower(mod, {CPU: "llvm"})
    with pytest.raises(RuntimeError, match="nothing is generated"):
        compiler.get_exec()
    compiler.codegen()
    np.testing.assert_array_equal(VirtualMachine(compiler.get_exec(), CPU).run(ONES).numpy(), 0 * ONES)
    optimized, params = compiler.optimize(mod, "llvm", params={"y": ONES})
    assert isinstance(optimized, IRModule) and list(params) == ["y"] == list(compiler.get_params())
    with pytest.raises(RuntimeError, match="Must provide module"):
        relay.vm.VMExecutor(None, CPU, "llvm")  # type: ignore[arg-type]


def test_numbers_tuples_and_strings_as_arguments() -> None:
    n, g = relay.var("n", shape=(), dtype="int32"), relay.var("g", shape=(), dtype="float32")
    whole, half = run(relay.Function([n, g], relay.Tuple([n + relay.const(1), g * relay.const(0.5)])), 3, 5.0)  # type: ignore[misc]
    assert (whole.numpy(), whole.dtype, half.numpy()) == (4, "int32", 2.5)
    pair = relay.var("p", relay.TupleType([relay.TensorType((2,)), relay.TensorType((2,))]))
    total = relay.Function([pair], relay.TupleGetItem(pair, 0) + relay.TupleGetItem(pair, 1))
    assert run(total, (np.ones(2, np.float32), np.ones(2, np.float32))).numpy().tolist() == [2, 2]  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="instead of 2"):
        run(total, (np.ones(2, np.float32),))


@pytest.mark.parametrize("choice", [True, False])
def test_only_the_chosen_branch_runs(choice: bool) -> None:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2, 2))
    both = x * relay.const(2.0)
    function = relay.Function([c, x], relay.If(c, both + x, both - x))
    np.testing.assert_array_equal(run(function, np.array(choice), ONES).numpy(), (3 if choice else 1) * ONES)  # type: ignore[attr-defined]


def test_functions_call_each_other_and_themselves() -> None:
    mod = IRModule()
    add_up = relay.GlobalVar("add_up")
    i, total = (relay.var(name, shape=(), dtype="int32") for name in ("i", "total"))
    again = relay.Call(add_up, [i - relay.const(1), total + i])
    body = relay.If(relay.equal(i, relay.const(0)), total, again)
    mod[add_up] = relay.Function([i, total], body, ret_type=relay.scalar_type("int32"))
    n = relay.var("n", shape=(), dtype="int32")
    mod["main"] = relay.Function([n], relay.Call(add_up, [n, relay.const(0)]) * relay.const(2))
    vm = VirtualMachine(relay.vm.compile(mod, "llvm"), CPU)
    assert vm.run(100).numpy() == 2 * 5050
    assert vm.invoke("add_up", 3, 1).numpy() == 7
    assert vm.run(6000).numpy() == 2 * 6000 * 6001 // 2  # a call at the end takes its caller's place


def test_calls_inside_of_each_other_have_an_end() -> None:
    mod = IRModule()
    add_up, i = relay.GlobalVar("add_up"), relay.var("i", shape=(), dtype="int32")
    more = i + relay.Call(add_up, [i - relay.const(1)])
    body = relay.If(relay.equal(i, relay.const(0)), i, more)
    mod[add_up] = relay.Function([i], body, ret_type=relay.scalar_type("int32"))
    n = relay.var("n", shape=(), dtype="int32")
    mod["main"] = relay.Function([n], relay.Call(add_up, [n]))
    vm = VirtualMachine(relay.vm.compile(mod, "llvm"), CPU)
    assert vm.run(100).numpy() == 5050
    with pytest.raises(RuntimeError, match="calls inside of each other"):
        vm.run(10**6)


def test_a_result_is_never_the_argument_itself() -> None:
    x = relay.var("x", shape=(2, 2))
    given = autosched.nd.array(ONES)
    result = run(relay.Function([x], x), given)
    given[:] = np.zeros((2, 2))
    np.testing.assert_array_equal(result.numpy(), ONES)  # type: ignore[attr-defined]


def test_the_profiler_names_kernels(difference: Executable) -> None:
    report = profiler_vm.VirtualMachineProfiler(difference, CPU).profile(ONES, ONES, func_name="main")
    assert [call["Name"] for call in report.calls] == ["subtract"] and "Duration" in str(report)
