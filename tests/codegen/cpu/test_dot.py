"""Products of pairs of bfloat16 against float64, of int16 against NumPy, by an instruction and without it."""

import ml_dtypes
import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.codegen.native import native_for, native_object
from autosched.runtime import Module
from autosched.target import Target, host_cpu
from autosched.templates import apply_config, default_config
from autosched.tir import PrimFunc
from autosched.tir.expr import cast
from tests.spread import spread

pytestmark = pytest.mark.host(runs=True)

HOST, V3 = Target("cpu"), Target("llvm -mcpu=x86-64-v3")
EPS = float(np.finfo("f4").eps)


def product(m: int, k: int, n: int, transposed: bool = False) -> PrimFunc:
    """a [m, k] times b [k, n] or [n, k], bfloat16, summed in float32."""
    a = te.placeholder((m, k), "bfloat16", "a")
    b, axis = te.placeholder((n, k) if transposed else (k, n), "bfloat16", "b"), te.reduce_axis((0, k), "k")

    def term(i, j):
        right = b[j, axis] if transposed else b[axis, j]
        return te.sum(cast("float32", a[i, axis].as_expr()) * cast("float32", right.as_expr()), axis=axis)

    return te.create_prim_func([a, b, te.compute((m, n), term, name="matmul")], "int64")


def run(func: PrimFunc, target: Target, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    applied = apply_config(func, default_config(func, target), target)
    kernel = compile_func(applied.func, target, name="k")
    given = [x if p is None else p.pack(x) for p, x in zip(applied.packs, (a, b), strict=False)]
    out = np.full(func.buffers[-1].const_shape(), np.nan, "f4")
    Module({"k": kernel.kernel}, native_object(), threads=2)(*given, out)
    return out


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("target", [HOST, V3] if V3.features <= HOST.features else [HOST])
@spread(2, "m, k, n", [(1, 64, 83), (7, 34, 40), (40, 64, 100), (3, 33, 20)])
@pytest.mark.parametrize("transposed", [False, True])
def test_sums_are_as_near_as_float32(target: Target, m: int, k: int, n: int, transposed: bool) -> None:
    a, b = draw(m, k), draw(n, k) if transposed else draw(k, n)
    wide = b.astype("f8").T if transposed else b.astype("f8")
    got = run(product(m, k, n, transposed), target, a, b)
    bound = k * EPS * (np.abs(a.astype("f8")) @ np.abs(wide))
    assert (np.abs(got - a.astype("f8") @ wide) <= bound).all()


def test_numbers_that_are_none_come_through() -> None:
    a, b = draw(2, 32), draw(32, 16)
    a[0, 3], b[5, 7] = np.nan, np.inf
    got = run(product(2, 32, 16), HOST, a, b)
    assert np.isnan(got[0]).all() and np.isinf(got[1, 7]) and np.isfinite(np.delete(got[1], 7)).all()


def assembly(mcpu: str, m: int = 8, **knobs: bool) -> str:
    target, func = Target(f"llvm -mcpu={mcpu}"), product(m, 64, 128)
    applied = apply_config(func, default_config(func, target).with_knobs(**knobs), target)
    return str(compile_func(applied.func, target, name="k").asm)


def test_the_instruction_where_there_is_one() -> None:
    assert "vdpbf16ps" in assembly("znver4") and "vdpbf16ps" not in assembly("x86-64-v4")
    assert "vdpbf16ps" in assembly("znver4", 512), "with rows that are a quotient and a remainder of the task's number"
    fetched = assembly("znver4", 16, prefetch=True)
    assert "prefetcht1" in fetched and "vdpbf16ps" in fetched, "into the second level there"


def test_without_it_a_shift_a_mask_and_multiply_adds() -> None:
    asm = assembly("x86-64-v3")
    assert "vpslld" in asm and "vfmadd" in asm and "vdpbf16ps" not in asm


def shorts(m: int, k: int, n: int) -> PrimFunc:
    x, w = te.placeholder((m, k), "int16", name="x"), te.placeholder((k, n), "int16", name="w")
    return te.create_prim_func([x, w, topi.matmul(x, w, out_dtype="int32")])


@pytest.mark.parametrize("mcpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@spread(2, "m, k, n", [(1, 64, 64), (7, 36, 100), (33, 12, 250), (5, 9, 17)])
def test_products_of_shorts_are_exact(mcpu: str, m: int, k: int, n: int) -> None:
    target, func = Target(f"llvm -mcpu={mcpu} -num-cores=1"), shorts(m, k, n)
    applied = apply_config(func, default_config(func, target), target)
    kernel = compile_func(applied.func, target, name="k")
    assert k % 2 or ("pmaddwd" in kernel.asm and "pmulld" not in kernel.asm)
    if not target.features <= host_cpu().runnable:
        return
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-6000, 6000, shape).astype("int16") for shape in ((m, k), (k, n)))
    packed = [a if p is None else p.pack(a) for p, a in zip(applied.packs, (x, w), strict=False)]
    out = np.zeros((m, n), "int32")
    Module({"k": kernel.kernel}, native_for(target), threads=1)(*packed, out)
    np.testing.assert_array_equal(out, x.astype("int32") @ w.astype("int32"))


def test_a_step_of_shorts_widens_nothing() -> None:
    target, func = Target("llvm -mcpu=x86-64-v3 -num-cores=1"), shorts(64, 256, 256)
    applied = apply_config(func, default_config(func, target), target)
    kernel = compile_func(applied.func, target, name="k")
    assert not any(name in kernel.asm for name in ("vpmaddubsw", "vpmovsx", "vpsrad", "\tvmovd\t"))
    assert kernel.asm.count("vpmaddwd") >= 8


def test_other_cpus_multiply_shorts_one_by_one() -> None:
    target, func = Target("llvm -mtriple=aarch64-linux-gnu -num-cores=1"), shorts(4, 32, 16)
    applied = apply_config(func, default_config(func, target), target)
    assert "mla" in compile_func(applied.func, target, name="k").asm
