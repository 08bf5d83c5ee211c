"""Modules built for the VM: straight parts run as graphs, the rest as instructions."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.driver.vm import build_vm
from autosched.ir import IRModule
from autosched.relax import TensorStructInfo as Tensor
from autosched.runtime.vm_program import Program


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
