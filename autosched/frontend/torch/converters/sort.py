"""Sorting and the k best."""

from __future__ import annotations

from autosched.frontend.size_arithmetic import plain, product_of, sliced
from autosched.frontend.torch.converters.create import arange
from autosched.frontend.torch.emitter import Emitter, constant, info_of, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, TupleGetItem
from autosched.tir.dtypes import is_float


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


@converter("kthvalue")
def kthvalue(t: Emitter, input: Expr, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """(value, position) of the k-th smallest along an axis; NaN counts as the largest."""
    if not t.shape(input):
        return (input, constant(0, "int64"))
    axis = positive(dim, len(t.shape(input)))
    return _picked(t, input, axis, t(sliced(_order(t, input, axis), axis, (k - 1, 1))), keepdim)


@converter("median")
def median(t: Emitter, input: Expr, dim: int | None = None, keepdim: bool = False) -> tuple[Expr, Expr] | Expr:
    """The lower one of two in the middle, with its position where an axis is given; NaN where one element is NaN."""
    x, axis = _lined_up(t, input, dim)
    size = t.shape(x)[axis]
    order = _order(t, x, axis)
    middle, last = (t(sliced(order, axis, (plain(k), 1))) for k in ((size - 1) // 2, size - 1))
    if is_float(info_of(x).dtype):
        has_nan = t(op.isnan(t(op.gather_elements(x, last, axis=axis))))
        middle = t(op.where(has_nan, last, middle))
    found = _picked(t, x, axis, middle, keepdim)
    return found[0] if dim is None else found


@converter("nanmedian")
def nanmedian(t: Emitter, input: Expr, dim: int | None = None, keepdim: bool = False) -> tuple[Expr, Expr] | Expr:
    """As `median`, of the elements that are not NaN; NaN where all are."""
    if not is_float(info_of(input).dtype):
        return median(t, input, dim, keepdim)
    x, axis = _lined_up(t, input, dim)
    numbers = t(op.astype(t(op.logical_not(t(op.isnan(x)))), dtype="int64"))
    last = t(op.subtract(t(op.sum(numbers, axis=axis, keepdims=True)), constant(1, "int64")))
    middle = t(op.maximum(t(op.right_shift(last, constant(1, "int64"))), constant(0, "int64")))
    found = _picked(t, x, axis, t(op.gather_elements(_order(t, x, axis), middle, axis=axis)), keepdim)
    return found[0] if dim is None else found


@converter("mode")
def mode(t: Emitter, input: Expr, dim: int = -1, keepdim: bool = False) -> tuple[Expr, Expr]:
    """(the least of the values that are there most often, its last position)."""
    if not t.shape(input):
        return (input, constant(0, "int64"))
    axis, shape = positive(dim, len(t.shape(input))), t.shape(input)
    size = shape[axis]
    x = _comparable(t, input)
    pairs = t(op.equal(t(op.expand_dims(x, axis=axis + 1)), t(op.expand_dims(x, axis=axis))))
    counts = t(op.sum(t.cast(pairs, "int32"), axis=axis + 1))
    is_most = t(op.equal(counts, t(op.max(counts, axis=axis, keepdims=True))))
    line = t(arange(t, size, dtype="int64"))
    places = t.reshape(line, [size if d == axis else 1 for d in range(len(shape))])
    rank = t(op.argsort(t(_order(t, x, axis)), axis=axis, descending=False, dtype="int64"))
    first = t(op.argmin(t(op.where(is_most, rank, t.as_dtype(size, "int64"))), axis=axis, keepdims=True))
    is_mode = t(op.equal(x, t(op.gather_elements(x, first, axis=axis))))
    last = t(op.max(t(op.where(is_mode, places, t(op.zeros_like(places)))), axis=axis, keepdims=True))
    return _picked(t, input, axis, t(op.maximum(last, first)), keepdim)


def _lined_up(t: Emitter, x: Expr, dim: int | None) -> tuple[Expr, int]:
    """The tensor and its axis; all elements in a row where none is given."""
    if dim is None or not t.shape(x):
        return t.reshape(x, (plain(product_of(t.shape(x))),)), 0
    return x, positive(dim, len(t.shape(x)))


def _order(t: Emitter, x: Expr, axis: int) -> Expr:
    return t(op.argsort(_comparable(t, x), axis=axis, descending=False, dtype="int64"))


def _picked(t: Emitter, x: Expr, axis: int, positions: Expr, keepdim: bool) -> tuple[Expr, Expr]:
    """(values, positions), which are one along the axis."""
    values = t(op.gather_elements(x, positions, axis=axis))
    return (values, positions) if keepdim else (op.squeeze(values, axis=axis), op.squeeze(positions, axis=axis))


MOST_COUNTED = 1024  # boundaries: above PyTorch's binary search is faster than comparing with all of them


@converter("searchsorted")
def searchsorted(
    t: Emitter, sorted_sequence: Expr, self: Expr | float, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Expr | None = None,
) -> Expr:  # fmt: skip
    """How many boundaries are less than each value (at most it, from the right); all for NaN."""
    bounds, dtype = sorted_sequence, info_of(sorted_sequence).dtype
    if sorter is not None:
        bounds = t(op.gather_elements(bounds, t.cast(sorter, "int64"), axis=len(t.shape(bounds)) - 1))
    size = t.shape(bounds)[-1]
    if not isinstance(size, int) or size > MOST_COUNTED:
        raise t.needs_library(f"a search among {size} boundaries")
    values = t.as_dtype(self, dtype)
    shape, lines = t.shape(values), t.shape(bounds)
    one_line = len(lines) == 1
    each = t.reshape(values, (*shape, 1))
    line = bounds if one_line else t.reshape(bounds, (*lines[:-1], 1, size))
    is_right = right or side == "right"
    is_behind = t((op.greater if is_right else op.greater_equal)(line, each))
    before = t.cast(t(op.logical_not(is_behind)), "int32")
    return t.cast(t(op.sum(before, axis=-1, keepdims=False)), "int32" if out_int32 else "int64")


@converter("bucketize")
def bucketize(
    t: Emitter, self: Expr | float, boundaries: Expr, *, out_int32: bool = False, right: bool = False
) -> Expr:
    """As `searchsorted`, with one line of boundaries."""
    return searchsorted(t, boundaries, self, out_int32=out_int32, right=right)
