"""Extents of symbols as the runtime's sizes; a function's symbols from the shapes that it is called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.errors import InvalidValueError
from autosched.runtime.size_expr import Shape, Size
from autosched.tir import expr as E
from autosched.tir.expr import IntImm, PrimExpr, Var, sub, to_expr
from autosched.tir.function import PrimFunc, shape_vars
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import Analyzer

SIZES = "autosched.sizes"  # attribute of a function whose sizes come with the call: the names of its symbols
WORK = "autosched.work"  # and its floating-point operations, a size as JSON

_OPS: dict[type, str] = {
    E.Add: "+", E.Sub: "-", E.Mul: "*", E.FloorDiv: "//", E.FloorMod: "%", E.Min: "min", E.Max: "max",
}  # fmt: skip


def to_size(x: object) -> Size:
    """An extent as a size. Raises InvalidValueError for arithmetic that sizes have not."""
    match x:
        case int():
            return x
        case IntImm():
            return x.value
        case Var():
            return x.name
        case E.Cast():
            return to_size(x.value)
        case PrimExpr() if type(x) in _OPS:
            return (_OPS[type(x)], to_size(x.a), to_size(x.b))  # type: ignore[attr-defined]
    raise InvalidValueError(f"the size {x} is no sum or product of symbols")


def to_shape(shape: Sequence[object]) -> Shape:
    return tuple(map(to_size, shape))


def call_sizes(func: PrimFunc, shapes: Sequence[Sequence[object]]) -> tuple[PrimExpr, ...]:
    """What each of a function's symbols is for arguments of the given shapes, in the order of `shape_vars`.

    Raises InvalidValueError where a symbol is the size of no dimension.
    """
    found: dict[Var, PrimExpr] = {}
    pairs = [
        (extent, to_expr(given, "int64"))
        for buffer, shape in zip(func.buffers, shapes, strict=True)
        for extent, given in zip(buffer.shape, shape, strict=True)
    ]
    while new := [one for extent, given in pairs if (one := _solved(extent, given, found)) is not None]:
        found.setdefault(*new[0])
    symbols = shape_vars(func)
    if missing := [v.name for v in symbols if v not in found]:
        raise InvalidValueError(f"the size of '{missing[0]}' does not follow from the arguments")
    return tuple(found[v] for v in symbols)


def _solved(extent: PrimExpr, given: PrimExpr, found: Mapping[Var, PrimExpr]) -> tuple[Var, PrimExpr] | None:
    """The one open symbol of an extent, a sum in which it stands once, and what it is; None for other extents."""
    open_vars = free_vars(extent) - found.keys()
    if len(open_vars) != 1:
        return None
    (var,) = open_vars
    analyzer = Analyzer()
    rest = analyzer.linear(extent)
    own = [key for key, (scale, atom) in rest.terms.items() if atom is var and scale == 1]
    if not own:
        return None
    rest.terms.pop(own[0])
    others = rest.build("int64")
    if var in free_vars(others):
        return None
    return var, analyzer.simplify(sub(given, substitute(others, dict(found))))


def with_named_sizes(func: PrimFunc) -> PrimFunc:
    """The function with the attribute that says which symbols its kernel is given."""
    return func.with_attr(SIZES, tuple(v.name for v in shape_vars(func)))
