"""Scheduled and lowered functions come back from their text."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from autosched.ir import assert_structural_equal
from autosched.script import from_source, script, text_with_mark
from autosched.tir import PrimFunc
from autosched.tir.functor import blocks
from autosched.tir.schedule import Schedule
from tests.tir import programs
from tests.tir.random_schedule import take_steps


@pytest.mark.parametrize(
    "make", [programs.matmul, programs.conv, programs.softmax, programs.pool, programs.argmax], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("seed", [1, 2])
def test_any_schedule(make: Callable[[], PrimFunc], seed: int) -> None:
    rng = random.Random(seed)
    sch = Schedule(make())
    take_steps(sch, 10, rng.randrange)
    func = sch.mod["main"]
    text = script(func)
    again = from_source(text)
    assert script(again) == text
    assert_structural_equal(func, again)
    assert all("^" in text_with_mark(func, block) for block in blocks(func)[1:])
