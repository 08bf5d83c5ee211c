"""Strides that a schedule asks for."""

import numpy as np

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.lower import lower_func
from autosched.codegen.lower.align import aligned_strides
from autosched.codegen.native import native_object
from autosched.ir.node import preorder
from autosched.runtime import Module
from autosched.target import Target
from autosched.tir import Allocate, IntImm, Schedule, as_int


def two_stages() -> Schedule:
    x = te.placeholder((4, 16, 64), name="x")
    y = te.compute((4, 16, 64), lambda i, j, k: x[i, j, k] * 2.0, name="y")
    z = te.compute((4, 16, 64), lambda i, j, k: y[i, 15 - j, k] + 1.0, name="z")
    return Schedule(te.create_prim_func([x, z], "int64"))


def test_strides_are_as_small_as_the_alignment_allows():
    shape = [IntImm(n, "int64") for n in (6, 30, 64)]
    assert [as_int(s) for s in aligned_strides(shape, [(1, 32, 16), (0, 32, 16)])] == [2416, 80, 1]
    assert [as_int(s) for s in aligned_strides(shape, [])] == [1920, 64, 1]


def test_storage_align_gives_the_scratch_its_strides():
    sch = two_stages()
    sch.storage_align("y", 0, 1, 32, 16)
    sch.storage_align("y", 0, 0, 32, 0)
    (scratch,) = [n.buffer for n in preorder(lower_func(sch.func).body) if isinstance(n, Allocate)]
    assert [as_int(s) for s in scratch.strides] == [1280, 80, 1]
    kernel = compile_func(sch.func, Target("cpu"), name="k").kernel
    assert kernel.scratch_bytes + kernel.scratch_bytes_per_worker == 4 * 1280 * 4
    x = np.random.default_rng(0).standard_normal((4, 16, 64)).astype(np.float32)
    out = np.empty_like(x)
    Module({"k": kernel}, native_object(), threads=1)(x, out)
    np.testing.assert_array_equal(out, 2 * x[:, ::-1] + 1)
