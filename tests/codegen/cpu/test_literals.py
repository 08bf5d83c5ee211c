"""Scales and zero points as data: one compilation for kernels that differ in them, and the same results to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func, counters
from autosched.codegen.compiled import code_name
from autosched.codegen.cpu import build
from autosched.codegen.cpu.literals import MOST_WORDS, open_literals
from autosched.codegen.cpu.types import Isa
from autosched.codegen.native import native_for
from autosched.runtime import Module
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc

N = 1003
NUMBERS = [(0.0343, 32, 32, 0.02), (0.1, 1, 255, 1 / 3), (7.0, 100, 9, 1.3)]  # scale, zero; zero, scale of floats


def quantised_twice(scale: float, zero: int, shift: int, factor: float, dtype: str = "uint8") -> PrimFunc:
    """uint8 -> float32 -> bytes -> float32 -> bytes, each by its own scale and zero point."""
    low, high = (0.0, 255.0) if dtype == "uint8" else (-128.0, 127.0)
    q = te.placeholder((N,), "uint8", name="q")

    def floats(x: te.Tensor, z: int, s: float) -> te.Tensor:
        whole = topi.subtract(topi.cast(x, "int32"), z)
        return topi.multiply(topi.cast(whole, "float32"), s)

    def whole(x: te.Tensor, s: float, z: int) -> te.Tensor:
        near = topi.add(topi.round(topi.divide(x, float(np.float32(s)))), float(z))
        return topi.cast(topi.clip(near, low, high), dtype)

    once = floats(whole(floats(q, shift, factor), scale, zero), zero, 2 * factor)
    return te.create_prim_func([q, whole(once, scale * 3, zero)])


def made(func: PrimFunc, target: Target) -> CpuKernel:
    return as_cpu(compile_func(apply_config(func, default_config(func, target), target).func, target, name="k").kernel)


def result(kernel: CpuKernel, target: Target, dtype: str) -> np.ndarray:
    out = np.zeros(N, dtype)
    Module({"k": kernel}, native_for(target), threads=1)(np.arange(N).astype("uint8"), out)
    return out


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4", "cortex-a72"])
def test_kernels_that_differ_in_literals_are_compiled_once(
    mcpu: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    aarch64 = mcpu.startswith("cortex")
    target = Target(f"llvm {'-mtriple=aarch64-linux-gnu ' if aarch64 else ''}-mcpu={mcpu} -num-cores=1")
    before = counters.COMPILES.value
    kernels = [made(quantised_twice(*numbers, dtype), target) for numbers in NUMBERS]
    assert counters.COMPILES.value == before + 1
    assert len({phase.symbol for kernel in kernels for phase in kernel.phases}) == len(NUMBERS)
    if aarch64 or not target.features <= host_cpu().runnable:
        return
    results = [result(kernel, target, dtype) for kernel in kernels]
    monkeypatch.setattr(build, "open_literals", lambda func, isa: None)
    for numbers, kernel, found in zip(NUMBERS, kernels, results, strict=True):
        own = as_cpu(build.compile_uncached(made_func(numbers, dtype, target), target, "k", "", "").kernel)
        assert kernel.object_code != own.object_code and len(set(found)) > 1
        np.testing.assert_array_equal(found, result(own, target, dtype))


def made_func(numbers: tuple[float, int, int, float], dtype: str, target: Target) -> PrimFunc:
    func = quantised_twice(*numbers, dtype)
    return apply_config(func, default_config(func, target), target).func


def test_the_text_of_a_kernel_has_its_own_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path))
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
    first, second = (made(quantised_twice(scale, 7, 9, 0.3), target) for scale in (0.1, 0.2))
    assert first.source != second.source and first.llvm != second.llvm and first.flops == second.flops
    assert "words of the literals" in second.source and "literal(" in second.source
    assert second.phases[0].symbol in second.llvm and first.phases[0].symbol not in second.llvm


def test_what_has_other_code_stays_in_the_code() -> None:
    isa = Isa.of(Target("llvm -mcpu=x86-64-v3 -num-cores=1"))
    plain = te.placeholder((N,), "float32", name="x")
    assert open_literals(te.create_prim_func([plain, topi.multiply(plain, 0.3)]), isa) is None
    halves = te.create_prim_func([plain, topi.cast(topi.round(topi.divide(plain, 0.5)), "int8")])
    assert open_literals(halves, isa) is None
    many = plain
    for n in range(MOST_WORDS + 1):
        many = topi.multiply(many, 0.3 + n / 128)
    assert open_literals(te.create_prim_func([plain, topi.cast(topi.round(many), "int8")]), isa) is None


def test_names_of_one_length_are_one_in_code() -> None:
    """A graph cuts names with their numbers, so what of a name is left depends on these."""
    assert code_name("fused_" + "add12_" * 19) == code_name("fused_" + "add_" * 28)


def test_a_factor_that_float32_does_not_hold_is_infinite() -> None:
    isa = Isa.of(Target("llvm -mcpu=x86-64-v3 -num-cores=1"))
    plain = te.placeholder((N,), "float32", name="x")
    assert open_literals(te.create_prim_func([plain, topi.multiply(plain, 1e40)]), isa) is None
    opened = open_literals(te.create_prim_func([plain, topi.cast(topi.multiply(plain, -1e40), "int8")]), isa)
    assert opened is not None and opened.words == (0xFF800000,)
