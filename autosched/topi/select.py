"""Elements chosen, replaced or placed by tensors of positions and by bounds, with TVM's arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched import te
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.checked_index import position
from autosched.tir.expr import PrimExpr, as_int
from autosched.topi.broadcast import broadcast_shape, element
from autosched.topi.manipulate import reshape
from autosched.topi.reduction import sum as total
from autosched.topi.shapes import Dim, compute_over, dims, int_shape, one_axis, open_shape


def index_tensor(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """data[i0, i1, …] as in NumPy: tensors of positions, broadcast, for the first dimensions."""
    if not 1 <= len(indices) <= data.ndim:
        raise ShapeError(f"{len(indices)} tensors of positions for {data.ndim} dimensions")
    chosen = broadcast_shape(*(t.shape for t in indices))
    sizes, count = open_shape(data), len(chosen)

    def compute(*i: PrimExpr) -> PrimExpr:
        at = [
            position(element(t, i[:count], chosen), sizes[d], f"index_tensor along axis {d}")
            for d, t in enumerate(indices)
        ]
        return data(*at, *i[count:])

    return compute_over((*chosen, *data.shape[len(indices) :]), compute, "T_index_tensor")


adv_index = index_tensor


def index_put(data: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False) -> Tensor:
    """data with `values` at data[i0, i1, …], or added there; of several values for one place the last one counts.

    indices  of one shape; `values` have it, followed by the other dimensions of data, or broadcast to that
    """
    sizes, shape = open_shape(data), broadcast_shape(*(t.shape for t in indices))
    lead = int_shape(te.placeholder(shape))
    rest = tuple(data.shape[len(indices) :])
    full = (*shape, *rest)
    k = te.reduce_axis((0, E.const(math.prod(lead), "int64")), "k")

    def places() -> list[PrimExpr]:
        left: PrimExpr = k.var
        found: list[PrimExpr] = []
        for size in reversed(lead):
            found.append(E.floormod(left, E.const(size, "int64")))
            left = E.floordiv(left, E.const(size, "int64"))
        return found[::-1]

    def is_hit(i: Sequence[PrimExpr], at: Sequence[PrimExpr]) -> PrimExpr:
        return te.all(*(
            E.compare(E.EQ, position(element(t, at, shape), sizes[d], f"index_put along axis {d}"), i[d])
            for d, t in enumerate(indices)
        ))  # fmt: skip

    if accumulate:

        def added(*i: PrimExpr) -> PrimExpr:
            at = places()
            value = element(values, [*at, *i[len(indices) :]], full)
            return te.sum(E.select(is_hit(i, at), value, E.const(0, data.dtype)), axis=k)

        total = compute_over(data.shape, added, "T_put")
        return compute_over(data.shape, lambda *i: data(*i) + total(*i), "T_index_put")
    none = E.const(-1, "int64")
    lead_shape = data.shape[: len(indices)]

    def last_one(*i: PrimExpr) -> PrimExpr:
        return te.max(E.select(is_hit(i, places()), E.cast("int64", k.var), none), axis=k)

    last = compute_over(lead_shape, last_one, "T_last")

    def put(*i: PrimExpr) -> PrimExpr:
        step = last(*i[: len(indices)])
        left, at = E.maximum(step, E.const(0, "int64")), []
        for size in reversed(lead):
            at.append(E.floormod(left, E.const(size, "int64")))
            left = E.floordiv(left, E.const(size, "int64"))
        value = element(values, [*at[::-1], *i[len(indices) :]], full)
        return E.select(step < 0, data(*i), value)

    return compute_over(data.shape, put, "T_index_put")


def slice_bounds(size: int, start: int, end: int, step: int) -> range:
    """The positions that start, end and step name among `size`, by Python's rules. Raises ValueError for step < 1."""
    if step < 1:
        raise InvalidValueError(f"slice_scatter: step {step}", hint="1 or more")
    return range(*slice(start, end, step).indices(size))


def slice_scatter(
    input_tensor: Tensor, src: Tensor, start: int, end: int, step: int = 1, axis: int = 0
) -> Tensor:  # fmt: skip
    """The tensor with `src` at the positions start, start + step, … before end along an axis."""
    place = one_axis(input_tensor, axis)
    chosen = slice_bounds(int_shape(input_tensor)[place], start, end, step)
    wanted = [len(chosen) if a == place else s for a, s in enumerate(int_shape(input_tensor))]
    if list(int_shape(src)) != wanted:
        raise ShapeError(f"slice_scatter: values of shape {int_shape(src)}, {tuple(wanted)} is needed")
    if not chosen:
        return compute_over(input_tensor.shape, lambda *i: input_tensor(*i), "T_slice_scatter")

    def compute(*i: PrimExpr) -> PrimExpr:
        apart = i[place] - chosen.start
        hit = te.all(apart >= 0, i[place] <= chosen[-1], E.compare(E.EQ, E.floormod(apart, step), 0))
        index = [E.floordiv(apart, step) if a == place else v for a, v in enumerate(i)]
        return E.if_then_else(hit, src(*index), input_tensor(*i))

    return compute_over(input_tensor.shape, compute, "T_slice_scatter")


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: str = "int64"
) -> Tensor:  # fmt: skip
    """Where each value would be put into a sequence in ascending order: before equal elements, or behind them.

    sorted_sequence  [n], or sequences [..., n] with values [..., m]
    """
    lead = sorted_sequence.ndim - 1
    if lead and lead != values.ndim - 1:
        raise ShapeError(f"searchsorted: values {values.shape} for sequences {sorted_sequence.shape}")
    k = te.reduce_axis((0, dims(sorted_sequence.shape)[-1]), "k")
    before = E.LE if right else E.LT

    def compute(*i: PrimExpr) -> PrimExpr:
        is_before = E.compare(before, sorted_sequence(*i[:lead], k.var), values(*i))
        return te.sum(E.select(is_before, E.const(1, dtype), E.const(0, dtype)), axis=k)

    return compute_over(values.shape, compute, "T_searchsorted")


def sliding_window(
    data: Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Tensor:  # fmt: skip
    """All windows over the dimensions from `axis` on: their places along them, then the windows' own dimensions."""
    start, window, steps = one_axis(data, axis), list(window_shape), list(strides)
    sizes = int_shape(data)
    if start + len(window) != data.ndim or len(steps) != len(window):
        raise ShapeError(f"sliding_window: {len(window)} sizes for the dimensions of {data.shape} from {start} on")
    counts = [(s - w) // step + 1 for s, w, step in zip(sizes[start:], window, steps, strict=True)]
    if min(counts) < 1:
        raise ShapeError(f"sliding_window: a window of {window} in {sizes[start:]}")
    count = len(window)

    def compute(*i: PrimExpr) -> PrimExpr:
        outer, at, inner = i[:start], i[start : start + count], i[start + count :]
        return data(*outer, *(p * step + w for p, step, w in zip(at, steps, inner, strict=True)))

    return compute_over((*sizes[:start], *counts, *window), compute, "T_sliding_window")


def strided_set(
    a: Tensor, v: Tensor, begin: Sequence[int], end: Sequence[int], strides: Sequence[int] | None = None
) -> Tensor:  # fmt: skip
    """The tensor with a[begin:end:strides] = v, by Python's rules."""
    sizes = int_shape(a)
    steps = [1] * a.ndim if strides is None else [*strides, *[1] * (a.ndim - len(strides))]
    first = [*begin, *[0] * (a.ndim - len(begin))]
    last = [*end, *sizes[len(end) :]]
    chosen = [
        range(*slice(b, e if s > 0 or e >= -n else None, s).indices(n))
        for b, e, s, n in zip(first, last, steps, sizes, strict=True)
    ]
    if [len(r) for r in chosen] != list(int_shape(v)):
        raise ShapeError(f"strided_set: values of shape {v.shape} for a slice of {[len(r) for r in chosen]}")

    def compute(*i: PrimExpr) -> PrimExpr:
        hits, index = [], []
        for p, r in zip(i, chosen, strict=True):
            low, high, step = min(r[0], r[-1]), max(r[0], r[-1]), abs(r.step)
            apart = p - r.start if r.step > 0 else r.start - p
            hits += [p >= low, p <= high, E.compare(E.EQ, E.floormod(apart, step), 0)]
            index.append(E.floordiv(apart, step))
        return E.if_then_else(te.all(*hits), v(*index), a(*i))

    return (
        compute_over(a.shape, compute, "T_strided_set")
        if all(chosen)
        else compute_over(a.shape, lambda *i: a(*i), "T_copy")
    )


def sparse_to_dense(
    sparse_indices: Tensor, output_shape: Sequence[int], sparse_values: Tensor, default_value: float = 0
) -> Tensor:  # fmt: skip
    """A tensor of `default_value` with values at positions: indices (), [n] or [n, rank], values () or [n]."""
    shape = [int(n) for n in output_shape]
    rank = len(shape)
    if sparse_indices.ndim > 2 or (sparse_indices.ndim < 2 and rank != 1):
        raise ShapeError(f"sparse_to_dense: positions {sparse_indices.shape} in {rank} dimensions")
    count = int_shape(sparse_indices)[0] if sparse_indices.ndim else 1

    def at(n: int, d: int) -> PrimExpr:
        index = (n, d) if sparse_indices.ndim == 2 else (n,) if sparse_indices.ndim else ()
        return E.cast("int64", sparse_indices(*index))

    def compute(*i: PrimExpr) -> PrimExpr:
        value: PrimExpr = E.const(default_value, sparse_values.dtype)
        for n in range(count):
            hit = te.all(*(E.compare(E.EQ, at(n, d), i[d]) for d in range(rank)))
            value = E.select(hit, sparse_values(*((n,) if sparse_values.ndim else ())), value)
        return value

    return compute_over(shape, compute, "T_sparse_to_dense")


def multinomial_from_uniform(
    prob: Tensor, uniform_sample: Tensor, sample_indices: Tensor, dtype: str = "int64"
) -> Tensor:  # fmt: skip
    """[n, 1]: for each sample in [0, 1) the first class of its row of prob [b, c] whose running sum exceeds it.

    sample_indices  [n, 1]: the row of each sample
    """
    rows, classes = open_shape(prob)
    k = te.reduce_axis((0, E.to_expr(classes, "int64")), "k")
    j = te.reduce_axis((0, E.to_expr(classes, "int64")), "j")
    running = compute_over(
        prob.shape,
        lambda b, c: te.sum(E.select(E.compare(E.LE, j.var, c), prob(b, j.var), E.const(0, prob.dtype)), axis=j),
        "T_cdf",
    )

    def compute(n: PrimExpr, one: PrimExpr) -> PrimExpr:
        row = position(sample_indices(n, one), rows, "rows of multinomial_from_uniform")
        low = E.compare(E.LE, running(row, k.var), E.cast(prob.dtype, uniform_sample(n, one)))
        return te.sum(E.select(low, E.const(1, dtype), E.const(0, dtype)), axis=k)

    count = compute_over(uniform_sample.shape, compute, "T_below")
    last = E.to_expr(classes, "int64") - 1
    return compute_over(uniform_sample.shape, lambda *i: E.minimum(count(*i), E.cast(dtype, last)), "T_multinomial")


def hamming_window(window_size: int, periodic: bool, alpha: float, beta: float, dtype: str) -> Tensor:
    """alpha - beta * cos(2 pi i / n), where n is the size of a periodic window, else one less."""
    if not dtype.startswith(("float", "bfloat")):
        raise InvalidTypeError(f"hamming_window: dtype {dtype}", hint="a float type")
    turns = window_size if periodic else max(window_size - 1, 1)

    def compute(i: PrimExpr) -> PrimExpr:
        angle = E.cast(dtype, i) * E.const(2 * math.pi / turns, dtype)
        return E.const(alpha, dtype) - E.const(beta, dtype) * te.cos(angle)

    return compute_over((window_size,), compute, "T_hamming_window")


def within_index(b: PrimExpr, e: PrimExpr, s: PrimExpr, i: PrimExpr) -> PrimExpr:
    """Whether position i is one of b, b + s, … before e (after e where s is negative)."""
    step, apart = E.to_expr(s, "int64"), E.sub(i, b)
    up = te.all(E.compare(E.GE, i, b), E.compare(E.LT, i, e))
    down = te.all(E.compare(E.LE, i, b), E.compare(E.GT, i, e))
    size = E.select(E.compare(E.LT, step, 0), E.sub(0, step), step)
    return te.all(E.select(E.compare(E.LT, step, 0), down, up), E.compare(E.EQ, E.truncmod(apart, size), 0))


def collapse_sum(data: Tensor, target_shape: Sequence[Dim]) -> Tensor:
    """The sum over what broadcasting repeats when a tensor of the target's shape becomes one of data's."""
    shape, target = int_shape(data), [as_int(n) for n in target_shape]
    wide = [1] * (len(shape) - len(target)) + target
    axes = [a for a, (n, m) in enumerate(zip(shape, wide, strict=True)) if m == 1 and n != 1]
    if any(m not in (1, n) for n, m in zip(shape, wide, strict=True)):
        raise ShapeError(f"collapse_sum: {shape} is no broadcast {tuple(target)}")
    return reshape(total(data, axes, True) if axes else data, target)
