"""Winograd convolutions of every form against float64, in several configurations and vector widths."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.errors import SpaceError
from autosched.ir import IRModule
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import all_templates, apply_config, default_config, space_for
from autosched.templates.accuracy import with_accuracy, with_strict
from autosched.templates.cpu.winograd import Winograd
from autosched.templates.cpu.winograd_stages import winograd_func
from autosched.templates.workload import describe
from autosched.tir import PrimFunc, maximum
from autosched.tir.evaluate import evaluate
from autosched.tir.functor import replace_buffers
from tests.spread import spread

from ..cases import conv as padded_conv

HOST = Target("cpu")
AVX512 = Target("llvm -mcpu=x86-64-v4")


def conv(
    batch: int, channels: int, height: int, width: int, outputs: int, padding: tuple[int, int, int, int],
    *, block: int = 8, epilogue: str = "relu", strides: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1),
    taps: int = 3, groups: int = 1,
) -> PrimFunc:  # fmt: skip
    """A blocked convolution; epilogue "": none, "relu": bias and ReLU, "residual": bias, a sum and ReLU."""
    layout = f"NCHW{block}c"
    data = te.placeholder((batch, channels // block, height, width, block), name="data")
    weight = te.placeholder((outputs, channels // groups, taps, taps), name="weight")
    bias = te.placeholder((1, outputs // block, 1, 1, block), name="bias")
    out = topi.conv2d(data, weight, strides, padding, dilation, groups, layout, layout)
    arguments = [data, weight]
    if epilogue:
        arguments.append(bias)
        before = out
        out = te.compute(out.shape, lambda b, q, y, x, r: before(b, q, y, x, r) + bias(0, q, 0, 0, r), name="T_add")
    if epilogue == "residual":
        other = te.placeholder([int(s) for s in out.shape], name="other")
        arguments.append(other)
        inner = out
        out = te.compute(out.shape, lambda *i: inner(*i) + other(*i), name="T_sum")
    if epilogue:
        last = out
        out = te.compute(out.shape, lambda *i: maximum(last(*i), 0.0), name="relu")
    return te.create_prim_func([*arguments, out], "int64")


def config(**knobs: int | str) -> Config:
    given_knobs = {
        "m": 4,
        "rows": 4,
        "vectors": 2,
        "blocks": 1,
        "panels": 1,
        "tasks": "tiles",
        "unroll_c": 1,
        "prefetch": False,
    }
    return Config("winograd", given_knobs | knobs)


def error(func: PrimFunc, chosen: Config, target: Target = HOST, threads: int = 1) -> float:
    """The largest error by the largest value, of a function in one configuration."""
    applied = apply_config(func, chosen, target)
    kernel = compile_func(applied.func, target, name="k").kernel
    rng = np.random.default_rng(0)
    natural = [rng.standard_normal(b.const_shape()).astype(b.dtype) for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    arrays[-1].fill(np.nan)
    Module({"k": kernel}, native_object(), threads=threads)(*arrays)
    (reference,) = evaluate(func, natural[:-1])
    return float(np.abs(arrays[-1] - reference).max() / np.abs(reference).max())


LIMIT = 1e-5  # of the largest value; direct convolution makes 1e-6

CASES = {
    "even": (1, 16, 8, 8, 16, (1, 1, 1, 1)),
    "odd": (1, 16, 7, 9, 16, (1, 1, 1, 1)),
    "smaller_than_a_tile": (1, 8, 3, 3, 8, (0, 0, 0, 0)),
    "one_row": (2, 8, 1, 11, 8, (1, 1, 1, 1)),
    "batch": (3, 16, 5, 5, 24, (1, 1, 1, 1)),
    "no_padding": (1, 16, 11, 10, 16, (0, 0, 0, 0)),
    "one_sided": (1, 8, 6, 7, 16, (0, 1, 2, 0)),
    "wide_padding": (1, 8, 4, 5, 8, (3, 2, 4, 5)),
}


@spread(2, "case", CASES)
def test_sizes_and_padding(case):
    assert error(conv(*CASES[case]), config()) < LIMIT


def test_chunks_of_channels_ask_for_inputs_ahead():
    func, chosen = conv(1, 48, 7, 9, 32, (1, 1, 1, 1)), config(m=2, rows=3, tasks="channels")
    assert "prefetch_within" in apply_config(func, chosen, HOST).trace
    assert error(func, chosen, threads=2) < LIMIT / 4


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_sizes_and_padding_of_small_tiles(case):
    assert error(conv(*CASES[case]), config(m=2)) < LIMIT / 4


@pytest.mark.parametrize("m", [2, 4])
@spread(2, "case", CASES)
def test_stride_2(case, m):
    assert error(conv(*CASES[case], strides=(2, 2)), config(m=m)) < LIMIT / 5


@spread(2, "knobs", [{"blocks": 3, "rows": 2}, {"tasks": "channels", "vectors": 1, "prefetch": True}], ids=str)
def test_configurations_of_stride_2(knobs):
    func = conv(2, 16, 20, 23, 40, (1, 1, 1, 1), strides=(2, 2), epilogue="residual")
    assert error(func, config(**knobs), threads=2) < LIMIT / 5


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "x86-64-v4"])
def test_stride_2_saves_products_where_an_image_has_many_tiles(mcpu):
    caches = "-num-cores=2 -l1-bytes=32768 -l2-bytes=1048576 -l3-bytes=33554432"
    target, block = Target(f"llvm -mcpu={mcpu} {caches}"), 8 if mcpu == "x86-64-v3" else 16
    func = conv(1, 128, 56, 56, 128, (1, 1, 1, 1), block=block, strides=(2, 2))
    assert default_config(func, target).template == "winograd"
    assert default_config(with_strict(func), target)["m"] == 2
    deep = conv(1, 512, 14, 14, 512, (1, 1, 1, 1), block=block, strides=(2, 2))
    assert default_config(deep, target).template == "conv2d"


@pytest.mark.parametrize("m", [3, 5])
@spread(2, "case", CASES)
def test_windows_of_two_by_two(case, m):
    assert error(conv(*CASES[case], taps=2), config(m=m)) < LIMIT


DILATED = {  # dilation and a case: uneven rows and columns, fewer than the dilation, one tile of rows
    "even": (2, (1, 16, 16, 16, 16, (2, 2, 2, 2))),
    "odd": (2, (2, 16, 7, 11, 16, (2, 2, 2, 2))),
    "three": (3, (1, 8, 8, 8, 16, (1, 1, 1, 1))),
    "wide": (6, (1, 8, 5, 17, 8, (6, 6, 6, 6))),
    "one_sided": (4, (1, 8, 10, 23, 16, (0, 4, 0, 1))),
    "batch": (5, (3, 8, 13, 9, 8, (5, 5, 5, 5))),
}


@pytest.mark.parametrize(("m", "taps"), [(2, 3), (4, 3), (5, 2)])
@spread(2, "case", DILATED)
def test_dilation(case, m, taps):
    dilation, sizes = DILATED[case]
    assert error(conv(*sizes, dilation=(dilation, dilation), taps=taps), config(m=m)) < LIMIT


@spread(2, "knobs", [{"blocks": 3, "rows": 2}, {"tasks": "channels", "vectors": 1, "rows": 6}], ids=str)
@pytest.mark.parametrize("case", ["three", "one_sided"])
def test_configurations_of_dilation(case, knobs):
    dilation, sizes = DILATED[case]
    func = conv(*sizes, dilation=(dilation, dilation), epilogue="residual")
    assert error(func, config(**knobs), threads=2) < LIMIT


@spread(
    2,
    "sizes, more, knobs",
    [
        ((2, 32, 7, 9, 32, (1, 1, 1, 1)), {"groups": 2}, {"rows": 3, "blocks": 2}),
        ((1, 96, 9, 5, 192, (0, 1, 2, 0)), {"groups": 3, "block": 16}, {"m": 2, "prefetch": True}),
        ((1, 96, 6, 6, 48, (1, 1, 1, 1)), {"groups": 3, "epilogue": "residual"}, {"unroll_c": 2}),
        ((1, 32, 11, 12, 64, (1, 1, 1, 1)), {"groups": 2, "strides": (2, 2)}, {"rows": 2}),
        ((1, 32, 9, 14, 32, (2, 2, 2, 2)), {"groups": 2, "dilation": (2, 2), "block": 16}, {}),
        ((1, 32, 5, 6, 32, (1, 1, 1, 1)), {"groups": 2, "taps": 2}, {"m": 3}),
    ],
    ids=str,
)
def test_groups(sizes, more, knobs):
    func, template = conv(*sizes, **more), Winograd()
    chosen = template.default(template.match(func, HOST), HOST)
    assert chosen["tasks"] == "channels"
    assert error(func, Config("winograd", {**chosen.knobs, **knobs}), threads=2) < LIMIT


def test_groups_are_of_whole_vectors():
    target = Target("llvm -mcpu=emeraldrapids -num-cores=2 -l1-bytes=49152 -l2-bytes=2097152 -l3-bytes=33554432")
    func = conv(1, 128, 28, 28, 128, (1, 1, 1, 1), block=16, groups=8)
    assert default_config(func, target).template == "winograd"
    space = Winograd().space(Winograd().match(func, target), target)
    assert {(c["tasks"], c["vectors"] * c["panels"]) for c in space.sample(0, 20)} == {("channels", 1)}
    assert Winograd().match(conv(1, 64, 28, 28, 64, (1, 1, 1, 1), block=8, groups=8), target) is None


def test_there_are_two_sizes_of_tiles_for_each_window():
    small = conv(1, 16, 8, 8, 16, (1, 1, 1, 1), taps=2)
    with pytest.raises(SpaceError, match=r"no F\(4, 2\)"):
        apply_config(small, config(m=4), HOST)
    with pytest.raises(SpaceError, match="less accurate"):
        apply_config(with_strict(small), config(m=5), HOST)
    sizes = {c["m"] for c in Winograd().space(Winograd().match(small, HOST), HOST).sample(0, 60)}
    assert sizes == {3, 5}


@pytest.mark.parametrize(("taps", "dilation"), [(2, 1), (3, 2), (3, 4)])
def test_windows_of_two_and_dilated_ones_save_products(taps, dilation):
    target = Target("llvm -mcpu=x86-64-v4 -num-cores=2 -l1-bytes=49152 -l2-bytes=1048576 -l3-bytes=33554432")
    func = conv(1, 128, 32, 32, 128, (dilation,) * 4, block=16, taps=taps, dilation=(dilation,) * 2)
    assert default_config(func, target).template == "winograd"


@pytest.mark.parametrize("epilogue", ["", "relu", "residual"])
def test_what_is_fused_behind(epilogue):
    assert error(conv(1, 16, 9, 6, 16, (1, 1, 1, 1), epilogue=epilogue), config()) < LIMIT


@spread(
    2,
    "knobs",
    [
        {"blocks": 3, "rows": 2},
        {"blocks": 3, "tasks": "channels"},
        {"tasks": "channels", "panels": 2, "vectors": 1},
        {"vectors": 3, "rows": 3, "blocks": 2, "panels": 1},
        {"vectors": 3, "tasks": "channels", "m": 2},
        {"unroll_c": 4, "prefetch": True, "rows": 6, "blocks": 2},
        {"rows": 1, "vectors": 4},
    ],
    ids=str,
)
def test_configurations(knobs):
    assert error(conv(2, 16, 10, 11, 40, (1, 1, 1, 1)), config(**knobs), threads=2) < LIMIT


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.data())
def test_random_configurations(data):
    func = conv(
        data.draw(st.integers(1, 3)), 8 * data.draw(st.integers(1, 3)), data.draw(st.integers(3, 14)),
        data.draw(st.integers(3, 14)), 8 * data.draw(st.integers(1, 5)), data.draw(st.tuples(*[st.integers(0, 2)] * 4)),
    )  # fmt: skip
    template = Winograd()
    space = template.space(template.match(func, HOST), HOST)
    (chosen,) = space.sample(np.random.default_rng(data.draw(st.integers(0, 1000))), 1)
    assert error(func, chosen, threads=2) < LIMIT


def test_candidates_of_equal_tiles_and_panels_share_their_stages():
    func, template = conv(1, 32, 6, 9, 32, (1, 1, 1, 1)), Winograd()
    chosen = template.default(template.match(func, HOST), HOST)
    one, again, other = (
        template.apply(func, Config("winograd", {**chosen.knobs, **changed}), HOST).func
        for changed in ({}, {"unroll_c": 4}, {"m": 2})
    )
    before = winograd_func.cache_info()
    template.apply(func, Config("winograd", {**chosen.knobs, "prefetch": not chosen["prefetch"]}), HOST)
    after = winograd_func.cache_info()
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
    assert len({id(f) for f in (one, again, other)}) == 3


@pytest.mark.parametrize("mcpu", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("block", [8, 16])
def test_vector_widths(mcpu, block):
    target = Target(f"llvm -mcpu={mcpu}")
    func = conv(1, 32, 6, 9, 32, (1, 1, 1, 1), block=block)
    template = Winograd()
    chosen = template.default(template.match(func, target), target)
    if target.features <= HOST.features:
        assert error(func, chosen, target) < LIMIT
        return
    report = compile_func(apply_config(func, chosen, target).func, target, name="k").report()
    assert report.vector_bits == target.vector_bits
    assert report.fmas > 0


@pytest.mark.parametrize(
    "func",
    [
        conv(1, 16, 9, 9, 16, (1, 1, 1, 1), strides=(3, 3)),
        conv(1, 16, 9, 9, 16, (2, 2, 2, 2), dilation=(1, 2)),
        conv(1, 16, 9, 9, 16, (2, 2, 2, 2), dilation=(2, 2), strides=(2, 2)),
        conv(1, 16, 9, 9, 16, (1, 1, 1, 1), taps=2, strides=(2, 2)),
        conv(1, 16, 9, 9, 16, (1, 1, 1, 1), strides=(1, 2)),
        padded_conv(1, 32, 9, 32, 3, 1, 1, groups=4),
        padded_conv(1, 16, 9, 16, 1, 1, 0),
        padded_conv(1, 16, 9, 16, 5, 1, 2),
        padded_conv(1, 3, 9, 16, 3, 1, 1, first=True),
    ],
    ids=[
        "stride",
        "dilation_of_columns",
        "dilation_and_stride",
        "2x2_and_stride",
        "stride_of_columns",
        "groups",
        "1x1",
        "5x5",
        "first",
    ],
)
def test_other_convolutions_do_not_match(func):
    assert Winograd().match(func, HOST) is None


def test_default_is_the_fastest_by_estimate():
    large, small = conv(1, 64, 56, 56, 64, (1, 1, 1, 1)), conv(1, 8, 6, 6, 8, (1, 1, 1, 1))
    assert (default_config(large, HOST).template, default_config(large, HOST)["m"]) == ("winograd", 4)
    assert default_config(small, HOST).template == "conv2d"
    assert default_config(large, HOST) == space_for(large, HOST).default
    deep = conv(1, 512, 7, 7, 512, (1, 1, 1, 1))
    assert Winograd().default(Winograd().match(deep, HOST), HOST)["m"] == 2


def test_strict_leaves_out_the_less_accurate():
    func = conv(1, 64, 28, 28, 64, (1, 1, 1, 1))
    fast = default_config(func, HOST)
    assert fast["m"] == 4
    strict = with_strict(func)
    assert default_config(strict, HOST)["m"] == 2
    assert "m" in space_for(strict, HOST).why_not(fast)
    assert describe(func, HOST) == describe(strict, HOST)


def test_workload_is_the_same_without_the_template():
    func = conv(1, 64, 14, 14, 64, (1, 1, 1, 1))
    direct = next(t for t in all_templates("cpu") if t.name == "conv2d")
    assert describe(func, HOST).op == direct.match(func, HOST).op
    assert describe(func, HOST).attrs["sizes"] == tuple(direct.match(func, HOST).sizes.values())


@pytest.mark.parametrize("target", [HOST, AVX512], ids=["host", "avx512"])
def test_products_stay_in_registers(target):
    func = conv(1, 64, 14, 14, 64, (1, 1, 1, 1), block=16)
    template = Winograd()
    chosen = template.default(template.match(func, target), target)
    kernel = compile_func(apply_config(func, chosen, target).func, target, name="k")
    loop = _products(kernel.asm)
    assert sum("vfmadd" in line for line in loop) >= 8
    assert not any("rsp" in line for line in loop)
    assert not any(op in line for line in loop for op in ("vmulss", "vaddss", "vfmadd231ss", "vfmadd213ss"))


def _products(asm: str) -> list[str]:
    """The innermost loop of the matrix products' first tile."""
    lines = asm.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("winograd_products") and line.endswith(":"))
    first = next(i for i, line in enumerate(lines) if i > start and "vfmadd" in line)
    label = max(i for i, line in enumerate(lines[:first]) if line.startswith(".LBB"))
    end = next(i for i, line in enumerate(lines) if i > first and "\tj" in line)
    return lines[label:end]


def test_flops_are_those_of_the_convolution():
    func = conv(1, 16, 8, 8, 16, (1, 1, 1, 1))
    kernel = compile_func(apply_config(func, config(), HOST).func, HOST, name="k").kernel
    assert kernel.flops == 2 * 8 * 8 * 16 * 16 * 9


def test_infinities_outside_of_a_tile_stay_there():
    func = conv(1, 8, 12, 12, 8, (1, 1, 1, 1), epilogue="")
    applied = apply_config(func, config(), HOST)
    arrays = [np.ones(b.const_shape(), np.float32) for b in func.buffers]
    arrays[0][0, 0, 0, 0, 0] = np.inf
    packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, arrays, strict=True)]
    Module({"k": compile_func(applied.func, HOST, name="k").kernel}, native_object(), threads=1)(*packed)
    assert np.isfinite(packed[-1][0, 0, 4:, 4:]).all()


def test_a_strict_build_asks_every_function_for_accuracy():
    func = conv(1, 64, 28, 28, 64, (1, 1, 1, 1))
    (strict,) = [f for _, f in with_accuracy(IRModule({"main": func}), "strict").functions_items()]
    (fast,) = [f for _, f in with_accuracy(IRModule({"main": func}), "fast").functions_items()]
    assert (default_config(fast, HOST)["m"], default_config(strict, HOST)["m"]) == (4, 2)
    with pytest.raises(SpaceError, match="less accurate"):
        apply_config(strict, default_config(fast, HOST), HOST)


def test_weights_are_fetched_ahead_whatever_their_name():
    func = conv(1, 16, 8, 8, 16, (1, 1, 1, 1))
    renamed = {p: dataclasses.replace(b, name="lv7") if b.name == "weight" else b for p, b in func.buffer_map.items()}
    old, new = func.buffers[1], next(b for b in renamed.values() if b.name == "lv7")
    func = dataclasses.replace(func, buffer_map=renamed, body=replace_buffers(func.body, {old: new}))
    kernel = compile_func(apply_config(func, config(prefetch=True), HOST).func, HOST, name="k")
    assert any("prefetcht" in line for line in _products(kernel.asm))
