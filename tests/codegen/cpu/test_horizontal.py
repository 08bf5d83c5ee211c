import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.tir.schedule import Schedule


def _reduce(reducer, length, width, dtype="float32"):
    x = te.placeholder((3, length), dtype, name="x")
    k = te.reduce_axis((0, length), "k")
    y = te.compute((3,), lambda i: reducer(x[i, k], axis=k), name="y")
    sch = Schedule(te.create_prim_func([x, y], "int64"))
    _, lane = sch.split(sch.get_loops("y")[1], [None, width])
    partial = sch.rfactor_inside(lane, 0)
    sch.set_scope(partial, 0, "local")
    sch.vectorize(sch.get_loops(partial)[-1])
    return compile_func(sch.func, Target("cpu"), name="reduced")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("length", "width"), [(64, 32), (24, 8), (40, 4), (37, 16), (21, 7)])
@pytest.mark.parametrize(("reducer", "exact"), [(te.sum, np.sum), (te.max, np.max), (te.min, np.min)])
def test_rows_reduce_by_trees(reducer, exact, length, width, dtype):
    kernel = _reduce(reducer, length, width, dtype)
    x = np.random.default_rng(0).standard_normal((3, length)).astype(dtype)
    out = np.full(3, np.nan, dtype)
    Module({"reduced": kernel.kernel}, native_object())(x, out)
    np.testing.assert_allclose(out, exact(x.astype("d"), axis=1), rtol=1e-5, atol=1e-5)


def test_lanes_are_not_taken_one_by_one():
    asm = _reduce(te.sum, 1024, 32).asm
    assert asm.count("addss") <= 3


@pytest.mark.parametrize(
    ("dtype", "length", "width"),
    [(t, *sizes) for t in ("int32", "uint32", "int64", "uint64") for sizes in ((64, 32), (24, 8), (37, 16))]
    + [("uint8", 300, 64), ("int8", 24, 8), ("int16", 70, 32), ("uint16", 37, 16)],
)
@pytest.mark.parametrize(("reducer", "exact"), [(te.sum, np.sum), (te.max, np.max), (te.min, np.min)])
def test_rows_of_integers_reduce_by_trees(reducer, exact, length, width, dtype):
    kernel = _reduce(reducer, length, width, dtype)
    bits = np.random.default_rng(0).integers(0, 1 << 64, (3, length), "uint64")
    x = bits.astype(dtype)  # of both signs, or above those that a signed number has
    out = np.zeros(3, dtype)
    Module({"reduced": kernel.kernel}, native_object())(x, out)
    np.testing.assert_array_equal(out, exact(x, axis=1, **({"dtype": dtype} if exact is np.sum else {})))


def test_lanes_of_integers_are_not_taken_one_by_one():
    asm = _reduce(te.max, 1024, 32, "uint32").asm
    assert "cmov" not in asm
