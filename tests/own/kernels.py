"""Functions to tune: good ones, and one whose candidates do everything that candidates must not do."""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

import autosched

GOOD, FAST, HALF, CRASH, HANG, HUGE, WRONG, SCRIBBLE, RAISE = range(9)
FACTOR = 1.0


@numba.njit
def times(value, factor):
    return value * factor * FACTOR


@autosched.autotune({"block": [1, 64, 256]}, example=lambda: (np.arange(1000.0), 2.0))
@numba.njit
def scale(x, a, block=1):
    """Multiply in place."""
    for start in range(0, x.size, block):  # block by block
        for i in range(start, min(start + block, x.size)):
            x[i] = times(x[i], a)


@autosched.autotune({"mode": [GOOD, FAST, HALF, CRASH, HANG, HUGE, WRONG, SCRIBBLE, RAISE]})
@numba.njit
def double(x, out, mode=GOOD):
    n = x.size
    if mode == CRASH:
        x[1 << 40] = 1.0
    if mode == HANG:
        while x[0] == x[0]:
            out[0] += 1.0
    if mode == HUGE:
        out[0] = np.ones(1 << 38).sum()
    if mode == RAISE:
        raise ValueError("no good")
    if mode == SCRIBBLE:
        x[0] = 0.0
    for i in range(n // 2 if mode == HALF else n):
        out[i] = 3.0 * x[i] if mode == WRONG else 2.0 * x[i]
    if mode == GOOD:
        for _ in range(20):
            for i in range(n):
                out[i] = out[i] * 0.5 + x[i]


def doubled(x: Any, out: Any) -> None:
    """The reference of `double`."""
    out[:] = 2 * x


@autosched.autotune({"half": [0, 1]}, check=doubled)
@numba.njit
def fill(x, out, half=0):
    """Each candidate writes another half: together they fill the output."""
    n = x.size // 2
    for i in range(half * n, half * n + n):
        out[i] = 2.0 * x[i]


@autosched.autotune({"unroll": [1, 2, 4]}, key=["n"], constraints=["unroll <= n"])
def total(x: Any, n: int, *, unroll: int) -> float:
    """Plain Python, a returned value, a knob without a default."""
    s = 0.0
    for i in range(0, n, unroll):
        for j in range(i, min(i + unroll, n)):
            s += x[j]
    return s


class Pair(NamedTuple):
    """A table and a number."""

    table: Any
    factor: float


@autosched.autotune({"block": [1, 4]})
@numba.njit
def add_fields(pair, block=1):
    """Add one field of a table to another."""
    for i in range(pair.table.size):
        pair.table[i].a += pair.table[i].b * pair.factor


@autosched.autotune({"block": [1, 4]})
@numba.njit
def draw(x, block=1):
    """Fill with random numbers."""
    for i in range(x.size):
        x[i] = np.random.random()


def error(x, out):
    """What `exponential` is tuned for."""
    return np.abs(out - np.exp(x)).max()


@autosched.autotune({"terms": [1, 4, 12]}, rtol=2.0, metric={"error": error, "terms_used": lambda terms: terms})
@numba.njit
def exponential(x, out, terms=1):
    """The more terms, the slower and the nearer to the truth."""
    for i in range(x.size):
        term = 1.0
        total = 1.0
        for n in range(1, terms):
            term *= x[i] / n
            total += term
        out[i] = total
