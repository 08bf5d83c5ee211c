"""The linear maps of Winograd's minimal filtering F(m, 3) in one dimension, made from its interpolation points.

A product of polynomials is found from its values at m + 1 points and its leading coefficient (Toom, Cook). Turned
around, m outputs of a filter with r = 3 taps need m + 2 products instead of 3 m:

    y = A (G g * B d)        d: m + 2 inputs, g: 3 taps, y: m outputs, * element by element

Points come in pairs +p, -p, so that the rows of B and the columns of A share their even and odd parts.
F(4, 3) uses 0, ±√½, ±√2: its numbers stay nearer to 1 than those of 0, ±1, ±2, and so do its rounding errors.

A filter of stride 2 meets inputs of even index with the taps 0 and 2, those of odd index with tap 1 (`StridedFilter`).
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
    """F(outputs, taps): the points other than 0 come in pairs +p, -p.

    Where there are more products than points the leading coefficient is one of them: of all three taps, and of F(3, 2)
    and F(5, 2); F(2, 2) and F(4, 2) do without.
    """

    outputs: int
    pairs: tuple[float, ...]
    taps: int = TAPS

    @property
    def inputs(self) -> int:
        """Inputs of one tile, and products."""
        return self.outputs + self.taps - 1

    @property
    def stride(self) -> int:
        return 1

    @property
    def rows(self) -> int:
        """Different rows of G."""
        return self.inputs

    @property
    def has_leading(self) -> bool:
        """Whether the leading coefficient is one of the values."""
        return self.inputs > len(self.points)

    @property
    def points(self) -> tuple[float, ...]:
        return (0.0, *(sign * p for p in self.pairs for sign in (1.0, -1.0)))

    def weight_matrix(self) -> np.ndarray:
        """G [rows, taps] in float64."""
        rows = [[p**k / self._node(i, p) for k in range(self.taps)] for i, p in enumerate(self.points)]
        return np.array(rows + [[0.0] * (self.taps - 1) + [1.0]] * self.has_leading)

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
        return np.array([*nodes, 1 / self.tap_scale()[-1]] if self.has_leading else nodes)

    def input_matrix(self) -> np.ndarray:
        """B [inputs, inputs] in float64: row i has the coefficients of the product of x - p over all points but i."""
        rows = [np.poly([q for j, q in enumerate(self.points) if j != i])[::-1] for i in range(len(self.points))]
        if self.has_leading:
            rows = [*(np.append(row, 0.0) for row in rows), np.poly(self.points)[::-1]]
        return _clean(np.array(rows))

    def output_matrix(self) -> np.ndarray:
        """A [m, inputs] in float64."""
        columns = [[p**k for k in range(self.outputs)] for p in self.points]
        return _clean(np.array(columns + [[0.0] * (self.outputs - 1) + [1.0]] * self.has_leading).T)

    def _node(self, i: int, p: float) -> float:
        return math.prod(p - q for j, q in enumerate(self.points) if j != i)


def _clean(matrix: np.ndarray) -> np.ndarray:
    """Without the last digits: √2 * √2 is 2."""
    return np.round(matrix, 14)


@dataclass(frozen=True)
class StridedFilter:
    """A filter of 3 taps and stride 2: y[i] = g0 d[2 i] + g1 d[2 i + 1] + g2 d[2 i + 2].

    The inputs of even index go through F(m, 2), those of odd index are multiplied with g1: 2 m + 1 products instead of
    3 m. The even ones come first among products; of the rows of G those of the odd ones are one.
    """

    even: Filter

    @property
    def outputs(self) -> int:
        return self.even.outputs

    @property
    def inputs(self) -> int:
        """Inputs of one tile, and products."""
        return self.even.inputs + self.outputs

    @property
    def stride(self) -> int:
        return 2

    @property
    def rows(self) -> int:
        """Different rows of G."""
        return self.even.inputs + 1

    def weight_matrix(self) -> np.ndarray:
        """G [m + 2, 3] in float64; products from m + 1 on share the last row."""
        g = np.zeros((self.rows, TAPS))
        g[:-1, 0::2], g[-1, 1] = self.even.weight_matrix(), 1.0
        return g


AnyFilter = Filter | StridedFilter


@functools.cache
def make_filter(outputs: int) -> Filter:
    """F(outputs, 3), outputs 2 or 4."""
    return Filter(outputs, PAIRS[outputs])


@functools.cache
def filter_of(outputs: int, stride: int, taps: int = TAPS) -> AnyFilter:
    """The filter of 3 taps, outputs 2 or 4, stride 1 or 2; or of 2 taps, outputs 3 or 5: the same points, stride 1."""
    if stride > 1:
        return StridedFilter(Filter(outputs, PAIRS[outputs], 2))
    return Filter(outputs, PAIRS[outputs + taps - TAPS], taps)


def transform_taps(f: AnyFilter, g: Sequence[PrimExpr], by_sums: bool = False) -> list[PrimExpr]:
    """G g as expressions of taps times `tap_scale`, each row without its `row_scale`: of F(4, 3) sums with 1, 2 and 4.

    They are few enough to be found anew where weights are read. Of stride 2 those of F(2, 3) alone.
    by_sums  whether 2 g is g + g, for cores that add beside their multiply-adds: more operations, the same numbers
    """
    scaled = _doubled if by_sums else _scaled
    if isinstance(f, StridedFilter):
        assert f.outputs == 2, "its scale is one"
        return [*transform_taps(f.even, g[0::2], by_sums), g[1]]
    out = [g[0]]
    for p in f.pairs:
        ratio = round(p / f.pairs[0], 12)
        even = scaled(g[2], ratio * ratio, g[0]) if len(g) == TAPS else g[0]
        out += [scaled(g[1], ratio, even), scaled(g[1], -ratio, even)]
    return [*out, g[-1]] if f.has_leading else out


def transform_inputs(f: AnyFilter, d: Sequence[PrimExpr], *, is_scaled: bool = False) -> list[PrimExpr]:
    """B d as expressions. Rows of a pair are E + O and E - O: equal parts are equal expressions, computed once.

    is_scaled  whether rows are multiplied with `row_scale`, as products with weights of `transform_taps` need it
    """
    if isinstance(f, StridedFilter):
        return [*transform_inputs(f.even, d[0::2], is_scaled=is_scaled), *d[1::2]]
    matrix = f.input_matrix()
    if is_scaled:
        matrix = matrix * f.row_scale()[:, np.newaxis]
    out = [weighted_sum(matrix[0], d)]
    for k, p in enumerate(f.pairs):
        row = matrix[1 + 2 * k]
        even = weighted_sum([c if i % 2 == 0 else 0.0 for i, c in enumerate(row)], d)
        odd = weighted_sum(_clean(np.array([c / p if i % 2 else 0.0 for i, c in enumerate(row)])), d)
        out += [_scaled(odd, p, even), _scaled(odd, -p, even)]
    return [*out, weighted_sum(matrix[-1], d)] if f.has_leading else out


def transform_outputs(f: AnyFilter, m: Sequence[PrimExpr]) -> list[PrimExpr]:
    """A m as expressions: outputs of even index take the sums of the pairs, the others their differences."""
    if isinstance(f, StridedFilter):
        even = transform_outputs(f.even, m[: f.even.inputs])
        return [x + y for x, y in zip(even, m[f.even.inputs :], strict=True)]
    sums = [m[1 + 2 * k] + m[2 + 2 * k] for k in range(len(f.pairs))]
    differences = [m[1 + 2 * k] - m[2 + 2 * k] for k in range(len(f.pairs))]
    out: list[PrimExpr] = []
    for power in range(f.outputs):
        terms = differences if power % 2 else sums
        first = [m[0]] if power == 0 else []
        last = [m[-1]] if f.has_leading and power == f.outputs - 1 else []
        weights = f.output_matrix()[power, 1 : len(f.points) : 2]
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


def _doubled(term: PrimExpr, weight: float, start: PrimExpr) -> PrimExpr:
    """start + weight * term, by sums as far as the weight has factors of 2."""
    while abs(weight) >= 2:
        term, weight = term + term, weight / 2
    return _scaled(term, weight, start)


def pick(position: PrimExpr, values: Sequence[PrimExpr]) -> PrimExpr:
    """values[position]: a chain of selections, which an unrolled loop over `position` folds to one value."""
    *others, result = values
    for i, value in reversed(list(enumerate(others))):
        result = Select(compare(EQ, position, i), value, result)
    return result
