"""Convolutions in tile registers (AMX): equal to integers' sums, whatever tiles and order they are made in."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  (NumPy then knows bfloat16)
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
from tests.spread import spread

TARGET = Target("llvm -mcpu=sapphirerapids -num-cores=1")
ZEN4 = Target("llvm -mcpu=znver4 -num-cores=1")  # vdpbf16ps, and no tile registers
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
    (2, 64, 128, 64, 64, 7, 3, 1, 1, 77),
]


# Of bfloat16; the sums of small whole numbers are exact in float32.
#         batch, in, out, block in, block, size, kernel, stride, padding, groups
NARROW = [
    (1, 64, 64, 32, 32, 14, 3, 1, 1, 1),
    (2, 32, 64, 16, 16, 15, 3, 2, 1, 1),
    (1, 64, 32, 32, 32, 7, 1, 1, 0, 1),
    (1, 96, 64, 32, 32, 14, 1, 2, 0, 1),
    (1, 4, 64, 2, 32, 23, 7, 2, 3, 1),
    (1, 64, 64, 32, 32, 9, 3, 1, 1, 2),
    (1, 32, 32, 16, 16, 1, 1, 1, 0, 1),
]


def convolution(case: tuple[int, ...], dtype: str = "uint8", groups: int = 1) -> PrimFunc:
    n, c_in, c_out, b_in, block, size, kernel, stride, padding, last = case
    zero, groups = (last, groups) if dtype == "uint8" else (0, last)
    weight, out = ("int8", "int32") if dtype == "uint8" else (dtype, "float32")
    x = te.placeholder((n, c_in // b_in, size, size, b_in), dtype, name="x")
    w = te.placeholder((c_out, c_in // groups, kernel, kernel), weight, name="w")
    layouts = f"NCHW{b_in}c", f"NCHW{block}c"
    y = topi.conv2d(x, w, (stride,) * 2, (padding,) * 4, (1, 1), groups, *layouts, out, zero)
    return te.create_prim_func([x, w, topi.nn.relu(y)])


def check(
    case: tuple[int, ...], dtype: str = "uint8", target: Target = TARGET, groups: int = 1, **knobs: object
) -> str:
    """Compares a configuration's results with the exact ones; gives its code."""
    n, c_in, c_out, b_in, block, size, kernel, stride, padding, last = case
    func, groups = convolution(case, dtype, groups), groups if dtype == "uint8" else last
    config = default_config(func, target)
    applied = apply_config(func, Config(config.template, {**config.knobs, **knobs}), target)
    kernel_ = compile_func(applied.func, target, name="k")
    rng, out = np.random.default_rng(size), "int32" if dtype == "uint8" else "float32"
    low, high, zero = (0, 256, last) if dtype == "uint8" else (-9, 10, 0)
    data = rng.integers(low, high, (n, c_in, size, size)).astype(dtype)
    weight = rng.integers(*((-128, 128) if dtype == "uint8" else (-9, 10)), (c_out, c_in // groups, kernel, kernel))
    weight = weight.astype("int8" if dtype == "uint8" else dtype)
    geometry = (stride,) * 2, (padding,) * 4, (1, 1), groups, "NCHW", "OIHW", f"NCHW{block}c"
    wanted = reference(data, weight, *geometry, out, zero)
    arrays = (to_blocked(data, b_in), weight, np.full(wanted.shape, 77, out))
    packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, arrays, strict=True)]
    Module({"k": kernel_.kernel}, native_for(target), threads=1)(*packed)
    np.testing.assert_array_equal(packed[-1], np.maximum(wanted, 0))
    return str(kernel_.asm)


@needs_tiles
@spread(3, "case", CASES)
def test_convolutions_are_exact(case: tuple[int, ...]) -> None:
    asm = check(case)
    assert "tdpbusd" in asm and "vpdpbusd" not in asm


@needs_tiles
@spread(2, "case", NARROW)
def test_convolutions_of_bfloat16_are_exact(case: tuple[int, ...]) -> None:
    asm = check(case, "bfloat16")
    assert "tdpbf16ps" in asm and "vdpbf16ps" not in asm


@pytest.mark.skipif(not ZEN4.features <= host_cpu().runnable, reason="this machine has no vdpbf16ps")
@pytest.mark.parametrize("case", NARROW)
def test_so_they_are_in_vectors(case: tuple[int, ...]) -> None:
    assert "vdpbf16ps" in check(case, "bfloat16", ZEN4)


@needs_tiles
def test_so_are_those_of_bytes_in_groups() -> None:
    assert "tdpbusd" in check((1, 128, 128, 64, 64, 9, 3, 1, 1, 5), groups=2)


BOTH = [*((CASES[i], "uint8") for i in (0, 3, 5)), *((NARROW[i], "bfloat16") for i in (0, 4, 5))]


@needs_tiles
@spread(2, "case, dtype", BOTH)
def test_so_is_every_configuration(case: tuple[int, ...], dtype: str) -> None:
    space = space_for(convolution(case, dtype), TARGET)
    configs = [c for c in space.sample(7, 60) if c.template == "conv2d_amx"]
    assert len(configs) > 5
    for config in configs[:6]:
        check(case, dtype, **config.knobs)


def test_other_cpus_and_other_layouts_have_other_templates() -> None:
    for target, case in ((Target("llvm -mcpu=znver4"), CASES[0]), (TARGET, (1, 32, 32, 16, 16, 9, 3, 1, 1, 0))):
        names = [template.name for template, _ in templates_for(convolution(case), target)]
        assert "conv2d_amx" not in names and "conv2d" in names
