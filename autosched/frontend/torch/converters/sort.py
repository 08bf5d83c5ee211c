"""Sorting and the k best."""

from __future__ import annotations

from autosched.frontend.torch.emitter import Emitter, constant, info_of, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, TupleGetItem


def _comparable(t: Emitter, x: Expr) -> Expr:
    return t.cast(x, "int8") if info_of(x).dtype == "bool" else x


@converter("sort")
def sort(t: Emitter, input: Expr, dim: int = -1, descending: bool = False, stable: object = None) -> tuple[Expr, Expr]:
    """Values and positions; equals keep their order."""
    if not t.shape(input):
        return (input, constant(0, "int64"))
    axis = positive(dim, len(t.shape(input)))
    order = t(op.argsort(_comparable(t, input), axis=axis, descending=bool(descending), dtype="int64"))
    return (op.gather_elements(input, order, axis=axis), order)


@converter("argsort")
def argsort(t: Emitter, input: Expr, dim: int = -1, descending: bool = False, stable: object = None) -> Expr:
    return sort(t, input, dim, descending)[1]


@converter("topk")
def topk(
    t: Emitter, input: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Expr, Expr]:
    if not t.shape(input):
        return (input, constant(0, "int64"))
    axis, dtype = positive(dim, len(t.shape(input))), info_of(input).dtype
    both = t(op.topk(_comparable(t, input), k=k, axis=axis, largest=largest, dtype="int64"))
    return (t.cast(t(TupleGetItem(both, 0)), dtype), TupleGetItem(both, 1))
