"""Index values while code is made: a constant, plus multiples of LLVM values, plus a multiple of the lane number."""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir


@dataclass(frozen=True, slots=True)
class Affine:
    """const + lane * (lane number) + sum of coefficient * value; `terms` are sorted by the value's number."""

    const: int = 0
    terms: tuple[tuple[int, int, ir.Value], ...] = ()  # (number, coefficient, LLVM i64 value)
    lane: int = 0

    @staticmethod
    def of(value: ir.Value, number: int) -> Affine:
        """The LLVM value itself; values are numbered as they come, so that equal input gives equal code."""
        return Affine(0, ((number, 1, value),))

    @property
    def is_const(self) -> bool:
        return not self.terms and not self.lane

    @property
    def key(self) -> tuple[tuple[int, int], ...]:
        """What the terms are, without the constants."""
        return tuple((i, c) for i, c, _ in self.terms)

    def plus(self, other: Affine, scale: int = 1) -> Affine:
        """self + scale * other."""
        if not other.terms:
            return Affine(self.const + scale * other.const, self.terms, self.lane + scale * other.lane)
        merged = {i: (c, v) for i, c, v in self.terms}
        for i, c, v in other.terms:
            total = merged[i][0] + scale * c if i in merged else scale * c
            if total:
                merged[i] = (total, v)
            else:
                merged.pop(i, None)
        terms = tuple((i, c, v) for i, (c, v) in sorted(merged.items()))
        return Affine(self.const + scale * other.const, terms, self.lane + scale * other.lane)

    def times(self, scale: int) -> Affine:
        """self * scale."""
        if scale == 0:
            return Affine()
        return Affine(self.const * scale, tuple((i, c * scale, v) for i, c, v in self.terms), self.lane * scale)

    def without_lane(self) -> Affine:
        """The value in lane 0."""
        return Affine(self.const, self.terms)
