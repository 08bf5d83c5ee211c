"""Matrix products."""

from __future__ import annotations

import math
from typing import Any

from autosched.errors import InvalidValueError
from autosched.frontend.size_arithmetic import factors, is_same
from autosched.frontend.torch.converters.create import arange
from autosched.frontend.torch.converters.index import diagonal
from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


def product(t: Emitter, a: Expr, b: Expr) -> Expr:
    """Bind a matrix product; its result has the operands' dtype, said as TVM's importers say it."""
    a, b = factors(a, b, t)
    return t(op.matmul(a, b, out_dtype="float32" if info_of(a).dtype == "float32" else None))


@converter("linear")
def linear(t: Emitter, input: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    result = product(t, input, t(op.permute_dims(weight)))
    return result if bias is None else op.add(result, bias)


@converter("matmul", "mm", "bmm", "mv", "dot")
def matmul(t: Emitter, input: Expr, other: Expr) -> Expr:
    return product(t, input, other)


@converter("addmm", "baddbmm")
def addmm(t: Emitter, input: Expr, mat1: Expr, mat2: Expr, *, beta: float = 1, alpha: float = 1) -> Expr:
    dtype = info_of(mat1).dtype
    if dtype.startswith(("int", "uint")):
        alpha, beta = int(alpha), int(beta)
    result = product(t, mat1, mat2)
    if alpha != 1:
        result = t(op.multiply(result, constant(alpha, dtype)))
    if beta == 0:  # what is not added may be NaN
        return result
    if beta != 1:
        input = t(op.multiply(input, constant(beta, dtype)))
    return op.add(result, input)


@converter("addbmm")
def addbmm(t: Emitter, input: Expr, batch1: Expr, batch2: Expr, *, beta: float = 1, alpha: float = 1) -> Expr:
    """`addmm` with the sum of the products of a batch: one product over both."""
    (n, rows, inner), columns = t.shape(batch1), t.shape(batch2)[-1]
    left = t.reshape(t(op.permute_dims(batch1, axes=[1, 0, 2])), (rows, n * inner))
    return addmm(t, input, left, t.reshape(batch2, (n * inner, columns)), beta=beta, alpha=alpha)


@converter("bilinear")
def bilinear(t: Emitter, input1: Expr, input2: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    """bias[o] + the sum over i and j of input1[…, i] * weight[o, i, j] * input2[…, j]."""
    out, first, second = t.shape(weight)
    matrix = t.reshape(t(op.permute_dims(weight, axes=[1, 0, 2])), (first, out * second))
    lead = t.shape(input1)[:-1]
    half = t.reshape(product(t, input1, matrix), (*lead, out, second))
    whole = t(op.multiply(half, t(op.expand_dims(input2, axis=len(lead)))))
    result = t(op.sum(whole, axis=-1))
    return result if bias is None else op.add(result, bias)


@converter("transformers::grouped_mm_fallback", "_grouped_mm")
def grouped_mm(
    t: Emitter, input: Expr, weight: Expr, offs: Expr | None = None, bias: Expr | None = None, out_dtype: object = None
) -> Expr:
    """Experts: rows up to the first of `offs` by the first matrix, up to the second by the second, …; 0 behind all.

    PyTorch's operator, and that of Transformers for types that it does not take.
    """
    if offs is None or len(t.shape(input)) != 2 or len(t.shape(weight)) != 3 or bias is not None:
        raise InvalidValueError("a grouped product other than of rows [S, K] by matrices [E, K, N]")
    rows, dtype = t.shape(input)[0], info_of(input).dtype
    place = t.reshape(t(arange(t, rows, dtype="int32")), (rows, 1))
    is_behind = t(op.greater_equal(place, t(op.expand_dims(t.cast(offs, "int32"), axis=0))))
    group = t(op.sum(t.cast(is_behind, "int32"), axis=[1]))
    result = t(op.grouped_matmul(input, weight, group))
    is_row = t(op.expand_dims(t(op.less(group, constant(t.shape(weight)[0], "int32"))), axis=1))
    result = t(op.where(is_row, result, constant(0.0, dtype)))
    return result if out_dtype is None else t.cast(result, t.dtype(out_dtype))


@converter("t")
def transpose2d(t: Emitter, input: Expr) -> Expr:
    return op.permute_dims(input) if len(t.shape(input)) > 1 else input


@converter("einsum")
def einsum(t: Emitter, equation: str, *operands: Any, **_: object) -> Expr:
    """Operands are joined from left to right, each pair as a (batched) matrix product."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    values = list(operands)
    terms, out = _letters(t, equation.replace(" ", ""), values)
    for i, term in enumerate(terms):
        values[i], terms[i] = _of_one(t, values[i], term, set(out).union(*terms[:i], *terms[i + 1 :]))
    x, letters = values[0], terms[0]
    for i in range(1, len(values)):
        needed = set(out).union(*terms[i + 1 :])
        x, letters = _joined(t, x, letters, values[i], terms[i], needed)
    return _permuted(t, x, letters, list(out))


def _letters(t: Emitter, equation: str, values: list[Expr]) -> tuple[list[str], str]:
    """(a letter for each dimension of each operand, those of the result); an ellipsis gets letters of its own."""
    left, arrow, out = equation.partition("->")
    terms, ranks = left.split(","), [len(t.shape(v)) for v in values]
    if len(terms) != len(values):
        raise t.fail(f"einsum '{equation}' of {len(values)} operands")
    free = [c for c in map(chr, range(ord("A"), ord("z") + 1)) if c.isalpha() and c not in equation]
    width = max((r - len(s) + 3 for s, r in zip(terms, ranks, strict=True) if "..." in s), default=0)
    dots = free[:width]
    full = []
    for term, rank in zip(terms, ranks, strict=True):
        own = rank - len(term) + 3
        full.append(term.replace("...", "".join(dots[width - own :])))
    if not arrow:
        used = "".join(full)
        out = "..." * ("..." in left) + "".join(sorted(c for c in set(used) - set(dots) if used.count(c) == 1))
    return full, out.replace("...", "".join(dots))


def _of_one(t: Emitter, x: Expr, letters: str, needed: set[str]) -> tuple[Expr, str]:
    """An operand with diagonals for letters that repeat, and sums over those that nobody else has."""
    for c in dict.fromkeys(letters):
        while letters.count(c) > 1:
            first, second = letters.index(c), letters.index(c, letters.index(c) + 1)
            x = t(diagonal(t, x, 0, first, second))
            letters = "".join(v for d, v in enumerate(letters) if d not in (first, second)) + c
    alone = tuple(d for d, c in enumerate(letters) if c not in needed)
    if alone:
        x = t(op.sum(x, axis=alone))
    return x, "".join(c for c in letters if c in needed)


def _joined(t: Emitter, x: Expr, a: str, y: Expr, b: str, needed: set[str]) -> tuple[Expr, str]:
    """The product of two operands, summed over the letters that are not needed any more."""
    batch = [c for c in a if c in b and c in needed]
    rows = [c for c in a if c not in b]
    columns = [c for c in b if c not in a]
    inner = [c for c in a if c in b and c not in needed]
    sizes = dict(zip(a, t.shape(x), strict=True))
    for c, n in zip(b, t.shape(y), strict=True):
        sizes[c] = n if is_same(sizes.get(c, 1), 1) else sizes[c]  # a dimension of 1 goes with any other
    x = _widened(t, x, [sizes[c] for c in a])
    y = _widened(t, y, [sizes[c] for c in b])
    lead = [sizes[c] for c in batch]
    n_rows, n_columns, n_inner = (math.prod(sizes[c] for c in group) for group in (rows, columns, inner))
    left = _arranged(t, x, a, [*batch, *rows, *inner], [*lead, n_rows, n_inner])
    right = _arranged(t, y, b, [*batch, *inner, *columns], [*lead, n_inner, n_columns])
    natural = [*batch, *rows, *columns]
    return t.reshape(product(t, left, right), [sizes[c] for c in natural]), "".join(natural)


def _widened(t: Emitter, x: Expr, shape: list[int]) -> Expr:
    return t.broadcast(x, shape)


def _permuted(t: Emitter, x: Expr, letters: str, order: list[str]) -> Expr:
    axes = [letters.index(c) for c in order]
    return x if axes == sorted(axes) else t(op.permute_dims(x, axes=axes))


def _arranged(t: Emitter, x: Expr, letters: str, order: list[str], shape: list[int]) -> Expr:
    return t.reshape(_permuted(t, x, letters, order), shape)
