"""Filters of a window's row: its taps in parts of at most four, each by Winograd's algorithm over the same points.

Stride s divides taps and inputs into s parts: y[i] = Σ g[s k + p] d[s (i + k) + p]. A part of more than four taps is
divided again. F(4, r) takes r + 3 points; a part with one tap less leaves out one of them. Sums of products at a point
are transformed back once for all parts: y = A Σ over parts (G g * B d). Seven taps of stride 2 are F(4, 4) and F(4, 3),
13 products for 4 outputs instead of 28.

In one dimension errors stay small: of 7 x 7 x 3 taps they are about 2.2 times those of direct sums.
Source  Lavin, Gray 2015; `winograd_transform` for two dimensions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autosched import te
from autosched.templates.winograd_transform import pick, weighted_sum
from autosched.tir import PrimExpr, PrimFunc, const, minimum

OUTPUTS = 4  # of a tile: m of F(m, r)
MOST_TAPS = 4  # of a part; five would need eight points, which round several times as much
HALF = math.sqrt(0.5)
# Taps of a part -> positive points, which come with their negatives, and whether 0 and the leading coefficient are
# points too. The last of these two is what a part with one tap less leaves out.
PAIRS: dict[int, tuple[float, ...]] = {2: (HALF, 2 * HALF), 3: (HALF, 2 * HALF), 4: (0.5, 1.0, 2.0)}
OTHERS: dict[int, tuple[float, ...]] = {2: (0.0,), 3: (0.0, math.inf), 4: (0.0,)}
Row = tuple[float, ...]


@dataclass(frozen=True)
class Part:
    """The taps `first`, `first + step`, … of a window's row: `taps` of them."""

    first: int
    step: int
    taps: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """Those of a tile that the part reads, as many as it has points."""
        return tuple(self.first + self.step * j for j in range(self.taps + OUTPUTS - 1))


@dataclass(frozen=True)
class RowFilter:
    """A row of `taps`, moved by `stride`.

    Products of a tile are numbered point by point, and by part within a point; `common` points are of all parts, in
    the last one, if there is a further one, the first `longer` parts take part.
    """

    taps: int
    stride: int

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """The longer ones first."""
        most = -(-self.taps // self.stride)
        pieces = -(-most // MOST_TAPS)
        found = []
        for phase in range(min(self.stride, self.taps)):
            count, at = -(-(self.taps - phase) // self.stride), 0
            for piece in range(pieces):
                size = count // pieces + (piece < count % pieces)
                found.append(Part(phase + self.stride * at, self.stride, size))
                at += size
        return tuple(sorted(found, key=lambda part: -part.taps))

    @property
    def points(self) -> tuple[float, ...]:
        """Pairs p, -p, then 0 and the leading coefficient (infinite)."""
        most = self.parts[0].taps
        return (*(sign * p for p in PAIRS[most] for sign in (1.0, -1.0)), *OTHERS[most])

    @property
    def longer(self) -> int:
        """Parts with one tap more than others; none where all have as many."""
        most = self.parts[0].taps
        count = sum(part.taps == most for part in self.parts)
        return 0 if count == len(self.parts) else count

    @property
    def common(self) -> int:
        return len(self.points) - bool(self.longer)

    @property
    def products(self) -> int:
        """Of a tile."""
        return self.common * len(self.parts) + self.longer

    @property
    def step(self) -> int:
        """Inputs from one tile to the next."""
        return OUTPUTS * self.stride

    @property
    def inputs(self) -> int:
        """Of a tile, from the first to the last."""
        return self.step - self.stride + self.taps

    def points_of(self, part: Part) -> tuple[float, ...]:
        return self.points[: part.taps + OUTPUTS - 1]

    def weight_matrix(self) -> np.ndarray:
        """G [products, taps] in float64."""
        found = np.zeros((self.products, self.taps))
        for k, part in enumerate(self.parts):
            points = self.points_of(part)
            for i, p in enumerate(points):
                row = [p**t / _node(points, p) for t in range(part.taps)] if p != math.inf else _last(part.taps)
                found[i * len(self.parts) + k, part.first :: part.step][: part.taps] = row
        return found

    def transform_inputs(self, d: Sequence[PrimExpr]) -> list[PrimExpr]:
        """B d as expressions, by product. Those of a pair are E + O and E - O: equal parts are equal expressions."""
        by_part = [_transform_inputs(self.points_of(part), [d[j] for j in part.inputs]) for part in self.parts]
        return [values[i] for i in range(len(self.points)) for values in by_part if i < len(values)]

    def transform_outputs(self, m: Sequence[PrimExpr]) -> list[PrimExpr]:
        """A m as expressions of sums at the points: even outputs take the sums of pairs, odd ones their differences."""
        pairs = [p for p in self.points[::2] if p not in (0.0, math.inf)]
        sums = [m[2 * k] + m[2 * k + 1] for k in range(len(pairs))]
        differences = [m[2 * k] - m[2 * k + 1] for k in range(len(pairs))]
        out = []
        for power in range(OUTPUTS):
            ends = {0.0: power == 0, math.inf: power == OUTPUTS - 1}
            first = [m[self.points.index(p)] for p, is_used in ends.items() if is_used and p in self.points]
            weights = [*[1.0] * len(first), *(p**power for p in pairs)]
            out.append(weighted_sum(weights, [*first, *(differences if power % 2 else sums)]))
        return out


def _node(points: Sequence[float], p: float) -> float:
    return math.prod(p - q for q in points if q not in (p, math.inf))


def _last(count: int) -> Row:
    return (*[0.0] * (count - 1), 1.0)


def _transform_inputs(points: Sequence[float], d: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Row of p: the coefficients of the product of x - q over the other points q, which without -p is even or odd."""
    out: list[PrimExpr] = []
    for i, p in enumerate(points):
        others = [q for j, q in enumerate(points) if j != i and q != math.inf]
        if p in (0.0, math.inf):
            out.append(weighted_sum(_polynomial(others, len(d)), d))
        elif p > 0:  # (x + p) times the rest
            rest = _polynomial([q for q in others if q != -p], len(d))
            even, odd = weighted_sum([0.0, *rest[:-1]], d), weighted_sum(rest, d)
            out += [even + odd * const(p, odd.dtype), even - odd * const(p, odd.dtype)]
    return out


def _polynomial(roots: Sequence[float], count: int) -> list[float]:
    """Coefficients of the product of x - q, lowest first, without the last digits: √2 * √2 is 2."""
    found = np.round(np.poly(roots)[::-1], 14) if roots else np.ones(1)
    return [*map(float, found), *[0.0] * (count - len(found))]


@functools.cache
def row_filter(taps: int, stride: int) -> RowFilter:
    return RowFilter(taps, stride)


@dataclass(frozen=True)
class RowPack:
    """[O, I, KH, KW] -> G of the rows as [O / width, products, I, KH, width]; tails are zero.

    shape   of the natural weight
    stride  along a row
    width   output channels in a panel
    """

    shape: tuple[int, ...]
    stride: int
    width: int

    @property
    def filter(self) -> RowFilter:
        return row_filter(self.shape[3], self.stride)

    @property
    def packed_shape(self) -> tuple[int, ...]:
        outputs, channels, rows, _ = self.shape
        return (-(-outputs // self.width), self.filter.products, channels, rows, self.width)

    def packed_dtype(self, dtype: str) -> str:
        return dtype

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array: transformed in float64, then rounded to its dtype."""
        packed = np.empty(self.packed_shape, array.dtype) if into is None else into
        outputs, panels = self.shape[0], self.packed_shape[0]
        made = array.reshape(self.shape).astype(np.float64) @ self.filter.weight_matrix().T
        made = np.pad(made, [(0, panels * self.width - outputs), (0, 0), (0, 0), (0, 0)])
        np.copyto(packed, made.reshape(panels, self.width, *made.shape[1:]).transpose(0, 4, 2, 3, 1), casting="unsafe")
        return packed

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that transforms and packs at run time: for weights that are not known at build."""
        natural, outputs = te.placeholder(self.shape, dtype, name="natural"), self.shape[0]
        matrix, whole = self.filter.weight_matrix(), outputs % self.width == 0

        def element(panel: PrimExpr, product: PrimExpr, i: PrimExpr, y: PrimExpr, lane: PrimExpr) -> PrimExpr:
            o = panel * self.width + lane
            at = o if whole else minimum(o, outputs - 1)
            taps = [natural[at, i, y, k].as_expr() for k in range(self.shape[3])]
            value = pick(product, [weighted_sum(row, taps) for row in matrix])
            return value if whole else te.if_then_else(o < outputs, value, te.const(0.0, dtype))

        packed = te.compute(self.packed_shape, element, name="packed")
        return te.create_prim_func([natural, packed], "int64")
