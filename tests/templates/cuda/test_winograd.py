"""Winograd convolutions for GPUs: right for every size and border, and taken where they are expected to be faster."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cuda.build import add_images
from autosched.errors import SpaceError
from autosched.runtime.cuda.kernel import CudaKernel
from autosched.space import Config
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.templates import apply_config, default_config, space_for, template_named, templates_for
from autosched.templates.accuracy import with_strict
from autosched.templates.tf32 import with_tf32
from autosched.testing.gpu import run_in_all_ways
from autosched.tir import PrimFunc
from tests.spread import spread

pytest.importorskip("numba.cuda.cudadrv.nvvm", reason="numba-cuda is not installed")
pytest.importorskip("cuda.bindings.nvjitlink", reason="cuda-bindings is not installed")

TARGET = Target("cuda -arch=sm_90a")
KNOBS = {"rows": 16, "columns": 16, "per_row": 2, "per_column": 4, "step": 8, "stages": 2}


def conv(
    n: int, channels: int, size: tuple[int, int], out: int, pad: int = 1, stride: int = 1, dilation: int = 1
) -> PrimFunc:
    """relu(conv2d(data, weight) + bias) of 3x3 taps."""
    data, weight = te.placeholder((n, channels, *size), name="D"), te.placeholder((out, channels, 3, 3), name="W")
    bias = te.placeholder((out, 1, 1), name="b")
    made = topi.nn.conv2d(data, weight, stride, pad, dilation, "NCHW")
    return create_prim_func([data, weight, bias, topi.relu(topi.add(made, bias))])


def reference(x: np.ndarray, w: np.ndarray, b: np.ndarray, pad: int) -> np.ndarray:
    x = np.pad(x.astype("d"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, w.astype("d")) + b, 0)


@pytest.mark.parametrize("m", [2, 4])
@spread(2, "size, pad", [((9, 13), 1), ((8, 8), 0)])
def test_convolutions_with_their_epilogue(m: int, size: tuple[int, int], pad: int) -> None:
    func = conv(2, 16, size, 11, pad)
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(v.const_shape()).astype("f") for v in func.buffers[:3])
    expected = reference(x, w, b, pad)
    applied = apply_config(func, Config("winograd", {"m": m, **KNOBS}), TARGET)
    inputs = [v if p is None else p.pack(v) for v, p in zip((x, w, b), applied.packs[:3], strict=True)]
    for way, (out,) in run_in_all_ways(applied.func, TARGET, inputs, [np.full(expected.shape, 7, "f")]):
        np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5, err_msg=way)


def test_it_is_taken_where_products_outweigh_transforms() -> None:
    assert default_config(conv(32, 128, (28, 28), 128), TARGET).template == "winograd"
    assert default_config(conv(1, 64, (14, 14), 64), TARGET).template == "contraction"


def test_strict_accuracy_has_small_tiles() -> None:
    func = with_strict(conv(32, 128, (28, 28), 128))
    (anchor,) = (a for t, a in templates_for(func, TARGET) if t.name == "winograd")
    assert template_named("winograd", TARGET).default(anchor, TARGET)["m"] == 2
    with pytest.raises(SpaceError, match="less accurate"):
        apply_config(func, Config("winograd", {"m": 4, **KNOBS}), TARGET)


def test_what_the_algorithm_does_not_compute_is_left_to_others() -> None:
    data, weight = te.placeholder((1, 16, 9, 9), name="D"), te.placeholder((16, 8, 3, 3), name="W")
    grouped = create_prim_func([data, weight, topi.nn.group_conv2d_nchw(data, weight, 1, 1, 1, 2)])
    one = te.placeholder((16, 16, 1, 1), name="W")
    for func in (
        conv(1, 16, (9, 9), 16, stride=2),
        conv(1, 16, (9, 9), 16, dilation=2),
        conv(1, 12, (9, 9), 16),
        with_tf32(conv(1, 16, (9, 9), 16)),
        grouped,
        create_prim_func([data, one, topi.nn.conv2d(data, one, 1, 0, 1, "NCHW")]),
    ):
        assert "winograd" not in [t.name for t, _ in templates_for(func, TARGET)]


def test_configurations_become_machine_code_for_all_architectures() -> None:
    func = conv(8, 40, (29, 31), 36)
    configs = [c for c in space_for(func, TARGET).sample(0, 60) if c.template == "winograd"][:1]
    (anchor,) = (a for t, a in templates_for(func, TARGET) if t.name == "winograd")
    for config in (template_named("winograd", TARGET).default(anchor, TARGET), *configs):
        kernel = compile_func(apply_config(func, config, TARGET).func, TARGET, name="k").kernel
        assert isinstance(kernel, CudaKernel)
        assert set(add_images(kernel, ["sm_80", "sm_120"]).images) >= {"sm_80", "sm_120"}
