"""Convolution weights [O, I, 3, 3] or [O, I, 2, 2] for Winograd's algorithm, in the order in which kernels read."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosched import te
from autosched.templates.winograd_transform import TAPS, AnyFilter, filter_of, make_filter, pick, weighted_sum
from autosched.tir import PrimExpr, PrimFunc, cast, const, minimum

WORD = "int16"  # what bytes' sums and products by small numbers are


@dataclass(frozen=True)
class WinogradPack:
    """[O, I, 3, 3] -> U = G g Gᵀ as [O / (panels * width), m + 2, m + 2, panels, I, width]; tails are zero.

    Those of 2 x 2 taps are transformed likewise.

    Bytes become 4 U, which are whole numbers, as [O / (panels * width), 4, 4, panels, I / 2, width, 2].

    shape    of the natural weight
    outputs  m of F(m x m, 3 x 3) or F(m x m, 2 x 2)
    width    output channels in a panel: those of one register tile
    panels   how many panels one chunk of output channels has
    group    input channels that lie side by side: 2 of bytes, which become 16-bit integers, else 1
    stride   of the convolution, 1 or 2
    """

    shape: tuple[int, ...]
    outputs: int
    width: int
    panels: int
    group: int = 1
    stride: int = 1

    @property
    def filter(self) -> AnyFilter:
        return filter_of(self.outputs, self.stride, self.taps)

    @property
    def taps(self) -> int:
        """Of the window in each direction."""
        return self.shape[2]

    @property
    def matrix(self) -> np.ndarray:
        """What taps are multiplied with from both sides."""
        return self.filter.weight_matrix() if self.group == 1 else make_filter(self.outputs).whole_weight_matrix()

    def packed_dtype(self, dtype: str) -> str:
        """The type of the packed weights, for that of the natural ones."""
        return dtype if self.group == 1 else WORD

    @property
    def packed_shape(self) -> tuple[int, ...]:
        size = self.filter.rows
        chunks = -(-self.shape[0] // (self.width * self.panels))
        own = () if self.group == 1 else (self.group,)
        return (chunks, size, size, self.panels, self.shape[1] // self.group, self.width, *own)

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array: transformed in float64, then rounded to its dtype."""
        g, group = self.matrix, self.group
        chunks, size, _, panels, inputs, width = self.packed_shape[:6]
        natural = array.reshape(self.shape)
        made = np.empty(self.packed_shape, self.packed_dtype(str(array.dtype))) if into is None else into
        packed = made.reshape(*self.packed_shape[:6], group)
        for chunk, panel in np.ndindex(chunks, panels):  # one at a time: float64 of all of them would be large
            first = (chunk * panels + panel) * width
            taps = natural[first : first + width].transpose(2, 3, 1, 0).astype(np.float64, order="C")
            half = g @ taps.reshape(self.taps, -1)
            for x in range(size):
                rows = g @ half[x].reshape(self.taps, -1)
                words = rows.reshape(size, inputs, group, -1).transpose(0, 1, 3, 2)
                packed[chunk, x, :, panel, :, : taps.shape[-1]] = words
                packed[chunk, x, :, panel, :, taps.shape[-1] :] = 0
        return made

    def index(self, o: PrimExpr, i: PrimExpr, x: PrimExpr, y: PrimExpr) -> tuple[PrimExpr, ...]:
        """Where the product (x, y) of output channel `o` and input channel `i` lies in the packed array."""
        own = () if self.group == 1 else (i % self.group,)
        i = i // self.group if self.group > 1 else i
        if self.stride > 1:  # the products of odd inputs share their weights
            x, y = (minimum(at, const(self.filter.rows - 1, at.dtype)) for at in (x, y))
        return (o // (self.width * self.panels), x, y, o // self.width % self.panels, i, o % self.width, *own)

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that transforms and packs at run time: for weights that are not known at build."""
        natural = te.placeholder(self.shape, dtype, name="natural")
        return te.create_prim_func([natural, self.packed(natural)], "int64")

    def packed(self, natural: te.Tensor) -> te.Tensor:
        """The packed weights of natural ones."""
        g, kind = self.matrix, self.packed_dtype(natural.dtype)
        size, outputs = len(g), self.shape[0]

        def once(o: PrimExpr, i: PrimExpr, x: PrimExpr, tap: PrimExpr) -> PrimExpr:
            terms = [cast(kind, natural[o, i, k, tap].as_expr()) for k in range(self.taps)]
            return pick(x, [weighted_sum(row, terms) for row in g])

        half = te.compute((*self.shape[:2], size, self.taps), once, name="half")

        def element(
            chunk: PrimExpr, x: PrimExpr, y: PrimExpr, panel: PrimExpr, i: PrimExpr, lane: PrimExpr, *own: PrimExpr
        ) -> PrimExpr:
            i = i * self.group + own[0] if own else i
            o = (chunk * self.panels + panel) * self.width + lane
            whole = outputs % (self.width * self.panels) == 0
            at = o if whole else minimum(o, outputs - 1)
            terms = [half[at, i, x, k].as_expr() for k in range(self.taps)]
            value = pick(y, [weighted_sum(row, terms) for row in g])
            return value if whole else te.if_then_else(o < outputs, value, te.const(0, kind))

        return te.compute(self.packed_shape, element, name="packed")


@dataclass(frozen=True)
class TapPack:
    """[O, I, 3, 3] -> [O / width, I, 3, 3, width]: taps times the `tap_scale` of F(m, 3) of both sides; tails are zero.

    shape    of the natural weight
    outputs  m of F(m x m, 3 x 3)
    width    output channels in a panel
    """

    shape: tuple[int, ...]
    outputs: int
    width: int

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (-(-self.shape[0] // self.width), self.shape[1], TAPS, TAPS, self.width)

    def packed_dtype(self, dtype: str) -> str:
        return dtype

    @property
    def _scale(self) -> np.ndarray:
        once = make_filter(self.outputs).tap_scale()
        return np.outer(once, once)

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array, which is multiplied in its own type."""
        packed = np.empty(self.packed_shape, array.dtype) if into is None else into
        panels, inputs, *_ = self.packed_shape
        scaled = array.reshape(self.shape) * self._scale.astype(array.dtype)
        scaled = np.pad(scaled, [(0, panels * self.width - self.shape[0]), (0, 0), (0, 0), (0, 0)])
        split = scaled.reshape(panels, self.width, inputs, TAPS, TAPS)
        np.copyto(packed, split.transpose(0, 2, 3, 4, 1))
        return packed

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that packs at run time: for weights that are not known at build."""
        natural = te.placeholder(self.shape, dtype, name="natural")
        return te.create_prim_func([natural, self.packed(natural)], "int64")

    def packed(self, natural: te.Tensor) -> te.Tensor:
        """The packed weights of natural ones."""
        dtype, outputs = natural.dtype, self.shape[0]
        factors = [te.const(float(x), dtype) for x in self._scale.ravel()]

        def element(panel: PrimExpr, i: PrimExpr, y: PrimExpr, x: PrimExpr, lane: PrimExpr) -> PrimExpr:
            o = panel * self.width + lane
            whole = outputs % self.width == 0
            at = o if whole else minimum(o, outputs - 1)
            value = natural[at, i, y, x].as_expr() * pick(y * TAPS + x, factors)
            return value if whole else te.if_then_else(o < outputs, value, te.const(0.0, dtype))

        return te.compute(self.packed_shape, element, name="taps_packed")


@dataclass(frozen=True)
class BothPacks:
    """Transformed weights and, behind them, taps: [all elements], for a kernel that has a form with each."""

    transformed: WinogradPack
    taps: TapPack

    @property
    def shape(self) -> tuple[int, ...]:
        return self.transformed.shape

    @property
    def packed_shape(self) -> tuple[int, ...]:
        return (self.start + math.prod(self.taps.packed_shape),)

    @property
    def start(self) -> int:
        """Where the taps begin."""
        return math.prod(self.transformed.packed_shape)

    def packed_dtype(self, dtype: str) -> str:
        return dtype

    def pack(self, array: np.ndarray, into: np.ndarray | None = None) -> np.ndarray:
        """The packed copy of a natural array."""
        packed = np.empty(self.packed_shape, array.dtype) if into is None else into.reshape(self.packed_shape)
        self.transformed.pack(array, packed[: self.start].reshape(self.transformed.packed_shape))
        self.taps.pack(array, packed[self.start :].reshape(self.taps.packed_shape))
        return packed if into is None else into

    def func(self, dtype: str) -> PrimFunc:
        """A PrimFunc that packs at run time: for weights that are not known at build."""
        natural = te.placeholder(self.shape, dtype, name="natural")
        first, second = self.transformed.packed(natural), self.taps.packed(natural)

        def at(tensor: te.Tensor, flat: PrimExpr, shape: tuple[int, ...]) -> PrimExpr:
            indices = []
            for size in reversed(shape):
                indices.append(flat % size)
                flat = flat // size
            return tensor[tuple(reversed(indices))].as_expr()

        def element(i: PrimExpr) -> PrimExpr:
            behind = at(second, i - self.start, self.taps.packed_shape)
            return te.if_then_else(i < self.start, at(first, i, self.transformed.packed_shape), behind)

        return te.create_prim_func([natural, te.compute(self.packed_shape, element, name="both_packed")], "int64")
