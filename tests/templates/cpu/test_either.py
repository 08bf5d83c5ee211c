"""Two schedules of one function in one kernel: sizes choose between them."""

from __future__ import annotations

import numpy as np

from autosched import te
from autosched.codegen import compile_func
from autosched.ir.node import preorder
from autosched.templates.cpu.either import either
from autosched.tir import For, IfThenElse, LoopKind, PrimFunc, Schedule, Var
from autosched.tir.size_expr import with_named_sizes
from tests.codegen.programs import run

N, M = Var("n", "int64"), Var("m", "int64")


def squares() -> PrimFunc:
    """e + e * e for e = exp(a), of [n, m]."""
    a = te.placeholder((N, M), "float32", name="a")
    power = te.compute((N, M), lambda i, j: te.exp(a[i, j]), name="power")
    out = te.compute((N, M), lambda i, j: power[i, j] + power[i, j] * power[i, j], name="out")
    return te.create_prim_func([a, out])


def by_rows(func: PrimFunc, step: int) -> PrimFunc:
    """Rows in parallel, the exponentials of a row kept, in vectors of so many columns."""
    sch = Schedule(func)
    row, _ = sch.get_loops("out")
    sch.parallel(row)
    sch.compute_at("power", row, True)
    for name in ("power", "out"):
        sch.vectorize(sch.split(sch.get_loops(name)[-1], [None, step])[1])
    return sch.func


def test_the_sizes_of_a_call_choose() -> None:
    func = squares()
    both = either(M <= 4, by_rows(func, 4), by_rows(func, 16))
    compiled = compile_func(with_named_sizes(both), name="both")
    assert compiled.source.count("if m <= 4:") == 1
    assert "power = " in compiled.source and "power_1 = " in compiled.source  # memory of its own in each
    for n, m in ((1, 1), (3, 4), (2, 5), (7, 33)):
        a = np.random.default_rng(m).standard_normal((n, m)).astype("float32")
        out = np.zeros_like(a)
        run(compiled.at((n, m)), [a, out], pieces=2)
        np.testing.assert_allclose(out, np.exp(a) + np.exp(a) ** 2, rtol=1e-6)


def test_parallel_loops_stay_outside() -> None:
    func = squares()
    both = either(M <= 4, by_rows(func, 4), by_rows(func, 16))
    loops = [x for x in preorder(both.body) if isinstance(x, For) and x.kind == LoopKind.PARALLEL]
    assert len(loops) == 1
    assert isinstance(loops[0].body, IfThenElse)


def test_where_only_one_is_parallel_all_of_both_is_a_case() -> None:
    func = squares()
    both = either(M <= 4, func, by_rows(func, 16))
    assert isinstance(both.root.body, IfThenElse)
