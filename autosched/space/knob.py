"""Knobs: a name and the finite list of values that it can take."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from autosched.errors import SpaceError
from autosched.space.config import KnobValue, plain_value

MAX_CANDIDATES = 100_000


@dataclass(frozen=True)
class Knob:
    """A name and its candidates, all of one kind: bools, ints, texts, or tuples of ints of one length.

    `default` is one of the values; the first one where nothing is named. `absent` is what a configuration without this
    knob means: one that was recorded before there was it.
    Raises  SpaceError for no, repeated or mixed candidates, or a default that is not among them.
    """

    name: str
    values: tuple[KnobValue, ...]
    default: KnobValue | None = None
    notes: str = ""
    absent: KnobValue | None = None

    def __post_init__(self) -> None:
        values = tuple(plain_value(self.name, value) for value in self.values)
        object.__setattr__(self, "values", values)
        if not self.name.isidentifier():
            raise SpaceError(f"knob name {self.name!r} is not an identifier")
        if not values:
            raise SpaceError(f"knob '{self.name}' has no candidates")
        if len(values) > MAX_CANDIDATES:
            raise SpaceError(f"knob '{self.name}' has {len(values)} candidates", hint=f"use at most {MAX_CANDIDATES}")
        if len({_kind(value) for value in values}) != 1:
            raise SpaceError(f"knob '{self.name}' mixes kinds of values: {_some(values)}")
        if len(set(values)) != len(values):
            raise SpaceError(f"knob '{self.name}' repeats a candidate: {_some(values)}")
        default = values[0] if self.default is None else plain_value(self.name, self.default)
        object.__setattr__(self, "default", default)
        if default not in self._positions:
            raise SpaceError(f"knob '{self.name}': the default {default!r} is not among {_some(values)}")

    @property
    def kind(self) -> str:
        """ "bool", "int", "text" or "split"."""
        return _kind(self.values[0])[0]

    @cached_property
    def _positions(self) -> dict[KnobValue, int]:
        return {value: i for i, value in enumerate(self.values)}

    def position(self, value: Any) -> int:
        """Where `value` stands among the candidates, -1 where it does not."""
        try:
            i = self._positions.get(value, -1)
        except TypeError:  # not hashable
            return -1
        return i if i >= 0 and _kind(self.values[i]) == _kind(value) else -1

    @cached_property
    def array(self) -> np.ndarray:
        """The values for expressions: [n], or [n, parts] for a split."""
        return np.array(self.values, dtype=None if self.kind == "text" else np.int64)

    def including(self, value: KnobValue) -> Knob:
        """The knob with `value` among its candidates (ints stay sorted)."""
        if self.position(value) >= 0:
            return self
        values: Sequence[KnobValue] = (*self.values, value)
        if self.kind == "int" and _kind(value) == ("int", 0):
            values = sorted(values)
        return replace(self, values=tuple(values))


def _kind(value: KnobValue) -> tuple[str, int]:
    if isinstance(value, bool):
        return "bool", 0
    if isinstance(value, int):
        return "int", 0
    return ("text", 0) if isinstance(value, str) else ("split", len(value))


def _some(values: Sequence[KnobValue]) -> str:
    return ", ".join(map(str, values[:12])) + (", …" if len(values) > 12 else "")


def choice(name: str, values: Iterable[KnobValue], default: KnobValue | None = None, notes: str = "") -> Knob:
    """A knob with the listed candidates."""
    return Knob(name, tuple(values), default, notes)


def boolean(name: str, default: bool = False, notes: str = "") -> Knob:
    """A knob that is off or on."""
    return Knob(name, (False, True), default, notes)


def int_range(name: str, first: int, last: int, step: int = 1, default: int | None = None, notes: str = "") -> Knob:
    """The ints first, first + step, … up to `last` inclusive."""
    if step < 1 or last < first:
        raise SpaceError(f"knob '{name}': the range {first}..{last} step {step} is empty")
    if (last - first) // step >= MAX_CANDIDATES:
        raise SpaceError(f"knob '{name}' has more than {MAX_CANDIDATES} candidates")
    return Knob(name, tuple(range(first, last + 1, step)), default, notes)


def divisors(extent: int) -> tuple[int, ...]:
    """All divisors of a positive int, ascending."""
    low = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return tuple(sorted({*low, *(extent // d for d in low)}))


def split(
    name: str,
    extent: int,
    parts: int = 2,
    policy: str = "factors",
    max_inner: int | None = None,
    default: tuple[int, ...] | None = None,
    notes: str = "",
) -> Knob:
    """Ways to divide a loop of `extent` into `parts` loops, as tuples of their extents, outermost first.

    policy  "factors": the product is the extent; "power2": inner parts are powers of two and the outermost rounds
            up; "verbose": both.   max_inner bounds the innermost part.
    """
    if extent < 1 or parts < 1 or policy not in ("factors", "power2", "verbose"):
        raise SpaceError(f"knob '{name}': cannot split {extent} into {parts} by policy '{policy}'")
    inner: set[int] = set()
    if policy in ("factors", "verbose"):
        inner |= set(divisors(extent))
    if policy in ("power2", "verbose"):
        inner |= {1 << i for i in range(extent.bit_length()) if 1 << i <= extent}
    exact = policy == "factors"
    found: list[tuple[int, ...]] = []
    for sizes in itertools.product(sorted(inner), repeat=parts - 1):
        product = math.prod(sizes)
        if product > extent or (exact and extent % product) or (max_inner and sizes and sizes[-1] > max_inner):
            continue
        found.append((-(-extent // product), *sizes))
        if len(found) > MAX_CANDIDATES:
            raise SpaceError(f"knob '{name}' has more than {MAX_CANDIDATES} ways to split {extent} into {parts}")
    return Knob(name, tuple(found), default, notes)
