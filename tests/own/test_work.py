"""The arithmetic of a call, counted from the source; None where the arguments do not decide it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from autosched.errors import UsageError
from autosched.own.peak import Work
from autosched.own.work import count_flops
from autosched.records.report import Peak
from autosched.records.report.roofline import nearest_peak


def product(a, b, c, block=16):
    n, m = a.shape
    for start in range(0, n, block):
        for i in range(start, min(start + block, n)):
            for j in range(b.shape[1]):
                total = 0.0
                for p in range(m):
                    total += a[i, p] * b[p, j]
                c[i, j] = total


def triangle(x):
    total = 0.0
    for i in range(x.size):
        for j in range(i):
            total += x[j]
    return total


def of_data(x, out):
    for i in numba.prange(len(x)):
        value = x[i]
        if 0 < value < 3:
            out[i] = math.sqrt(value) * 2.0
        else:
            out[i] = 0.0


@numba.njit
def half(value):
    return value / 2


def calls(x):
    for i in range(x.shape[0]):
        x[i] = half(x[i]) + 1


def grows(x):
    k = 0
    for _ in range(x.size):
        k += 1  # noqa: SIM113  # what is tested
        several(x, k)


def several(x, k):
    for i in range(k):
        x[i] *= 2.0


def whole(x, out):
    out[:] = x * 2.0


def endless(x):
    while x[0] < 1:
        x[0] += 1.0


def moves(x):
    for i in range(x.size // 2):
        x[2 * i] = x[2 * i + 1]


def indirect(x, counts):
    for i in range(x.size):
        for _ in range(counts[i]):
            x[i] += 1.0


def ends_early(x):
    for i in range(x.size):
        if x[i] > 3.0:
            break
        x[i] *= 2.0


ONES = np.ones
CASES: tuple[tuple[Callable[..., object], dict[str, Any], int | None], ...] = (
    (product, {"a": ONES((40, 30)), "b": ONES((30, 50)), "c": ONES((40, 50)), "block": 16}, 2 * 40 * 30 * 50),
    (triangle, {"x": ONES(50)}, 50 * 49 // 2),
    (of_data, {"x": ONES(100_000), "out": ONES(100_000)}, 200_000),
    (calls, {"x": ONES(7)}, 14),
    (grows, {"x": ONES(5)}, None),
    (whole, {"x": ONES(5), "out": ONES(5)}, None),
    (endless, {"x": ONES(5)}, None),
    (moves, {"x": ONES(5)}, None),
    (indirect, {"x": ONES(5), "counts": np.ones(5, int)}, None),
    (ends_early, {"x": ONES(5)}, None),
)


@pytest.mark.parametrize(("func", "named", "flops"), CASES, ids=[func.__name__ for func, _, _ in CASES])
def test_operations_are_counted_or_not_told(func: Callable[..., object], named: Any, flops: int | None) -> None:
    assert count_flops(func, named) == flops


def test_what_the_user_says_counts() -> None:
    x = ONES(100)
    named = {"x": x, "out": x, "block": 4}
    assert Work().of(whole, named, "f") == (None, x.nbytes), "an array that is there twice is read once"
    assert Work(lambda x, block: x.size * block, 8).of(whole, named, "f") == (400, 8)
    for rule, text in ((lambda y: y, "reads 'y'"), (lambda x: 1 / 0, "raises ZeroDivisionError"), (0, "above 0")):
        with pytest.raises(UsageError, match=text):
            Work(rule).of(whole, named, "f")  # type: ignore[arg-type]


def test_the_nearer_peak_bounds() -> None:
    peak = Peak("a machine", 1, 1e11, (("L1", 1 << 15, 2e11), ("memory", 1 << 28, 2e10)))
    assert nearest_peak(peak, 1e-3, 10_000_000, 1 << 10) == (pytest.approx(0.1), "arithmetic")
    assert nearest_peak(peak, 1e-3, 10_000_000, 1 << 10, 8) == (pytest.approx(0.2), "arithmetic")
    assert nearest_peak(peak, 1e-3, 0, 10_000_000) == (pytest.approx(0.5), "memory")
