"""`inverse_affine_iter_map`: iterators in terms of the values of the indices that `detect_iter_map` made of them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.tir import expr as E
from autosched.tir.arith.analyzer import Analyzer
from autosched.tir.arith.iter_nodes import IterMark, IterSplitExpr, IterSumExpr
from autosched.tir.expr import ExprLike, PrimExpr, Var, const_int


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]) -> dict[Var, PrimExpr]:
    """Each variable of a bijective map (`detect_iter_map(...).indices`) in terms of the values of its indices.

    Raises InvalidValueError for other numbers of outputs, or an index that is not one split.
    """
    if len(iter_map) != len(outputs):
        raise InvalidValueError(f"inverse_affine_iter_map: {len(outputs)} outputs for {len(iter_map)} indices")
    analyzer = Analyzer()
    values: dict[int, PrimExpr] = {}
    marks: dict[int, IterMark] = {}

    def add(split: IterSplitExpr, value: PrimExpr) -> None:
        key, part = id(split.source), E.mul(value, split.lower_factor)
        values[key] = E.add(values[key], part) if key in values else part
        marks[key] = split.source

    def spread(total: IterSumExpr, value: PrimExpr, *, whole: bool) -> None:
        rest = E.sub(value, total.base)
        for i, s in enumerate(total.args):
            digit = rest if const_int(s.scale) == 1 else E.floordiv(rest, s.scale)
            add(s, E.floormod(digit, s.extent) if i or not whole else digit)

    for total, value in zip(iter_map, outputs, strict=True):
        if len(total.args) > 1:
            raise InvalidValueError("inverse_affine_iter_map: an index of several splits", hint="detect_iter_map")
        if total.args:
            spread(total, E.to_expr(value, total.dtype), whole=True)
    inverse: dict[Var, PrimExpr] = {}
    for mark in _outer_first(iter_map):
        value = analyzer.simplify(values[id(mark)])
        if isinstance(mark.source, IterSumExpr):
            spread(mark.source, value, whole=True)
        elif isinstance(mark.source, Var):
            inverse[mark.source] = value
        elif isinstance(mark.source, E.Sub) and isinstance(mark.source.a, Var):  # one that does not begin at 0
            inverse[mark.source.a] = analyzer.simplify(E.add(value, mark.source.b))
    return inverse


def _outer_first(iter_map: Sequence[IterSumExpr]) -> list[IterMark]:
    """The marks of a map, each behind all that are made of it."""
    ordered: dict[int, IterMark] = {}

    def visit(mark: IterMark) -> None:
        if id(mark) in ordered:
            return
        if isinstance(mark.source, IterSumExpr):
            for s in mark.source.args:
                visit(s.source)
        ordered[id(mark)] = mark

    for total in iter_map:
        for s in total.args:
            visit(s.source)
    return list(reversed(ordered.values()))
