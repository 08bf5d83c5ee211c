"""Floats rounded to bytes in one instruction: as NumPy rounds, cuts off and adds, whatever comes in."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_for
from autosched.runtime import Module
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc

EDGES = [
    np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5, 254.49999, 255.49999, 256.0, -128.5,
    1e-45, -1e-45, 3e9, -3e9, 2.0**31, -(2.0**31), 2.0**24 + 2, 3.4e38, -3.4e38, 127.5, 128.5, 126.50001,
]  # fmt: skip


def quantiser(n: int, zero: int, scale: float = 1.0) -> PrimFunc:
    x = te.placeholder((n,), "float32", name="x")
    quotient = topi.divide(x, te.const(scale, "float32")) if scale != 1 else x

    whole = topi.round(quotient)
    moved = topi.add(whole, te.const(float(zero), "float32")) if zero else whole
    return te.create_prim_func([x, topi.cast(topi.clip(moved, 0.0, 255.0), "uint8")])


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a72"])
@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_bytes_are_those_of_numpy(mcpu: str, zero: int) -> None:
    rng = np.random.default_rng(zero)
    x = np.concatenate([EDGES, rng.uniform(-300, 300, 2000), rng.integers(-600, 600, 1000) / 2]).astype("float32")
    aarch64 = mcpu.startswith("cortex")
    target = Target(f"llvm {'-mtriple=aarch64-linux-gnu ' if aarch64 else ''}-mcpu={mcpu} -num-cores=1")
    func = quantiser(len(x), zero)
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    if aarch64:
        assert "frinti" in kernel.asm
    else:
        assert "cvtps2dq" in kernel.asm and "vroundps" not in kernel.asm and "roundps" not in kernel.asm
    if aarch64 or not target.features <= host_cpu().runnable:
        return
    out = np.zeros(x.shape, "uint8")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(x, out)
    wanted = np.clip(np.rint(x.astype("float64")) + zero, 0, 255)
    np.testing.assert_array_equal(out, np.nan_to_num(wanted, nan=0.0).astype("uint8"))


SCALES = [0.1, 1 / 3, 0.027617163956165314, 1e-4, 7.0, 0.0123456789, 3e-18, 1.9999998807907104, 1e-30, 0.5]


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("scale", SCALES)
def test_quotients_are_rounded_as_divisions(mcpu: str, scale: float) -> None:
    """Floats around every tie among them, where a quotient that is a little off gives another byte."""
    step = np.float32(scale)
    ties = (np.arange(-300, 300, dtype="float32") + np.float32(0.5)) * step
    near = np.concatenate([np.nextafter(ties, np.float32(s) * np.float32(np.inf)) for s in (-1, 1)])
    rng = np.random.default_rng(1)
    x = np.concatenate([EDGES, ties, near, rng.uniform(-300, 300, 20000).astype("float32") * step]).astype("float32")
    target = Target(f"llvm -mcpu={mcpu} -num-cores=1")
    func = quantiser(len(x), 3, float(step))
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    divides = mcpu == "x86-64-v2" or scale in (1.9999998807907104, 1e-30)
    assert ("divps" in kernel.asm) == (divides and scale != 0.5)  # which is a product
    if not target.features <= host_cpu().runnable:
        return
    out = np.zeros(x.shape, "uint8")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(x, out)
    with np.errstate(all="ignore"):
        wanted = np.clip(np.rint(x / step) + np.float32(3), 0, 255)
    np.testing.assert_array_equal(out, np.nan_to_num(wanted, nan=0.0).astype("uint8"))
