"""Sums of products, written as Einstein's convention has them."""

from __future__ import annotations

import string
from collections.abc import Sequence

from autosched import te
from autosched.errors import InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.size_expr import same_extent
from autosched.topi.shapes import Dim, axis_names, dims, open_shape


def parse(subscripts: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Each operand's letters, and the result's; dimensions of "..." get letters of their own.

    Without "->" the result has those of "...", then the letters that occur once, in alphabetical order.
    Raises ValueError for a text that is no such formula, or does not fit the operands.
    """
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise InvalidValueError(f"einsum: '{subscripts}' has {len(terms)} terms for {len(ranks)} operands")
    free = [c for c in reversed(string.ascii_letters) if c not in subscripts]
    hidden = [rank - len(term.replace("...", "")) if "..." in term else 0 for term, rank in zip(terms, ranks)]
    most = max(hidden, default=0)
    dots = "".join(free[:most])
    operands = [t.replace("...", dots[most - n :]) if n >= 0 else t for t, n in zip(terms, hidden, strict=True)]
    for term, letters, rank in zip(terms, operands, ranks, strict=True):
        if len(letters) != rank or not all(c in string.ascii_letters for c in letters):
            raise InvalidValueError(f"einsum: '{term}' for an operand of {rank} dimensions")
    if not arrow:
        seen = "".join(terms).replace(".", "")
        result = "..." + "".join(c for c in sorted(set(seen)) if seen.count(c) == 1)
    result = result.replace("...", dots)
    if len(set(result)) != len(result) or not set(result) <= set("".join(operands)):
        raise InvalidValueError(f"einsum: result '{result}' of '{subscripts}'")
    return operands, result


def letter_sizes(operands: Sequence[str], shapes: Sequence[Sequence[Dim]]) -> dict[str, Dim]:
    """The size that each letter stands for; a dimension of 1 is as large as the others. Raises ShapeError."""
    sizes: dict[str, Dim] = {}
    for letters, shape in zip(operands, shapes, strict=True):
        for letter, size in zip(letters, shape, strict=True):
            known = sizes.setdefault(letter, size)
            if const_int(known) == 1:
                sizes[letter] = size
            elif const_int(size) != 1 and not same_extent(known, size):
                raise ShapeError(f"einsum: dimension '{letter}' is {known} and {size}")
    return sizes


def einsum(subscripts: str, *operand: Tensor) -> Tensor:
    """The sum over all letters that the result lacks of the operands' products: "ij,jk->ik" is a matrix product."""
    operands, result = parse(subscripts, [t.ndim for t in operand])
    shapes = [open_shape(t) for t in operand]
    sizes = letter_sizes(operands, shapes)
    summed = [c for c in sizes if c not in result]
    axes = {c: te.reduce_axis((0, dims((sizes[c],))[0]), c) for c in summed}

    def element(*i: PrimExpr) -> PrimExpr:
        at = {**dict(zip(result, i, strict=True)), **{c: axis.var for c, axis in axes.items()}}
        value: PrimExpr | None = None
        for t, letters, shape in zip(operand, operands, shapes, strict=True):
            one = (0 if const_int(s) == 1 else at[c] for c, s in zip(letters, shape, strict=True))
            value = t(*one) if value is None else value * t(*one)
        assert value is not None, "a formula has a term"
        return te.sum(value, axis=list(axes.values())) if axes else value

    names = axis_names(len(result))
    return te.compute(dims([sizes[c] for c in result]), element, name="T_einsum", varargs_names=names)
