"""Slices, selections and look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.frontend.torch.emitter import Emitter, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr


@converter("slice", "slice_copy")
def slice_(t: Emitter, input: Expr, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    first, last, _ = slice(start, end, step).indices(shape[axis])
    if (first, last, step) == (0, shape[axis], 1):
        return input
    return op.strided_slice(input, axes=[axis], begin=[first], end=[last], strides=[step])


@converter("select", "select_copy")
def select(t: Emitter, input: Expr, dim: int, index: int) -> Any:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    at = positive(index, shape[axis])
    piece = t(op.strided_slice(input, axes=[axis], begin=[at], end=[at + 1], strides=[1]))
    return t.reshape(piece, (*shape[:axis], *shape[axis + 1 :]))


@converter("narrow")
def narrow(t: Emitter, input: Expr, dim: int, start: int, length: int) -> Any:
    return slice_(t, input, dim, start, start + length)


@converter("getitem")
def getitem(t: Emitter, input: Expr, index: Any) -> Any:
    """Python's subscripts: numbers, slices, None and ... ."""
    items = list(index) if isinstance(index, tuple | list) else [index]
    if any(isinstance(i, Expr) for i in items):
        if len(items) > 1:
            raise t.fail("subscripts that mix tensors and numbers are not supported")
        return op.take(input, items[0], axis=0)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(t.shape(input)) - sum(i is not None and i is not Ellipsis for i in items)
        items[at : at + 1] = [slice(None)] * missing
    x: Any = input
    axis = 0
    for item in items:
        if item is None:
            x = t(op.expand_dims(x, axis=axis))
            axis += 1
        elif isinstance(item, int):
            x = select(t, x, axis, item)
        elif isinstance(item, slice):
            piece = slice_(t, x, axis, item.start, item.stop, item.step or 1)
            x = piece if piece is x else t(piece)
            axis += 1
        else:
            raise t.fail(f"a subscript of type {type(item).__name__} is not supported")
    return x


@converter("embedding")
def embedding(t: Emitter, weight: Expr, indices: Expr, *_: Any, **__: Any) -> Any:
    return op.take(weight, indices, axis=0, mode="positive")


@converter("take_rows")
def take_rows(t: Emitter, input: Expr, weight: Expr) -> Any:
    """A module of embeddings: the indices are its input."""
    return op.take(weight, input, axis=0, mode="positive")


@converter("index_select")
def index_select(t: Emitter, input: Expr, dim: int, index: Expr) -> Any:
    return op.take(input, index, axis=positive(dim, len(t.shape(input))), mode="positive")


@converter("index")
def index_tensor(t: Emitter, input: Expr, indices: Sequence[Expr | None]) -> Any:
    """One index tensor, in any dimension."""
    used = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if len(used) != 1:
        raise t.fail("an index with several tensors is not supported")
    return op.take(input, used[0][1], axis=used[0][0])


@converter("gather")
def gather(t: Emitter, input: Expr, dim: int, index: Expr, sparse_grad: bool = False) -> Any:
    return op.gather_elements(input, index, axis=positive(dim, len(t.shape(input))), mode="positive")
