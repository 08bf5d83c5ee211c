"""Loads and stores of vectors."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.tir import Schedule
from tests.codegen.programs import run


@pytest.mark.parametrize("n", [5, 7, 9])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64"])
def test_lanes_that_a_condition_leaves_out_may_lie_before_a_local_array(n, target):
    a = te.placeholder((n,), name="A")
    twice = te.compute((n,), lambda i: a[i] * 2.0, name="twice")
    joined = te.compute((2 * n,), lambda f: te.if_then_else(f < n, a[f], twice[f - n]), name="joined")
    sch = Schedule(te.create_prim_func([a, joined]))
    sch.set_scope("twice", 0, "local")
    sch.vectorize(sch.get_loops("twice")[0])
    sch.vectorize(sch.get_loops("joined")[0])
    x, y = np.arange(1, n + 1, dtype="f"), np.zeros(2 * n, "f")
    run(compile_func(sch.func, target, name="joined", use_cache=False), [x, y])
    np.testing.assert_array_equal(y, np.concatenate([x, x * 2]))
