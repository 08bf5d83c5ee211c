"""Einstein sums, as transposes, products and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.frontend.onnx.node import Node, constant, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import common_size, product_of, with_sizes
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.struct_info import Dim


@dataclass(frozen=True)
class _Operand:
    """A tensor and the letter of each of its axes."""

    value: Expr
    letters: str


@converter("Einsum")
def einsum(node: Node) -> Expr:
    """Operands are multiplied from left to right; a letter is summed over once nothing behind needs it."""
    terms, result = _parse(node, [node.info(i).ndim for i in range(len(node.inputs))])
    single = [_diagonal(node, _Operand(node.input(i), term)) for i, term in enumerate(terms)]
    operands, terms = [info_of(x.value) for x in single], [x.letters for x in single]
    sizes: dict[str, Dim] = {}
    for term, info in zip(terms, operands, strict=True):
        for letter, size in zip(term, info.dims, strict=True):
            common = common_size(sizes.setdefault(letter, size), size)
            if common is None:
                raise node.fail(f"'{letter}' is {sizes[letter]} in one operand and {size} in another")
            sizes[letter] = common
    parts = [_Operand(with_sizes(x.value, [sizes[c] for c in x.letters], node.emit), x.letters) for x in single]
    whole = parts[0]
    for n, part in enumerate(parts[1:], 1):
        later = set(result).union(*(p.letters for p in parts[n + 1 :]))
        whole = _product(node, whole, part, later, sizes)
    whole = _summed(node, whole, set(result))
    return _ordered(node, whole, result)


def _parse(node: Node, ranks: Sequence[int]) -> tuple[list[str], str]:
    """(letters of each operand, letters of the result), dots written out as letters that are free."""
    text = node.attr("equation").replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise node.fail(f"'{text}' has {len(terms)} terms for {len(ranks)} operands")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    most = max((rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks) if "..." in t), default=0)
    dots = "".join(free[:most])
    written = []
    for term, rank in zip(terms, ranks, strict=True):
        count = rank - len(term.replace("...", ""))
        written.append(term.replace("...", dots[most - count :] if count else ""))
        if len(written[-1]) != rank:
            raise node.fail(f"'{term}' names {len(written[-1])} axes of a tensor with {rank}")
    if not arrow:
        every = "".join(written)
        result = dots + "".join(sorted(c for c in set(every) if every.count(c) == 1 and c not in dots))
    result = result.replace("...", dots)
    if len(set(result)) != len(result):
        raise node.fail(f"'{text}' has a letter of the result twice")
    return written, result


def _diagonal(node: Node, x: _Operand) -> _Operand:
    """The operand where axes of one letter have one position: each letter once."""
    twice = next((c for c in x.letters if x.letters.count(c) > 1), None)
    if twice is None:
        return x
    first, second = x.letters.index(twice), x.letters.rindex(twice)
    dims = info_of(x.value).dims
    size = common_size(dims[first], dims[second])
    if size is None or (dims[first] == 1) != (dims[second] == 1):
        raise node.fail(f"'{twice}' is {dims[first]} and {dims[second]} in one operand")
    value = with_sizes(x.value, [size if a in (first, second) else d for a, d in enumerate(dims)], node.emit)
    places = [node.counted(size, axis, len(dims)) for axis in (first, second)]
    zero = constant(0, info_of(value).dtype)
    kept = node.emit(op.where(node.emit(op.equal(*places)), value, zero))
    rest = x.letters[:second] + x.letters[second + 1 :]
    return _diagonal(node, _Operand(node.emit(op.sum(kept, axis=(second,))), rest))


def _product(node: Node, a: _Operand, b: _Operand, later: set[str], sizes: Mapping[str, Dim]) -> _Operand:
    """Both multiplied; letters of both that nobody needs later are summed over, by a matrix product."""
    a, b = (_summed(node, x, later | set(y.letters)) for x, y in ((a, b), (b, a)))
    both = [c for c in a.letters if c in b.letters]
    batch, summed = [c for c in both if c in later], [c for c in both if c not in later]
    rows = [c for c in a.letters if c not in b.letters]
    columns = [c for c in b.letters if c not in a.letters]

    def shape(letters: Sequence[str]) -> Dim:
        return product_of([sizes[c] for c in letters])

    left = _matrix(node, a, [*batch, *rows, *summed], sizes, [shape(batch), shape(rows), shape(summed)])
    right = _matrix(node, b, [*batch, *summed, *columns], sizes, [shape(batch), shape(summed), shape(columns)])
    product = node.emit(op.matmul(left, right))
    letters = [*batch, *rows, *columns]
    return _Operand(node.emit(op.reshape(product, ShapeExpr(tuple(sizes[c] for c in letters)))), "".join(letters))


def _matrix(node: Node, x: _Operand, order: Sequence[str], sizes: Mapping[str, Dim], shape: Sequence[Dim]) -> Expr:
    """The operand with its axes in an order, axes of one spread out, as a batch of matrices."""
    value = _ordered(node, x, "".join(order))
    wide = node.emit(op.broadcast_to(value, ShapeExpr(tuple(sizes[c] for c in order))))
    return node.emit(op.reshape(wide, ShapeExpr(tuple(shape))))


def _summed(node: Node, x: _Operand, kept: set[str]) -> _Operand:
    axes = tuple(i for i, c in enumerate(x.letters) if c not in kept)
    if not axes:
        return x
    return _Operand(node.emit(op.sum(x.value, axis=axes)), "".join(c for c in x.letters if c in kept))


def _ordered(node: Node, x: _Operand, letters: str) -> Expr:
    if x.letters == letters:
        return x.value
    return node.emit(op.permute_dims(x.value, axes=[x.letters.index(c) for c in letters]))
