"""Conversions of floats of 16 bits are NumPy's, bit for bit, also where the CPU has no instruction for them."""

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.templates import apply_config, default_config

pytestmark = pytest.mark.host(runs=True)

HOST = Target("cpu")
TARGETS = [t for t in map(Target, ("llvm -mcpu=x86-64-v2", "cpu")) if t.features <= HOST.features]
ALL = np.arange(1 << 16, dtype="u2")
TYPES = {"float16": np.dtype("f2"), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
WIDE = {"float32": np.dtype("f4"), "float64": np.dtype("f8")}


def convert(x: np.ndarray, to: str, target: Target, by: str = "") -> np.ndarray:
    """An array in another type, by way of a third."""
    given = te.placeholder(x.shape, x.dtype.name, "x")

    def value(i: object) -> object:
        first = given[i].as_expr()
        return (first.astype(by) if by else first).astype(to)

    func = te.create_prim_func([given, te.compute(x.shape, value, name="y")])
    func = apply_config(func, default_config(func, target), target).func
    out = np.zeros(x.shape, TYPES.get(to) or WIDE[to])
    Module({"k": compile_func(func, target, name="k").kernel}, native_object(), threads=1)(x, out)
    return out


def check(got: np.ndarray, want: np.ndarray) -> None:
    bits = f"u{want.itemsize}"
    is_nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), is_nan)
    np.testing.assert_array_equal(np.where(is_nan, 0, got.view(bits)), np.where(is_nan, 0, want.view(bits)))


def hard_cases(half: np.dtype, wide: np.dtype) -> np.ndarray:
    """Every value of 16 bits, what lies midway between two neighbours and next to it, ends and random bits."""
    values = np.sort(ALL.view(half)[np.isfinite(ALL.view(half))].astype("f8"))
    middle = ((values[1:] + values[:-1]) / 2).astype(wide)
    ends = np.array([65519.996, 65520, 65535, 65536, 3.4e38, np.inf, np.nan, 2.0**-24, 2.0**-25, 1e-40, 0], wide)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, "u4").view("f4").astype(wide)
    around = [np.nextafter(middle, wide.type(side)) for side in (-np.inf, np.inf)]
    return np.concatenate([values.astype(wide), middle, *around, ends, -ends, drawn])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("half", "wide", "target"), list(product(TYPES, WIDE, TARGETS)), ids=str)
def test_conversions(half: str, wide: str, target: Target) -> None:
    every = ALL.view(TYPES[half])
    check(convert(every, wide, target), every.astype(WIDE[wide]))
    x = hard_cases(TYPES[half], WIDE[wide])
    check(convert(x, half, target), x.astype(TYPES[half]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("half", "target"), list(product(TYPES, TARGETS)), ids=str)
def test_rounding_in_registers(half: str, target: Target) -> None:
    """No buffer of the kernel has the type."""
    x = hard_cases(TYPES[half], WIDE["float32"])
    check(convert(x, "float32", target, by=half), x.astype(TYPES[half]).astype("f4"))


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_arithmetic_without_instructions_of_half_floats(target: Target) -> None:
    x = np.random.default_rng(0).standard_normal(1000).astype("f2")
    given = te.placeholder(x.shape, "float16", "x")
    func = te.create_prim_func([given, te.compute(x.shape, lambda i: given[i] * given[i] + 0.5, name="y")])
    out = np.zeros_like(x)
    Module({"k": compile_func(func, target, name="k").kernel}, native_object(), threads=1)(x, out)
    np.testing.assert_allclose(out.astype("f8"), x.astype("f8") ** 2 + 0.5, rtol=2.0**-10)
