"""Slices, selections and look-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import TO_THE_END, cut, is_same, plain, product_of, sliced, smaller, tiled
from autosched.frontend.torch.converters.create import arange
from autosched.frontend.torch.emitter import Emitter, Ints, constant, info_of, positive
from autosched.frontend.torch.memory import memory_order
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, TupleGetItem
from autosched.relax.struct_info import Dim
from autosched.tir.expr import PrimExpr

UNKNOWN_SIZE = "the size of the result depends on what the model computes"
NUMBER = "a Python number that the model computes"


def chosen(t: Emitter, x: Expr, axis: int, positions: object) -> Expr:
    """The tensor's elements at positions known at import, whose shape replaces the axis."""
    return t(op.take(x, constant(positions, "int64"), axis=axis))


@converter("slice", "slice_copy")
def slice_(t: Emitter, input: Expr, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Expr:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    if not all(isinstance(n, int | None) for n in (shape[axis], start, end)):
        found = cut(shape[axis], 0 if start is None else start, TO_THE_END if end is None else end, step)
        if found is None:
            raise t.fail(f"a slice from {start} to {end} in steps of {step} of a dimension {shape[axis]}")
        return sliced(input, axis, found, step) if t.data is None else t.data.part(input, axis, found, step)
    first, last, _ = slice(start, end, step).indices(shape[axis])
    if (first, last, step) == (0, shape[axis], 1):
        return input
    return op.strided_slice(input, axes=[axis], begin=[first], end=[last], strides=[step])


@converter("select", "select_copy")
def select(t: Emitter, input: Expr, dim: int, index: int) -> Expr:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    at = index if isinstance(index, PrimExpr) or index >= 0 else plain(index + shape[axis])
    piece = t(sliced(input, axis, (at, 1)))
    return t.reshape(piece, (*shape[:axis], *shape[axis + 1 :]))


@converter("narrow", "narrow_copy")
def narrow(t: Emitter, input: Expr, dim: int, start: int, length: int) -> Expr:
    first = start if isinstance(start, PrimExpr) else positive(start, t.shape(input)[dim])
    return slice_(t, input, dim, first, first + length)


@converter("getitem")
def getitem(t: Emitter, input: Expr, index: object) -> Expr:
    """Python's subscripts: numbers, slices, None and ... ."""
    items: list[Any] = list(index) if isinstance(index, tuple | list) else [index]
    if any(isinstance(i, Expr) for i in items):
        if any(not isinstance(i, Expr) for i in items):
            raise t.fail("subscripts that mix tensors and numbers are not supported")
        return index_tensor(t, input, items)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(t.shape(input)) - sum(i is not None and i is not Ellipsis for i in items)
        items[at : at + 1] = [slice(None)] * missing
    x = input
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
def embedding(t: Emitter, weight: Expr, indices: Expr, *_: object, **__: object) -> Expr:
    return op.take(weight, indices, axis=0, mode="positive")


@converter("one_hot")
def one_hot(t: Emitter, input: Expr, num_classes: int = -1) -> Expr:
    """[*, num_classes] of int64; a class that there is not is an error when the model runs."""
    if num_classes <= 0:
        raise t.needs_data("one_hot with as many classes as the values say")
    known = t(op.take(constant(np.arange(num_classes), "int64"), input, axis=0, mode="positive"))
    return op.one_hot(known, constant(1, "int64"), constant(0, "int64"), depth=num_classes)


@converter("take_rows")
def take_rows(t: Emitter, input: Expr, weight: Expr) -> Expr:
    """A module of embeddings: the indices are its input."""
    return op.take(weight, input, axis=0, mode="positive")


@converter("index_select")
def index_select(t: Emitter, input: Expr, dim: int, index: Expr) -> Expr:
    shape = t.shape(input)
    if not shape:
        return t.reshape(t(op.take(t.reshape(input, (1,)), index, axis=0, mode="positive")), ())
    if not t.shape(index):
        index = t.reshape(index, (1,))
    return op.take(input, index, axis=positive(dim, len(shape)), mode="positive")


def integer_positions(t: Emitter, indices: Sequence[Expr | None]) -> list[Expr | None]:
    """The index tensors with masks replaced by the positions where they are true; these must be known at import."""
    result: list[Expr | None] = []
    for index in indices:
        if index is None or info_of(index).dtype not in ("bool", "uint8"):
            result.append(index)
        elif isinstance(index, Constant):
            result += [constant(p, "int64") for p in np.nonzero(index.data)]
        else:
            data = t.data_sizes("an index by a mask that the model computes has a result of unknown size")
            places = data.places(index)
            result += [row(t, places, d) for d in range(max(info_of(index).ndim, 1))]
    return result


def row(t: Emitter, x: Expr, at: int) -> Expr:
    """One row of a matrix."""
    return t.reshape(t(op.strided_slice(x, axes=(0,), begin=(at,), end=(at + 1,))), t.shape(x)[1:])


def common_shape(t: Emitter, shapes: Sequence[Sequence[Dim]]) -> tuple[Any, ...]:
    """The shape that shapes broadcast to."""
    made: list[Dim] = []
    for axis in range(-max(map(len, shapes)), 0):
        column = [shape[axis] for shape in shapes if len(shape) >= -axis]
        wide = [d for d in column if not is_same(d, 1)]
        if any(not is_same(d, wide[0]) for d in wide):
            raise t.fail(f"shapes {' and '.join(str(list(shape)) for shape in shapes)} do not broadcast")
        made.append(wide[0] if wide else 1)
    return tuple(made)


def stacked_positions(t: Emitter, used: Sequence[Expr]) -> tuple[tuple[Any, ...], Expr]:
    """(shape of the indices broadcast against each other, their tensor with the vectors along the last dimension)."""
    shape = common_shape(t, [t.shape(i) for i in used])
    if all(isinstance(i, Constant) for i in used):
        arrays = np.broadcast_arrays(*(i.data for i in used if isinstance(i, Constant)))
        return shape, constant(np.stack(arrays, -1), "int64")
    parts = []
    for index in used:
        parts.append(t.reshape(t.broadcast(t.cast(index, "int64"), shape), (*shape, 1)))
    return shape, t(op.concat(parts, axis=len(shape))) if len(parts) > 1 else parts[0]


@converter("index", "_unsafe_index")
def index_tensor(t: Emitter, input: Expr, indices: Sequence[Expr | None]) -> Expr:
    """Index tensors are broadcast against each other; their dimensions stand where they were, or first if apart."""
    found = integer_positions(t, indices)
    axes = [axis for axis, i in enumerate(found) if i is not None]
    used = [i for i in found if i is not None]
    if not used:
        return input
    if len(used) == 1:
        return op.take(input, used[0], axis=axes[0])
    ndim = len(t.shape(input))
    rest = [a for a in range(ndim) if a not in axes]
    front = input if axes == list(range(len(axes))) else t(op.permute_dims(input, axes=[*axes, *rest]))
    shape, positions = stacked_positions(t, used)
    result = t(op.gather_nd(front, positions))
    lead = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    if not lead:
        return result
    width = len(shape)
    order = [*range(width, width + lead), *range(width), *range(width + lead, width + len(rest))]
    return op.permute_dims(result, axes=order)


@converter("_unsafe_masked_index")
def masked_index(t: Emitter, input: Expr, mask: Expr, indices: Sequence[Expr | None], fill: object) -> Expr:
    """Elements where the mask holds, a number elsewhere; positions there may lie outside."""
    limits = t.shape(input)
    at: list[Expr | None] = []
    for axis, index in enumerate(indices):
        if index is None:
            at.append(None)
            continue
        dtype = info_of(index).dtype
        low = t(op.maximum(index, constant(0, dtype)))
        at.append(t(op.minimum(low, constant(limits[axis] - 1, dtype))))
    values = t(index_tensor(t, input, at))
    return op.where(mask, values, constant(fill, info_of(input).dtype))


@converter("gather")
def gather(t: Emitter, input: Expr, dim: int, index: Expr, sparse_grad: bool = False) -> Expr:
    if not t.shape(input):
        shape = t.shape(index)
        return t.reshape(t(op.take(t.reshape(input, (1,)), t.reshape(index, (-1,)), axis=0, mode="positive")), shape)
    if not t.shape(index):
        index = t.reshape(index, (1,))
        found = t(op.gather_elements(input, index, axis=0, mode="positive"))
        return t.reshape(found, ())
    return op.gather_elements(input, index, axis=positive(dim, len(t.shape(input))), mode="positive")


@converter("diagonal", "diagonal_copy")
def diagonal(t: Emitter, input: Expr, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Expr:
    shape = t.shape(input)
    first, second = positive(dim1, len(shape)), positive(dim2, len(shape))
    rest = [a for a in range(len(shape)) if a not in (first, second)]
    n, m = shape[first], shape[second]
    if not (isinstance(n, int) and isinstance(m, int)):
        return _open_diagonal(t, input, offset, first, second)
    flat = t.reshape(
        t(op.permute_dims(input, axes=[*rest, first, second])), (*(shape[a] for a in rest), n * m)
    )  # fmt: skip
    rows = np.arange(max(0, -offset), min(n, m - offset))
    return chosen(t, flat, len(rest), rows * m + rows + offset)


def _open_diagonal(t: Emitter, x: Expr, offset: int, first: int, second: int) -> Expr:
    """Of a matrix of an open size that is seen to be square, or whose shorter side is known."""
    shape = t.shape(x)
    rows, columns = plain(shape[first] - max(0, -offset)), plain(shape[second] - max(0, offset))
    count = smaller(rows, columns)
    rest = [a for a in range(len(shape)) if a not in (first, second)]
    flat = t.reshape(
        t(op.permute_dims(x, axes=[*rest, first, second])),
        (*(shape[a] for a in rest), plain(shape[first] * shape[second])),
    )
    line = t(op.size_range(ShapeExpr((0, count))))
    begin = plain(shape[second] * max(0, -offset) + max(0, offset))
    step = t.as_dtype(plain(shape[second] + 1), "int64")
    return t(op.take(flat, t(op.add(t(op.multiply(line, step)), t.as_dtype(begin, "int64"))), axis=len(rest)))


@converter("as_strided", "as_strided_copy")
def as_strided(
    t: Emitter, input: Expr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Expr:
    """Of a tensor that lies in memory without gaps; other memory is not known here."""
    return chosen(t, _memory(t, input, _order(t)), 0, _positions(size, stride, storage_offset))


@converter("as_strided_scatter")
def as_strided_scatter(
    t: Emitter, input: Expr, src: Expr, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Expr:
    """The tensor with such elements written over; in memory it lies as before."""
    order, shape = _order(t), t.shape(input)
    places = _positions(size, stride, storage_offset).reshape(-1, 1)
    found = op.scatter_nd(
        _memory(t, input, order), constant(places, "int64"), t.reshape(src, (-1,)), reduction="update", mode="positive"
    )
    lying = t.reshape(t(found), [shape[d] for d in order])
    return t(op.permute_dims(lying, axes=[order.index(d) for d in range(len(order))])) if order else lying


def _order(t: Emitter) -> tuple[int, ...]:
    """The dimensions of the node's first tensor in memory's order."""
    value = t.source.args[0].meta.get("val") if t.source is not None and t.source.args else None
    if (order := None if value is None else memory_order(value)) is None:
        raise t.fail("as_strided of a tensor whose memory has gaps is not supported")
    return order


def _memory(t: Emitter, input: Expr, order: Sequence[int]) -> Expr:
    """A tensor's elements as they lie in memory."""
    lying = input if list(order) == sorted(order) else t(op.permute_dims(input, axes=order))
    return t.reshape(lying, (-1,))


def _positions(size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Where in memory the elements are."""
    positions = np.full(tuple(size), offset or 0, np.int64)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        positions += (np.arange(n) * step).reshape([-1 if d == axis else 1 for d in range(len(size))])
    return positions


@converter("unfold", "unfold_copy")
def unfold(t: Emitter, input: Expr, dimension: int, size: int, step: int) -> Expr:
    """Windows along a dimension; what is in a window becomes the last dimension."""
    shape = t.shape(input)
    if not shape:
        return t.reshape(input, (1,) * size)
    axis = positive(dimension, len(shape))
    first = t(arange(t, 0, shape[axis] - size + 1, step))
    places = t(op.add(t(op.expand_dims(first, axis=1)), constant(np.arange(size), "int64")))
    taken = t(op.take(input, places, axis=axis))
    order = [a for a in range(len(shape) + 1) if a != axis + 1]
    return op.permute_dims(taken, axes=[*order, axis + 1])


@converter("flip")
def flip(t: Emitter, input: Expr, dims: Sequence[int]) -> Expr:
    x = input
    for d in dims if t.shape(input) else ():
        axis = positive(d, len(t.shape(input)))
        n = t.shape(input)[axis]
        is_open = not isinstance(n, int)
        x = t(op.sized_slice(x, ShapeExpr((n - 1, n)), axis=axis, step=-1) if is_open else op.flip(x, axis=axis))
    return x


@converter("roll")
def roll(t: Emitter, input: Expr, shifts: Ints, dims: Ints = ()) -> Expr:
    shifts, dims = ([v] if isinstance(v, int) else list(v) for v in (shifts, dims))
    shape = t.shape(input)
    x = input if dims else t.reshape(input, (plain(product_of(shape)),))
    for shift, dim in zip(shifts, dims or [0], strict=True):
        axis = positive(dim, len(t.shape(x)))
        n = t.shape(x)[axis]
        if isinstance(n, int) and isinstance(shift, int):
            x = chosen(t, x, axis, (np.arange(n) - shift) % n)
            continue
        place = t(op.subtract(t(op.size_range(ShapeExpr((0, n)))), t.as_dtype(shift, "int64")))
        x = t(op.take(x, t(op.floor_mod(place, t.as_dtype(n, "int64"))), axis=axis))
    return t.reshape(x, shape)


@converter("nonzero")
def nonzero(t: Emitter, input: Expr) -> Expr:
    if isinstance(input, Constant):
        return constant(np.argwhere(input.data), "int64")
    places = t.data_sizes(UNKNOWN_SIZE).places(input)
    return op.permute_dims(places) if t.shape(input) else t.reshape(places, (t.shape(places)[1], 0))


@converter("nonzero_numpy")
def nonzero_numpy(t: Emitter, input: Expr) -> list[Expr]:
    """The positions in each dimension."""
    places = t.data_sizes(UNKNOWN_SIZE).places(input)
    return [row(t, places, d) for d in range(t.shape(places)[0])]


@converter("masked_select")
def masked_select(t: Emitter, input: Expr, mask: Expr) -> Expr:
    shape = common_shape(t, [t.shape(input), t.shape(mask)])
    if not shape:
        return of_unknown_size(t)
    return index_tensor(t, t.broadcast(input, shape), [t.broadcast(mask, shape)])


@converter("_unique2")
def unique(t: Emitter, input: Expr, *_: object, **__: object) -> tuple[Expr, ...]:
    """The distinct elements, for each element its place among them, and how often each is there.

    Of floats each NaN is distinct here, and all are one to the VM: these are left to PyTorch.
    """
    if not info_of(input).dtype.startswith(("int", "uint", "bool")):
        raise t.needs_data(UNKNOWN_SIZE)
    data, dims = t.data_sizes(UNKNOWN_SIZE), t.shape(input)
    found = t(op.unique(input, return_inverse=True, return_counts=True))
    values, inverse, counts = (TupleGetItem(found, i) for i in range(3))
    distinct = data.sized(values, [None], info_of(input).dtype, product_of(dims))
    places = data.sized(inverse, [product_of(dims)], "int64")
    return distinct, t.reshape(places, dims), data.sized(counts, t.shape(distinct), "int64")


@converter(
    "nonzero_static", "bincount", "_unique",
    "unique_dim", "unique_consecutive", "unique_dim_consecutive",
)  # fmt: skip
def of_unknown_size(t: Emitter, *_: object, **__: object) -> Expr:
    raise t.needs_data(UNKNOWN_SIZE)


@converter("repeat_interleave")
def repeat_interleave(
    t: Emitter, input: Expr, repeats: Expr | Dim | None = None, dim: int | None = None, output_size: Dim | None = None
) -> Expr:
    """Each element so many times, one number for all or one each; of repeats alone the positions that this takes."""
    if repeats is None:
        if isinstance(input, Constant):
            return constant(np.repeat(np.arange(len(input.data)), input.data), info_of(input).dtype)
        return t.cast(_repeated_positions(t, input, output_size), info_of(input).dtype)
    x = t.reshape(input, (-1,)) if dim is None else input
    axis, shape = positive(dim or 0, len(t.shape(x))), t.shape(x)
    if isinstance(repeats, Constant) and isinstance(shape[axis], int):
        each = np.broadcast_to(repeats.data, (shape[axis],))
        return chosen(t, x, axis, np.repeat(np.arange(shape[axis]), each))
    if isinstance(repeats, Expr):
        each_place = t.broadcast(t.reshape(repeats, (-1,)), (shape[axis],))
        return op.take(x, _repeated_positions(t, each_place, output_size), axis=axis)
    apart = t.reshape(x, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    wide = t(tiled(apart, [repeats if i == axis + 1 else 1 for i in range(len(shape) + 1)], t))
    return t.reshape(wide, (*shape[:axis], plain(shape[axis] * repeats), *shape[axis + 1 :]))


def _repeated_positions(t: Emitter, repeats: Expr, count: Dim | None) -> Expr:
    """Each position as often as its number says; a call raises ValueError for a number below 0.

    count  how many the program says that they are, which PyTorch checks; None where it does not say
    """
    if count is not None:
        raise t.needs_data(UNKNOWN_SIZE)
    data, (least, none) = t.data_sizes(UNKNOWN_SIZE), (constant(n, "int64") for n in (0, -1))
    numbers = t.cast(repeats, "int64")
    ends, fewest = t(op.cumsum(numbers, axis=0)), t(op.min(numbers))
    total = t(op.where(t(op.less(fewest, least)), none, t(op.sum(numbers))))
    every = t(op.size_range(ShapeExpr((0, *data.numbers(total)))))
    return t(op.bucketize(every, ends, right=True))


@converter("_local_scalar_dense", "item")
def item(t: Emitter, input: Expr) -> Any:
    if isinstance(input, Constant):
        return input.data.item()
    data, made = t.data_sizes(NUMBER), t.source.meta.get("val") if t.source is not None else None
    if str(made) not in data.counts or not info_of(input).dtype.startswith(("int", "uint")):
        raise t.needs_data(NUMBER)
    return data.numbers(input)[0]


@converter("rand", "randn", "randperm", "bernoulli", "rand_like", "randn_like", "randint", "multinomial", "normal")
def random(t: Emitter, *_: object, **__: object) -> Expr:
    """PyTorch draws them, from its own generator."""
    raise t.needs_library("random numbers have no kernel")
