"""Random programs under random legal schedules: the interpreter, lowered loops and machine code agree."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autosched.codegen import compile_func, lower_func
from autosched.codegen.cpu.types import Isa
from autosched.tir.interpret import interpret
from tests.codegen.programs import run
from tests.codegen.random_programs import PROGRAMS, random_schedule

QUICK = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def scheduled(seed):
    """(scheduled function, its arguments, what the function as it is scheduled computes)."""
    r = random.Random(seed)
    func = random_schedule(r.choice(PROGRAMS)(r), r, r.randint(1, 12))
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers]
    expected = [a.copy() for a in arrays]
    interpret(func, expected)
    return func, arrays, expected


def assert_close(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@settings(QUICK, max_examples=60)
@given(st.integers(0, 10**6))
def test_lowering_keeps_the_result(seed):
    func, arrays, expected = scheduled(seed)
    interpret(lower_func(func), arrays)
    assert_close(arrays, expected)


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64"])
@settings(QUICK, max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_machine_code_computes_the_same(target, seed):
    func, arrays, expected = scheduled(seed)
    run(compile_func(func, target, name="random"), arrays, pieces=2)
    assert_close(arrays, expected)


@settings(QUICK, max_examples=8)
@given(seed=st.integers(0, 10**6))
def test_vectors_of_512_bits_on_any_machine(seed):
    func, arrays, expected = scheduled(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Isa, "of", staticmethod(lambda target: Isa(512, target.has_fma, 32)))
        compiled = compile_func(func, "cpu", name="random", use_cache=False)
    run(compiled, arrays, pieces=2)
    assert_close(arrays, expected)
