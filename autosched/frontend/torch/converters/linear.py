"""Matrix products."""

from __future__ import annotations

from typing import Any

from autosched.frontend.torch.emitter import Emitter, constant, info_of
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


def product(t: Emitter, a: Any, b: Any) -> Any:
    """Bind a matrix product; its result has the operands' dtype, said as TVM's importers say it."""
    return t(op.matmul(a, b, out_dtype="float32" if info_of(a).dtype == "float32" else None))


@converter("linear")
def linear(t: Emitter, input: Expr, weight: Expr, bias: Expr | None = None) -> Any:
    result = product(t, input, t(op.permute_dims(weight)))
    return result if bias is None else op.add(result, bias)


@converter("matmul", "mm", "bmm")
def matmul(t: Emitter, input: Expr, other: Expr) -> Any:
    return product(t, input, other)


@converter("addmm", "baddbmm")
def addmm(t: Emitter, input: Expr, mat1: Expr, mat2: Expr, *, beta: Any = 1, alpha: Any = 1) -> Any:
    dtype = info_of(mat1).dtype
    result = product(t, mat1, mat2)
    if alpha != 1:
        result = t(op.multiply(result, constant(alpha, dtype)))
    if beta != 1:
        input = t(op.multiply(input, constant(beta, dtype)))
    return op.add(result, input)


@converter("t")
def transpose2d(t: Emitter, input: Expr) -> Any:
    return op.permute_dims(input)


@converter("einsum")
def einsum(t: Emitter, equation: str, *operands: Any) -> Any:
    """Two operands whose letters are those of a (batched) matrix product."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    left, _, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != 2 or not out or len(operands) != 2 or any(len(set(s)) != len(s) for s in (*terms, out)):
        raise t.fail(f"einsum '{equation}' is not supported", hint="two operands without repeated letters are")
    a, b = terms
    batch = [c for c in out if c in a and c in b]
    rows = [c for c in a if c not in b]
    columns = [c for c in b if c not in a]
    inner = [c for c in a if c in b and c not in out]
    if set(out) != {*batch, *rows, *columns}:
        raise t.fail(f"einsum '{equation}' is not supported", hint="letters of one operand alone must be in the result")
    sizes = dict(zip(a + b, (*t.shape(operands[0]), *t.shape(operands[1])), strict=True))

    def extents(*groups: list[str]) -> list[int]:
        result = []
        for group in groups:
            n = 1
            for c in group:
                n *= sizes[c]
            result.append(n)
        return result

    lead = [sizes[c] for c in batch]
    x = _arranged(t, operands[0], a, [*batch, *rows, *inner], [*lead, *extents(rows, inner)])
    y = _arranged(t, operands[1], b, [*batch, *inner, *columns], [*lead, *extents(inner, columns)])
    natural = [*batch, *rows, *columns]
    result = t.reshape(product(t, x, y), [sizes[c] for c in natural])
    return _permuted(t, result, "".join(natural), list(out))


def _permuted(t: Emitter, x: Any, letters: str, order: list[str]) -> Any:
    axes = [letters.index(c) for c in order]
    return x if axes == sorted(axes) else t(op.permute_dims(x, axes=axes))


def _arranged(t: Emitter, x: Any, letters: str, order: list[str], shape: list[int]) -> Any:
    return t.reshape(_permuted(t, x, letters, order), shape)
