"""Convolutions of bytes in tile registers (AMX): equal to integers' sums, whatever tiles and order they are made in."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_for
from autosched.relax.op.conv2d import reference, to_blocked
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.tir import PrimFunc

TARGET = Target("llvm -mcpu=sapphirerapids -num-cores=1")
needs_tiles = pytest.mark.skipif(
    not TARGET.features <= host_cpu().runnable, reason="this machine has no tile registers, or does not let us use them"
)

#         batch, in, out, block in, block, size, kernel, stride, padding, zero point
CASES = [
    (1, 64, 64, 64, 64, 14, 3, 1, 1, 128),
    (1, 64, 128, 64, 64, 15, 3, 2, 1, 3),
    (2, 128, 64, 64, 64, 7, 1, 1, 0, 0),
    (1, 64, 64, 64, 64, 33, 1, 1, 0, 0),
    (1, 128, 64, 64, 64, 14, 1, 2, 0, 0),
    (1, 4, 64, 4, 64, 23, 7, 2, 3, 117),
    (1, 4, 32, 4, 16, 20, 5, 1, 2, 7),
    (1, 32, 32, 32, 16, 9, 3, 1, 1, 255),
    (2, 64, 64, 64, 64, 40, 5, 1, 2, 9),
    (1, 192, 64, 64, 64, 1, 1, 1, 0, 0),
]


def convolution(case: tuple[int, ...]) -> PrimFunc:
    n, c_in, c_out, b_in, block, size, kernel, stride, padding, zero = case
    x = te.placeholder((n, c_in // b_in, size, size, b_in), "uint8", name="x")
    w = te.placeholder((c_out, c_in, kernel, kernel), "int8", name="w")
    y = topi.conv2d(x, w, (stride,) * 2, (padding,) * 4, (1, 1), 1, f"NCHW{b_in}c", f"NCHW{block}c", "int32", zero)
    return te.create_prim_func([x, w, topi.nn.relu(y)])


def check(case: tuple[int, ...], **knobs: object) -> None:
    n, c_in, c_out, b_in, block, size, kernel, stride, padding, zero = case
    func = convolution(case)
    config = default_config(func, TARGET)
    assert config.template == "conv2d_amx"
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), TARGET)
    kernel_ = compile_func(applied.func, TARGET, name="k")
    assert "tdpbusd" in kernel_.asm and "vpdpbusd" not in kernel_.asm
    rng = np.random.default_rng(size)
    data = rng.integers(0, 256, (n, c_in, size, size)).astype("uint8")
    weight = rng.integers(-128, 128, (c_out, c_in, kernel, kernel)).astype("int8")
    wanted = reference(
        data, weight, (stride,) * 2, (padding,) * 4, (1, 1), 1, "NCHW", "OIHW", f"NCHW{block}c", "int32", zero
    )
    out = np.zeros(wanted.shape, "int32")
    arrays = (to_blocked(data, b_in), weight, out)
    packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, arrays, strict=True)]
    Module({"k": kernel_.kernel}, native_for(TARGET), threads=1)(*packed)
    np.testing.assert_array_equal(packed[-1], np.maximum(wanted, 0))


@needs_tiles
@pytest.mark.parametrize("case", CASES)
def test_convolutions_are_exact(case: tuple[int, ...]) -> None:
    check(case)


@needs_tiles
@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[5]])
def test_so_is_every_configuration(case: tuple[int, ...]) -> None:
    space = space_for(convolution(case), TARGET)
    configs = [c for c in space.sample(7, 60) if c.template == "conv2d_amx"]
    assert len(configs) > 5
    for config in configs[:12]:
        check(case, **config.knobs)


def test_other_cpus_and_other_layouts_have_other_templates() -> None:
    for target, case in ((Target("llvm -mcpu=znver4"), CASES[0]), (TARGET, (1, 32, 32, 16, 16, 9, 3, 1, 1, 0))):
        names = [template.name for template, _ in templates_for(convolution(case), target)]
        assert "conv2d_amx" not in names and "conv2d" in names
