"""Sums of digits: what `detect_iter_map` makes of indices, and back to plain expressions."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.errors import InvalidTypeError
from autosched.ir.node import Node
from autosched.tir import expr as E
from autosched.tir.arith import products
from autosched.tir.expr import PrimExpr


class IterMapExpr(PrimExpr):
    """Base of splits and sums."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class IterMark(Node):
    """Something that takes each value in [0, extent): a variable, another expression, or a sum of digits."""

    source: PrimExpr
    extent: PrimExpr

    def __post_init__(self) -> None:
        if not isinstance(self.source, PrimExpr):
            object.__setattr__(self, "source", E.to_expr(self.source))
        object.__setattr__(self, "extent", E.to_expr(self.extent, self.source.dtype))


@dataclass(frozen=True, slots=True, eq=False)
class IterSplitExpr(IterMapExpr):
    """A digit of a mark, scaled: `source // lower_factor % extent * scale`."""

    source: IterMark
    lower_factor: PrimExpr = None  # type: ignore[assignment]  # 1
    extent: PrimExpr = None  # type: ignore[assignment]  # that of the mark
    scale: PrimExpr = None  # type: ignore[assignment]  # 1

    def __post_init__(self) -> None:
        if not isinstance(self.source, IterMark):
            raise InvalidTypeError(f"IterSplitExpr: source is a {type(self.source).__name__}, expected an IterMark")
        for name, default in (("lower_factor", 1), ("extent", self.source.extent), ("scale", 1)):
            value = getattr(self, name)
            object.__setattr__(self, name, E.to_expr(default if value is None else value, self.dtype))

    @property
    def dtype(self) -> str:  # type: ignore[override]  # it follows from the parts
        return self.source.source.dtype


@dataclass(frozen=True, slots=True, eq=False)
class IterSumExpr(IterMapExpr):
    """The sum of some splits and of a base in which no iterator occurs."""

    args: tuple[IterSplitExpr, ...]
    base: PrimExpr

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", tuple(self.args))
        dtype = self.args[0].dtype if self.args else "int32"
        object.__setattr__(self, "base", E.to_expr(self.base, dtype))

    @property
    def dtype(self) -> str:  # type: ignore[override]  # it follows from the parts
        return self.args[0].dtype if self.args else self.base.dtype


def _reaches_end(end: PrimExpr, extent: PrimExpr) -> bool:
    x, y = E.const_int(end), E.const_int(extent)
    return x >= y if x is not None and y is not None else end is extent or products.equal(end, extent)


def plain(x: PrimExpr) -> PrimExpr:
    """An expression without splits and sums that has the same value."""
    if isinstance(x, IterSplitExpr):
        return _plain_split(x)
    if isinstance(x, IterSumExpr):
        return _plain_sum(x)
    return x


def _plain_sum(x: IterSumExpr) -> PrimExpr:
    """Positive terms, then the base, then what is subtracted."""
    total: PrimExpr | None = None
    below = [s for s in x.args if (E.const_int(s.scale) or 0) < 0]
    for s in (s for s in x.args if (E.const_int(s.scale) or 0) >= 0):
        total = _plain_split(s) if total is None else E.add(total, _plain_split(s))
    if total is None or E.const_int(x.base) != 0:
        total = x.base if total is None else E.add(total, x.base)
    for s in below:
        digit = IterSplitExpr(s.source, s.lower_factor, s.extent, E.sub(0, s.scale))
        total = E.sub(total, _plain_split(digit))
    return total


def _plain_split(x: IterSplitExpr) -> PrimExpr:
    mark, value = x.source, plain(x.source.source)
    first, last = E.const_int(x.lower_factor) == 1, _reaches_end(E.mul(x.lower_factor, x.extent), mark.extent)
    if not (first and last):
        if not last:
            value = E.floormod(value, E.mul(x.lower_factor, x.extent))
        if not first:
            value = E.floordiv(value, x.lower_factor)
    return E.mul(value, x.scale)


def normalize_iter_map_to_expr(expr: PrimExpr) -> PrimExpr:
    """An expression of variables in place of splits and sums."""
    return plain(expr)
