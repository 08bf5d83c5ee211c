"""Values written to chosen places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import TO_THE_END, are_same, sliced
from autosched.frontend.torch.converters.index import chosen, integer_positions, stacked_positions
from autosched.frontend.torch.emitter import Emitter, constant, info_of, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.tir.dtypes import INT_RANGES, is_float

HALVES = ("float16", "bfloat16")
REDUCTIONS = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max", "amin": "min"}


def _placed(t: Emitter, data: Expr, dim: int, index: Expr, values: Expr, reduction: str) -> Expr:
    """scatter_elements; of booleans by their numbers, of 0-d tensors as vectors of one."""
    shape, dtype = t.shape(data), info_of(data).dtype
    if not shape:
        data = t.reshape(data, (1,))
    if len(t.shape(index)) != len(t.shape(data)):
        index = t.reshape(index, (1,))
    wanted = t.shape(index)
    if len(t.shape(values)) != len(wanted):
        values = t.reshape(values, wanted)
    if not are_same(t.shape(values), wanted):
        for axis, n in enumerate(wanted):
            values = t(sliced(values, axis, (0, n)))
    if dtype == "bool":
        data, values = t.cast(data, "int8"), t.cast(values, "int8")
    result = t(
        op.scatter_elements(
            data, t.cast(index, "int64"), values, axis=positive(dim, len(wanted)), reduction=reduction, mode="positive"
        )
    )
    return t.reshape(t.cast(result, dtype), shape)


@converter("scatter")
def scatter(
    t: Emitter, input: Expr, dim: int, index: Expr, src: object, reduce: str | None = None, **kwargs: object
) -> Expr:
    dtype = info_of(input).dtype
    value = kwargs.get("value", src)
    if not isinstance(value, Expr) or not t.shape(value) and t.shape(index):
        scalar = t.as_dtype(value, dtype)
        shape = t.shape(index) or (1,)
        if isinstance(scalar, Constant) and all(isinstance(n, int) for n in shape):
            value = constant(np.full(shape, scalar.data), dtype)
        else:
            value = t(op.broadcast_to(scalar, shape))
    return _placed(t, input, dim, index, value, REDUCTIONS[reduce] if reduce else "update")


@converter("scatter_add")
def scatter_add(t: Emitter, input: Expr, dim: int, index: Expr, src: Expr) -> Expr:
    return _placed(t, input, dim, index, src, "add")


@converter("scatter_reduce")
def scatter_reduce(
    t: Emitter, input: Expr, dim: int, index: Expr, src: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    dtype = info_of(input).dtype
    kind = "add" if reduce == "mean" else REDUCTIONS[reduce]
    counts = None
    if reduce == "mean" or not include_self:
        zero, one = constant(0, "int64"), constant(1, "int64")
        counts = _placed(t, t.broadcast(zero, t.shape(input)), dim, index, t.broadcast(one, t.shape(index)), "add")
    base = input
    if not include_self:
        hit = t(op.greater(counts, constant(0, "int64")))
        base = t(op.where(hit, constant(_neutral(kind, dtype), dtype), input))
    result = _placed(t, base, dim, index, src, kind)
    if is_float(dtype) and kind in ("max", "min"):  # the kernels pass over a NaN
        none = t.broadcast(constant(0, "int32"), t.shape(input))
        lost = _placed(t, none, dim, index, t.cast(t(op.isnan(src)), "int32"), "max")
        return op.where(t(op.greater(lost, constant(0, "int32"))), constant(np.nan, dtype), result)
    if reduce != "mean":
        return result
    total = t(op.add(counts, constant(1, "int64"))) if include_self else counts
    divisor = t.cast(t(op.maximum(total, constant(1, "int64"))), dtype)
    return op.divide(result, divisor) if is_float(dtype) else op.floor_divide(result, divisor)


def _neutral(kind: str, dtype: str) -> float:
    """What leaves any other value alone."""
    if kind in ("add", "mul"):
        return int(kind == "mul")
    if is_float(dtype):
        return math.inf if kind == "min" else -math.inf
    low, high = INT_RANGES[dtype]
    return high if kind == "min" else low


@converter("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    t: Emitter,
    input: Expr,
    indices: Sequence[Expr | None],
    values: Expr,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Expr:
    return _put(t, input, indices, values, accumulate)


def _put(
    t: Emitter, input: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False, mode: str = "raise"
) -> Expr:
    """The values at the places that `index` with the same indices would give; `mode` is of the positions."""
    dtype, shape = info_of(input).dtype, t.shape(input)
    values = t.cast(values, dtype)
    masks = [i for i in indices if i is not None and info_of(i).dtype == "bool" and not isinstance(i, Constant)]
    is_of_data = t.data is not None and not info_of(values).is_static  # values of which there may be none
    if masks and not is_of_data:
        if len(indices) != 1:
            raise t.fail("values put where a mask of the model holds, with other indices")
        mask_shape = t.shape(masks[0])
        mask = t.reshape(masks[0], (*mask_shape, *(1,) * (len(shape) - len(mask_shape))))
        if math.prod(t.shape(values)) != 1:
            chosen_values = t(_in_turn(t, masks[0], values, shape[len(mask_shape) :]))
            return t(op.where(mask, t(op.add(input, chosen_values)) if accumulate else chosen_values, input))
        number = t.reshape(values, ())
        return op.where(mask, t(op.add(input, number)) if accumulate else number, input)
    found = integer_positions(t, indices)
    axes = [axis for axis, i in enumerate(found) if i is not None]
    used = [i for i in found if i is not None]
    rest = [a for a in range(len(shape)) if a not in axes]
    width, positions = stacked_positions(t, used)
    lead = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    wanted = (*(shape[a] for a in rest[:lead]), *width, *(shape[a] for a in rest[lead:]))
    wide = t.broadcast(values, wanted)
    if lead:  # the indices' dimensions first
        n = len(width)
        wide = t(op.permute_dims(wide, axes=[*range(lead, lead + n), *range(lead), *range(lead + n, len(wanted))]))
    order = [*axes, *rest]
    plain = order == list(range(len(shape)))
    front = input if plain else t(op.permute_dims(input, axes=order))
    if dtype == "bool":
        front, wide = t.cast(front, "int8"), t.cast(wide, "int8")
    result = t(op.scatter_nd(front, positions, wide, reduction="add" if accumulate else "update", mode=mode))
    result = t.cast(result, dtype)
    return result if plain else op.permute_dims(result, axes=[order.index(a) for a in range(len(shape))])


def _in_turn(t: Emitter, mask: Expr, values: Expr, rest: Sequence[int]) -> Expr:
    """[*mask's shape, *rest]: the next of `values` [n, *rest] at each element of a mask that holds; anything elsewhere.

    Fewer values than elements that hold are an error when the model runs; one value, or none less, stands for all.
    """
    shape, whole = t.shape(mask), t.shape(values)
    if len(whole) <= len(rest) or whole[-len(rest) - 1] == 1:  # the same for all elements
        return op.broadcast_to(t.reshape(values, whole[-len(rest) :] if rest else ()), (*shape, *rest))
    values = values if whole[1:] == tuple(rest) else t(op.broadcast_to(values, (whole[0], *rest)))
    flat = t.reshape(t.cast(mask, "int64"), (math.prod(shape),))
    place = t(op.maximum(t(op.subtract(t(op.cumsum(flat, axis=0)), constant(1, "int64"))), constant(0, "int64")))
    held = t(op.multiply(place, flat))  # where the mask does not hold any position will do
    return op.reshape(t(op.take(values, held, axis=0)), ShapeExpr((*shape, *rest)))


@converter("masked_scatter")
def masked_scatter(t: Emitter, input: Expr, mask: Expr, source: Expr) -> Expr:
    """The elements of `source` in order, where a mask holds."""
    ndim = max(len(t.shape(input)), len(t.shape(mask)))
    padded = [(1,) * (ndim - len(s)) + s for s in (t.shape(input), t.shape(mask))]
    shape = tuple(max(a, b) for a, b in zip(*padded, strict=True))
    data, whole = (x if t.shape(x) == shape else t(op.broadcast_to(x, shape)) for x in (input, mask))
    values = t.cast(t.reshape(source, (math.prod(t.shape(source)),)), info_of(input).dtype)
    if math.prod(t.shape(source)) == 1:
        return op.where(whole, t.reshape(values, ()), data)
    return op.where(whole, t(_in_turn(t, whole, values, ())), data)


@converter("index_copy")
def index_copy(t: Emitter, input: Expr, dim: int, index: Expr, source: Expr) -> Expr:
    return _put_along(t, input, dim, index, source, mode="positive")


def _put_along(t: Emitter, input: Expr, dim: int, index: Expr, values: Expr, **options: Any) -> Expr:
    """`_put` at positions of one dimension; 0-d tensors are vectors of one."""
    shape = t.shape(input)
    data, at = t.reshape(input, shape or (1,)), t.reshape(index, t.shape(index) or (1,))
    axis = positive(dim, len(shape))
    source = values if shape or not t.shape(values) else t.reshape(values, (1,))
    return t.reshape(t(_put(t, data, [*[None] * axis, at], source, **options)), shape)


@converter("index_add")
def index_add(t: Emitter, input: Expr, dim: int, index: Expr, source: Expr, *, alpha: object = 1) -> Expr:
    scaled = source if alpha == 1 else t(op.multiply(source, constant(alpha, info_of(input).dtype)))
    return _put_along(t, input, dim, index, scaled, accumulate=True, mode="positive")


@converter("index_reduce")
def index_reduce(
    t: Emitter, input: Expr, dim: int, index: Expr, source: Expr, reduce: str, *, include_self: bool = True
) -> Expr:
    """`scatter_reduce` of whole slices."""
    shape = t.shape(source)
    axis = positive(dim, len(shape))
    at = t.reshape(index, [-1 if d == axis else 1 for d in range(len(shape))]) if shape else index
    return scatter_reduce(t, input, dim, t.broadcast(at, shape), source, reduce, include_self=include_self)


@converter("index_fill")
def index_fill(t: Emitter, input: Expr, dim: int, index: Expr, value: object) -> Expr:
    return _put_along(t, input, dim, index, t.as_dtype(value, info_of(input).dtype))


@converter("max_unpool2d", "max_unpool3d")
def max_unpool(t: Emitter, input: Expr, indices: Expr, output_size: Sequence[int], *_: object, **__: object) -> Expr:
    """Each image's elements at their places in one of `output_size`, zeros elsewhere."""
    lead = t.shape(input)[: -len(output_size)]
    flat = (*lead, math.prod(t.shape(input)[len(lead) :]))
    whole = constant(np.zeros((*lead, math.prod(output_size))), info_of(input).dtype)
    placed = _placed(t, whole, -1, t.reshape(indices, flat), t.reshape(input, flat), "update")
    return op.reshape(t(placed), ShapeExpr((*lead, *output_size)))


@converter("slice_scatter")
def slice_scatter(
    t: Emitter, input: Expr, src: Expr, dim: int = 0, start: object = None, end: object = None, step: int = 1
) -> Expr:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    n = shape[axis]
    source = t.cast(src, info_of(input).dtype)
    if not isinstance(n, int):
        reaches_end = end is None or (isinstance(end, int) and end >= TO_THE_END)
        if start in (None, 0) and step == 1 and reaches_end:
            return t.broadcast(source, shape)
        raise t.fail(f"elements {start} to {end} written over along a dimension {n}")
    at = np.arange(n)[slice(start, end, step)]
    if t.shape(source) != (*shape[:axis], len(at), *shape[axis + 1 :]):
        source = t(op.broadcast_to(source, (*shape[:axis], len(at), *shape[axis + 1 :])))
    if len(at) == n and step == 1:
        return source
    if step == 1 and len(at):
        parts = [source]
        if at[0]:
            parts.insert(0, t(op.strided_slice(input, axes=[axis], begin=[0], end=[int(at[0])])))
        if at[-1] + 1 < n:
            parts.append(t(op.strided_slice(input, axes=[axis], begin=[int(at[-1]) + 1], end=[n])))
        return op.concat(parts, axis=axis)
    origin = np.arange(n)
    origin[at] = n + np.arange(len(at))
    return chosen(t, t(op.concat([input, source], axis=axis)), axis, origin)


@converter("select_scatter")
def select_scatter(t: Emitter, input: Expr, src: Expr, dim: int, index: int) -> Expr:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    at = positive(index, shape[axis])
    piece = t.reshape(src, (*shape[:axis], 1, *shape[axis + 1 :]))
    return slice_scatter(t, input, piece, axis, at, at + 1)


@converter("diagonal_scatter")
def diagonal_scatter(t: Emitter, input: Expr, src: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    shape = t.shape(input)
    first, second = positive(dim1, len(shape)), positive(dim2, len(shape))
    rows = np.arange(max(0, -offset), min(shape[first], shape[second] - offset))
    rest = [a for a in range(len(shape)) if a not in (first, second)]
    front = t(op.permute_dims(input, axes=[first, second, *rest]))
    ndim = len(shape)
    moved = t(op.permute_dims(src, axes=[ndim - 2, *range(ndim - 2)])) if rest else src
    at = [constant(rows, "int64"), constant(rows + offset, "int64")]
    placed = t(_put(t, front, at, moved))
    order = [first, second, *rest]
    return op.permute_dims(placed, axes=[order.index(a) for a in range(ndim)])


@converter("fill")
def fill(t: Emitter, input: Expr, value: object) -> Expr:
    scalar = t.as_dtype(value, info_of(input).dtype)
    return scalar if not t.shape(input) else op.broadcast_to(scalar, t.shape(input))


BAGS = ("add", "mean", "max")  # what PyTorch's numbers of modes are


@converter("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    t: Emitter,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Expr | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Expr, None, None, None]:
    """Sums, means or maxima of rows by bag; what gradients need besides has no value."""
    shape, dtype, kind = t.shape(weight), info_of(weight).dtype, BAGS[mode]
    (n,), n_bags = t.shape(indices), t.shape(offsets)[0] - bool(include_last_offset)
    starts = t(op.strided_slice(offsets, axes=[0], begin=[0], end=[n_bags])) if include_last_offset else offsets
    one, none = constant(1, "int64"), constant(0, "int64")
    # the bag of an index is how many begin before it or there, less 1
    begun = _placed(t, t.broadcast(none, (n + 1,)), 0, t.cast(starts, "int64"), t.broadcast(one, (n_bags,)), "add")
    inside = t(op.strided_slice(begun, axes=[0], begin=[0], end=[n]))
    bag = t(op.subtract(t(op.cumsum(inside, axis=0)), one))
    rows = t.cast(t(op.take(weight, indices, axis=0, mode="positive")), "float32" if dtype in HALVES else dtype)
    own = info_of(rows).dtype
    if per_sample_weights is not None:
        rows = t(op.multiply(rows, t.reshape(t.cast(per_sample_weights, own), (n, 1))))
    counts = t.broadcast(one, (n,))
    neutral = constant(_neutral("add" if kind == "mean" else kind, own), own)
    if padding_idx is not None and padding_idx >= 0:
        counted = t(op.not_equal(t.cast(indices, "int64"), constant(padding_idx, "int64")))
        counts = t.cast(counted, "int64")
        rows = t(op.where(t.reshape(counted, (n, 1)), rows, neutral))
    places, zeros = t.reshape(bag, (n, 1)), t.broadcast(none, (n_bags,))
    sizes = t(op.scatter_nd(zeros, places, counts, reduction="add", mode="positive"))
    bags = t.broadcast(neutral, (n_bags, shape[1]))
    result = t(op.scatter_nd(bags, places, rows, reduction="max" if kind == "max" else "add", mode="positive"))
    per_bag = t.reshape(sizes, (n_bags, 1))
    if kind == "mean":
        result = t(op.divide(result, t.cast(t(op.maximum(per_bag, one)), own)))
    elif kind == "max":
        result = t(op.where(t(op.greater(per_bag, none)), result, constant(0, own)))
    return t.cast(result, dtype), None, None, None
