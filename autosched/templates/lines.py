"""The lines of a tensor along one axis: what scans and sorts go along."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autosched.tir import expr as E
from autosched.tir.expr import IntImm, PrimExpr

INDEX = "int32"


@dataclass(frozen=True)
class Lines:
    """The lines of a tensor along one axis, counted in the order of the other axes, the last one fastest.

    shape  of the tensor; a usual number in place of a size that comes with the call
    axis   along which a line runs
    sizes  the shape with such sizes; () where there are none
    """

    shape: tuple[int, ...]
    axis: int
    sizes: tuple[PrimExpr, ...] = ()

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
        found: PrimExpr = IntImm(1, INDEX)
        for d, size in enumerate(self.sizes):
            found = found if d == self.axis else E.mul(found, size)
        return found if self.sizes else IntImm(self.count, INDEX)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements of a line lie side by side."""
        return math.prod(self.shape[self.axis + 1 :]) == 1

    def at(self, line: PrimExpr, position: PrimExpr) -> tuple[PrimExpr, ...]:
        """The indices of an element."""
        indices, rest = [position] * len(self.shape), line
        sizes = self.sizes or tuple(IntImm(n, INDEX) for n in self.shape)
        for d in reversed([d for d in range(len(self.shape)) if d != self.axis]):
            indices[d] = E.floormod(rest, sizes[d]) if self.shape[d] > 1 else IntImm(0, INDEX)
            rest = E.floordiv(rest, sizes[d])
        return tuple(indices)


@dataclass(frozen=True)
class OpenLines:
    """The same of a tensor of which some extents are known when a kernel is called."""

    shape: tuple[PrimExpr, ...]
    axis: int

    @property
    def length(self) -> PrimExpr:
        """Elements of a line."""
        return self.shape[self.axis]

    @property
    def count(self) -> PrimExpr:
        """How many lines there are."""
        total: PrimExpr = IntImm(1, "int64")
        for d, size in enumerate(self.shape):
            total = E.mul(total, E.cast("int64", size)) if d != self.axis else total
        return total

    def at(self, line: PrimExpr, position: PrimExpr) -> tuple[PrimExpr, ...]:
        """The indices of an element."""
        indices, rest = [position] * len(self.shape), line
        others = [d for d in range(len(self.shape)) if d != self.axis]
        for d in reversed(others):
            indices[d] = E.floormod(rest, self.shape[d]) if d != others[0] else rest
            rest = E.floordiv(rest, self.shape[d])
        return tuple(indices)
