"""Convolutions with windows of one place as products of warpgroups, on the emulator."""

import ml_dtypes
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config
from autosched.templates.cuda import warpgroup_matmul
from autosched.templates.cuda.pointwise import find_pointwise
from autosched.templates.registry import templates_for
from tests.spread import cover

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")


def conv(data, out, dtype="float16", fused=False, weight_size=1, stride=1):
    """A convolution of images [N, C, H, W]; relu(… + bias + image) where something is fused."""
    images, channels, height, width = data
    x = te.placeholder(data, dtype, name="x")
    w = te.placeholder((out, channels, weight_size, weight_size), dtype, name="w")
    y = topi.nn.conv2d(x, w, stride, weight_size // 2, 1, "NCHW")
    if not fused:
        return create_prim_func([x, w, y])
    bias = te.placeholder((1, out, 1, 1), dtype, name="bias")
    other = te.placeholder((images, out, height, width), dtype, name="other")
    return create_prim_func([x, w, bias, other, topi.relu(topi.add(topi.add(y, bias), other))])


def expected(func, arrays):
    x, w, *more = (a.astype("d") for a in arrays)
    found = np.einsum("oc,nchw->nohw", w[:, :, 0, 0], x)
    return np.maximum(found + more[0] + more[1], 0) if more else found


@pytest.mark.parametrize(
    "data, out, dtype, fused",
    [
        ((2, 136, 12, 10), 72, "float16", True),
        ((1, 72, 16, 5), 136, "bfloat16", True),
        ((3, 64, 8, 9), 64, "float16", False),  # all channels in one step
    ],
)
def test_as_products_of_warpgroups(data, out, dtype, fused, monkeypatch):
    monkeypatch.setattr(warpgroup_matmul, "LEAST_POINTWISE", 1)
    func = conv(data, out, dtype, fused)
    stored = "e" if dtype == "float16" else ml_dtypes.bfloat16
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(b.const_shape()).astype(stored) for b in func.buffers[:-1]]
    template, anchor = templates_for(func, TARGET)[0]
    configs = (default_config(func, TARGET), *template.space(anchor, TARGET).sample(1, 1))
    for config, order in zip(configs, ("late", "ahead"), strict=True):
        assert config.template == "warpgroup_matmul"
        applied = apply_config(func, config, TARGET)
        assert [b.const_shape() for b in applied.func.buffers] == [b.const_shape() for b in func.buffers]
        kernel = compile_func(applied.func, TARGET, use_cache=False).kernel
        found = np.zeros(func.buffers[-1].const_shape(), stored)
        emulate.run_kernel(kernel, [*(a.view("H") for a in arrays), found.view("H")], order=order)
        near = {"rtol": 2e-2, "atol": 8e-2} if dtype == "bfloat16" else {"rtol": 4e-3, "atol": 2e-2}
        np.testing.assert_allclose(found.astype("d"), expected(func, arrays), **near, err_msg=str(config))


@pytest.mark.parametrize("data, out, resident", [((32, 64, 56, 56), 64, 4), ((32, 256, 56, 56), 128, 2)])
def test_blocks_of_short_sums_run_side_by_side(data, out, resident):
    """What surrounds products of few steps takes most of a block's time: others' copies and products go on beside."""
    func, gpu = conv(data, out), Target("nvidia/nvidia-h200")
    config = default_config(func, gpu)
    assert config["persistent"] == resident and config["cluster_rows"] == config["cluster_columns"] == 1
    template, anchor = templates_for(func, gpu)[0]
    assert template.space(anchor, gpu).contains(config)
    kernel = compile_func(apply_config(func, config, gpu).func, gpu, use_cache=False).kernel
    (used,), (launch,) = kernel.resources.launches, kernel.launches
    assert used.stack_bytes == used.spill_bytes == 0
    assert gpu.gpu.blocks_per_sm(launch.threads, used.registers, used.shared_bytes) == resident


@cover(("fused", [False, True]), ("order", ["late", "ahead"]), together=1)
def test_blocks_go_through_tiles_of_all_images(fused, order, monkeypatch):
    """Twelve tiles of three images, of which a second one in each row of tiles ends within, for five blocks."""
    real = warpgroup_matmul._schedule
    monkeypatch.setattr(warpgroup_matmul, "_schedule", lambda *args: real(*args[:-1], 5))
    monkeypatch.setattr(warpgroup_matmul, "LEAST_POINTWISE", 1)
    func, rng = conv((3, 72, 18, 8), 128, fused=fused), np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, b.const_shape()).astype("e") for b in func.buffers[:-1]]
    knobs = {"rows": 64, "columns": 128, "groups": 1, "lines": 1, "stages": 4, "group": 2, "wave_parts": 1}
    config = Config("warpgroup_matmul", {**knobs, "cluster_rows": 1, "cluster_columns": 1, "persistent": 2})
    kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, use_cache=False).kernel
    assert kernel.launches[0].grid == (5, 1, 1) and kernel.ptx.count("st.global.v4") == 8
    found, trace = np.zeros(func.buffers[-1].const_shape(), "e"), emulate.Trace()
    emulate.run_kernel(kernel, [*arrays, found], order=order, traces=[trace])
    np.testing.assert_array_equal(found, expected(func, arrays).astype("e"))
    writes = [x for x in trace.accesses() if x.space == "global" and x.writes]
    assert writes and all(x.transactions == x.ideal for x in writes), "whole sectors"


@pytest.mark.parametrize(
    "func",
    [
        conv((32, 128, 14, 14), 128),  # rows of 392 bytes
        conv((32, 128, 16, 16), 128, stride=2),
        conv((32, 128, 16, 16), 128, weight_size=3),
        conv((32, 128, 16, 16), 128, "float32"),
        conv((1, 64, 8, 8), 64),  # little work
    ],
)
def test_left_to_others(func):
    assert default_config(func, TARGET).template != "warpgroup_matmul"


def test_what_is_no_image_keeps_its_place():
    """A value for each row of an image is read at the row of the pixel, and is no part of the product's shapes."""
    x, w = te.placeholder((2, 128, 8, 12), "float16", name="x"), te.placeholder((64, 128, 1, 1), "float16", name="w")
    rows = te.placeholder((1, 1, 8, 1), "float16", name="rows")
    func = create_prim_func([x, w, rows, topi.multiply(topi.nn.conv2d(x, w, 1, 0, 1, "NCHW"), rows)])
    found = find_pointwise(func)
    assert [b.const_shape() for b in found.func.buffers] == [(2, 128, 96), (64, 128), (1, 1, 8, 1), (2, 64, 96)]
    assert set(found.natural.values()) == {func.buffers[i] for i in (0, 1, 3)}
