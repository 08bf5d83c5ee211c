"""What must hold of a model's symbolic sizes, by its operators' own rules: positions in range, as many elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autosched.errors import ShapeError
from autosched.relax.expr import Call, Function
from autosched.relax.op.registry import MOST, definition_of
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, form_key

Bounds = dict[str, tuple[int, int | None]]


@dataclass(frozen=True, eq=False)
class Required:
    """A size that lies between two numbers in every call.

    what  the node that asks for it
    """

    size: PrimExpr
    low: int
    high: int | None
    what: str


def size_limits(function: Function, bounds: Mapping[str, tuple[int, int | None]]) -> tuple[Bounds, list[Required]]:
    """(bounds of symbols by name, what they must be together) for which a function's operators can be computed.

    bounds  what symbols may be at most anyway; others are 1 at least
    Raises  ShapeError where no size would do.
    """
    found, together = dict(bounds), dict[object, Required]()
    for one in _required(function):
        size = Analyzer().simplify(one.size)
        if (bound := _of_one_symbol(size, one)) is not None:
            name, low, high = bound
            old = found.get(name, (1, None))
            found[name] = (max(old[0], low), high if old[1] is None else old[1] if high is None else min(high, old[1]))
            if (most := found[name][1]) is not None and most < found[name][0]:
                raise ShapeError(
                    f"no size fits: {one.what} needs '{name}' to be {_span(low, high)}, and it is {_span(*old)}"
                )
            continue
        known = Analyzer({v: (found.get(v.name, (1, None))[0], MOST) for v in free_vars(size)}).bound(size)
        if known[0] is None or known[0] < one.low or one.high is not None:
            together.setdefault((form_key(size), one.low, one.high), one)
    for one in together.values():
        least, most = Analyzer({v: _bounds(found, v) for v in free_vars(one.size)}).bound(one.size)
        if (most is not None and most < one.low) or (least is not None and one.high is not None and least > one.high):
            raise ShapeError(f"no size fits: {one.what} needs {one.size} to be {_span(one.low, one.high)}")
    return found, list(together.values())


def _bounds(found: Bounds, symbol: Var) -> tuple[int, int]:
    """What a symbol may be, for an analyzer."""
    low, high = found.get(symbol.name, (1, None))
    return low, MOST if high is None else high


def _span(low: int, high: int | None) -> str:
    return f"{low} to {high}" if high is not None else f"at least {low}"


def _required(function: Function) -> Iterator[Required]:
    for binding in function.bindings():
        call = binding.value
        definition = definition_of(call)
        if not isinstance(call, Call) or definition is None or definition.limits is None:
            continue
        what = call.span.file if call.span is not None and not call.span.line else binding.var.name
        for size, low, high in definition.limits(*(a.struct_info for a in call.args), **call.attrs):
            if free_vars(size):
                yield Required(size, low, high, f"'{what}'")


def _of_one_symbol(size: PrimExpr, one: Required) -> tuple[str, int, int | None] | None:
    """(symbol, its least, its most) where the size is one symbol plus or minus a number; None for others."""
    linear = Analyzer().linear(size)
    if len(linear.terms) != 1:
        return None
    ((scale, atom),) = linear.terms.values()
    if not isinstance(atom, Var) or scale not in (1, -1):
        return None
    low, high = one.low - linear.const, None if one.high is None else one.high - linear.const
    if scale > 0:
        return atom.name, max(low, 0), high
    return atom.name, 0 if high is None else max(-high, 0), -low
