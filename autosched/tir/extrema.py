"""Maxima and minima over floats that give NaN where an element is one, as NumPy's and PyTorch's do.

A block that is annotated with KEEP_NAN reduces so; the others pass over a NaN, which is one instruction on every CPU.

Before:  block annotations {"keep_nan": 1}: m[i] = max(m[i], x[i, k])
After:   the same with a `LastingMax`, which keeps a NaN that it has met

A maximum of two values that is no step of a reduction is the first operand, where one is a NaN.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.dtypes import is_float, largest_finite
from autosched.tir.functor import rewrite
from autosched.tir.stmt import Block, BufferStore, Stmt

KEEP_NAN = "keep_nan"
S = TypeVar("S", bound=Stmt)


class LastingMax(E.Max):
    """The larger one; NaN where one is a NaN."""

    __slots__ = ()


class LastingMin(E.Min):
    """The smaller one; NaN where one is a NaN."""

    __slots__ = ()


class NumberMax(E.Max):
    """The larger one; the number where one is a NaN, as in IEEE 754-2008. GPUs have it as one instruction."""

    __slots__ = ()


def keep_nans(body: S) -> S:
    """The statement with the steps of annotated reductions as such, the result so far first."""

    def step(x: object) -> object:
        return rewrite(x, _lasting) if isinstance(x, Block) and x.annotations.get(KEEP_NAN) else x

    return rewrite(body, step)


def from_infinity(body: S) -> S:
    """The statement with annotated maxima that begin with -inf, and minima with inf, in place of a finite value.

    Else a maximum of elements that are all -inf would be the smallest finite value.
    """

    def step(x: object) -> object:
        if not isinstance(x, Block) or not x.annotations.get(KEEP_NAN) or not isinstance(x.init, BufferStore):
            return x
        start = x.init.value
        if not isinstance(start, E.FloatImm) or abs(start.value) != largest_finite(start.dtype):
            return x
        infinite = E.const(math.copysign(math.inf, start.value), start.dtype)
        return replace(x, init=BufferStore(x.init.buffer, infinite, x.init.indices))

    return rewrite(body, step)


def _lasting(x: object) -> object:
    if not isinstance(x, BufferStore) or not isinstance(x.value, E.Max | E.Min) or not is_float(x.value.dtype):
        return x
    a, b = x.value.a, x.value.b
    if is_own(b, x):
        a, b = b, a
    if not is_own(a, x):
        return x
    return BufferStore(x.buffer, (LastingMax if isinstance(x.value, E.Max) else LastingMin)(a, b), x.indices)
