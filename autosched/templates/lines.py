"""The lines of a tensor along one axis: what scans and sorts go along."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autosched.tir import expr as E
from autosched.tir.expr import IntImm, PrimExpr, const_int

INDEX = "int32"
STAND_IN = 1031  # a prime, as which a size that comes with the call is scheduled


@dataclass(frozen=True)
class Lines:
    """The lines of a tensor along one axis, counted in the order of the other axes, the last one fastest.

    shape  of the tensor; STAND_IN in place of a size that comes with the call
    axis   along which a line runs
    sizes  the shape with such sizes; () where there are none
    """

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[PrimExpr, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether sizes may come with the call."""
        return bool(self.sizes)

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.shape[self.axis]

    @property
    def count(self) -> int:
        """How many lines there are."""
        return math.prod(self.shape) // self.length

    @property
    def extent(self) -> PrimExpr:
        """Elements of a line, which may come with the call."""
        return self.sizes[self.axis] if self.sizes else IntImm(self.length, INDEX)

    @property
    def number(self) -> PrimExpr:
        """How many lines there are, which may come with the call."""
        if not self.is_open:
            return IntImm(self.count, INDEX)
        found: PrimExpr = IntImm(1, self.extent.dtype)
        for d, size in enumerate(self.sizes):
            found = found if d == self.axis else E.mul(found, size)
        return found

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements of a line lie side by side."""
        return math.prod(self.shape[self.axis + 1 :]) == 1

    def at(self, line: PrimExpr, position: PrimExpr) -> tuple[PrimExpr, ...]:
        """The indices of an element."""
        indices, rest = [position] * len(self.shape), line
        sizes = self.sizes or tuple(IntImm(n, INDEX) for n in self.shape)
        others = [d for d in range(len(self.shape)) if d != self.axis]
        for d in reversed(others):
            inside = rest if d == others[0] else E.floormod(rest, sizes[d])
            indices[d] = inside if self.shape[d] > 1 else IntImm(0, INDEX)
            rest = E.floordiv(rest, sizes[d])
        return tuple(indices)


def lines_of(sizes: Sequence[PrimExpr], axis: int, dtype: str = INDEX) -> Lines:
    """The lines of a tensor whose sizes come with the call, all or some; `dtype` is that of positions."""
    sizes = tuple(E.cast(dtype, n) for n in sizes)
    known = (const_int(n) for n in sizes)
    return Lines(tuple(STAND_IN if n is None else n for n in known), axis, sizes)
