import numpy as np
import pytest

from autosched import build, te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.ir.node import FrozenDict
from autosched.runtime import Module
from autosched.target import Target
from autosched.templates.core_nests import load, store
from autosched.templates.nests import index, loop
from autosched.tir import PrimFunc, Var, make_root
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import LoopKind


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
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8", "uint8", "int16", "float16"])
def test_squares_with_ragged_borders(dtype, mcpu):
    _run(35, 21, dtype, mcpu)


def test_squares_are_turned_by_shuffles():
    asm = _run(64, 64).asm
    assert "unpck" in asm
    assert "extractps" not in asm


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 16, 8, 28, 28), (0, 2, 3, 4, 1)),
        ((1, 16, 28, 28, 16), (0, 4, 1, 2, 3)),
        ((2, 4, 8, 17, 32), (0, 4, 1, 2, 3)),
    ],
)
def test_several_axes_as_one_are_turned_by_shuffles(shape, axes):
    x = te.placeholder(shape, "float32", name="x")
    kernel = build(te.create_prim_func([x, topi.transpose(x, axes)], "int64"), target="cpu")
    a = np.random.default_rng(0).standard_normal(shape).astype("float32")
    out = np.zeros([shape[i] for i in axes], "float32")
    kernel(a, out)
    np.testing.assert_array_equal(out, a.transpose(axes))
    asm = next(iter(kernel.kernels.values())).asm
    assert "unpck" in asm and "extractps" not in asm


@pytest.mark.parametrize(("dtype", "rows"), [("uint8", 16), ("bool", 16), ("int16", 8), ("float16", 8)])
def test_small_elements_fill_128_bits_of_a_column(dtype, rows):
    x = te.placeholder((2 * rows, 96), dtype, name="x")
    y = te.compute((96, 2 * rows), lambda j, i: x[i, j], name="y")
    sch = Schedule(te.create_prim_func([x, y], "int64"))
    j, i = sch.get_loops("y")
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, 32])
    sch.reorder(i0, j0, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)
    kernel = compile_func(sch.func, Target("cpu"), name="turned")
    a = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 99, (2 * rows, 96)).astype(dtype)
    out = np.zeros((96, 2 * rows), dtype)
    Module({"turned": kernel.kernel}, native_object())(a, out)
    np.testing.assert_array_equal(out, a.T)
    assert "punpckl" in kernel.asm and "pextrb" not in kernel.asm and "pextrw" not in kernel.asm


def _pairs(value, dtype="int16"):
    """out[2 n + g] = value(x, out, n, g) for n in vectors and g in 2, run on numbers."""
    x, out = (Buffer(name, (index(64),), dtype) for name in ("x", "out"))

    def pair(n):
        return loop("g", 2, lambda g: store(out, value(x, out, n, g), n * 2 + g), LoopKind.UNROLLED)

    body = make_root(loop("n", 32, pair, LoopKind.VECTORIZED))
    x_var, out_var = Var("x", "handle"), Var("out", "handle")
    func = PrimFunc((x_var, out_var), FrozenDict({x_var: x, out_var: out}), body)
    kernel = compile_func(func, Target("cpu"), name="pairs")
    given, found = np.arange(64, dtype=dtype), np.zeros(64, dtype)
    Module({"pairs": kernel.kernel}, native_object())(given, found)
    return found


def test_rows_are_interleaved():
    found = _pairs(lambda x, out, n, g: load(x, n + g * 32))
    np.testing.assert_array_equal(found, np.arange(64).reshape(2, 32).T.reshape(-1))


def test_the_second_of_two_neighbours_may_be_made_of_the_first():
    found = _pairs(lambda x, out, n, g: load(x, n) + load(out, n * 2) * E.cast("int16", g))
    np.testing.assert_array_equal(found, np.stack([np.arange(32), 2 * np.arange(32)], 1).reshape(-1))
