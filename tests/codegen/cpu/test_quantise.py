"""Floats rounded to bytes in one instruction: as NumPy rounds, cuts off and adds, whatever comes in."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.cpu import quantise
from autosched.codegen.native import native_for
from autosched.runtime import Module
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc
from autosched.tir import expr as E

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
    divides = mcpu == "x86-64-v2" or scale == 1e-30
    assert ("divps" in kernel.asm) == (divides and scale != 0.5)  # which is a product
    if not target.features <= host_cpu().runnable:
        return
    out = np.zeros(x.shape, "uint8")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(x, out)
    with np.errstate(all="ignore"):
        wanted = np.clip(np.rint(x / step) + np.float32(3), 0, 255)
    np.testing.assert_array_equal(out, np.nan_to_num(wanted, nan=0.0).astype("uint8"))


def test_a_scale_whose_reciprocal_gives_another_byte_is_divided_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest float to 1 / 0.1 alone does, with some of the floats around ties; 1 / 0.5 is one."""
    quotients = [E.Div(E.Var("x", "float32"), E.FloatImm(float(np.float32(s)), "float32")) for s in (0.1, 0.5)]
    assert None not in map(quantise.scaled, quotients)
    monkeypatch.setattr(quantise, "reciprocal", lambda s: (np.float32(1 / s), np.float32(0)))
    quantise._has_reciprocal.cache_clear()
    found = [quantise.scaled(q) is not None for q in quotients]
    quantise._has_reciprocal.cache_clear()
    assert found == [False, True]


def test_a_quantiser_of_512_bits_is_six_instructions() -> None:
    """Two products, a bound, a conversion, the zero point, and packing that is a bound as well."""
    target = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
    func = quantiser(64, 3, 0.1)
    asm = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k").asm
    names = [line.split()[0] for line in asm.splitlines() if "zmm" in line and not line.strip().startswith(".")]
    kinds = {name for name in names if "broadcast" not in name and not name.startswith("vmov")}
    assert "vpmovusdb" in asm and not kinds & {"vminps", "vpminud", "vpminsd"} and len(kinds) <= 6


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("before", ["clip", "relu", "quotient", "kept"])
def test_no_number_is_0_whatever_is_known_of_its_sign(mcpu: str, dtype: str, before: str) -> None:
    """LLVM leaves out a bound that numbers keep to already."""
    x = te.placeholder((37,), "float32", name="x")
    high = float(np.iinfo(dtype).max)
    positive = topi.nn.relu(x)
    value = {
        "clip": lambda: topi.clip(x, 0.0, high),
        "relu": lambda: positive,
        "quotient": lambda: topi.clip(topi.round(topi.divide(positive, te.const(0.5, "float32"))), 0.0, high),
        "kept": lambda: topi.clip(topi.round(topi.divide(positive, te.const(0.1, "float32"))), 0.0, high),
    }[before]()
    made = topi.cast(value, dtype)
    made = topi.cast(topi.cast(made, "int32"), "float32") if before == "kept" else made
    target = Target(f"llvm -mcpu={mcpu} -num-cores=1")
    func = te.create_prim_func([x, made])
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    if not target.features <= host_cpu().runnable:
        return
    out = np.full(37, 9, made.dtype)
    values = np.tile(np.array([np.nan, -5.0, -0.0], "f4"), 13)[:37]
    Module({"k": kernel.kernel}, native_for(target), threads=1)(values, out)
    assert not out.any()


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a72"])
@pytest.mark.parametrize(("zero", "z"), [(0, 0), (120, 120), (3, 255), (255, 0)])
def test_bytes_that_become_floats_again_are_not_packed(mcpu: str, zero: int, z: int) -> None:
    rng = np.random.default_rng(z)
    values = np.concatenate([EDGES, rng.uniform(-300, 300, 2000), rng.integers(-600, 600, 1000) / 2]).astype("float32")
    x = te.placeholder(values.shape, "float32", name="x")
    moved = topi.add(topi.round(x), te.const(float(zero), "float32")) if zero else topi.round(x)
    byte = topi.cast(topi.clip(moved, 0.0, 255.0), "uint8")
    whole = topi.cast(byte, "int32")
    centred = topi.subtract(whole, te.const(z, "int32")) if z else whole
    func = te.create_prim_func([x, topi.multiply(topi.cast(centred, "float32"), te.const(0.25, "float32"))])
    aarch64 = mcpu.startswith("cortex")
    target = Target(f"llvm {'-mtriple=aarch64-linux-gnu ' if aarch64 else ''}-mcpu={mcpu} -num-cores=1")
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    if not aarch64:
        assert not any(name in kernel.asm for name in ("vpmovdb", "packus", "pshufb", "pmovzx"))
    if aarch64 or not target.features <= host_cpu().runnable:
        return
    out = np.zeros(values.shape, "float32")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(values, out)
    bytes_ = np.nan_to_num(np.clip(np.rint(values.astype("float64")) + zero, 0, 255), nan=0.0)
    np.testing.assert_array_equal(out, ((bytes_ - z) * 0.25).astype("float32"))


@pytest.mark.parametrize("scale", [0.013, 1e-12])
def test_sums_of_bytes_are_divided_without_looking_how_large_they_are(scale: float) -> None:
    """Quotients beyond all limits among them."""
    n, step = 4096, np.float32(scale)
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 256, n).astype("uint8") for _ in range(2)]
    a, b = (te.placeholder((n,), "uint8", name=name) for name in "ab")
    real = [
        topi.multiply(topi.cast(topi.cast(x, "int32"), "float32"), te.const(f, "float32"))
        for x, f in ((a, 0.015625), (b, 0.0078125))
    ]
    total = topi.maximum(topi.subtract(*real), te.const(0.0, "float32"))
    whole = topi.round(topi.divide(total, te.const(float(step), "float32")))
    func = te.create_prim_func([a, b, topi.cast(topi.clip(whole, 0.0, 255.0), "uint8")])
    target = Target("llvm -mcpu=x86-64-v4 -num-cores=1")
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    assert "divps" not in kernel.asm and "cmplt" not in kernel.asm
    if not target.features <= host_cpu().runnable:
        return
    out = np.zeros(n, "uint8")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(*given, out)
    x, y = (values.astype("float32") * np.float32(f) for values, f in zip(given, (0.015625, 0.0078125), strict=True))
    np.testing.assert_array_equal(out, np.clip(np.rint(np.maximum(x - y, 0) / step), 0, 255).astype("uint8"))


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_of_floats_as_int32(mcpu: str, dtype: str) -> None:
    """Towards 0, the nearest integer out of range, 0 for no number; not one by one."""
    rng = np.random.default_rng(0)
    edges = [*EDGES, -(2.0**31) - 1, 2.0**31 - 1, 2.0**31 - 0.5, np.nextafter(np.float32(2.0**31), np.float32(0))]
    x = np.concatenate([edges, rng.uniform(-3e9, 3e9, 500), rng.uniform(-9, 9, 500)]).astype(dtype)
    target = Target(f"llvm -mcpu={mcpu} -num-cores=1")
    a = te.placeholder(x.shape, dtype, name="a")
    func = te.create_prim_func([a, topi.cast(a, "int32")])
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    assert mcpu != "x86-64-v4" or "vcvttp" in kernel.asm
    if target.features <= host_cpu().runnable:
        out = np.zeros(x.shape, "int32")
        Module({"k": kernel.kernel}, native_for(target), threads=1)(x, out)
        wanted = np.clip(np.nan_to_num(np.trunc(x.astype("float64")), nan=0.0), -(2.0**31), 2.0**31 - 1)
        np.testing.assert_array_equal(out, wanted.astype("int32"))
