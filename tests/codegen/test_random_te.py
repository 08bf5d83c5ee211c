"""Random legal primitives on random te programs, at sizes that do not divide: interpreted and compiled, against NumPy.

A failing example prints the program and its schedule's trace as Python.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from autosched.codegen import compile_func
from autosched.ir import structural_equal
from autosched.templates.kernel import form_of
from autosched.tir import PrimFunc, Schedule, interpret
from autosched.tir.verify import verify
from tests.codegen.programs import run
from tests.tir.random_schedule import take_steps
from tests.tir.random_te import STAGES, Choose, RandomProgram, random_program

QUICK = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
CHOICES = st.randoms(use_true_random=False)


def assert_computes(program: RandomProgram, func: PrimFunc, *, backward: bool = False) -> None:
    arrays = [a.copy() for a in program.arguments]
    interpret(func, arrays, backward=backward)
    assert_equal(arrays, program)


def assert_equal(arrays: list[np.ndarray], program: RandomProgram) -> None:
    for found, expected in zip(arrays, program.expected, strict=True):
        np.testing.assert_array_equal(found, expected)


def scheduled(program: RandomProgram, choose: Choose, most: int) -> Schedule:
    """The program after some legal primitives; noted, so that a failure shows what was done."""
    sch = Schedule(program.func)
    try:
        take_steps(sch, 2 + choose(most), choose)
    finally:
        note(program.func.script())
        note(f"sch = Schedule(main)\n{sch.trace}")
    return sch


@settings(QUICK, max_examples=100)
@given(random=CHOICES)
def test_interpreted(random) -> None:  # type: ignore[no-untyped-def]
    program = random_program(random.randrange)
    assert_computes(program, program.func)
    sch = scheduled(program, random.randrange, 20)
    verify(sch.func)
    assert_computes(program, sch.func)
    assert_computes(program, sch.func, backward=True)
    again = Schedule(program.func)
    sch.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert structural_equal(again.func, sch.func)


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64"])
@settings(QUICK, max_examples=12)
@given(random=CHOICES)
def test_compiled(target: str, random) -> None:  # type: ignore[no-untyped-def]
    program = random_program(random.randrange)
    sch = scheduled(program, random.randrange, 20)
    arrays = [a.copy() for a in program.arguments]
    run(compile_func(sch.func, target, name="random"), arrays, pieces=2)
    assert_equal(arrays, program)


@settings(QUICK, max_examples=20)
@given(random=CHOICES)
def test_compiled_as_a_form(random) -> None:  # type: ignore[no-untyped-def]
    program = random_program(random.randrange)
    sch = scheduled(program, random.randrange, 12)
    form = form_of(sch.func)
    if form is not None:
        arrays = [a.copy() for a in program.arguments]
        run(compile_func(form.func, name="random").at(form.numbers), arrays, pieces=2)
        assert_equal(arrays, program)


@pytest.mark.parametrize("stage", sorted(set(STAGES)))
def test_every_stage_computes_what_numpy_says(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs themselves: each kind of stage occurs, and is right before anything is scheduled."""
    import random

    from tests.tir import random_te

    monkeypatch.setattr(random_te, "STAGES", (stage, "scale", "unflatten"))
    for seed in range(6):
        program = random_program(random.Random(seed).randrange)
        assert_computes(program, program.func)
