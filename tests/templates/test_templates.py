"""Every template on functions it matches: default and random configurations against the float64 reference."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.tir import PrimFunc
from autosched.tir.evaluate import evaluate
from tests.spread import cover, spread

from .cases import CASES

HOST = Target("cpu")


def run(func: PrimFunc, config: Config, target: Target, threads: int = 1) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(results, references) of a scheduled function on seeded inputs."""
    applied = apply_config(func, config, target)
    kernel = compile_func(applied.func, target, name="k").kernel
    rng = np.random.default_rng(0)
    natural = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    n = sum(arg.role == "output" for arg in kernel.args)
    for out in arrays[-n:]:
        out.fill(np.nan)
    Module({"k": kernel}, native_object(), threads=threads)(*arrays)
    return arrays[-n:], evaluate(func, natural[:-n])


def check(func: PrimFunc, config: Config, target: Target = HOST, threads: int = 1) -> None:
    results, references = run(func, config, target, threads)
    for result, reference in zip(results, references, strict=True):
        np.testing.assert_allclose(result, reference, rtol=0, atol=1e-5 * max(1.0, float(np.abs(reference).max())))


@spread(3, "name", CASES)
def test_default(name):
    first, make = CASES[name]
    func = make()
    matches = templates_for(func, HOST)
    assert matches[0][0].name == first
    defaults = [template.default(anchor, HOST) for template, anchor in matches]
    assert default_config(func, HOST) in defaults
    assert default_config(func, HOST) == space_for(func, HOST).default
    for config in defaults:
        check(func, config)


@spread(4, "name", CASES, first=1)
def test_random_configurations(name):
    func = CASES[name][1]()
    space = space_for(func, HOST)
    for config in space.sample(np.random.default_rng(1), 1):
        check(func, config, threads=2)


@cover(
    ("name", ["dense", "conv3", "depthwise", "conv_plain1", "softmax", "chain"]),
    ("mcpu", ["x86-64", "x86-64-v3"]),
    together=1,
)
def test_other_vector_widths(name, mcpu):
    target = Target(f"llvm -mcpu={mcpu}")
    if not target.features <= HOST.features:
        pytest.skip(f"this machine has no {mcpu}")
    func = CASES[name][1]()
    check(func, default_config(func, target), target)


@pytest.mark.parametrize(
    "name", ["dense", "conv3", "conv1", "conv_first", "depthwise_tiles", "conv_plain", "conv_plain1"]
)
def test_contractions_stay_in_registers(name):
    func = CASES[name][1]()
    template, anchor = templates_for(func, HOST)[0]
    applied = apply_config(func, template.default(anchor, HOST), HOST)
    report = compile_func(applied.func, HOST, name="k").report()
    assert report.fmas > 0
    assert report.spills == 0


def test_every_function_has_a_template():
    for _, make in CASES.values():
        assert templates_for(make(), HOST)
