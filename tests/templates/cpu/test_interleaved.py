"""Rows side by side whose elements come to take turns: vectors along the rows, stored by turns."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import build, te, topi
from autosched.te import Tensor
from autosched.tir import PrimFunc
from tests.spread import cover

RNG = np.random.default_rng(0)


def _run(func: PrimFunc, array: np.ndarray, expected: np.ndarray, target: str) -> str:
    module = build(func, target=target)
    out = np.zeros(expected.shape, expected.dtype)
    module(array, out)
    np.testing.assert_array_equal(out, expected)
    return next(iter(module.kernels.values())).source


def _array(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.integers(0, 2 if dtype == "bool" else 99, shape).astype(dtype)


@cover(
    ("columns", [4, 14, 16, 37, 131]),
    ("turns", [2, 3, 4]),
    ("dtype", ["float32", "uint8", "int16", "float16", "float64", "bool"]),
    ("target", ["cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"]),
)
def test_blocks_of_depth_to_space(columns: int, turns: int, dtype: str, target: str) -> None:
    a = _array((3, 2, turns, 5, columns), dtype)
    x = te.placeholder(a.shape, dtype, name="x")
    source = _run(te.create_prim_func([x, topi.transpose(x, (0, 3, 1, 4, 2))]), a, a.transpose(0, 3, 1, 4, 2), target)
    assert (f"in unroll({turns})" in source) == (dtype != "bool")


@pytest.mark.parametrize("turns", [2, 3, 4])
def test_images_become_one_line(turns: int) -> None:
    x, a = te.placeholder((turns, 11, 13), name="x"), _array((turns, 11, 13), "float32")
    source = _run(te.create_prim_func([x, topi.transpose(x, (1, 2, 0))]), a, a.transpose(1, 2, 0), "cpu")
    assert "// 13" in source


def test_values_are_computed_between() -> None:
    x, a = te.placeholder((4, 50), name="x"), _array((4, 50), "float32")
    out = te.compute((50, 4), lambda i, j: te.if_then_else(i * 4 + j < 190, x[j, i] * 2 + j, 7.0), name="out")
    expected = np.where(np.arange(200).reshape(50, 4) < 190, a.T * 2 + np.arange(4), 7).astype("float32")
    _run(te.create_prim_func([x, out]), a, expected, "cpu")


def _shifted(x: Tensor) -> Tensor:
    return te.compute((50, 2), lambda i, j: te.if_then_else(i < 49, x[j, i + 1], 0.0), name="out")


def _mirrored(x: Tensor) -> Tensor:
    return te.compute((50, 2), lambda i, j: x[j, 49 - i], name="out")


def _every_other(x: Tensor) -> Tensor:
    return te.compute((25, 2), lambda i, j: x[j, 2 * i], name="out")


@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3"])
def test_other_reads(target: str) -> None:
    a = _array((2, 50), "float32")
    shifted = np.concatenate([a.T[1:], np.zeros((1, 2), "float32")])
    for make, expected in ((_shifted, shifted), (_mirrored, a.T[::-1]), (_every_other, a.T[::2])):
        x = te.placeholder((2, 50), name="x")
        _run(te.create_prim_func([x, make(x)]), a, expected, target)
