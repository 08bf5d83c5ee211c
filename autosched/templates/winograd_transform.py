"""The linear maps of Winograd's minimal filtering F(m, 3) in one dimension, made from its interpolation points.

A product of polynomials is found from its values at m + 1 points and its leading coefficient (Toom, Cook). Turned
around, m outputs of a filter with r = 3 taps need m + 2 products instead of 3 m:

    y = A (G g * B d)        d: m + 2 inputs, g: 3 taps, y: m outputs, * element by element

Points come in pairs +p, -p, so that the rows of B and the columns of A share their even and odd parts.
F(4, 3) uses 0, ±√½, ±√2: its numbers stay nearer to 1 than those of 0, ±1, ±2, and so do its rounding errors.
Source  Lavin, Gray 2015; Barabasz, Anderson, Soodhalter, Gregg 2020 on the choice of points.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.tir import EQ, PrimExpr, Select, const
from autosched.tir.expr import compare

TAPS = 3
PAIRS = {2: (1.0,), 4: (math.sqrt(0.5), math.sqrt(2.0))}  # outputs m -> the positive points; 0 is always one


@dataclass(frozen=True)
class Filter:
    """F(outputs, 3): the points other than 0 come in pairs +p, -p."""

    outputs: int
    pairs: tuple[float, ...]

    @property
    def inputs(self) -> int:
        """Inputs of one tile, and products."""
        return self.outputs + TAPS - 1

    @property
    def points(self) -> tuple[float, ...]:
        return (0.0, *(sign * p for p in self.pairs for sign in (1.0, -1.0)))

    def weight_matrix(self) -> np.ndarray:
        """G [m + 2, 3] in float64."""
        rows = [[p**k / self._node(i, p) for k in range(TAPS)] for i, p in enumerate(self.points)]
        return np.array([*rows, [0.0] * (TAPS - 1) + [1.0]])

    def whole_weight_matrix(self) -> np.ndarray:
        """2 G, of whole numbers, of F(2, 3)."""
        assert self.outputs == 2, "others have weights that are no fractions"
        return 2 * self.weight_matrix()

    def tap_scale(self) -> np.ndarray:
        """What the taps are multiplied with, so that the points of `transform_taps` begin with 1."""
        return self.pairs[0] ** np.arange(TAPS)

    def row_scale(self) -> np.ndarray:
        """By what the rows of G are more than those that `transform_taps` gives of scaled taps."""
        nodes = [1 / self._node(i, p) for i, p in enumerate(self.points)]
        return np.array([*nodes, 1 / self.tap_scale()[-1]])

    def input_matrix(self) -> np.ndarray:
        """B [m + 2, m + 2] in float64: row i has the coefficients of the product of x - p over all points but i."""
        rows = [np.poly([q for j, q in enumerate(self.points) if j != i])[::-1] for i in range(len(self.points))]
        return _clean(np.array([*(np.append(row, 0.0) for row in rows), np.poly(self.points)[::-1]]))

    def output_matrix(self) -> np.ndarray:
        """A [m, m + 2] in float64."""
        columns = [[p**k for k in range(self.outputs)] for p in self.points]
        return _clean(np.array([*columns, [0.0] * (self.outputs - 1) + [1.0]]).T)

    def _node(self, i: int, p: float) -> float:
        return math.prod(p - q for j, q in enumerate(self.points) if j != i)


def _clean(matrix: np.ndarray) -> np.ndarray:
    """Without the last digits: √2 * √2 is 2."""
    return np.round(matrix, 14)


@functools.cache
def make_filter(outputs: int) -> Filter:
    """F(outputs, 3), outputs 2 or 4."""
    return Filter(outputs, PAIRS[outputs])


def transform_taps(f: Filter, g: Sequence[PrimExpr]) -> list[PrimExpr]:
    """G g as expressions of taps times `tap_scale`, each row without its `row_scale`: of F(4, 3) sums with 1, 2 and 4.

    They are few enough to be found anew where weights are read.
    """
    out = [g[0]]
    for p in f.pairs:
        ratio = round(p / f.pairs[0], 12)
        even = _scaled(g[2], ratio * ratio, g[0])
        out += [_scaled(g[1], ratio, even), _scaled(g[1], -ratio, even)]
    return [*out, g[2]]


def transform_inputs(f: Filter, d: Sequence[PrimExpr], *, is_scaled: bool = False) -> list[PrimExpr]:
    """B d as expressions. Rows of a pair are E + O and E - O: equal parts are equal expressions, computed once.

    is_scaled  whether rows are multiplied with `row_scale`, as products with weights of `transform_taps` need it
    """
    matrix = f.input_matrix()
    if is_scaled:
        matrix = matrix * f.row_scale()[:, np.newaxis]
    out = [weighted_sum(matrix[0], d)]
    for k, p in enumerate(f.pairs):
        row = matrix[1 + 2 * k]
        even = weighted_sum([c if i % 2 == 0 else 0.0 for i, c in enumerate(row)], d)
        odd = weighted_sum(_clean(np.array([c / p if i % 2 else 0.0 for i, c in enumerate(row)])), d)
        out += [_scaled(odd, p, even), _scaled(odd, -p, even)]
    return [*out, weighted_sum(matrix[-1], d)]


def transform_outputs(f: Filter, m: Sequence[PrimExpr]) -> list[PrimExpr]:
    """A m as expressions: outputs of even index take the sums of the pairs, the others their differences."""
    sums = [m[1 + 2 * k] + m[2 + 2 * k] for k in range(len(f.pairs))]
    differences = [m[1 + 2 * k] - m[2 + 2 * k] for k in range(len(f.pairs))]
    out: list[PrimExpr] = []
    for power in range(f.outputs):
        terms = differences if power % 2 else sums
        first = [m[0]] if power == 0 else []
        last = [m[-1]] if power == f.outputs - 1 else []
        weights = f.output_matrix()[power, 1:-1:2]
        out.append(weighted_sum([*[1.0] * len(first + last), *weights], first + last + terms))
    return out


def weighted_sum(weights: Iterable[float], terms: Sequence[PrimExpr]) -> PrimExpr:
    """Σ weight * term in an order that makes each product part of a multiply-add."""
    used = [(float(w), t) for w, t in zip(weights, terms, strict=True) if abs(w) > 1e-12]
    used.sort(key=lambda x: (abs(abs(x[0]) - 1.0) > 1e-12, x[0] < 0))  # whole terms first, positive ones before
    (weight, total), rest = used[0], used[1:]
    total = total if abs(weight - 1.0) < 1e-12 else total * const(weight, total.dtype)
    for w, term in rest:
        total = _scaled(term, w, total)
    return total


def _scaled(term: PrimExpr, weight: float, start: PrimExpr) -> PrimExpr:
    """start + weight * term."""
    if abs(abs(weight) - 1.0) < 1e-12:
        return start + term if weight > 0 else start - term
    return start + term * const(weight, term.dtype)


def pick(position: PrimExpr, values: Sequence[PrimExpr]) -> PrimExpr:
    """values[position]: a chain of selections, which an unrolled loop over `position` folds to one value."""
    *others, result = values
    for i, value in reversed(list(enumerate(others))):
        result = Select(compare(EQ, position, i), value, result)
    return result
