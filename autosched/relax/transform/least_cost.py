"""Choices that depend on each other in pairs or small groups: the assignment of least total cost.

Variables are eliminated one by one: all factors that speak of a variable are added into one table, of which the least
value over the variable stays. That is exact, and cheap for graphs that are nearly chains, as networks are. A variable
whose table would be too large is fixed to the value that looks cheapest in its own factors, and the rest stays exact.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

MOST_ENTRIES = 1 << 16  # of a table

Name = Hashable
Table = np.ndarray
Factor = tuple[tuple[Name, ...], Table]


class CostGraph:
    """Variables with small domains, and costs of combinations of their values."""

    def __init__(self) -> None:
        self.sizes: dict[Name, int] = {}
        self.factors: list[Factor] = []

    def variable(self, name: Name, size: int) -> None:
        """A variable with values 0 … size - 1."""
        self.sizes[name] = size

    def cost(self, names: Sequence[Name], table: np.ndarray | Sequence[float] | Sequence[Sequence[float]]) -> None:
        """What each combination of values costs: `table` has a dimension for each name; infinity forbids.

        A variable of one value leaves the table: NumPy has 64 dimensions at most, whatever their sizes.
        """
        open_names = tuple(name for name in names if self.sizes[name] > 1)
        cost = np.asarray(table, "float64").reshape([self.sizes[name] for name in open_names])
        self.factors.append((open_names, cost))

    def solve(self, most_entries: int = MOST_ENTRIES) -> dict[Name, int]:
        """The values of least total cost; of equal ones, the lower values of variables named first."""
        near: dict[Name, dict[int, Factor]] = {name: {} for name in self.sizes}  # those that speak of it, by their ids
        for factor in self.factors:
            _add(near, factor)
        entries = {name: self._entries(name, near[name].values()) for name in self.sizes}
        orders = {name: i for i, name in enumerate(entries)}
        waiting = [(size, orders[name], name) for name, size in entries.items()]  # some with sizes of before
        heapify(waiting)
        steps: list[tuple[Name, tuple[Name, ...], Table]] = []
        while entries:
            size, _, name = heappop(waiting)
            if entries.get(name) != size:
                continue
            mine = [*near.pop(name).values()]
            del entries[name]
            for factor in mine:
                for other in factor[0]:
                    if other != name:
                        del near[other][id(factor)]
            if size > most_entries:
                value = self._fix(name, mine)
                left = [_restrict(f, {name: value}) for f in mine]
                steps.append((name, (), np.array([0.0 if i == value else np.inf for i in range(self.sizes[name])])))
            else:
                names, table = self._joined(name, mine)
                left = [(names[1:], table.min(axis=0))]
                steps.append((name, names[1:], table))
            for factor in left:
                _add(near, factor)
            for other in {n for factor in mine for n in factor[0] if n != name}:
                entries[other] = self._entries(other, near[other].values())
                heappush(waiting, (entries[other], orders[other], other))
        found: dict[Name, int] = {}
        for name, others, table in reversed(steps):
            at: tuple[int | slice, ...] = (slice(None), *(found[o] for o in others))
            found[name] = int(np.argmin(table[at]))
        return found

    def _entries(self, name: Name, mine: Iterable[Factor]) -> int:
        """The size of the table in which a variable would be eliminated."""
        return math.prod(map(self.sizes.__getitem__, {name}.union(*[names for names, _ in mine])))

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


def _add(near: Mapping[Name, dict[int, Factor]], factor: Factor) -> None:
    for name in factor[0]:
        near[name][id(factor)] = factor


def _restrict(factor: Factor, values: Mapping[Name, int]) -> Factor:
    names, table = factor
    index = tuple(values.get(n, slice(None)) for n in names)
    return tuple(n for n in names if n not in values), table[index]


__all__ = ["CostGraph"]
