"""Quotients and remainders of whole numbers in vectors, where none is undefined."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime import Module
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.tir import expr as E

TARGET = Target("cpu")
FUNCTIONS = {"truncdiv": E.truncdiv, "truncmod": E.truncmod, "floordiv": E.floordiv, "floormod": E.floormod}


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of numbers at the ends of the range and around 0, products of two and their neighbours."""
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    ends = [info.min, info.min + 1, info.max - 1, info.max, *range(-4, 5), 7, -13, info.max // 2, info.min // 3]
    x, y = (a.ravel() for a in np.meshgrid(np.array(ends, dtype), np.array(ends, dtype)))
    root = int(info.max**0.5)
    a, b = (rng.integers(1, root, 5000) * rng.choice([-1, 1], 5000) for _ in range(2))
    near = np.clip(a * b + rng.integers(-1, 2, 5000), info.min, info.max)
    large, small = rng.integers(info.min, info.max, 5000), rng.integers(-9, 9, 5000)
    x, y = (np.concatenate(parts).astype(dtype) for parts in ((x, near, large, near), (y, b, small, large)))
    return x, y


def expected(name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """By Python's integers; 0 where the divisor is 0, and the least number where that is divided by -1."""
    found = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        quotient = 0 if b == 0 else a // b if name.startswith("floor") else abs(a) // abs(b) * (1 if a * b >= 0 else -1)
        found.append(quotient if name.endswith("div") else a - quotient * b if b else 0)
    least, count = int(np.iinfo(x.dtype).min), 1 << 8 * x.itemsize
    return np.array([(n - least) % count + least for n in found], x.dtype)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_quotient(name: str, dtype: str) -> None:
    x, y = pairs(dtype)
    data, divisor = (te.placeholder((len(x),), dtype=dtype, name=n) for n in ("data", "divisor"))
    out = te.compute((len(x),), lambda i: FUNCTIONS[name](data(i), divisor(i)), name="out")
    func = te.create_prim_func([data, divisor, out])
    kernel = compile_func(apply_config(func, default_config(func, TARGET), TARGET).func, TARGET, name="k").kernel
    found = np.empty_like(x)
    Module({"k": kernel}, native_object(), threads=1)(x, y, found)
    np.testing.assert_array_equal(found, expected(name, x, y))
