"""Attention by warpgroups: values, masks and odd sizes on the emulator; what the assembler makes of the defaults."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.registry import template_named
from autosched.testing.gpu import run_serially
from autosched.tir import PrimFunc
from autosched.topi.attention import attention
from tests.spread import spread
from tests.templates.cuda.test_attention import TARGET, Case, inputs_of

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
count_block = pytest.importorskip("autosched.codegen.cuda.emulate.counts").count_block
ml_dtypes = pytest.importorskip("ml_dtypes")

NAME = "warpgroup_attention"
HEADS_FIRST = ("BHSD",) * 4


def case(m: int, t: int, d: int, e: int = 0, **options: object) -> Case:
    return Case(m, t, d, e, **{"heads": 1, "dtype": "float16", "layouts": HEADS_FIRST, **options})  # type: ignore[arg-type]


def compiled(func: PrimFunc, config: Config) -> CudaKernel:
    return compile_func(apply_config(func, config, TARGET).func, TARGET, name="a").kernel


def run(of: Case, config: Config, order: str) -> tuple[np.ndarray, np.ndarray]:
    func = of.func()
    kernel = compiled(func, config)
    assert "wgmma.mma_async" in kernel.ptx and kernel.scratch_bytes == 0
    kind = np.dtype(getattr(ml_dtypes, of.dtype, of.dtype))
    inputs = [x.astype(kind) for x in inputs_of(of, func)]
    out = np.full(func.buffers[-1].const_shape(), 7, kind)
    raw = [x.view(np.uint16) if of.dtype == "bfloat16" else x for x in (*inputs, out)]
    emulate.run_kernel(kernel, raw, order=order)
    return out.astype("d"), of.expected(*(x.astype("d") for x in inputs))


CASES = {
    "odd": (case(200, 300, 64), {"groups": 2, "keys": 64, "stages": 2}),
    "cache": (
        case(200, 300, 64, heads=2, layouts=("BSHD",) * 4, causal="BottomRight", shared=2),
        {"groups": 2, "keys": 48, "stages": 3},
    ),
    "causal": (case(192, 192, 64, causal="TopLeft"), {"groups": 3, "keys": 32, "stages": 1}),
    "turns": (case(140, 200, 64, causal="TopLeft"), {"groups": 2, "keys": 48, "stages": 2, "turns": 1}),
    "turns of three": (case(192, 128, 64), {"groups": 3, "keys": 32, "stages": 2, "turns": 1}),
    "bfloat16": (case(100, 128, 128, heads=2, dtype="bfloat16", shared=2), {"groups": 2, "keys": 96, "stages": 2}),
    "hidden rows": (
        case(130, 70, 64, 128, causal="BottomRight", zero_rows="nan"), {"groups": 1, "keys": 32, "stages": 2},
    ),
    "window": (case(130, 100, 64, causal="TopLeft", window=40), {"groups": 1, "keys": 32, "stages": 2}),
    "one tile": (case(64, 64, 64), {"groups": 1, "keys": 64, "stages": 1}),
    "two tiles": (case(70, 90, 128, 64), {"groups": 2, "keys": 48, "stages": 1}),
}  # fmt: skip


@spread(4, "name, order", [(name, order) for order in ("late", "ahead") for name in CASES])
def test_values(name: str, order: str) -> None:
    of, knobs = CASES[name]
    out, expected = run(of, Config(NAME, knobs), order)
    tolerance = 2e-2 if of.dtype == "bfloat16" else 3e-3
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


def test_the_default_is_right() -> None:
    of = case(150, 270, 256, causal="TopLeft")
    config = default_config(of.func(), TARGET)
    assert config.template == NAME and config["groups"] == 1  # sums of 256 elements fill half of a thread's registers
    out, expected = run(of, config, "late")
    np.testing.assert_allclose(out, expected, rtol=3e-3, atol=3e-3)


def test_the_statements_alone_are_right() -> None:
    """What the function says, without the instructions of a GPU."""
    of = case(130, 140, 64, causal="TopLeft")
    func = of.func()
    inputs, out = inputs_of(of, func), np.zeros(func.buffers[-1].const_shape(), np.float16)
    config = Config(NAME, {"groups": 2, "keys": 32, "stages": 2})
    run_serially(apply_config(func, config, TARGET).func, *inputs, out)
    np.testing.assert_allclose(out, of.expected(*inputs), rtol=3e-3, atol=3e-3)


@spread(2, "m, t, d, e, causal", [
    (1024, 1024, 64, 0, None), (8192, 8192, 64, 0, "TopLeft"), (1024, 1024, 128, 0, "TopLeft"),
    (8192, 8192, 128, 0, None), (2000, 300, 192, 0, None), (512, 512, 256, 64, None),
])  # fmt: skip
def test_defaults_fit(m: int, t: int, d: int, e: int, causal: str | None) -> None:
    """In registers and shared memory, without products that wait for each other: the assembler's log is an error."""
    func = case(m, t, d, e, heads=16, causal=causal).func()
    config = default_config(func, TARGET)
    assert config.template == NAME and space_for(func, TARGET).contains(config)
    (used,) = compiled(func, config).resources.launches
    assert used.spill_bytes == used.stack_bytes == 0 and used.occupancy > 0


def test_drawn_configurations_fit() -> None:
    func = case(1024, 1024, 128, heads=16, causal="TopLeft").func()
    template = template_named(NAME, TARGET)
    anchor = template.match(func, TARGET)
    assert anchor is not None
    for config in template.space(anchor, TARGET).sample(3, 3):
        compiled(func, config)


def test_powers_are_computed_beside_the_second_product() -> None:
    """In the loop, between the wait for scores and that for the sums of values."""
    func = case(1024, 1024, 64).func()
    ptx = compiled(func, Config(NAME, {"groups": 2, "keys": 64, "stages": 2})).ptx
    (beside,) = re.findall(r"wgmma\.wait_group\.sync\.aligned 1;(.*?)wgmma\.wait_group\.sync\.aligned 0;", ptx, re.S)
    assert beside.count("ex2.approx") >= 32
    assert "try_wait" in beside  # else the assembler would wait before the powers
    assert "max.f32" in beside and "setp.gt.f32" not in beside


def test_products_of_a_block_are_counted() -> None:
    func = case(256, 256, 128).func()
    kernel = compiled(func, Config(NAME, {"groups": 2, "keys": 64, "stages": 2}))
    (launch,), arrays = kernel.launches, [np.zeros(b.const_shape(), np.float16) for b in func.buffers]
    counts = count_block(
        kernel.llvm, launch.symbol, launch.grid, launch.block, launch.shared_bytes, [*arrays, 0],
        tensor_maps=launch.tensor_maps,
    )  # fmt: skip
    assert counts.macs == 2 * 128 * 256 * 128


def test_masks_are_tested_where_they_hide_keys() -> None:
    knobs = {"groups": 2, "keys": 64, "stages": 2}
    plain, causal, ragged = (
        compiled(of.func(), Config(NAME, knobs)).ptx.count("selp.f32")
        for of in (case(1024, 1024, 64), case(1024, 1024, 64, causal="TopLeft"), case(1024, 1000, 64))
    )
    assert plain < 16 <= min(causal, ragged)


@pytest.mark.parametrize(
    "of, arch",
    [
        (case(256, 256, 64), "sm_90"),
        (case(256, 256, 64, dtype="float32"), "sm_90a"),
        (case(256, 256, 72), "sm_90a"),
        (case(100, 256, 64), "sm_90a"),
        (case(256, 256, 320), "sm_90a"),
        (case(256, 256, 64, bias=(1, 1, 1, 256)), "sm_90a"),
        (case(256, 256, 64, layouts=("BHSD", "BHDS", "BHSD", "BHSD")), "sm_90a"),
    ],
)
def test_others_stay_with_other_templates(of: Case, arch: str) -> None:
    assert default_config(of.func(), Target(f"cuda -arch={arch}")).template != NAME


@pytest.mark.parametrize("width", [128, 192])
def test_what_follows_has_registers(width: int) -> None:
    q, k, v = (te.placeholder((1, 16, 2048, width), "float16", name=x) for x in "QKV")
    made = attention(q, k, v, None, 0.1, "TopLeft", layouts=HEADS_FIRST)
    out = te.compute(made.shape, lambda *i: made(*i) * te.erf(made(*i) * 0.7), name="out")
    func = create_prim_func([q, k, v, out])
    config = default_config(func, TARGET)
    assert config.template == NAME and config["groups"] == (2 if width == 128 else 1)
    compiled(func, config)


def test_few_blocks_are_cut_further() -> None:
    few, many = (default_config(case(512, 512, 64, heads=h).func(), TARGET) for h in (12, 64))
    assert few["groups"] == 1 and many["groups"] == 2
