"""Arithmetic of sizes that are numbers or expressions of open ones, which the importers share."""

from __future__ import annotations

import ast
import math
import operator
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Tuple, TupleGetItem
from autosched.relax.struct_info import Dim, TensorStructInfo, tensor_infos, to_dim
from autosched.tir.expr import GE, Add, FloorDiv, IntImm, Max, Min, Mul, PrimExpr, SizeVar, Sub, Var, maximum, minimum
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.size_expr import same_extent


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmptySizeVar(SizeVar):
    """A size that may be 0, as what a decoder has kept is before its first call; others are 1 at least."""


BY_DATA = "sizes_by_data"  # attribute of a `main`: the names of symbols that data gives values, which may be 0
TO_THE_END = 2**31 - 1  # an end that no dimension reaches: exporters write it, or 2**63 - 1


_OPERATORS: Mapping[type, Callable[[Dim, Dim], Dim]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


def size_of_text(text: str, symbol: Callable[[str], PrimExpr | None]) -> PrimExpr | None:
    """A dimension such as "past + 2*sequence", as exporters name what follows from others; None for any other name.

    symbol  gives what a name stands for, None where it is not known
    """
    try:
        found = _size_of(ast.parse(text, mode="eval").body, symbol)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return None if found is None or isinstance(found, int) else found


def _size_of(node: ast.expr, symbol: Callable[[str], PrimExpr | None]) -> Dim | None:
    match node:
        case ast.Name():
            return symbol(node.id)
        case ast.Constant(value=int() as number) if type(number) is int:
            return number
        case ast.BinOp() if type(node.op) in _OPERATORS:
            a, b = _size_of(node.left, symbol), _size_of(node.right, symbol)
            if a is None or b is None or (isinstance(node.op, ast.FloorDiv) and not (isinstance(b, int) and b > 0)):
                return None
            return plain(_OPERATORS[type(node.op)](a, b))
    return None


def plain(d: Dim) -> Dim:
    """A size as simple as it is seen to be."""
    d = d if isinstance(d, int) else Analyzer().simplify(d)
    return d.value if isinstance(d, IntImm) else d


def is_same(a: Dim, b: Dim) -> bool:
    """Whether two sizes are seen to be equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return same_extent(a, b) or is_zero(plain(a - b))


def is_zero(x: Dim) -> bool:
    return isinstance(x, int) and x == 0


def are_same(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are seen to be equal."""
    return len(a) == len(b) and all(map(is_same, a, b))


def is_natural(x: Dim) -> bool:
    """Whether a size is seen not to be negative."""
    low = x if isinstance(x, int) else _known(x).bound(x)[0]
    if not isinstance(x, int) and (low is None or low < 0):
        least = plain(_least(x))
        low = least if isinstance(least, int) else _known(least).bound(least)[0]
    return low is not None and low >= 0


def _least(x: Dim) -> Dim:
    """A bound from below: a // c * c is a - (c - 1) at least."""
    match x:
        case Add(a=a, b=b):
            return _least(a) + _least(b)
        case Sub(a=a, b=b):
            return _least(a) - b
        case Mul(a=FloorDiv(a=a, b=IntImm(value=part)), b=IntImm(value=times)) if part > 0 and not times % part:
            return (a - (part - 1)) * (times // part) if times > 0 else x
    return x


def _known(x: PrimExpr) -> Analyzer:
    """What is known of the symbols in a size: they are 1 at least, which `size_bounds` of a module says too.

    Those that may be 0 are what they are: the attribute MAY_BE_EMPTY of a module names them.
    """
    analyzer = Analyzer()
    for v in free_vars(x):
        if isinstance(v, EmptySizeVar):
            continue
        analyzer.assume(GE(v, IntImm(1, v.dtype)))
    return analyzer


def is_at_least(a: Dim, b: Dim) -> bool:
    """Whether one size is seen not to be less than the other."""
    return is_natural(plain(a - b)) or (isinstance(b, Min) and (is_at_least(a, b.a) or is_at_least(a, b.b)))


def smaller(a: Dim, b: Dim) -> Dim:
    """The smaller of two sizes."""
    return a if is_at_least(b, a) else b if is_at_least(a, b) else minimum(to_dim(a), to_dim(b))


def larger(a: Dim, b: Dim) -> Dim:
    """The larger of two sizes."""
    return a if is_at_least(a, b) else b if is_at_least(b, a) else maximum(to_dim(a), to_dim(b))


def product_of(dims: Sequence[Dim]) -> Dim:
    """How many elements a shape has."""
    return _Factors.of(dims, of_sums=False).product()


@dataclass(frozen=True)
class _Factors:
    """A product of sizes: its number, how often each open one is in it, and these by their keys."""

    number: int
    open: Counter[Hashable]
    exprs: Mapping[Hashable, PrimExpr]

    @staticmethod
    def of(dims: Sequence[Dim], of_sums: bool = True) -> _Factors:
        """of_sums: those of sums too, which are written otherwise then."""
        number, count = 1, Counter[Hashable]()
        exprs: dict[Hashable, PrimExpr] = {}
        todo = list(dims)
        while todo:
            d = todo.pop()
            if isinstance(d, int | IntImm):
                number *= int(d if isinstance(d, int) else d.value)
            elif isinstance(d, Mul):
                todo += [d.a, d.b]
            elif of_sums and isinstance(d, Add | Sub):
                whole = _Factors.of_sum(d)
                number, count, exprs = number * whole.number, count + whole.open, {**exprs, **whole.exprs}
            else:
                key = form_key(d)
                count[key] += 1
                exprs[key] = d
        return _Factors(number, count, exprs)

    @staticmethod
    def of_sum(x: PrimExpr) -> _Factors:
        """What all terms of a sum have in common, and what is left of it: one factor, in whichever order they come."""
        terms: Counter[frozenset[tuple[Hashable, int]]] = Counter()
        exprs: dict[Hashable, PrimExpr] = {}
        todo: list[tuple[Dim, int]] = [(x, 1)]
        while todo:
            d, sign = todo.pop()
            if isinstance(d, Add | Sub):
                todo += [(d.a, sign), (d.b, sign if isinstance(d, Add) else -sign)]
                continue
            found = _Factors.of([d])
            exprs |= found.exprs
            terms[frozenset(found.open.items())] += sign * found.number
        kept = {key: n for key, n in terms.items() if n}
        if len(kept) < 2:
            key = form_key(x)
            return _Factors(1, Counter([key]), {key: x})
        number = math.gcd(*kept.values())
        shared = reduce(operator.and_, (Counter(dict(key)) for key in kept))
        left = {frozenset((Counter(dict(key)) - shared).items()): n // number for key, n in kept.items()}
        rest: Dim = 0
        for key, n in left.items():
            rest = rest + _Factors(n, Counter(dict(key)), exprs).product()
        own = ("sum", frozenset(left.items()))
        whole = x if number == 1 and not shared else plain(rest)
        assert isinstance(whole, PrimExpr), "a sum of two terms that differ"
        return _Factors(number, shared + Counter([own]), {**exprs, own: whole})

    def without(self, other: _Factors) -> _Factors | None:
        """What is left of a product that the other one is a part of; None where that is not seen."""
        if 0 in (self.number, other.number) or self.number % other.number or not other.open <= self.open:
            return None
        return _Factors(self.number // other.number, self.open - other.open, self.exprs)

    def product(self) -> Dim:
        result: Dim = self.number
        for key in self.open.elements():
            result = result * self.exprs[key]
        return plain(result)


def exact_quotient(whole: Dim, part: Dim) -> Dim | None:
    """A product of sizes without some of its factors; None where they are not seen to be that, or may be 0."""
    rest = _Factors.of([whole]).without(_Factors.of([part])) if is_at_least(part, 1) else None
    return None if rest is None else rest.product()


def new_shape(old: Sequence[Dim], target: Sequence[Dim]) -> tuple[Dim, ...] | None:
    """A shape, one dimension of which may be -1, for the elements of another; None where it fits one size alone.

    Where the elements are not seen to be as many they have to be in each call: the operator asks for it.
    """
    places = [i for i, d in enumerate(target) if isinstance(d, int) and d == -1]
    known = [d for i, d in enumerate(target) if i not in places]
    if len(places) > 1 or not all(is_natural(d) or any(is_same(d, o) for o in old) for d in known):
        return None
    rest = _Factors.of(old).without(_Factors.of(known))
    if rest is not None and (places or is_same(rest.product(), 1)):
        return tuple(rest.product() if i in places else d for i, d in enumerate(target))
    if places:
        left = plain(product_of(old) // product_of(known))
        return None if is_same(left, 0) else tuple(left if i in places else d for i, d in enumerate(target))
    return None if all(isinstance(d, int) for d in target) else tuple(target)


def common_size(a: Dim, b: Dim, may_be_one: bool = False) -> Dim | None:
    """The size that two broadcast to: of two open ones either, as they have to be equal. None where nobody knows.

    may_be_one  a size of a name of its own may be 1 in a call, and is then broadcast: the larger one is meant
    """
    if is_same(b, 1) or is_same(a, b):
        return a
    if is_same(a, 1):
        return b
    if may_be_one and isinstance(a, int) != isinstance(b, int):
        return a if isinstance(a, int) else b
    if isinstance(a, int) or isinstance(b, int):
        return None
    if may_be_one and (_holds(a, b) or _holds(b, a)):
        return a if _holds(a, b) else b
    return larger(a, b) if may_be_one and isinstance(a, Var | Max) and isinstance(b, Var | Max) else a


def _holds(whole: Dim, part: Dim) -> bool:
    """Whether a size is seen to be at least another one, or is the largest of some of which that is one."""
    return is_at_least(whole, part) or (isinstance(whole, Max) and any(_holds(d, part) for d in (whole.a, whole.b)))


def agreeing(xs: Sequence[Expr], emit: Callable[[Expr], Expr], may_be_one: bool = False) -> list[Expr]:
    """Tensors that are broadcast against each other, with their open sizes said to be equal, as each call's have to be.

    As they are where all of them are seen to be, or one cannot be.
    """
    shapes = [info_of(x).dims for x in xs]
    made: list[Dim] = []
    for axis in range(-max(map(len, shapes), default=0), 0):
        column = [dims[axis] for dims in shapes if len(dims) >= -axis]
        chosen: Dim | None = column[0]
        for d in column[1:]:
            chosen = None if chosen is None else common_size(chosen, d, may_be_one)
        if chosen is None:
            return list(xs)
        made.append(chosen)
    return [with_sizes(x, made, emit, may_be_one) for x in xs]


def beside(xs: Sequence[Expr], axis: int, emit: Callable[[Expr], Expr]) -> list[Expr]:
    """Tensors that are joined along an axis, with their open sizes along others said to be equal."""
    rank = info_of(xs[0]).ndim
    others = [a for a in range(rank) if a != axis % max(rank, 1)]
    shapes = [info_of(x).dims for x in xs]
    if any(len(dims) != rank for dims in shapes):
        return list(xs)
    made = {a: next((dims[a] for dims in shapes if isinstance(dims[a], int)), shapes[0][a]) for a in others}
    return [with_sizes(x, [made.get(a, d) for a, d in enumerate(own)], emit) for x, own in zip(xs, shapes, strict=True)]


def with_sizes(x: Expr, dims: Sequence[Dim], emit: Callable[[Expr], Expr], may_be_one: bool = False) -> Expr:
    """A tensor that is broadcast to a shape, its open sizes said to be those of the shape: each call is asked to.

    may_be_one  as in `common_size`: some may be 1 instead
    """
    for axis in range(-info_of(x).ndim, 0):
        own = info_of(x).dims
        if not is_same(own[axis], 1) and not is_same(own[axis], dims[axis]):
            shape = ShapeExpr(tuple(dims[axis] if i == len(own) + axis else d for i, d in enumerate(own)))
            is_one = may_be_one and (isinstance(dims[axis], int) or _holds(dims[axis], own[axis]))
            x = emit(op.stretch(x, shape) if is_one else op.reshape(x, shape))
    return x


def factors(a: Expr, b: Expr, emit: Callable[[Expr], Expr]) -> tuple[Expr, Expr]:
    """The factors of a matrix product, with the open sizes of their batch and of what is summed said to be equal."""
    if info_of(a).ndim < 2 or info_of(b).ndim < 2:
        return a, b
    (*lead, _, columns), (*other, rows, _) = info_of(a).dims, info_of(b).dims
    made: list[Dim | None] = [
        common_size(pair[0], pair[1]) if len(pair) == 2 else pair[0]
        for axis in range(-max(len(lead), len(other)), 0)
        for pair in [[dims[axis] for dims in (lead, other) if len(dims) >= -axis]]
    ]
    is_open = not isinstance(columns, int) and not isinstance(rows, int)
    if None in made:
        return a, b
    batch = [d for d in made if d is not None]
    left = with_sizes(a, [*batch, *info_of(a).dims[-2:]], emit)
    return left, with_sizes(b, [*batch, columns if is_open else rows, info_of(b).dims[-1]], emit)


def info_of(x: Expr) -> TensorStructInfo:
    """The type of a tensor."""
    (info,) = tensor_infos(x.struct_info)
    return info


def is_empty(x: Expr) -> bool:
    """Whether a tensor is known to have no elements."""
    return any(isinstance(d, int) and d == 0 for d in info_of(x).dims)


def uncomputed(x: Expr) -> Expr | None:
    """What nothing has to compute: results without elements are constants, a field of a written tuple is there."""
    if isinstance(x, TupleGetItem) and isinstance(x.tuple_value, Tuple):
        return x.tuple_value.fields[x.index]
    infos = tensor_infos(x.struct_info) if isinstance(x, Call) else ()
    if not infos or not all(info.is_static and 0 in info.static_shape for info in infos):
        return None
    found = [Constant(np.zeros(info.static_shape, info.dtype)) for info in infos]
    return found[0] if isinstance(x.struct_info, TensorStructInfo) else Tuple(tuple(found))


def cut(whole: Dim, begin: Dim, end: Dim, step: int = 1) -> tuple[Dim, Dim] | None:
    """(where a slice of a dimension begins, how many elements it has), by Python's rules.

    An open begin or end that is not seen to lie in the dimension is asked to: no result of a call depends on it being
    brought there. None where it is not known from which side they count, or for steps backwards.
    """
    first, last = _position(whole, begin), _position(whole, end)
    if first is None or last is None or step < 1:
        return None
    is_end = isinstance(begin, int) and begin < 0 and is_same(last, whole)
    count = smaller(-begin, whole) if is_end else plain(last - first)
    return plain(first), count if step == 1 else plain((count + (step - 1)) // step)


def reversed_cut(whole: Dim, begin: Dim, end: Dim, step: int) -> tuple[Dim, Dim] | None:
    """`cut` for steps backwards; of an open dimension those to the first element, from one counted from the last.

    None for others.
    """
    if isinstance(whole, int) and isinstance(begin, int) and isinstance(end, int):
        places = range(*slice(begin, end, step).indices(whole))
        return (places.start, len(places)) if places else None
    if not (isinstance(begin, int) and isinstance(end, int) and end <= -TO_THE_END and step < 0):
        return None
    if begin >= 0:
        if begin < TO_THE_END:
            return None
        begin = -1
    first = plain(whole + begin)
    return first, plain((first - step) // -step)


def _position(whole: Dim, at: Dim) -> Dim | None:
    if isinstance(at, int):
        if at >= TO_THE_END:
            return whole
        return smaller(at, whole) if at >= 0 else larger(plain(whole + at), 0)
    return at if is_natural(at) else larger(plain(whole + at), 0) if is_natural(plain(0 - at)) else None


def sliced(x: Expr, axis: int, found: tuple[Dim, Dim], step: int = 1) -> Expr:
    """The elements that `cut` found of a tensor's dimension: the tensor itself where these are all."""
    begin, count = found
    whole = info_of(x).dims[axis]
    if is_same(begin, 0) and is_same(count, whole) and step == 1:
        return x
    if isinstance(whole, int) and isinstance(begin, int) and isinstance(count, int):
        last = begin + (count - 1) * step
        end = last + 1 if step > 0 else last - 1 if last else -whole - 1
        return op.strided_slice(x, axes=(axis,), begin=(begin,), end=(end,), strides=(step,))
    return op.sized_slice(x, ShapeExpr((begin, count)), axis=axis, step=step)


def with_ends(x: Expr, axis: int, before: int, after: int, mode: str, emit: Callable[[Expr], Expr]) -> Expr:
    """A tensor with elements of its own around one of its dimensions, of open size: a call's must have so many.

    mode  "edge": the first and the last one again; "reflect": mirrored at these; "wrap": from the other side
    """
    dims = info_of(x).dims
    size = dims[axis]

    def part(begin: Dim, count: int, step: int) -> Expr:
        taken = emit(op.sized_slice(x, ShapeExpr((plain(begin), count if step else 1)), axis=axis, step=step or 1))
        wide = ShapeExpr(tuple(count if a == axis else d for a, d in enumerate(dims)))
        return taken if step else emit(op.broadcast_to(taken, wide))

    front, back = {  # the first one, and the steps from one to the next
        "edge": ((0, 0), (size - 1, 0)),
        "reflect": ((before, -1), (size - 2, -1)),
        "wrap": ((size - before, 1), (0, 1)),
    }[mode]
    first, last = ([part(at, n, step)] if n else [] for (at, step), n in ((front, before), (back, after)))
    return emit(op.concat([*first, x, *last], axis=axis))


def tiled(x: Expr, counts: Sequence[Dim], emit: Callable[[Expr], Expr]) -> Expr:
    """A tensor repeated along each of its dimensions, how often is known or not."""
    dims = info_of(x).dims
    if all(isinstance(n, int) and (n == 1 or isinstance(d, int)) for n, d in zip(counts, dims, strict=True)):
        return op.tile(x, repeats=counts)
    apart = [d for size in dims for d in (1, size)]
    repeated = [d for pair in zip(counts, dims, strict=True) for d in pair]
    wide = emit(op.broadcast_to(emit(op.reshape(x, ShapeExpr(tuple(apart)))), ShapeExpr(tuple(repeated))))
    return op.reshape(wide, ShapeExpr(tuple(plain(n * d) for n, d in zip(counts, dims, strict=True))))
