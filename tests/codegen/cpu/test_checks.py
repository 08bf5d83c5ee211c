"""Accesses that leave their buffers: refused where that is sure, checked while the kernel runs where it may be."""

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.errors import CodegenError
from autosched.script import tir as T
from autosched.tir import Schedule


@T.prim_func
def too_long(a: T.Buffer((64,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            b[vi] = a[vi]


@T.prim_func
def before_the_start(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            b[vi] = a[vi - 1]


@T.prim_func
def guarded(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            b[vi] = T.if_then_else(vi >= 1, a[vi - 1], T.float32(0))


@T.prim_func
def computed(a: T.Buffer((64,), "float32"), n: T.Buffer((64,), "int32"), b: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            b[vi] = a[n[vi] * 2 + 1]


@T.prim_func
def computed_store(n: T.Buffer((8, 8), "int32"), b: T.Buffer((8, 12), "float32")):
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, n[vi, vj]] = T.float32(1)


@T.prim_func
def wide_strides(a: T.handle, b: T.Buffer((4, 4), "float32")):
    A = T.match_buffer(a, (4, 4), "float32", strides=[8, 1])
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            b[vi, vj] = A[vi, vj]


@pytest.mark.parametrize(
    ("func", "text"),
    [
        (too_long, r"store to b\[i\], dimension 0: the index is from 0 to 63, out of range \[0, 4\)"),
        (before_the_start, r"load of a\[i - 1\], dimension 0: the index is from -1 to 6"),
        (wide_strides, r"strides \[8, 1\]: its last element is number 27, and the array has 16"),
    ],
)
def test_what_surely_leaves_its_buffer_is_refused(func, text):
    with pytest.raises(CodegenError, match=text):
        autosched.build(func)


def test_a_condition_around_an_access_proves_it():
    module = autosched.build(guarded)
    assert not next(iter(module.kernels.values())).checks
    out = np.empty(8, "float32")
    module(np.arange(8, dtype="float32"), out)
    np.testing.assert_array_equal(out, [0, 0, 1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("bad", [32, -1, 2**30, -(2**31)])
def test_a_computed_index_is_checked_in_vectors(bad):
    module = autosched.build(computed)
    a, n, out = np.arange(64, dtype="float32"), np.arange(64, dtype="int32") // 3, np.empty(64, "float32")
    module(a, n, out)
    np.testing.assert_array_equal(out, a[n * 2 + 1])
    n[33] = bad
    with pytest.raises(IndexError, match=r"load of a\[n\[i\] \* 2 \+ 1\], dimension 0: index -?\d+ is out of range"):
        module(a, n, out)
    n[33] = 0
    module(a, n, out)


def test_a_computed_store_is_checked_and_nothing_outside_is_written():
    module = autosched.build(computed_store)
    block = np.zeros((10, 12), "float32")
    n = np.tile(np.arange(8, dtype="int32"), (8, 1))
    out = block[1:9]
    module(n, out)
    assert (out[:, :8] == 1).all()
    n[7, 5] = 12
    with pytest.raises(IndexError, match="store to b.*dimension 1: index 12 is out of range"):
        module(n, out)
    assert not block[0].any() and not block[9].any()


def test_checks_of_all_accesses_agree_with_the_plain_build():
    a, b = te.placeholder((13, 7), name="a"), te.placeholder((7, 21), name="b")
    k = te.reduce_axis((0, 7), "k")
    func = te.create_prim_func([a, b, te.compute((13, 21), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")])
    plain, checked = autosched.build(func, threads=1), autosched.build(func, threads=1, checks=True)
    assert not any(kernel.checks for kernel in plain.kernels.values())
    assert all(kernel.checks for kernel in checked.kernels.values())
    x, y = np.random.default_rng(0).random((13, 7), "float32"), np.random.default_rng(1).random((7, 21), "float32")
    one, two = np.empty((13, 21), "float32"), np.empty((13, 21), "float32")
    plain(x, y, one)
    checked(x, y, two)
    np.testing.assert_allclose(one, two, rtol=1e-6)
    np.testing.assert_allclose(one, x @ y, rtol=1e-5)


def test_accesses_along_open_dimensions_are_checked() -> None:
    n = te.var("n", "int64")
    x = te.placeholder((n, 20), name="x")
    right = te.create_prim_func([x, te.compute((n, 20), lambda i, j: x[n - 1 - i, j] + 1, name="y")])
    wrong = te.create_prim_func([x, te.compute((n, 20), lambda i, j: x[i + 1, j] + 1, name="y")])
    data, out = np.random.default_rng(0).random((5, 20), "float32"), np.empty((5, 20), "float32")
    autosched.build(right, checks=True)(data, out)
    np.testing.assert_array_equal(out, data[::-1] + 1)
    with pytest.raises(IndexError, match=r"load of x\[.*dimension 0 of size n: index 5 is out of range"):
        autosched.build(wrong, checks=True)(data, out)


def test_a_broken_access_after_scheduling_is_named_with_its_configuration():
    s = Schedule(computed)
    (i,) = s.get_loops(s.get_block("B"))
    s.parallel(s.split(i, [4, 16])[0])
    module = autosched.build(s.mod, checks=True)
    n = np.zeros(64, "int32")
    n[63] = 40
    with pytest.raises(IndexError, match="index 81 is out of range .*kernel 'main' with configuration"):
        module(np.ones(64, "float32"), n, np.empty(64, "float32"))
