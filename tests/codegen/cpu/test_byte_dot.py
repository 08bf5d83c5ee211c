"""Dot products of four bytes a lane: equal to NumPy's for every CPU, by the instruction that each has for them."""

from __future__ import annotations

import re

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_for
from autosched.runtime import Module
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc
from tests.spread import spread

INSTRUCTIONS = {"x86-64-v2": "pmaddwd", "x86-64-v3": "vpmaddwd", "x86-64-v4": "vpmaddwd", "znver4": "vpdpbusd"}


def product(m: int, n: int, k: int) -> PrimFunc:
    x, w = te.placeholder((m, k), "uint8", name="x"), te.placeholder((k, n), "int8", name="w")
    return te.create_prim_func([x, w, topi.matmul(x, w, out_dtype="int32")])


@pytest.mark.parametrize("mcpu", [*INSTRUCTIONS, "alderlake"])
@spread(2, "sizes", [(1, 64, 64), (7, 100, 36), (33, 250, 12), (5, 17, 8), (6, 64, 37)])
def test_products_of_bytes_are_exact(mcpu: str, sizes: tuple[int, int, int]) -> None:
    """The bytes' limits among them, whose products overflow 16 bits in pairs."""
    target, func = Target(f"llvm -mcpu={mcpu} -num-cores=1"), product(*sizes)
    applied = apply_config(func, default_config(func, target), target)
    kernel = compile_func(applied.func, target, name="k")
    if mcpu in INSTRUCTIONS and sizes[2] % 4 == 0:
        assert INSTRUCTIONS[mcpu] in kernel.asm and "pmulld" not in kernel.asm
    if not target.features <= host_cpu().runnable:
        return
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (sizes[0], sizes[2])).astype("uint8")
    w = rng.integers(-128, 128, (sizes[2], sizes[1])).astype("int8")
    x[0], w[:, 0], out = 255, -128, np.zeros((sizes[0], sizes[1]), "int32")
    w[:, 1] = 127
    packed = [p.pack(a) if p is not None else a for p, a in zip(applied.packs, (x, w, out), strict=True)]
    Module({"k": kernel.kernel}, native_for(target), threads=1)(*packed)
    np.testing.assert_array_equal(packed[-1], x.astype("int32") @ w.astype("int32"))


@pytest.mark.parametrize("mcpu", ["znver4", "icelake-server"])
def test_the_tile_of_a_product_stays_in_registers(mcpu: str) -> None:
    """A step is dot products, loads and hardly anything else."""
    target, func = Target(f"llvm -mcpu={mcpu} -num-cores=1"), product(512, 512, 512)
    applied = apply_config(func, default_config(func, target), target)
    counts = compile_func(applied.func, target, name="k").instructions()
    _, dots, loads, stores, shuffles, scalars, spills = counts[:7]
    assert dots >= 20 and loads <= 0.7 * dots and (stores, shuffles, spills) == (0, 0, 0) and scalars <= 5


def test_shared_bytes_come_to_vectors_from_memory() -> None:
    """Their way by general registers is two instructions for one port, for each row and each half of a step."""
    target, func = Target("llvm -mcpu=x86-64-v3 -num-cores=1"), product(512, 512, 512)
    applied = apply_config(func, default_config(func, target), target)
    kernel = compile_func(applied.func, target, name="k")
    assert not re.search(r"\bvmovd\b", kernel.asm) and "vpbroadcastd" in kernel.asm


def test_a_cpu_that_widens_no_bytes_by_one_instruction_has_code() -> None:
    target, func = Target("llvm -mcpu=x86-64 -num-cores=1"), product(4, 32, 16)
    applied = apply_config(func, default_config(func, target), target)
    assert "pmaddubsw" not in compile_func(applied.func, target, name="k").asm


def test_aarch64_multiplies_in_32_bits() -> None:
    target, func = Target("llvm -mtriple=aarch64-linux-gnu -num-cores=1"), product(4, 32, 16)
    applied = apply_config(func, default_config(func, target), target)
    assert "mla" in compile_func(applied.func, target, name="k").asm


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_floats_become_small_integers_in_vectors(source: str, dtype: str) -> None:
    """The nearest integer out of range, towards zero within it, 0 for no number; without a detour through lanes."""
    limits = np.iinfo(dtype)
    edges = [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0, 0.9, -0.9, -1.5, 254.9, limits.max + 0.9, limits.min - 0.9]
    x = np.concatenate([edges, np.random.default_rng(0).uniform(-300, 300, 55)]).astype(source)
    a = te.placeholder(x.shape, source, name="a")
    func = te.create_prim_func([a, te.compute(x.shape, lambda i: a[i].astype(dtype), name="y")])
    target = Target("cpu")
    kernel = compile_func(apply_config(func, default_config(func, target), target).func, target, name="k")
    out = np.zeros(x.shape, dtype)
    Module({"k": kernel.kernel}, native_for(target), threads=1)(x, out)
    wanted = np.trunc(np.clip(np.nan_to_num(x, nan=0.0, posinf=1e9, neginf=-1e9), limits.min, limits.max))
    np.testing.assert_array_equal(out, wanted.astype(dtype))
    if source == "float32":
        v4 = Target("llvm -mcpu=x86-64-v4")
        asm = compile_func(apply_config(func, default_config(func, v4), v4).func, v4, name="k").asm
        assert "vcvttss2si" not in asm
