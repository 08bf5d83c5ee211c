"""Winograd convolutions with weights that are transformed where they are read: right numbers, and where they win."""

from __future__ import annotations

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.codegen import compile_func
from autosched.records import FallbackContext
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.templates.accuracy import with_strict
from tests.spread import spread

from .test_winograd import LIMIT, conv, error

WIDE = Target("llvm -mcpu=x86-64-v4 -num-cores=2 -l1-bytes=49152 -l2-bytes=1048576 -l3-bytes=33554432")
HALVES = Target(str(WIDE).replace("x86-64-v4", "znver4").replace("49152", "32768"))
NARROW = Target("llvm -mcpu=x86-64-v3 -num-cores=2")

CASES = {
    "four_tiles": (1, 32, 7, 7, 32, (1, 1, 1, 1)),
    "whole_tiles": (1, 64, 8, 8, 48, (1, 1, 1, 1)),
    "one_tile": (1, 32, 4, 3, 32, (1, 1, 1, 1)),
    "two_tiles": (1, 32, 3, 7, 32, (1, 1, 1, 1)),
    "batch": (3, 32, 3, 3, 32, (1, 1, 1, 1)),
    "no_padding": (1, 32, 9, 9, 32, (0, 0, 0, 0)),
    "one_sided": (1, 32, 6, 7, 32, (0, 1, 2, 0)),
}


def names(func, target: Target) -> list[str]:
    return [template.name for template, _ in templates_for(func, target)]


def runs_wide() -> bool:
    return {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= set(Target("cpu").features)


@pytest.mark.skipif(not runs_wide(), reason="needs 32 registers of 512 bits")
@spread(3, "case", CASES)
def test_numbers(case: str) -> None:
    func = conv(*CASES[case], block=16)
    for channels in (16, 32):
        assert error(func, Config("winograd_taps", {"channels": channels}), threads=2) < LIMIT


@pytest.mark.skipif(not runs_wide(), reason="needs 32 registers of 512 bits")
@pytest.mark.parametrize(("block", "outputs"), [(8, 40), (16, 32)])
def test_blocks_below_a_vector_and_what_is_fused_behind(block: int, outputs: int) -> None:
    for epilogue in ("", "residual"):
        func = conv(1, 64, 7, 7, outputs, (1, 1, 1, 1), block=block, epilogue=epilogue)
        assert error(func, Config("winograd_taps", {"channels": 32})) < LIMIT


@pytest.mark.skipif(not set(HALVES.features) <= set(Target("cpu").features), reason="needs the instructions of a Zen 4")
@pytest.mark.parametrize(("size", "channels"), [(13, 32), (14, 64)])
def test_groups_of_tiles(size: int, channels: int) -> None:
    func = conv(1, channels, size, size, 48, (1, 1, 1, 1), block=16)
    assert error(func, Config("winograd_taps", {"channels": 16}), HALVES, threads=2) < LIMIT


def test_where_sums_cost_nothing_more_tiles_share_weights() -> None:
    for channels, size, template in ((256, 14, "winograd_taps"), (256, 12, "winograd"), (384, 13, "winograd")):
        func = conv(1, channels, size, size, channels, (1, 1, 1, 1), block=16)
        assert default_config(func, HALVES).template == template
        assert "winograd_taps" not in names(func, WIDE)


def test_products_alone_take_the_units_of_multiply_adds_where_sums_have_their_own() -> None:
    func = conv(1, 64, 7, 7, 32, (1, 1, 1, 1), block=16)
    asm = {}
    for target in (WIDE, HALVES):
        applied = apply_config(func, Config("winograd_taps", {"channels": 32}), target)
        asm[target] = compile_func(applied.func, target, name="k").kernel.asm
    fused = [line for line in asm[HALVES].splitlines() if "vfmadd" in line and "{1to16}" in line]
    products = [line for line in fused if "(%rip)" not in line]
    assert len(products) == 6 * 6 * 4, "the rows of points are unrolled"


def test_it_wins_where_few_tiles_meet_many_weights() -> None:
    for channels, size in ((512, 7), (256, 8), (128, 7)):
        func = conv(1, channels, size, size, channels, (1, 1, 1, 1), block=16)
        assert default_config(func, WIDE) == Config("winograd_taps", {"channels": 32})
        assert default_config(func, WIDE) in space_for(func, WIDE)
    assert default_config(conv(1, 256, 14, 14, 256, (1, 1, 1, 1), block=16), WIDE).template == "winograd"


def test_it_needs_registers_a_vector_a_block_and_the_leave_to_round() -> None:
    func = conv(1, 512, 7, 7, 512, (1, 1, 1, 1), block=16)
    assert "winograd_taps" in names(func, WIDE)
    assert "winograd_taps" not in names(with_strict(func), WIDE)
    assert "winograd_taps" not in names(conv(1, 512, 7, 7, 512, (1, 1, 1, 1), block=8), NARROW)
    assert "winograd_taps" not in names(conv(1, 512, 7, 7, 512, (1, 1, 1, 1), block=32), WIDE)
    assert "winograd_taps" not in names(conv(1, 512, 9, 7, 512, (1, 1, 1, 1), block=16), WIDE)  # six tiles
    assert "winograd_taps" not in names(conv(1, 24, 7, 7, 512, (1, 1, 1, 1), block=8), WIDE)  # no whole lines
    many = Target(f"{WIDE} -num-cores=64".replace("-num-cores=2 ", ""))
    assert "winograd_taps" not in names(conv(1, 512, 7, 7, 64, (1, 1, 1, 1), block=16), many)


@pytest.mark.skipif(not runs_wide(), reason="needs 32 registers of 512 bits")
def test_a_models_weights_are_packed_for_it() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((512, 512, 3, 3)).astype("float32") * np.float32(0.02)
    x = relax.Var("x", relax.TensorStructInfo((1, 512, 7, 7), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=1)))
        builder.emit_func_output(out)
    data = rng.standard_normal((1, 512, 7, 7)).astype("float32")
    plain = autosched.build(builder.get(), target=WIDE, records=FallbackContext(), accuracy="strict")
    model = autosched.build(builder.get(), target=WIDE, records=FallbackContext())
    assert any("winograd_taps" in kernel.source for kernel in model.kernels.values())
    np.testing.assert_allclose(model(data).numpy(), plain(data).numpy(), atol=1e-3)
