"""Winograd's algorithm on bytes: exact, in 16-bit integers, on CPUs without dot products of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_for
from autosched.relax.op.conv2d import to_blocked
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.cpu.winograd import Winograd
from autosched.tir import PrimFunc
from tests.spread import spread

V3, V4 = (Target(f"llvm -mcpu={name} -num-cores=1") for name in ("x86-64-v3", "x86-64-v4"))


def convolution(batch: int, channels: int, outputs: int, height: int, width: int, padding: int, block: int) -> PrimFunc:
    x = te.placeholder((batch, channels // block, height, width, block), "uint8", name="x")
    w = te.placeholder((outputs, channels, 3, 3), "int8", name="w")
    layout = f"NCHW{block}c"
    y = topi.conv2d(x, w, (1, 1), (padding,) * 4, (1, 1), 1, layout, layout, "int32")
    return te.create_prim_func([x, w, y], "int64")


#        batch, channels, outputs, height, width, padding, block
CASES = [
    (1, 16, 16, 8, 8, 1, 8), (1, 64, 32, 7, 9, 1, 16), (2, 32, 48, 5, 5, 0, 16), (1, 16, 24, 14, 3, 1, 8),
    (1, 512, 64, 7, 7, 1, 8),
]  # fmt: skip


def check(case: tuple[int, ...], target: Target, **knobs: object) -> None:
    func, template = convolution(*case), Winograd()
    anchor = template.match(func, target)
    assert anchor is not None
    config = template.default(anchor, target)
    assert config["m"] == 2
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), target)
    kernel = compile_func(applied.func, target, name="k")
    assert "pmaddwd" in kernel.asm and "pmulld" not in kernel.asm
    if not target.features <= host_cpu().runnable:
        return
    batch, channels, outputs, height, width, padding, block = case
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (batch, channels, height, width)).astype("uint8")
    w = rng.integers(-128, 128, (outputs, channels, 3, 3)).astype("int8")
    x[0, :, :4, :3], w[0], w[1], w[2, :, 1] = 255, -128, 127, -128
    size = height + 2 * padding - 2, width + 2 * padding - 2
    out = np.full((batch, outputs // block, *size, block), -1, "int32")
    packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, (to_blocked(x, block), w), strict=False)]
    Module({"k": kernel.kernel}, native_for(target), threads=1)(*packed, out)
    pads = ((padding, padding),) * 2
    wide = np.pad(x, ((0, 0), (0, 0), *pads)).astype("int64")
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", windows, w.astype("int64"))
    np.testing.assert_array_equal(out, to_blocked(exact.astype("int32"), block))


@pytest.mark.parametrize("target", [V3, V4], ids=str)
@spread(2, "case", CASES)
def test_sums_are_exact(case: tuple[int, ...], target: Target) -> None:
    """The bytes' limits among them."""
    check(case, target)


@pytest.mark.parametrize(
    "knobs",
    [
        {"rows": 3, "vectors": 1, "panels": 2},
        {"rows": 5, "vectors": 2, "blocks": 2, "panels": 1},
        {"rows": 2, "vectors": 2, "panels": 1, "tasks": "channels"},
        {"unroll_c": 2, "prefetch": True},
    ],
)
def test_every_configuration_is_exact(knobs: dict[str, object]) -> None:
    check(CASES[1], V3, **({"panels": 2} | knobs))


def test_it_is_chosen_where_it_saves_most() -> None:
    assert default_config(convolution(1, 64, 64, 56, 56, 1, 8), V3).template == "winograd"


def test_other_cpus_and_sums_that_int32_may_not_hold_are_direct() -> None:
    vnni = Target("llvm -mcpu=znver4 -num-cores=1")
    assert default_config(convolution(*CASES[0]), vnni).template == "conv2d"
    assert all(c.template == "conv2d" for c in space_for(convolution(1, 1832, 8, 3, 3, 1, 8), V3).sample(0, 20))
