"""Choices that depend on each other in pairs or small groups: the assignment of least total cost.

Variables are eliminated one by one: all factors that speak of a variable are added into one table, of which the least
value over the variable stays. That is exact, and cheap for graphs that are nearly chains, as networks are. A variable
whose table would be too large is fixed to the value that looks cheapest in its own factors, and the rest stays exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

MOST_ENTRIES = 1 << 16  # of a table

Name = Hashable
Table = np.ndarray[Any, Any]
Factor = tuple[tuple[Name, ...], Table]


class CostGraph:
    """Variables with small domains, and costs of combinations of their values."""

    def __init__(self) -> None:
        self.sizes: dict[Name, int] = {}
        self.factors: list[Factor] = []

    def variable(self, name: Name, size: int) -> None:
        """A variable with values 0 … size - 1."""
        self.sizes[name] = size

    def cost(self, names: Sequence[Name], table: Any) -> None:
        """What each combination of values costs: `table` has a dimension for each name; infinity forbids."""
        self.factors.append((tuple(names), np.asarray(table, "float64")))

    def solve(self, most_entries: int = MOST_ENTRIES) -> dict[Name, int]:
        """The values of least total cost; of equal ones, the lower values of variables named first."""
        factors = list(self.factors)
        steps: list[tuple[Name, tuple[Name, ...], Table]] = []
        left = dict(self.sizes)
        while left:
            name = min(left, key=lambda v: self._entries(v, factors))
            mine = [f for f in factors if name in f[0]]
            if self._entries(name, factors) > most_entries:
                value = self._fix(name, mine)
                factors = [_restrict(f, {name: value}) for f in factors]
                steps.append((name, (), np.array([0.0 if i == value else np.inf for i in range(left[name])])))
            else:
                names, table = self._joined(name, mine)
                factors = [f for f in factors if name not in f[0]]
                factors.append((names[1:], table.min(axis=0)))
                steps.append((name, names[1:], table))
            del left[name]
        found: dict[Name, int] = {}
        for name, others, table in reversed(steps):
            at: tuple[Any, ...] = (slice(None), *(found[o] for o in others))
            found[name] = int(np.argmin(table[at]))
        return found

    def _entries(self, name: Name, factors: Iterable[Factor]) -> int:
        near = {n for names, _ in factors if name in names for n in names} | {name}
        return int(np.prod([self.sizes[n] for n in near], dtype=np.float64).clip(max=2**60))

    def _joined(self, name: Name, mine: Sequence[Factor]) -> tuple[tuple[Name, ...], Table]:
        """The sum of factors as one table, `name` first."""
        names = (name, *dict.fromkeys(n for f in mine for n in f[0] if n != name))
        total = np.zeros([self.sizes[n] for n in names])
        for own, table in mine:
            order = sorted(range(len(own)), key=lambda i: names.index(own[i]))
            shape = [self.sizes[n] if n in own else 1 for n in names]
            total = total + table.transpose(order).reshape(shape)
        return names, total

    def _fix(self, name: Name, mine: Sequence[Factor]) -> int:
        """The value that is cheapest where all others are free."""
        total = np.zeros(self.sizes[name])
        for own, table in mine:
            axes = tuple(i for i, n in enumerate(own) if n != name)
            total = total + table.min(axis=axes)
        return int(np.argmin(total))


def _restrict(factor: Factor, values: Mapping[Name, int]) -> Factor:
    names, table = factor
    index = tuple(values.get(n, slice(None)) for n in names)
    return tuple(n for n in names if n not in values), table[index]


__all__ = ["CostGraph"]
