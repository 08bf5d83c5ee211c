"""Padding is read without branches: where a condition does not hold, the address of zeros is taken."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.tir import EQ, PrimExpr, PrimFunc, Schedule, all_of, select
from autosched.tir.expr import compare


def pad(dtype: str) -> PrimFunc:
    x = te.placeholder((7, 16), dtype, name="x")

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        return te.if_then_else(all_of(i >= 2, i < 9), x[i - 2, j], te.const(0, dtype))

    return te.create_prim_func([x, te.compute((12, 16), element, name="padded")], "int64")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_rows_beyond_the_data_are_zero(dtype):
    sch = Schedule(pad(dtype))
    sch.vectorize(sch.get_loops("padded")[1])
    compiled = compile_func(sch.func, Target("cpu"), name="k")
    x = np.arange(1, 113).reshape(7, 16).astype(dtype)
    out = np.full((12, 16), 77, dtype)
    Module({"k": compiled.kernel}, native_object(), threads=1)(x, out)
    expected = np.zeros_like(out)
    expected[2:9] = x
    np.testing.assert_array_equal(out, expected)
    assert "select" in compiled.llvm


def test_constant_selections_leave_no_code():
    x = te.placeholder((16,), name="x")

    def element(i: PrimExpr, j: PrimExpr) -> PrimExpr:
        value, small = x[j].as_expr(), select(compare(EQ, i, 1), x[j] * 3.0, -x[j])
        return select(compare(EQ, i, 0), value, small)

    chain = te.compute((4, 16), element, name="y")
    sch = Schedule(te.create_prim_func([x, chain], "int64"))
    i, j = sch.get_loops("y")
    sch.unroll(i)
    sch.vectorize(j)
    compiled = compile_func(sch.func, Target("cpu"), name="k")
    given, out = np.linspace(-2, 2, 16, dtype=np.float32), np.empty((4, 16), np.float32)
    Module({"k": compiled.kernel}, native_object(), threads=1)(given, out)
    np.testing.assert_allclose(out, [given, 3 * given, -given, -given], rtol=1e-6)
    assert "select" not in compiled.llvm
