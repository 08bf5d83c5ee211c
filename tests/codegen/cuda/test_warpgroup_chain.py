"""Products of warpgroups that follow on each other: what is refused, and faults that the emulator has to find."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.errors import CodegenError
from autosched.space import Config
from autosched.templates import apply_config
from autosched.templates.cuda.warpgroup_attention import _Writer
from tests.templates.cuda.test_attention import TARGET, Case, inputs_of

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")

KNOBS = {"groups": 1, "keys": 32, "stages": 2}


def attend(order="late", **changes):
    case = Case(64, 256, 64, heads=1, layouts=("BHSD",) * 4, dtype="float16")
    func = case.func()
    made = apply_config(func, Config("warpgroup_attention", {**KNOBS, **changes}), TARGET).func
    kernel = compile_func(made, TARGET, use_cache=False).kernel
    inputs, out = inputs_of(case, func), np.zeros(func.buffers[-1].const_shape(), np.float16)
    emulate.run_kernel(kernel, [*inputs, out], order=order)
    np.testing.assert_allclose(out, case.expected(*inputs), rtol=3e-3, atol=3e-3)


def skipped(monkeypatch, name, number):
    """Leave out one call of a function of `instructions`."""
    from autosched.codegen.cuda import instructions

    made, whole = [], getattr(instructions, name)

    def skip_one(*args, **named):
        made.append(args)
        if len(made) - 1 != number:
            whole(*args, **named)

    monkeypatch.setattr(instructions, name, skip_one)
    return made


# the waits of a kernel in order: for queries, keys, keys and values in the loop, once more for these values, whose sums
# end there, for the last values; then those of the warp that copies: for places of the first keys, keys, values, values


@pytest.mark.parametrize("order", ["late", "ahead"])
@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_a_missing_wait_for_a_box_is_found(monkeypatch, number, order):
    with pytest.raises(emulate.EmulationError):
        skipped(monkeypatch, "mbarrier_wait", number)
        attend(order)


@pytest.mark.parametrize("number", [7, 8, 9])
def test_a_missing_wait_for_a_place_is_found(monkeypatch, number):
    with pytest.raises(emulate.EmulationError):
        skipped(monkeypatch, "mbarrier_wait", number)
        attend("late", stages=1)


def test_a_missing_arrival_is_found(monkeypatch):
    with pytest.raises(emulate.EmulationError) as caught:
        skipped(monkeypatch, "mbarrier_arrive", 1)
        attend()
    assert caught.value.kind == "deadlock"


def test_turns_are_given_and_taken(monkeypatch):
    """Each barrier has as many arrivals as waits: a missing one leaves a warpgroup behind."""
    attend(groups=2, turns=1)
    for number in (0, 1):  # the first turn, and each one of an iteration
        with monkeypatch.context() as patch, pytest.raises(emulate.EmulationError) as caught:
            skipped(patch, "named_barrier", number)
            attend(groups=2, turns=1)
        assert caught.value.kind in ("deadlock", "barrier", "count")


def test_what_has_no_form_is_refused(monkeypatch):
    with (
        monkeypatch.context() as patch,
        pytest.raises(CodegenError, match="is copied in front of the loop, or at its end"),
    ):
        patch.setattr(_Writer, "sums", lambda self: self.rescaled())
        attend()
    with pytest.raises(CodegenError, match="multiples of 64 rows and of 16 columns"):
        attend(keys=40)
    with pytest.raises(CodegenError, match="does not begin at 0"):
        attend(stages=0)
