"""Convolutions on tensor cores whose window lies in shared memory once, on the emulator, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.codegen import compile_func
from autosched.space import Config
from autosched.target import Target
from autosched.templates import apply_config, default_config, space_for
from autosched.templates.cuda.tensor_window import TensorWindow, find_window
from tests.spread import spread
from tests.templates.cuda.test_contraction import Conv

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
emulate = pytest.importorskip("autosched.codegen.cuda.emulate")
TARGET = Target("cuda -arch=sm_90a")
SMALL = {"rows": 32, "high": 4, "wide": 8, "warps_m": 2, "warps_n": 2, "step": 16, "stages": 2}
CASES = {
    "plain": (Conv(32, (9, 11), 24, 3, pad=1, dtype="float16"), {}),
    "channels that no step divides": (Conv(24, (9, 11), 40, 3, stride=2, pad=1, dtype="float16"), {}),
    "grouped, dilated": (
        Conv(32, (12, 12), 32, 3, pad=2, dilation=2, groups=2, dtype="float16"), {"rows": 16, "warps_m": 1},
    ),
    "one step": (Conv(20, (9, 11), 40, 5, dtype="float16"), {"step": 32, "stages": 1, "high": 2}),
}  # fmt: skip


def check(conv: Conv, config: Config, order: str = "late") -> object:
    func = conv.func()
    applied = apply_config(func, config, TARGET)
    kernel = compile_func(applied.func, TARGET, use_cache=False, name="conv").kernel
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-2, 3, b.const_shape()).astype(b.dtype) for b in func.buffers[:-1]]
    given = [x if p is None else p.pack(x) for x, p in zip(inputs, applied.packs, strict=False)]
    out = np.zeros(func.buffers[-1].const_shape(), func.buffers[-1].dtype)
    emulate.run_kernel(kernel, [*given, out], order=order)
    expected = conv.expected(*(x.astype("d") for x in inputs))
    np.testing.assert_array_equal(out, expected.astype(out.dtype), err_msg=str(config))
    return kernel


@spread(2, "name", CASES)
def test_convolutions(name: str) -> None:
    conv, knobs = CASES[name]
    for order in ("late", "ahead"):
        kernel = check(conv, Config("tensor_window", {**SMALL, **knobs}), order)
        assert "mma.sync" in kernel.ptx and "ldmatrix" in kernel.ptx  # type: ignore[attr-defined]


def test_drawn_configurations() -> None:
    conv = Conv(48, (10, 13), 40, 3, pad=1, dtype="float16")
    func = conv.func()
    anchor = TensorWindow().match(func, TARGET)
    assert anchor is not None
    space = TensorWindow().space(anchor, TARGET)
    assert space.contains(space.default)
    for config in (space.default, *space.sample(2, 1)):
        check(conv, config)


def test_each_pixel_is_read_once_for_all_places_of_the_window() -> None:
    """A tile of 4 x 8 pixels needs 6 x 10 of each channel: nine reads of its own are 288."""
    conv, trace = Conv(32, (12, 24), 32, 3, pad=1, dtype="float16"), emulate.Trace()
    func = conv.func()
    applied = apply_config(func, Config("tensor_window", SMALL), TARGET)
    kernel = compile_func(applied.func, TARGET, use_cache=False, name="conv").kernel
    inputs = [np.zeros(b.const_shape(), b.dtype) for b in func.buffers]
    given = [x if p is None else p.pack(x) for x, p in zip(inputs, applied.packs, strict=True)]
    emulate.run_kernel(kernel, given, traces=[trace])
    reads = sum(x.requests for x in trace.accesses() if x.space == "global" and not x.writes)
    assert 60 <= reads < 150, "60 pixels of 32 channels by 32 lanes at a time, and the weights by 16 bytes"


@pytest.mark.parametrize(
    "conv, arch",
    [
        (Conv(64, (56, 56), 64, 1, dtype="float16"), "sm_90a"),  # one place
        (Conv(64, (56, 56), 64, 3, pad=1, dtype="float32"), "sm_90a"),
        (Conv(64, (56, 56), 64, 3, pad=1, dtype="float16"), "sm_75"),
        (Conv(16, (9, 9), 32, 3, stride=2, pad=1, transposed=True, dtype="float16"), "sm_90a"),
    ],
)
def test_left_to_others(conv: Conv, arch: str) -> None:
    assert default_config(conv.func(), Target(f"cuda -arch={arch}")).template != "tensor_window"


def test_the_default_is_in_the_space_and_needs_no_stack() -> None:
    func = Conv(64, (56, 56), 64, 3, pad=1, dtype="float16").func()
    for arch in ("sm_80", "sm_90a"):
        target = Target(f"cuda -arch={arch}")
        config = default_config(func, target)
        assert config.template == "tensor_window" and space_for(func, target).contains(config)
        kernel = compile_func(apply_config(func, config, target).func, target).kernel
        assert all(x.stack_bytes == x.spill_bytes == 0 for x in kernel.resources.launches)
        assert 0.99 < kernel.flops / (2 * 2 * 64 * 64 * 9 * 56 * 56) < 1.05


def test_what_a_window_is() -> None:
    found = find_window(Conv(16, (9, 20), 32, 3, stride=2, pad=1, dilation=2, groups=2, dtype="bfloat16").func())
    assert found is not None
    s = found.sizes
    assert (s["G"], s["N"], s["O"], s["I"], s["OH"], s["OW"]) == (2, 2, 16, 8, 4, 9)
    assert (s["KH"], s["SH"], s["DH"], s["SW"]) == (3, 2, 2, 2)


@pytest.mark.parametrize("o", [8, 20, 128])
@pytest.mark.parametrize("size, stride", [((5, 6), 1), ((56, 56), 2), ((7, 7), 1), ((30, 9), 2)])
def test_every_default_is_in_the_space(o: int, size: tuple[int, int], stride: int) -> None:
    func = Conv(48, size, o, 3, stride=stride, pad=1, dtype="float16").func()
    for arch in ("sm_80", "sm_86", "sm_90a"):
        target = Target(f"cuda -arch={arch}")
        assert space_for(func, target).contains(default_config(func, target))
