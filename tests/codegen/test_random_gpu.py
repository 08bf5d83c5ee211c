"""Random schedules for a GPU compute what the program says: threads one by one, and on the emulator in both orders."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.codegen import compile_func
from autosched.errors import CodegenError, InvalidValueError, ScheduleError
from autosched.testing.gpu import run_serially
from autosched.tir.interpret import interpret
from tests.codegen.random_gpu import random_gpu_schedule
from tests.codegen.random_programs import PROGRAMS
from tests.codegen.test_random import QUICK, assert_close, settings

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")

EQUAL_STORES = emulate.Checks(races=False, unset=False)  # threads may store one value in one element


def scheduled(seed):
    """(function scheduled for a GPU, its arguments, what the program computes); None where the schedule is refused."""
    r = random.Random(seed)
    program = r.choice(PROGRAMS)(r)
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in program.buffers]
    expected = [a.copy() for a in arrays]
    interpret(program, expected)
    try:
        return random_gpu_schedule(program, r), arrays, expected
    except (ScheduleError, InvalidValueError):
        return None


def check(seed, on_emulator):
    """Whether the schedule of a seed became a kernel."""
    found = scheduled(seed)
    if found is None:
        return False
    func, arrays, expected = found
    serial = [a.copy() for a in arrays]
    try:
        run_serially(func, *serial)
    except CodegenError:
        return False
    assert_close(serial, expected)
    if on_emulator:
        try:
            kernel = compile_func(func, "cuda -arch=sm_80", use_cache=False).kernel
        except CodegenError:
            return False
        for order in ("late", "ahead"):
            memory = [a.copy() for a in arrays]
            emulate.run_kernel(kernel, memory, order=order, checks=EQUAL_STORES)
            assert_close(memory, expected)
    return True


@settings(QUICK, max_examples=6)
@given(st.integers(0, 10**6))
def test_on_the_emulator(seed):
    check(seed, True)


def test_most_schedules_become_kernels():
    assert sum(check(seed, False) for seed in range(6)) >= 3
