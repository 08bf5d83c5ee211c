import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.tir.schedule import Schedule


def _run(rows, columns, dtype="float32", mcpu=None):
    target = Target(f"llvm -mcpu={mcpu}") if mcpu else Target("cpu")
    if not target.features <= Target("cpu").features:
        pytest.skip(f"this machine has no {mcpu}")
    x = te.placeholder((rows, columns), dtype, name="x")
    y = te.compute((columns, rows), lambda j, i: x[i, j] + te.const(1, dtype), name="y")
    sch = Schedule(te.create_prim_func([x, y], "int64"))
    j, i = sch.get_loops("y")
    sch.reorder(i, j)
    lanes = target.lanes("float32")
    i0, i1 = sch.split(i, [None, lanes])
    j0, j1 = sch.split(j, [None, lanes])
    sch.reorder(i0, j0, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)
    kernel = compile_func(sch.func, target, name="turned")
    a = (np.arange(rows * columns).reshape(rows, columns) % 251).astype(dtype)
    out = np.zeros((columns, rows), dtype)
    Module({"turned": kernel.kernel}, native_object())(a, out)
    np.testing.assert_array_equal(out, a.T + a.dtype.type(1))
    return kernel


@pytest.mark.parametrize("mcpu", [None, "x86-64", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8"])
def test_squares_with_ragged_borders(dtype, mcpu):
    _run(35, 21, dtype, mcpu)


def test_squares_are_turned_by_shuffles():
    asm = _run(64, 64).asm
    assert "unpck" in asm
    assert "extractps" not in asm
