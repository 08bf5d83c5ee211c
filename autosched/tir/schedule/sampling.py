"""Random choices of a schedule."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from math import prod

from autosched.errors import InvalidValueError, ScheduleError
from autosched.tir.expr import const_int
from autosched.tir.stmt import For


def constant_extent(loop: For) -> int:
    extent = const_int(loop.extent)
    if extent is None:
        raise ScheduleError(f"loop '{loop.loop_var.name}' has no constant extent")
    return extent


@cache
def factorizations(extent: int, n: int) -> tuple[tuple[int, ...], ...]:
    """All ways to write `extent` as an ordered product of n factors."""
    if n == 1:
        return ((extent,),)
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return tuple((d, *rest) for d in divisors for rest in factorizations(extent // d, n - 1))


def perfect_tile(
    rng: random.Random, extent: int, n: int, max_innermost: int, decision: Sequence[int] | None
) -> list[int]:
    """n factors whose product is `extent`, the last at most `max_innermost` (where there is such a choice)."""
    if n < 1:
        raise InvalidValueError(f"sample_perfect_tile: n must be positive, got {n}")
    if decision is not None:
        factors = [int(f) for f in decision]
        if len(factors) != n or prod(factors) != extent:
            raise ScheduleError(f"sample_perfect_tile: {factors} is no tiling of {extent} by {n} factors")
        return factors
    every = factorizations(extent, n)
    small = [f for f in every if f[-1] <= max_innermost]
    return list(rng.choice(small or list(every)))


def categorical(rng: random.Random, candidates: Sequence[int], probs: Sequence[float], decision: int | None) -> int:
    """The position of the candidate that is chosen."""
    if not candidates or len(candidates) != len(probs):
        raise InvalidValueError("sample_categorical: as many probabilities as candidates are needed, at least one")
    if any(p < 0 for p in probs) or not math.isclose(math.fsum(map(float, probs)), 1.0, abs_tol=1e-2):
        raise InvalidValueError(f"sample_categorical: probs must add up to 1, got {list(probs)}")
    if decision is not None:
        if not 0 <= decision < len(candidates):
            raise ScheduleError(
                f"sample_categorical: decision {decision} is out of range for {len(candidates)} candidates"
            )
        return decision
    return rng.choices(range(len(candidates)), weights=probs)[0]


def partitioned_tile(
    rng: random.Random, extent: int, n: int, position: int, inner_factor: int, decision: Sequence[int] | None
) -> list[int]:
    """n factors whose product is `extent`, the product of those from `position` on a multiple of `inner_factor`."""
    if n < 1 or not 0 <= position <= n or inner_factor < 1:
        raise InvalidValueError(
            "sample_partitioned_tile: n and innerpart_factor are positive, partition_pos is in 0..n"
        )
    if decision is not None:
        return perfect_tile(rng, extent, n, extent, decision)
    every = factorizations(extent, n)
    fitting = [f for f in every if prod(f[position:]) % inner_factor == 0]
    return list(rng.choice(fitting or list(every)))
