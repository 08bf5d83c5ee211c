"""Extents of symbols as the runtime's sizes; a function's symbols from the shapes that it is called with."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from autosched.errors import InvalidValueError
from autosched.ir.node import Node, children, preorder
from autosched.runtime.size_expr import Shape, Size
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.expr import IntImm, PrimExpr, Var, add, const, mul, sub, to_expr
from autosched.tir.function import PrimFunc, size_vars
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import BlockRealize, BufferStore, Evaluate, For, IfThenElse, LetStmt

MAY_BE_EMPTY = "autosched.may_be_empty"  # attribute of such a function: the names of symbols that may be 0 in a call
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


def polynomial(x: object) -> dict[tuple[Hashable, ...], int]:
    """An extent as a sum of products: by their factors, in an order of their own, how often each is in it."""
    match x:
        case int():
            return {(): x} if x else {}
        case IntImm():
            return {(): x.value} if x.value else {}
        case E.Add() | E.Sub():
            found = dict(polynomial(x.a))
            for key, n in polynomial(x.b).items():
                found[key] = found.get(key, 0) + (n if isinstance(x, E.Add) else -n)
            return {key: n for key, n in found.items() if n}
        case E.Mul():
            product: dict[tuple[Hashable, ...], int] = {}
            for (a, m), (b, n) in itertools.product(polynomial(x.a).items(), polynomial(x.b).items()):
                key = tuple(sorted((*a, *b), key=hash))
                product[key] = product.get(key, 0) + m * n
            return {key: n for key, n in product.items() if n}
    assert isinstance(x, PrimExpr), "an extent is a number or an expression"
    return {(form_key(x),): 1}


def same_extent(a: object, b: object) -> bool:
    """Whether two extents are seen to be equal for all values of their symbols."""
    return polynomial(a) == polynomial(b)


def call_sizes(func: PrimFunc, shapes: Sequence[Sequence[object]]) -> tuple[PrimExpr, ...]:
    """What each of a function's symbols is for arguments of the given shapes, in the order of `size_vars`.

    One that is the size of no dimension is the caller's own of that name; such a function has one caller.
    Raises InvalidValueError where the shapes are then not the function's.
    """
    pairs = [
        (extent, to_expr(given, "int64"))
        for buffer, shape in zip(func.buffers, shapes, strict=True)
        for extent, given in zip(buffer.shape, shape, strict=True)
    ]
    symbols, found = size_vars(func), _followed(pairs, {})
    if any(v not in found for v in symbols) and (wrong := _differing(pairs, found)) is not None:
        if not has_own_sizes(func):  # of past + tokens only the sum counts: the last symbols may be 1
            for v in reversed(symbols):
                if v not in found:
                    found = _followed(pairs, {**found, v: const(1, "int64")})
            wrong = _differing(pairs, found)
        if wrong is not None:
            raise InvalidValueError(f"the extent {wrong[0]} does not say its symbols where it is {wrong[1]}")
    return tuple(found.get(v, v) for v in symbols)


def _followed(pairs: Sequence[tuple[PrimExpr, PrimExpr]], known: Mapping[Var, PrimExpr]) -> dict[Var, PrimExpr]:
    """The symbols that are known, and those that follow from extents and what these are."""
    found = dict(known)
    while new := [one for extent, given in pairs if (one := _solved(extent, given, found)) is not None]:
        found.setdefault(*new[0])
    return found


def _differing(
    pairs: Sequence[tuple[PrimExpr, PrimExpr]], found: Mapping[Var, PrimExpr]
) -> tuple[PrimExpr, PrimExpr] | None:
    """An extent that is not what it should be, for these symbols; None where there is none."""
    return next((pair for pair in pairs if not same_extent(substitute(pair[0], found), pair[1])), None)


class SaidSizes:
    """What the dimensions of a function's arguments say: symbols that are one, and the extents themselves.

    batch * tokens is said by [batch * tokens, 64], although neither of the symbols is.
    """

    def __init__(self, extents: Iterable[object]):
        found = list(extents)
        self.symbols = {x for x in found if isinstance(x, Var)}
        self.extents = [polynomial(x) for x in found if isinstance(x, PrimExpr)]

    def says(self, extent: PrimExpr) -> bool:
        """Whether an extent is the same in every function that equals this one and is called with equal shapes."""
        return free_vars(extent) <= self.symbols or polynomial(extent) in self.extents


def has_own_sizes(func: PrimFunc) -> bool:
    """Whether a function computes with sizes that the shapes of its arguments do not say: then it has one caller."""
    said = SaidSizes(extent for buffer in func.buffers for extent in buffer.shape)
    unsaid = set(size_vars(func)) - said.symbols
    if not unsaid:
        return False
    for node in preorder(func.body):
        match node:
            case For():
                used = [node.start, node.extent]
            case IterVar():
                used = [node.dom.min, node.dom.extent]
            case BufferStore():
                used = [*node.indices, node.value]
            case IfThenElse():
                used = [node.condition]
            case LetStmt() | Evaluate():
                used = [node.value]
            case BlockRealize():
                used = [*node.iter_values, node.predicate]
            case _:
                continue
        is_extent = isinstance(node, For | IterVar)
        if any(_named(x) & unsaid and not (is_extent and said.says(x)) for x in used):
            return True
    return False


def _named(x: PrimExpr) -> set[Var]:
    """The variables of an expression, without those in the shapes of buffers that it loads from."""
    found, stack = set[Var](), [x]
    while stack:
        top = stack.pop()
        if isinstance(top, Var):
            found.add(top)
        stack += [child for child in children(top) if isinstance(child, PrimExpr)]
    return found


def _solved(extent: PrimExpr, given: PrimExpr, found: Mapping[Var, PrimExpr]) -> tuple[Var, PrimExpr] | None:
    """The one open symbol of an extent, and what it is: one of a sum, or of an extent of the given one's form."""
    open_vars = free_vars(extent) - found.keys()
    if len(open_vars) != 1:
        return None
    (var,) = open_vars
    analyzer = Analyzer()
    rest = analyzer.linear(extent)
    own = next(((key, scale) for key, (scale, atom) in rest.terms.items() if atom is var and scale > 0), None)
    if own is not None:
        key, scale = own
        rest.terms.pop(key)
        others = rest.build("int64")
        value = None if var in free_vars(others) else sub(given, substitute(others, dict(found)))
        if value is not None and (part := _divided(value, scale)) is not None:
            return var, analyzer.simplify(part)
        if scale == 1:
            return None
    matched = (pair for pair in _matched(extent, given) if pair[0] is var)
    return next((p for p in matched if same_extent(substitute(extent, {**found, var: p[1]}), given)), None)


def _divided(value: PrimExpr, by: int) -> PrimExpr | None:
    """A sum divided by a number that all of its terms are multiples of; None for another one."""
    linear = Analyzer().linear(value)
    if by == 1:
        return value
    if linear.const % by or any(scale % by for scale, _ in linear.terms.values()):
        return None
    total: PrimExpr = const(linear.const // by, "int64")
    for scale, atom in linear.terms.values():
        total = add(total, mul(atom, scale // by))
    return total


def _matched(extent: Node, given: Node) -> Iterator[tuple[Var, PrimExpr]]:
    """What `given` has where an extent of its form has symbols: (h + 1) // 2 and (2 * w + 1) // 2 tell of h."""
    if isinstance(extent, Var) and isinstance(given, PrimExpr):
        yield extent, given
    elif type(extent) is type(given):
        for mine, other in zip(children(extent), children(given), strict=False):
            yield from _matched(mine, other)


def named_sizes(func: PrimFunc) -> list[Var]:
    """The symbols that a scheduled or lowered function's kernel is given, in the order of their names in its attribute.

    One that the code does not use any more has a variable of its own.
    """
    if not (names := func.attrs.get(SIZES, ())):
        return []
    found = {v.name: v for v in size_vars(func)}
    return [found[name] if name in found else Var(name, "int64") for name in names]


def with_named_sizes(func: PrimFunc) -> PrimFunc:
    """The function with the attribute that says which symbols its kernel is given."""
    return func.with_attr(SIZES, tuple(v.name for v in size_vars(func)))
