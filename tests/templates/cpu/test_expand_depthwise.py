"""A 1x1 convolution and the depthwise one behind it as one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.lower import lower_func
from autosched.codegen.native import native_object
from autosched.ir import structural_equal
from autosched.ir.node import preorder
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, joins_convolutions, templates_for
from autosched.templates.cpu.expand_depthwise import choose_plan, find_bottleneck, is_faster_fused
from autosched.templates.cpu.expand_depthwise_sized import schedule_expand_depthwise
from autosched.tir import PrimFunc, Var
from autosched.tir.evaluate import evaluate
from autosched.tir.functor import free_vars
from autosched.tir.stmt import For, IfThenElse, LoopKind
from tests.spread import spread
from tests.templates.cases import bottleneck, conv, relu, silu

HOST = Target("cpu")
AVX512 = Target("llvm -mcpu=x86-64-v4 -num-cores=2 -l1-bytes=32768 -l2-bytes=1048576 -l3-bytes=33554432")


def check(func: PrimFunc, threads: int, **knobs: int | bool) -> None:
    config = default_config(func, HOST)
    assert config.template == "expand_depthwise"
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), HOST)
    kernel = compile_func(applied.func, HOST, name="k").kernel
    rng = np.random.default_rng(0)
    natural = [rng.standard_normal(b.const_shape()).astype("float32") for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    arrays[-1].fill(np.nan)
    Module({"k": kernel}, native_object(), threads=threads)(*arrays)
    truth = evaluate(func, natural[:-1])[0]
    np.testing.assert_allclose(arrays[-1], truth, rtol=0, atol=1e-5 * max(1.0, float(np.abs(truth).max())))


def random_case(seed: int) -> tuple[PrimFunc, int, dict[str, int | bool]]:
    """(a bottleneck of random sizes, threads, knobs): windows may reach beyond the image on any side."""
    rng = np.random.default_rng(seed)
    block = int(rng.choice([8, 16, 32]))
    kernel, stride = int(rng.choice([3, 5])), int(rng.choice([1, 2]))
    dilation = int(rng.choice([1, 1, 2]))
    size = (int(rng.integers(5, 19)), int(rng.integers(5, 19)))
    reach = (kernel - 1) * dilation + 1
    least = max(0, reach - min(size))
    before, after = (int(rng.integers(-(-least // 2), kernel)) for _ in range(2))
    channels, hidden = block * int(rng.integers(1, 3)), block * int(rng.integers(1, 6))
    act = (None, relu, silu)[int(rng.integers(3))]
    pads = (before, before, after, after)
    batch = int(rng.integers(1, 4))
    func = bottleneck(batch, channels, size, hidden, kernel, stride, pads, block=block, dilation=dilation, act=act)
    rows = func.buffers[-1].const_shape()[2]
    parts = min(int(rng.integers(1, 5)), rows)
    parts = parts if (parts - 1) * -(-rows // parts) < rows else 1
    tile = min(int(rng.integers(1, 8)), size[1])
    return func, int(rng.integers(1, 5)), {"parts": parts, "ow_tile": tile, "oc_blocks": 1}


@spread(3, "seed", range(12))
def test_random_sizes(seed: int) -> None:
    func, threads, knobs = random_case(seed)
    check(func, threads, **knobs)


@pytest.mark.parametrize(("size", "stride", "parts"), [(75, 2, 2), (75, 2, 4), (56, 1, 4), (57, 2, 6)])
def test_parts_at_the_edges_of_an_image_have_tiles_without_conditions_too(size: int, stride: int, parts: int) -> None:
    func = bottleneck(1, 64, (size, size), 64, 3, stride, (1,) * 4)
    config = Config("expand_depthwise", {**default_config(func, AVX512).knobs, "parts": parts})
    body = lower_func(apply_config(func, config, AVX512).func).body
    loops = [x for x in preorder(body) if isinstance(x, For)]
    moving = {x.loop_var for x in loops if x.kind in (LoopKind.SERIAL, LoopKind.PARALLEL)}
    for loop in (x for x in loops if x.kind == LoopKind.UNROLLED):
        assert not any(isinstance(x, IfThenElse) and free_vars(x.condition) & moving for x in preorder(loop.body))


@pytest.mark.parametrize("prefetch", [False, True])
def test_tiles_of_all_pixels_cross_rows(prefetch: bool) -> None:
    check(bottleneck(2, 32, (7, 7), 48, 3, 1, (1,) * 4), 2, parts=1, ow_tile=6, oc_blocks=2, prefetch=prefetch)


def test_padding_is_of_the_hidden_image() -> None:
    """Outside of it the windows read 0, not what the 1x1 convolution makes of 0: the bias."""
    func = bottleneck(1, 16, (4, 4), 16, 3, 1, (1,) * 4)
    natural = [np.zeros(b.const_shape(), "float32") for b in func.buffers]
    natural[2][:], natural[3][:] = 1, 1  # the bias, and the window's weights
    config = default_config(func, HOST)
    applied = apply_config(func, config, HOST)
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    kernel = compile_func(applied.func, HOST, name="k").kernel
    Module({"k": kernel}, native_object(), threads=1)(*arrays)
    inside = np.array([2, 3, 3, 2])
    np.testing.assert_array_equal(arrays[-1][0, 0, :, :, 0], np.outer(inside, inside))


def test_layers_of_several_widths_share_a_kernel_over_open_images() -> None:
    size = Var("h", "int64"), Var("w", "int64")
    funcs = [bottleneck(1, c, size, hidden, 3, 2, (1,) * 4) for c, hidden in ((64, 384), (96, 576))]
    first, second = (schedule_expand_depthwise(func, AVX512) for func in funcs)
    assert first is not None and second is not None
    assert structural_equal(first.func, second.func)


def matches(func: PrimFunc) -> bool:
    return find_bottleneck(func) is not None


def test_what_is_no_bottleneck() -> None:
    assert matches(bottleneck(1, 16, (6, 6), 16, 3, 1, (1,) * 4))
    assert not matches(conv(1, 16, 6, 16, 1, 1, 0))
    assert not matches(conv(1, 16, 6, 16, 3, 1, 1, groups=16))


@pytest.mark.parametrize(("dtype", "kernel", "groups"), [("float16", 1, 1), ("float32", 3, 1), ("float32", 1, 2)])
def test_other_first_convolutions_are_none(dtype: str, kernel: int, groups: int) -> None:
    data = te.placeholder((1, 2, 6, 6, 16), dtype, name="data")
    first = te.placeholder((32, 32 // groups, kernel, kernel), dtype, name="first")
    weight = te.placeholder((32, 1, 3, 3), dtype, name="weight")
    pads = (kernel // 2,) * 4
    image = topi.conv2d(data, first, (1, 1), pads, (1, 1), groups, "NCHW16c", "NCHW16c", out_dtype=dtype)
    out = topi.conv2d(image, weight, (1, 1), (1,) * 4, (1, 1), 32, "NCHW16c", "NCHW16c", out_dtype=dtype)
    assert not matches(te.create_prim_func([data, first, weight, out], "int64"))


def test_a_hidden_image_that_others_read_stays_one() -> None:
    data = te.placeholder((1, 1, 6, 6, 16), name="data")
    first, weight = te.placeholder((16, 16, 1, 1), name="first"), te.placeholder((16, 1, 3, 3), name="weight")
    image = topi.conv2d(data, first, (1, 1), (0,) * 4, (1, 1), 1, "NCHW16c", "NCHW16c")
    out = topi.conv2d(image, weight, (1, 1), (1,) * 4, (1, 1), 16, "NCHW16c", "NCHW16c")
    both = te.compute(out.shape, lambda *i: out(*i) + image(*i), name="T_add")
    assert not matches(te.create_prim_func([data, first, weight, both], "int64"))
    assert not matches(te.create_prim_func([data, first, weight, image, out], "int64"))


def sizes(func: PrimFunc) -> dict[str, int]:
    return dict(templates_for(func, AVX512)[0][1].sizes)


@pytest.mark.parametrize(
    ("channels", "size", "hidden", "kernel", "stride", "parts", "faster"),
    [
        (16, 112, 96, 3, 2, 4, True),  # 4.8 MB
        (32, 56, 144, 3, 1, 2, True),
        (64, 14, 384, 3, 1, 1, True),
        (160, 7, 960, 5, 1, 1, True),
        (32, 56, 80, 3, 1, 2, True),  # of five blocks one thread would have three
        (80, 7, 16, 5, 1, 2, False),  # one block of channels: two parts share the threads, and compute rows twice
    ],
)
def test_what_is_fused_without_tuning(
    channels: int, size: int, hidden: int, kernel: int, stride: int, parts: int, faster: bool
) -> None:
    func = bottleneck(1, channels, (size, size), hidden, kernel, stride, (kernel // 2,) * 4)
    assert choose_plan(sizes(func), AVX512).parts == parts
    assert is_faster_fused(sizes(func), AVX512) == faster


def lone(c: int, hidden: int, size: int, kernel: int, stride: int, groups: int, batch: Var | None = None) -> PrimFunc:
    """A convolution without anything behind it."""
    n = 1 if batch is None else batch
    data = te.placeholder((n, c // 16, size, size, 16), name="data")
    weight = te.placeholder((hidden, c // groups, kernel, kernel), name="weight")
    pads = (kernel // 2,) * 4
    out = topi.conv2d(data, weight, (stride,) * 2, pads, (1, 1), groups, "NCHW16c", "NCHW16c")
    return te.create_prim_func([data, weight, out], "int64")


def test_which_convolutions_are_joined() -> None:
    first, second = lone(16, 128, 14, 1, 1, 1), lone(128, 128, 14, 3, 1, 128)
    read = second.buffers[0]
    assert joins_convolutions(AVX512, first, second, read)
    assert not joins_convolutions(Target("cuda -arch=sm_80"), first, second, read)
    assert not joins_convolutions(AVX512, first, second, second.buffers[1])  # as the windows' weights
    assert not joins_convolutions(AVX512, lone(16, 128, 28, 1, 2, 1), second, read)
    assert not joins_convolutions(AVX512, lone(16, 128, 14, 3, 1, 1), second, read)
    assert not joins_convolutions(AVX512, first, lone(128, 128, 14, 3, 1, 1), read)
    n = te.var("n", "int64")
    assert not joins_convolutions(AVX512, lone(16, 128, 14, 1, 1, 1, n), lone(128, 128, 14, 3, 1, 128, n), read)
    few = lone(80, 16, 7, 1, 1, 1), lone(16, 16, 7, 5, 1, 16)
    assert not joins_convolutions(AVX512, *few, few[1].buffers[0])
    assert joins_convolutions(AVX512, *few, few[1].buffers[0], always=True)
