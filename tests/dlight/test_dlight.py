"""DLight's rules: which answers, that results stay, that results are marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import dlight, te, topi
from autosched.errors import TVMError
from autosched.ir import IRModule, preorder
from autosched.target import Target
from autosched.tir import For, LoopKind, Schedule, interpret


def prim_func(*tensors: Any) -> Any:
    return te.create_prim_func(list(tensors))


def product(n: int, m: int, k: int, *, relu: bool = False) -> Any:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    return prim_func(a, b, topi.relu(c) if relu else c)


def softmax() -> Any:
    x = te.placeholder((5, 33), name="X")
    return prim_func(x, topi.softmax(x))


def transpose() -> Any:
    x = te.placeholder((9, 40), name="X")
    return prim_func(x, te.compute((40, 9), lambda i, j: x[j, i], name="T"))


def total() -> Any:
    x = te.placeholder((7, 50), name="X")
    k = te.reduce_axis((0, 50), name="k")
    return prim_func(x, te.compute((7,), lambda i: te.sum(x[i, k], axis=k), name="S"))


CASES = [
    (product(40, 70, 9), dlight.gpu.Matmul),
    (product(40, 70, 9, relu=True), dlight.gpu.Matmul),
    (product(3, 70, 9), dlight.gpu.LowBatchGEMV),
    (product(1, 70, 9), dlight.gpu.GEMV),
    (total(), dlight.gpu.Reduction),
    (softmax(), dlight.gpu.GeneralReduction),
    (transpose(), dlight.gpu.Transpose),
    (softmax(), dlight.gpu.Fallback),
    (product(1, 70, 9), dlight.cpu.GEMV),
    (total(), dlight.cpu.Reduction),
]


@pytest.mark.parametrize(("func", "rule"), CASES)
def test_rules_keep_the_result(func: Any, rule: Any) -> None:
    target = Target("cuda" if rule.__module__.endswith("gpu") else "llvm")
    answer = rule().apply(func, target, False)
    assert isinstance(answer, Schedule)
    kinds = {x.kind for x in preorder(answer.func.body) if isinstance(x, For)}
    assert kinds & {LoopKind.THREAD_BINDING, LoopKind.PARALLEL}
    rng = np.random.default_rng(0)
    arrays = [rng.random([int(d) for d in b.shape]).astype(b.dtype) for b in func.buffers]
    expected, found = [a.copy() for a in arrays], [a.copy() for a in arrays]
    interpret(func, expected)
    interpret(answer.func, found)
    assert np.allclose(expected[-1], found[-1], rtol=1e-5)


@pytest.mark.parametrize(
    ("func", "rule"),
    [(total(), dlight.gpu.Matmul), (product(1, 70, 9), dlight.gpu.Matmul), (softmax(), dlight.gpu.Transpose)],
)
def test_rules_leave_other_functions(func: Any, rule: Any) -> None:
    assert rule().apply(func, Target("cuda"), False) is None
    assert rule().apply(product(40, 70, 9), Target("llvm"), False) is None


def test_first_rule_wins_and_marks() -> None:
    module = IRModule({"f": product(40, 70, 9)})
    with Target("cuda"):
        made = dlight.ApplyDefaultSchedule(dlight.gpu.Matmul(), dlight.gpu.Fallback())(module)
        again = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(made)
    assert made["f"].attrs["tir.is_scheduled"]
    assert "threadIdx.y" in made.script()
    assert again["f"] is made["f"]


def test_own_rule() -> None:
    @dlight.ScheduleRule.from_callable("Mine")
    def mine(func: Any, target: Target, tunable: bool) -> Any:
        sch = Schedule(func)
        sch.unroll(sch.get_loops("C")[-1])
        return [sch]

    with Target("llvm"):
        made = dlight.ApplyDefaultSchedule(mine())(IRModule({"f": product(4, 4, 3)}))
    assert "T.unroll(3)" in made.script()


def test_a_target_is_needed() -> None:
    with pytest.raises(TVMError, match="needs a current target"):
        dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(IRModule({"f": total()}))
