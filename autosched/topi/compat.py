"""Operators of `topi` with TVM's arguments, over those of this package where their arguments differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.dtypes import is_float
from autosched.tir.expr import ExprLike, PrimExpr, as_int
from autosched.topi import create, indexing, layout, linear, manipulate, reduction, unary
from autosched.topi.broadcast import Operand, elementwise
from autosched.topi.conv2d import channel_block
from autosched.topi.shapes import Dim, compute_over, extent_of, int_shape, one_axis, open_shape
from autosched.topi.sort import argsort as te_argsort
from autosched.topi.sort import cumprod as te_cumprod
from autosched.topi.sort import cumsum as te_cumsum
from autosched.topi.sort import take_along

N = TypeVar("N", int, float)

# --- the shape and the place of elements


def reshape(a: Tensor, newshape: Sequence[int]) -> Tensor:
    """The elements in their row-major order under another shape; one size may be -1: what is left."""
    sizes = [as_int(n) for n in newshape]
    if sizes.count(-1) == 1:
        known, total = -math.prod(sizes), math.prod(int_shape(a))
        if known < 1 or total % known:
            raise ShapeError(f"reshape: {int_shape(a)} does not fit {sizes}", where=f"tensor {a.name}")
        sizes[sizes.index(-1)] = total // known
    return manipulate.reshape(a, sizes)


def expand_dims(a: Tensor, axis: Sequence[int] | int, num_newaxis: int = 1) -> Tensor:
    """`num_newaxis` new dimensions of size 1 at `axis` of the result, or one at each of several axes."""
    if not isinstance(axis, int):
        return manipulate.expand_dims(a, axis)
    if not -a.ndim - 1 <= axis <= a.ndim or num_newaxis < 0:
        raise ShapeError(f"expand_dims: axis {axis} of a result of {a.ndim + num_newaxis} dimensions")
    place = axis if axis >= 0 else axis + a.ndim + 1
    return manipulate.expand_dims(a, range(place, place + num_newaxis))


def squeeze(a: Tensor, axis: Sequence[int] | int | None = None) -> Tensor:
    """Without the dimensions `axis`, whose size is 1; all such where none are given."""
    return manipulate.squeeze(a, axis)


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`."""
    return manipulate.concatenate(a_tuple, axis)


def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Equal pieces along `axis`, as many as a number says, or cut before each of the given positions.

    Raises ShapeError where the size is no multiple of the number, or positions are not in order.
    """
    place = one_axis(ary, axis)
    size = extent_of(ary, place)
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or size % indices_or_sections:
            raise ShapeError(
                f"split: {size} elements in {indices_or_sections} equal pieces", where=f"tensor {ary.name}"
            )
        return manipulate.split(ary, [size // indices_or_sections] * indices_or_sections, place)
    cuts = [0, *(as_int(n) for n in indices_or_sections), size]
    if sorted(cuts) != cuts:
        raise ShapeError(f"split: positions {cuts[1:-1]} of {size} elements are not in order")
    return manipulate.split(ary, [b - a for a, b in itertools.pairwise(cuts)], place)


def strided_slice(
    a: Tensor, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None, slice_mode: str = "end", assume_inbound: bool = True,
) -> Tensor:  # fmt: skip
    """a[begin:end:strides] by Python's rules, along `axes` or the first ones; dimensions that are not named stay whole.

    slice_mode      "end", or "size": `end` says how many elements, -1 all of the rest, and strides are 1
    assume_inbound  taken for TVM's sake: positions are cut to the dimension either way
    """
    if slice_mode not in ("end", "size"):
        raise InvalidValueError(f"strided_slice: slice_mode '{slice_mode}'", hint="'end' or 'size'")
    named = [one_axis(a, axis) for axis in axes] if axes is not None else list(range(len(begin)))
    if len(begin) > len(named) or len(named) > a.ndim:
        raise ShapeError(f"strided_slice: {len(begin)} begins for {len(named)} of {a.ndim} dimensions")
    sizes: list[Dim] = list(open_shape(a))
    starts: list[Dim] = [0] * a.ndim
    steps: list[Dim] = [1] * a.ndim
    for n, axis in enumerate(named[: len(begin)]):
        size, first = extent_of(a, axis), as_int(begin[n])
        step = as_int(strides[min(n, len(strides) - 1)]) if strides and slice_mode == "end" else 1
        last: int | None = as_int(end[n]) if n < len(end) else None
        if slice_mode == "size" and last is not None:
            last = None if last < 0 else first + last
        elif step < 0 and last is not None and last < -size:
            last = None
        chosen = range(*slice(first, last, step).indices(size))
        sizes[axis], starts[axis], steps[axis] = len(chosen), chosen.start if len(chosen) else 0, step
    return manipulate.strided_slice(a, sizes, starts, steps)


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """The tensor repeated along its dimensions, the last ones where there are fewer numbers than those."""
    counts = [as_int(n) for n in reps]
    missing = len(counts) - a.ndim
    if missing > 0:
        a = expand_dims(a, 0, missing)
    return manipulate.tile(a, [1] * -missing + counts)


def layout_transform(array: Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None") -> Tensor:
    """A tensor in another layout, such as "NCHW" to "NHWC" or "NCHW16c"; channels in blocks must be whole blocks."""
    if schedule_rule != "None":
        raise InvalidValueError(f"layout_transform: schedule_rule '{schedule_rule}'", hint="leave it out")
    if src_layout == dst_layout:
        return unary.identity(array)
    if sorted(src_layout) == sorted(dst_layout) and src_layout.isalpha() and src_layout.isupper():
        return manipulate.transpose(array, [src_layout.index(c) for c in dst_layout])
    shape = int_shape(array)
    block = channel_block(src_layout)
    channels = shape[1] * block if block else shape[1]
    target = channel_block(dst_layout)
    if target and channels % target:
        raise ShapeError(f"layout_transform: {channels} channels are no multiple of {target}")
    return layout.layout_transform(array, src_layout, dst_layout, channels)


def meshgrid(a_tuple: Sequence[Tensor], indexing: str) -> list[Tensor]:
    """Each vector along its own axis of one grid; with "xy" the first two axes change places."""
    if indexing not in ("ij", "xy"):
        raise InvalidValueError(f"meshgrid: indexing '{indexing}'", hint="'ij' or 'xy'")
    places = list(range(len(a_tuple)))
    if indexing == "xy" and len(places) > 1:
        places[:2] = 1, 0
    shape = [1] * len(places)
    for t, place in zip(a_tuple, places, strict=True):
        shape[place] = int_shape(t)[0] if t.ndim else 1

    def grid(t: Tensor, place: int) -> Tensor:
        return compute_over(shape, lambda *i: t(*(i[place],) * t.ndim), "T_meshgrid")

    return [grid(t, place) for t, place in zip(a_tuple, places, strict=True)]


# --- elements by position


def take(
    a: Tensor, indices: Tensor, axis: int | None = None, batch_dims: int = 0, mode: str = "fast"
) -> Tensor:  # fmt: skip
    """The elements at `indices`, of all dimensions as one where no axis is given.

    mode  "clip", "wrap", or "fast": a position out of range raises when the kernel runs
    """
    if batch_dims:
        raise InvalidValueError("take: batch_dims is not supported", hint="topi.gather along the axis")
    if axis is None:
        return indexing.take(_flat(a), indices, 0, mode)
    return indexing.take(a, indices, one_axis(a, axis), mode)


def _flat(a: Tensor) -> Tensor:
    return reshape(a, (-1,))


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """For each element of `indices`, the element of data at the same place but for `axis`."""
    return indexing.gather(data, indices, one_axis(data, axis))


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """The elements (or slices) of `a` at the index vectors along the first dimension of `indices`."""
    if batch_dims:
        raise InvalidValueError("gather_nd: batch_dims is not supported", hint="relax.op.gather_nd")
    order = [*range(1, indices.ndim), 0]
    return indexing.gather_nd(a, manipulate.transpose(indices, order))


def reverse_sequence(a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0) -> Tensor:
    """The first seq_lengths[b] elements of each sequence in the opposite order."""
    along, batch = one_axis(a, seq_axis), one_axis(a, batch_axis)

    def compute(*i: PrimExpr) -> PrimExpr:
        length = E.cast(i[along].dtype, seq_lengths(i[batch]))
        place = E.select(i[along] < length, length - 1 - i[along], i[along])
        return a(*(place if k == along else v for k, v in enumerate(i)))

    return compute_over(a.shape, compute, "T_reverse_sequence")


def sequence_mask(data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0) -> Tensor:
    """[length, batch, …] or with axis 1 [batch, length, …]: `mask_value` behind the valid length of each sequence."""
    if axis not in (0, 1):
        raise InvalidValueError(f"sequence_mask: axis {axis}", hint="0 or 1")

    def compute(*i: PrimExpr) -> PrimExpr:
        valid = E.cast(i[axis].dtype, valid_length(i[1 - axis]))
        return E.select(i[axis] < valid, data(*i), E.const(mask_value, data.dtype))

    return compute_over(data.shape, compute, "T_sequence_mask")


def matrix_set_diag(data: Tensor, diagonal: Tensor, k: int = 0) -> Tensor:
    """A batch of matrices with one diagonal replaced: the main one, or the one `k` above it (negative: below)."""
    if not isinstance(k, int):
        raise InvalidValueError("matrix_set_diag: several diagonals are not supported", hint="one call for each")

    def compute(*i: PrimExpr) -> PrimExpr:
        row, column = i[-2:]
        at = row if k >= 0 else column
        inside = E.compare(E.EQ, column - row, k)
        return te.if_then_else(inside, diagonal(*i[:-2], at), data(*i))

    return compute_over(data.shape, compute, "T_matrix_set_diag")


def trilu(data: Tensor, k: int | PrimExpr, upper: bool) -> Tensor:
    """Zeros below (`upper`) or above the diagonal `k` of each matrix."""

    def compute(*i: PrimExpr) -> PrimExpr:
        row, column = i[-2:]
        kept = E.compare(E.GE if upper else E.LE, column - row, k)
        return E.select(kept, data(*i), E.const(0, data.dtype))

    return compute_over(data.shape, compute, "T_trilu")


# --- tensors from nothing


def arange(start: int, stop: int | None = None, step: int = 1, dtype: str = "float32") -> Tensor:
    """start, start + step, … before stop; from 0 to `start` where no stop is given."""
    first, last = (0, start) if stop is None else (start, stop)
    return create.arange(as_int(first), as_int(last), as_int(step), dtype)


def full(shape: Sequence[Dim], dtype: str, fill_value: float) -> Tensor:
    """The same number everywhere."""
    return create.full(shape, dtype, fill_value)


def full_like(x: Tensor, fill_value: float) -> Tensor:
    """The same number everywhere, in a tensor's shape and dtype."""
    return create.full_like(x, fill_value)


def eye(n: int, m: int | None = None, k: int = 0, dtype: str = "float32") -> Tensor:
    """[n, m] with ones on the diagonal `k`; square where no `m` is given."""

    def compute(*i: PrimExpr) -> PrimExpr:
        return E.select(E.compare(E.EQ, i[1] - i[0], k), E.const(1, dtype), E.const(0, dtype))

    return compute_over((n, n if m is None else m), compute, "T_eye")


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The sizes of a tensor's dimensions, as a vector."""
    return create.listed(open_shape(array), False, dtype)


# --- sums, orders, products


def argmax(
    data: Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False
) -> Tensor:  # fmt: skip
    """The first position of the largest element, as int32."""
    return _position("argmax", reduction.argmax, data, axis, keepdims, select_last_index)


def argmin(
    data: Tensor, axis: int | None = None, keepdims: bool = False, select_last_index: bool = False
) -> Tensor:  # fmt: skip
    """The first position of the smallest element, as int32."""
    return _position("argmin", reduction.argmin, data, axis, keepdims, select_last_index)


def _position(
    what: str, f: Callable[..., Tensor], data: Tensor, axis: int | None, keepdims: bool, last: bool
) -> Tensor:  # fmt: skip
    if last:
        raise InvalidValueError(f"{what}: select_last_index is not supported", hint=f"{what} of topi.flip")
    if axis is not None:
        return f(data, axis, keepdims, "int32")
    found = f(_flat(data), 0, False, "int32")
    return reshape(found, (1,) * data.ndim) if keepdims else found


def all(data: Tensor, axis: Sequence[int] | int | None = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Whether all elements of a bool tensor are true."""
    return _truth("all", reduction.min, data, axis, keepdims)


def any(data: Tensor, axis: Sequence[int] | int | None = None, keepdims: bool = False) -> Tensor:  # noqa: A001
    """Whether an element of a bool tensor is true."""
    return _truth("any", reduction.max, data, axis, keepdims)


def _truth(
    what: str, f: Callable[..., Tensor], data: Tensor, axis: Sequence[int] | int | None, keepdims: bool
) -> Tensor:  # fmt: skip
    if data.dtype != "bool":
        raise InvalidValueError(f"{what}: the tensor '{data.name}' is {data.dtype}, expected bool")
    numbers = elementwise(lambda x: E.cast("int8", x), "T_cast", data)
    return elementwise(lambda x: E.compare(E.NE, x, 0), f"T_{what}", f(numbers, axis, keepdims))


def cumsum(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Tensor:  # fmt: skip
    """Running sums along an axis, of all elements as one row where none is given; `exclusive`: without itself."""
    return _running(te_cumsum, data, axis, dtype, exclusive)


def cumprod(
    data: Tensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None
) -> Tensor:  # fmt: skip
    """Running products along an axis, of all elements as one row where none is given."""
    return _running(te_cumprod, data, axis, dtype, exclusive)


def _running(
    f: Callable[..., Tensor], data: Tensor, axis: int | None, dtype: str | None, exclusive: bool | None
) -> Tensor:  # fmt: skip
    if dtype and dtype != data.dtype:
        data = elementwise(lambda x: E.cast(dtype, x), "T_cast", data)
    if axis is None:
        return f(_flat(data), 0, bool(exclusive))
    return f(data, one_axis(data, axis), bool(exclusive))


def argsort(
    data: Tensor, valid_count: None = None, axis: int = -1, is_ascend: int = 1, dtype: str = "float32"
) -> Tensor:  # fmt: skip
    """Positions of the elements along an axis in order, equals as they stand, as numbers of `dtype`."""
    if valid_count is not None:
        raise InvalidValueError("argsort: valid_count is not supported", hint="slice the tensor")
    found = te_argsort(data, one_axis(data, axis), not is_ascend, "int32")
    return found if dtype == "int32" else elementwise(lambda x: E.cast(dtype, x), "T_cast", found)


def topk(
    data: Tensor, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False, dtype: str = "int64"
) -> Tensor | list[Tensor]:  # fmt: skip
    """The first `k` elements in order along an axis (all for k < 1), their positions, or both."""
    if ret_type not in ("both", "values", "indices"):
        raise InvalidValueError(f"topk: ret_type '{ret_type}'", hint="'both', 'values' or 'indices'")
    place = one_axis(data, axis)
    size = extent_of(data, place)
    count = size if k < 1 else min(k, size)
    positions = te_argsort(data, place, not is_ascend, dtype, count)
    if ret_type == "indices":
        return positions
    values = take_along(data, positions, place)
    return values if ret_type == "values" else [values, positions]


def matmul(
    a: Tensor, b: Tensor, transp_a: bool = False, transp_b: bool = False, out_dtype: str | None = None
) -> Tensor:  # fmt: skip
    """The matrix product, of matrices whose last two dimensions change places where that is said.

    out_dtype  what products are summed in; the arguments' dtype by default (TVM has this in `topi.nn.matmul` alone)
    """
    for name, turned in (("transp_a", transp_a), ("transp_b", transp_b)):
        if not isinstance(turned, bool | int):
            raise InvalidTypeError(f"matmul: argument '{name}' is a {type(turned).__name__}, expected a bool")
    return linear.matmul(_turned(a) if transp_a else a, _turned(b) if transp_b else b, out_dtype)


def _turned(x: Tensor) -> Tensor:
    """A tensor with its last two dimensions in each other's place."""
    return manipulate.transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def tensordot(a: Tensor, b: Tensor, axes: int | tuple[Sequence[int] | int, Sequence[int] | int]) -> Tensor:
    """The sum of products over pairs of axes: the last of `a` and first of `b`, as many as a number says."""
    if isinstance(axes, int):
        left, right = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        left, right = (
            [one_axis(t, n) for n in ([x] if isinstance(x, int) else x)] for t, x in zip((a, b), axes, strict=True)
        )
    sizes = [int_shape(a)[n] for n in left]
    if sizes != [int_shape(b)[n] for n in right]:
        raise ShapeError(f"tensordot: axes {left} of {int_shape(a)} and {right} of {int_shape(b)} differ in size")
    over = [te.reduce_axis((0, n), f"k{i}") for i, n in enumerate(sizes)]
    rows = [n for n in range(a.ndim) if n not in left]
    columns = [n for n in range(b.ndim) if n not in right]

    def compute(*i: PrimExpr) -> PrimExpr:
        x: dict[int, ExprLike] = {**dict(zip(rows, i, strict=False)), **dict(zip(left, over, strict=True))}
        y: dict[int, ExprLike] = {
            **dict(zip(columns, i[len(rows) :], strict=True)),
            **dict(zip(right, over, strict=True)),
        }
        product = a(*(x[n] for n in range(a.ndim))) * b(*(y[n] for n in range(b.ndim)))
        return te.sum(product, axis=over) if over else product

    return compute_over([*(a.shape[n] for n in rows), *(b.shape[n] for n in columns)], compute, "T_tensordot")


# --- one element from one


def clip(x: Tensor, a_min: float, a_max: float) -> Tensor:
    """The elements within [a_min, a_max]."""
    return unary.clip(x, a_min, a_max)


def _function(name: str) -> Callable[[Tensor], Tensor]:
    def compute(x: Tensor) -> Tensor:
        return elementwise(lambda v: E.call(name, v), "compute", x)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"`{name}` of each element."
    return compute


acos, asin, atan, cosh, sinh = (_function(name) for name in ("acos", "asin", "atan", "cosh", "sinh"))
acosh, asinh, atanh = (_function(name) for name in ("acosh", "asinh", "atanh"))
log2, log10 = _function("log2"), _function("log10")


def isinf(x: Tensor) -> Tensor:
    """Whether an element is infinite."""
    return elementwise(lambda v: _infinite(v), "T_isinf", x)


def isfinite(x: Tensor) -> Tensor:
    """Whether an element is neither infinite nor NaN."""

    def compute(v: PrimExpr) -> PrimExpr:
        if not is_float(v.dtype):
            return E.const(1, "bool")
        return te.all(E.logical_not(_infinite(v)), E.compare(E.EQ, v, v))

    return elementwise(compute, "T_isfinite", x)


def _infinite(v: PrimExpr) -> PrimExpr:
    if not is_float(v.dtype):
        return E.const(0, "bool")
    return E.compare(E.EQ, E.call("abs", v), E.const(float("inf"), v.dtype))


def logical_xor(lhs: Tensor, rhs: Tensor) -> Tensor:
    """Whether one of two elements is true, and not both."""
    return elementwise(lambda a, b: E.compare(E.NE, a, b), "T_logical_xor", lhs, rhs)


def log_add_exp(lhs: Operand, rhs: Operand) -> Tensor:
    """log(exp(lhs) + exp(rhs)), without overflow."""

    def compute(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        high, low = E.maximum(a, b), E.minimum(a, b)
        return high + te.log(E.const(1, a.dtype) + te.exp(low - high))

    return elementwise(compute, "T_log_add_exp", lhs, rhs)


def dilate(
    data: Tensor, strides: Sequence[int], dilation_value: float = 0.0, name: str = "DilatedInput"
) -> Tensor:  # fmt: skip
    """strides[a] - 1 elements of `dilation_value` between neighbours along each dimension."""
    if len(strides) != data.ndim:
        raise ShapeError(f"dilate: {len(strides)} strides for {data.ndim} dimensions")
    steps = [as_int(s) for s in strides]
    sizes = [(n - 1) * s + 1 for n, s in zip(int_shape(data), steps, strict=True)]

    def compute(*i: PrimExpr) -> PrimExpr:
        on = [E.compare(E.EQ, v % s, 0) for v, s in zip(i, steps, strict=True) if s != 1]
        value = data(*(v // s for v, s in zip(i, steps, strict=True)))
        return te.if_then_else(te.all(*on), value, E.const(dilation_value, data.dtype)) if on else value

    return compute_over(sizes, compute, name)


def unravel_index(indices: Tensor, shape: Tensor) -> Tensor:
    """[dimensions, …]: the place in a tensor of `shape` (a vector of sizes) of each flat position."""
    ndim = extent_of(shape, 0)

    def compute(*i: PrimExpr) -> PrimExpr:
        at: PrimExpr = indices(*i[1:])
        found = E.const(0, indices.dtype)
        for axis in reversed(range(ndim)):
            size = E.cast(indices.dtype, shape(axis))
            found = E.select(E.compare(E.EQ, i[0], axis), at % size if axis else at, found)
            at = at // size
        return found

    return compute_over((ndim, *indices.shape), compute, "T_unravel_index")
