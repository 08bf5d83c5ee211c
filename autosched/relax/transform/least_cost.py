"""Choices that depend on each other in pairs or small groups: the assignment of least total cost.

Variables are eliminated one by one: all factors that speak of a variable are added into one table, of which the least
value over the variable stays. That is exact, and cheap for graphs that are nearly chains, as networks are. A variable
whose table would be too large is fixed to the value that looks cheapest in its own factors, and the rest stays exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
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
        left = _Remaining(self.sizes)
        for factor in self.factors:
            left.add(factor)
        orders = {name: i for i, name in enumerate(self.sizes)}
        waiting = [(size, orders[name], name) for name, size in left.entries.items()]  # some with sizes of before
        heapify(waiting)
        steps: list[tuple[Name, tuple[Name, ...], Table]] = []
        while left.entries:
            size, _, name = heappop(waiting)
            if left.entries.get(name) != size:
                continue
            mine = left.remove(name)
            if size > most_entries:
                value = self._fix(name, mine)
                new = [_restrict(f, name, value) for f in mine]
                steps.append((name, (), np.array([0.0 if i == value else np.inf for i in range(self.sizes[name])])))
            else:
                names, table = self._joined(name, mine)
                new = [(names[1:], table.min(axis=0))]
                steps.append((name, names[1:], table))
            for factor in new:
                left.add(factor)
            for other in {n for factor in mine for n in factor[0] if n != name}:
                heappush(waiting, (left.entries[other], orders[other], other))
        found: dict[Name, int] = {}
        for name, others, table in reversed(steps):
            at: tuple[int | slice, ...] = (slice(None), *(found[o] for o in others))
            found[name] = int(np.argmin(table[at]))
        return found

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


class _Remaining:
    """The variables that have no value yet, and the factors that speak of each.

    entries  the size of the table in which a variable would be eliminated
    """

    def __init__(self, sizes: Mapping[Name, int]):
        self.sizes = sizes
        self.entries = dict(sizes)
        self.factors: dict[Name, dict[int, Factor]] = {name: {} for name in sizes}  # by their ids
        self.beside: dict[Name, dict[Name, int]] = {name: {} for name in sizes}  # how many factors speak of both

    def add(self, factor: Factor) -> None:
        names = factor[0]
        for name in names:
            self.factors[name][id(factor)] = factor
            beside = self.beside[name]
            for other in names:
                if other != name:
                    if other not in beside:
                        beside[other] = 0
                        self.entries[name] *= self.sizes[other]
                    beside[other] += 1

    def remove(self, name: Name) -> list[Factor]:
        """Take out a variable and the factors that speak of it."""
        mine = self.factors.pop(name)
        del self.entries[name], self.beside[name]
        for key, (names, _) in mine.items():
            for one in names:
                if one == name:
                    continue
                del self.factors[one][key]
                beside = self.beside[one]
                for other in names:
                    if other != one:
                        beside[other] -= 1
                        if not beside[other]:
                            del beside[other]
                            self.entries[one] //= self.sizes[other]
        return [*mine.values()]


def _restrict(factor: Factor, name: Name, value: int) -> Factor:
    """A factor once a variable has its value."""
    names, table = factor
    at = names.index(name)
    return names[:at] + names[at + 1 :], table[(slice(None),) * at + (value,)]


__all__ = ["CostGraph"]
