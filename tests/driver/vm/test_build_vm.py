"""Modules built for the VM: straight parts run as graphs, the rest as instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.driver.vm.build_vm import build_vm
from autosched.ir import IRModule
from autosched.relax import TensorStructInfo as Tensor
from autosched.runtime.registry import register_func, remove_global_func
from autosched.runtime.vm_program import Program
from autosched.script import from_source


def tuples() -> IRModule:
    """Two halves of x, their sum with a constant, and x itself."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", Tensor((2, 6)))
    with builder.function("main", [x]):
        with builder.dataflow():
            halves = builder.emit(relax.op.split(x, 2, axis=1))
            total = builder.emit_output(relax.op.add(halves[0], halves[1]))
        builder.emit_func_output([total, [x, relax.const(np.float32(3))]])
    return builder.get()


def test_one_straight_part_is_one_segment() -> None:
    program = build_vm(tuples(), "llvm")
    assert len(program.segments) == 1 and [i[0] for i in program.functions["main"].code][0] == "run"
    data = np.arange(12, dtype=np.float32).reshape(2, 6)
    total, (same, three) = program.call("main", [data])
    np.testing.assert_array_equal(total.numpy(), data[:, :3] + data[:, 3:])
    np.testing.assert_array_equal(same.numpy(), data)
    assert three.numpy() == 3


def test_a_program_survives_its_bytes() -> None:
    program = build_vm(tuples(), "llvm")
    again = Program.from_bytes(program.to_bytes(), program.library())
    data = np.ones((2, 6), np.float32)
    np.testing.assert_array_equal(again.call("main", [data])[0].numpy(), program.call("main", [data])[0].numpy())


def test_wrong_modules_and_arguments() -> None:
    with pytest.raises(TypeError, match="runs an IRModule"):
        build_vm("module")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no relax function"):
        build_vm(autosched.IRModule())
    program = build_vm(tuples(), "llvm")
    with pytest.raises(TypeError, match="2 arguments instead of 1"):
        program.call("main", [1, 2])
    with pytest.raises(ValueError, match=r"main\(x: Tensor\(\[2, 6\], float32\)\)"):
        program.call("main", [np.ones((6, 2), np.float32)])


def test_registered_functions_run_between_kernels() -> None:
    seen = []

    def doubled(x: Any) -> Any:
        seen.append(x.shape)
        return x.numpy() * 2

    def into(x: Any, out: Any) -> None:
        out.copyfrom(x.numpy() + 1)

    register_func("tests.doubled", doubled, override=True)
    register_func("tests.into", into, override=True)
    module = from_source("""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main(x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        a = R.add(x, x)
        b = R.call_packed("tests.doubled", a, sinfo_args=R.Tensor((3,), "float32"))
        c = R.call_dps_packed("tests.into", (b,), out_sinfo=R.Tensor((3,), "float32"))
        d = R.nn.relu(c)
        return d
""")
    program = build_vm(module, "llvm")
    x = np.array([1, -2, 3], "float32")
    np.testing.assert_allclose(program.call("main", [x]).numpy(), np.maximum(4 * x + 1, 0))
    assert seen == [(3,)]
    again = Program.from_bytes(program.to_bytes(), program.library())
    np.testing.assert_allclose(again.call("main", [x]).numpy(), np.maximum(4 * x + 1, 0))
    remove_global_func("tests.doubled")
    with pytest.raises(AttributeError, match=r"tests\.doubled"):
        program.call("main", [x])


def test_match_cast_is_checked_and_defines_symbols() -> None:
    module = from_source("""
@I.ir_module
class Module:
    @R.function
    def exact(x: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor((3,), "float32"):
        y = R.match_cast(x, R.Tensor((3,), "float32"))
        z = R.add(y, y)
        return z

    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
        n, m = T.int64(), T.int64()
        y = R.match_cast(x, R.Tensor((n, m), "float32"))
        z = R.add(y, y)
        return z
""")
    built = relax.build(module, "llvm")
    assert built["main"](np.ones((2, 5), "float32")).numpy().tolist() == [[2.0] * 5] * 2
    assert built["exact"](np.ones(3, "float32")).numpy().tolist() == [2.0] * 3
    with pytest.raises(ValueError, match=r"shape \[4\] instead of \[3\]"):
        built["exact"](np.ones(4, "float32"))
