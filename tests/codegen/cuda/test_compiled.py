"""What is known of a GPU kernel's machine code: models learn from it."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="the CUDA packages are an extra")

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.compiled import KINDS, RESOURCES
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tuner.cost_model.built import LOOPS, N_RESOURCES, built_features
from autosched.tuner.cost_model.loop_features import loop_features

TARGET = Target("nvidia/nvidia-h200")


def test_instructions_and_resources_of_a_matmul() -> None:
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    func = te.create_prim_func([a, b, topi.matmul(a, b)])
    scheduled = apply_config(func, default_config(func, TARGET), TARGET).func
    compiled = compile_func(scheduled, TARGET, name="matmul")
    counts = dict(zip(KINDS, compiled.instructions(), strict=True))
    for kind in ("fma", "copies", "shared loads", "global stores", "barriers"):
        assert counts[kind] > 0, kind
    assert counts["global loads"] == counts["shared stores"] == 0, "copies go around the registers"
    assert counts["tensor"] == 0
    (resources,) = compiled.features().values()
    registers, shared, occupancy, threads = resources[:N_RESOURCES]
    assert 16 <= registers <= 255 and shared > 0 and 0 < occupancy <= 1 and threads % 32 == 0
    loops = tuple(loop_features(scheduled, TARGET).tolist())
    columns = built_features({LOOPS: loops, RESOURCES: resources})
    assert columns is not None and len(columns) > len(resources)
    assert built_features({LOOPS: loops, RESOURCES: resources[:-1]}) is None
