"""Templates with every access checked while the kernel runs, and what is proved of them without."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.cpu.order import order_unrolled
from autosched.codegen.cpu.types import Isa
from autosched.codegen.lower import lower_func, split_phases
from autosched.codegen.lower.prove import unproved
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for
from autosched.tir.checked_index import CHECKED
from autosched.tir.evaluate import evaluate
from tests.spread import spread

from .cases import CASES

HOST = Target("cpu")
CHECKED_CASES = ("dense", "conv_stride", "depthwise", "conv_plain1", "pool_max", "softmax", "attention", "chain")


@pytest.mark.parametrize("name", [name for name in CHECKED_CASES if name in CASES])
def test_every_access_is_checked(name):
    func = CASES[name][1]()
    applied = apply_config(func, default_config(func, HOST), HOST)
    kernel = compile_func(applied.func.with_attr(CHECKED, True), HOST, name="k").kernel
    assert kernel.checks
    rng = np.random.default_rng(0)
    natural = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    Module({"k": kernel}, native_object(), threads=1)(*arrays)  # raises where an access leaves its buffer
    n = sum(arg.role == "output" for arg in kernel.args)
    for result, expected in zip(arrays[-n:], evaluate(func, natural[:-n]), strict=True):
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


@spread(6, "name", CASES)
def test_all_accesses_are_proved(name):
    """Kernels of templates need no checks: a proof that fails would cost time in every run."""
    func = CASES[name][1]()
    for config in (default_config(func, HOST), *space_for(func, HOST).sample(np.random.default_rng(3), 1)):
        lowered = lower_func(apply_config(func, config, HOST).func)
        phases, _ = split_phases(lowered.with_body(order_unrolled(lowered.body, Isa.of(HOST))))
        assert unproved(phases) == []
