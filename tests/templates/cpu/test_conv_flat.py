"""Convolutions whose tiles go over all pixels of an image, across the ends of its rows."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.lower.pipeline import lower_func
from autosched.codegen.native import native_object
from autosched.ir.node import preorder
from autosched.runtime import Module
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for, templates_for
from autosched.tir.evaluate import evaluate
from autosched.tir.expr import Call
from autosched.tir.prefetch import PREFETCH_RESULTS, PREFETCH_STEPS, TO_OWN, TO_READ, TO_WRITE, requested
from autosched.tir.stmt import For
from tests.spread import spread
from tests.templates.cases import conv

HOST, ZEN4 = Target("cpu"), Target("llvm -mcpu=znver4")
AVX2 = Target("llvm -mcpu=x86-64-v3")


def check(func, **knobs):
    config = default_config(func, HOST)
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), HOST)
    kernel = compile_func(applied.func, HOST, name="k")
    assert kernel.report().spills == 0
    rng = np.random.default_rng(0)
    natural = [rng.standard_normal(b.const_shape()).astype("float32") for b in func.buffers]
    arrays = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, natural, strict=True)]
    arrays[-1].fill(np.nan)
    Module({"k": kernel.kernel}, native_object(), threads=2)(*arrays)
    np.testing.assert_allclose(arrays[-1], evaluate(func, natural[:-1])[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("size", [5, 7, 13])  # tiles never divide the pixels
@pytest.mark.parametrize("padding", ["none", "task"])
def test_tiles_cross_rows(size, padding):
    func = conv(2, 32, size, 48, 1, 1, 0)
    (_, anchor) = templates_for(func, HOST)[0]
    assert (anchor.sizes["OH"], anchor.sizes["OW"]) == (1, size * size)
    check(func, ow_tile=6, oc_blocks=1, chunk=2, padding=padding)


def test_patches_of_a_plain_image_are_asked_for_ahead():
    check(func := conv(1, 3, 30, 48, 4, 4, 0, first=True))
    applied = apply_config(func, default_config(func, HOST), HOST)
    assert any(isinstance(x, For) and PREFETCH_STEPS in x.annotations for x in preorder(applied.func.body))


@pytest.mark.parametrize(
    ("channels", "target", "asks"), [(32, ZEN4, False), (64, ZEN4, True), (64, Target("llvm -mcpu=znver5"), False)]
)
def test_long_sums_ask_for_what_they_store_where_stores_wait(channels, target, asks):
    func = conv(1, channels, 28, 192, 1, 1, 0)
    applied = apply_config(func, default_config(func, target), target)
    assert any(isinstance(x, For) and PREFETCH_RESULTS in x.annotations for x in preorder(applied.func.body)) == asks


@pytest.mark.parametrize("padding", ["copy", "task"])
def test_strided_pixels_are_gathered_first(padding):
    check(conv(1, 32, 11, 48, 1, 2, 0), padding=padding, chunk=2)


@pytest.mark.parametrize(("channels", "size", "expected"), [(32, 56, "task"), (256, 56, "copy"), (32, 14, "copy")])
def test_pieces_of_few_weights_gather_their_pixels(channels, size, expected):
    assert default_config(conv(1, channels, size, 2 * channels, 1, 2, 0), HOST)["padding"] == expected


@spread(
    2,
    "func, padding",
    [
        (conv(2, 16, 13, 32, 3, 2, 1), "copy"),
        (conv(1, 16, 9, 32, 3, 2, 0), "none"),
        (conv(1, 16, 7, 16, 5, 1, 2), "copy"),
        (conv(1, 32, 9, 32, 3, 2, 1, groups=2), "copy"),
        (conv(1, 3, 15, 16, 3, 2, 1, first=True), "copy"),
    ],
)
@pytest.mark.parametrize("order", ["weight", "data"])
def test_tiles_of_windows_cross_rows(func, padding, order):
    check(func, across_rows=True, oh_tile=1, ow_tile=5, oc_blocks=1, chunk=2, outer=order, padding=padding)


@pytest.mark.parametrize("knobs", [{}, {"outer": "weight", "oc_blocks": 2}, {"outer": "data", "chunk": 1}])
def test_pieces_of_groups_copy_what_their_group_needs(knobs):
    """A panel of two blocks needs two groups."""
    func = conv(1, 64, 9, 64, 3, 2, 1, groups=4)
    assert default_config(func, HOST)["padding"] == "task"
    check(func, **knobs)


@pytest.mark.parametrize("each", [2, 4, 8])
def test_blocks_of_several_groups(each):
    """Lanes read the channels of their group, which are moved in registers: no element is loaded alone."""
    func = conv(1, 32, 11, 32, 3, 1, 1, groups=32 // each)
    config = default_config(func, HOST)
    assert (config["padding"], config["oc_blocks"], config["unroll_kw"]) == ("task", 1, True)
    check(func)


def test_recorded_tiles_stay_within_rows():
    """Configurations from before there was the knob are in the space, and mean what they meant."""
    func = conv(1, 256, 14, 512, 3, 2, 1, block=8)
    old = {"oh_tile": 1, "ow_tile": 4, "oc_blocks": 3, "outer": "weight", "chunk": 7, "padding": "copy"}
    old |= {"unroll_ic": 8, "unroll_kw": False, "prefetch": False}
    space = space_for(func, AVX2)
    assert Config("conv2d", old) in space
    assert "across_rows or ow_tile <= OW" in space.why_not(Config("conv2d", {**old, "ow_tile": 12, "oc_blocks": 1}))
    assert space.why_not(Config("conv2d", {**old, "across_rows": True, "oh_tile": 2, "ow_tile": 2}))
    assert Config("conv2d", {**old, "across_rows": True}) in space


def test_tiles_ask_for_what_they_store_and_add_while_they_sum():
    """Of 14 pixels in 4 steps, 4 each; the bias is no image."""
    data, skip = (te.placeholder((1, 4, 14, 14, 16), name=name) for name in ("data", "skip"))
    weight, bias = te.placeholder((64, 64, 1, 1), name="weight"), te.placeholder((1, 4, 1, 1, 16), name="bias")
    out = topi.conv2d(data, weight, (1, 1), (0,) * 4, (1, 1), 1, "NCHW16c", "NCHW16c")
    added = te.compute(out.shape, lambda *i: out(*i) + bias(0, i[1], 0, 0, i[4]) + skip(*i), name="added")
    func = te.create_prim_func([data, weight, bias, skip, added], "int64")
    config = default_config(func, ZEN4).with_knobs(ow_tile=14, oc_blocks=1)
    lowered = lower_func(apply_config(func, config, ZEN4).func)
    asked = [requested(x) for x in preorder(lowered.body) if isinstance(x, Call) and x.op == "prefetch"]
    found = [
        (x.buffer.name, len(lines), purpose) for x, lines, purpose, _ in asked if x.buffer.name in ("added", "skip")
    ]
    assert found == [("added", 4, TO_WRITE), *[("added", 1, TO_OWN)] * 4, ("skip", 4, TO_READ)]
    check(func, ow_tile=13, oc_blocks=2)


def test_windows_are_not_flat():
    (_, anchor) = templates_for(conv(1, 16, 7, 16, 3, 2, 0), HOST)[0]
    assert anchor.sizes["OH"] == 3
