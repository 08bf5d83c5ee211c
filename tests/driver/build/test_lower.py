"""`lower` shows plain loops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.ir import IRModule, preorder, structural_equal
from autosched.ir.transform import PassContext
from autosched.tir import Block, For, LoopKind, PrimFunc, Schedule
from autosched.tir.stmt import Stmt
from autosched.tir.stmt_functor import ir_transform
from autosched.tir.transform import prim_func_pass


def product() -> tuple[te.Tensor, te.Tensor]:
    x = te.placeholder((7, 5), name="x")
    return x, te.compute((7, 5), lambda i, j: x[i, j] * 2.0, name="y")


def test_a_lowered_function_has_loops_and_no_blocks() -> None:
    x, y = product()
    lowered = autosched.lower([x, y], name="twice")
    nodes = list(preorder(lowered["twice"].body))
    assert not any(isinstance(node, Block) for node in nodes)
    assert [node.loop_var.name for node in nodes if isinstance(node, For)] == ["i", "j"]


def test_a_schedule_its_module_and_its_function_lower_alike() -> None:
    sch = Schedule(te.create_prim_func(list(product())))
    sch.split(sch.get_loops(sch.get_block("y"))[1], (None, 4))
    lowered = autosched.lower(sch)
    assert structural_equal(lowered["main"], autosched.lower(sch.mod)["main"])
    assert structural_equal(lowered["main"], autosched.lower(sch.mod["main"])["main"])


def test_other_things_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot lower the str 'a string'"):
        autosched.lower("a string")
    with pytest.raises(TypeError, match="schedule"):
        autosched.lower(3)


@prim_func_pass(opt_level=0)
def in_vectors(func: PrimFunc, mod: IRModule, context: PassContext) -> PrimFunc:
    def vectorize(loop: Stmt) -> Stmt | None:
        is_inner = isinstance(loop, For) and loop.loop_var.name == "j"
        return dataclasses.replace(loop, kind=LoopKind.VECTORIZED) if is_inner else None

    return func.with_body(ir_transform(func.body, None, vectorize, ["tir.For"]))


def test_passes_of_the_users_own_run_in_lower_and_build() -> None:
    x, y = product()
    with PassContext(config={"tir.add_lower_pass": [(1, in_vectors)]}):
        assert "T.vectorized(5)" in str(autosched.lower([x, y]))
        module = autosched.build([x, y])
    given, out = np.ones((7, 5), np.float32), np.zeros((7, 5), np.float32)
    module(given, out)
    assert (out == 2).all()
    with PassContext(config={"tir.add_lower_pass": [in_vectors]}), pytest.raises(TypeError, match=r"\(phase, pass\)"):
        autosched.lower([x, y])
