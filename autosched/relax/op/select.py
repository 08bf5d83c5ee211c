"""Elements chosen, replaced or placed by tensors of positions and by bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.ir.node import Attrs
from autosched.relax.expr import Constant, PrimValue
from autosched.relax.op.conv2d import Array
from autosched.relax.op.indexing import positions_type, resolve
from autosched.relax.op.registry import define_op, sample
from autosched.relax.op.types import axes_tuple, axis_index, broadcast_dims, common_dtype, tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo, TupleStructInfo, same_dims
from autosched.te import Tensor
from autosched.tir.expr import as_int
from autosched.topi import compat, select
from autosched.topi.shapes import int_shape, open_shape
from autosched.topi.sort import argsort, take_along


def _positions(indices: StructInfo) -> list[TensorStructInfo]:
    if not isinstance(indices, TupleStructInfo) or not indices.fields:
        raise InvalidTypeError("takes a tuple of tensors of positions")
    return [positions_type(f) for f in indices.fields]


def _index_type(data: StructInfo, indices: StructInfo) -> TensorStructInfo:
    t, given = tensor(data), _positions(indices)
    if len(given) > t.ndim:
        raise ShapeError(f"{len(given)} tensors of positions for {t.ndim} dimensions")
    return TensorStructInfo((*broadcast_dims(*(i.dims for i in given)), *t.dims[len(given) :]), t.dtype)


def _resolved(data: Array, indices: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(resolve(i, data.shape[d], "raise") for d, i in enumerate(indices))


index_tensor = define_op(
    "index_tensor", inputs=("data", "indices"), infer_type=_index_type, compute=select.index_tensor,
    reference=lambda data, indices: data[_resolved(data, indices)],
    samples=[
        sample((4, 5, 3), [((2, 1), "int64"), ((3,), "int32")], low=-3, high=3), sample((4, 2), [((2, 3), "int64")]),
    ],
)  # fmt: skip


def _put_type(data: StructInfo, indices: StructInfo, values: StructInfo, accumulate: bool) -> TensorStructInfo:
    t, v = tensor(data), tensor(values)
    wanted = _index_type(data, indices)
    common_dtype(t, v)
    if not same_dims(broadcast_dims(v.dims, wanted.dims), wanted.dims):
        raise ShapeError(f"values of shape {v.dims} for places of shape {wanted.dims}")
    return t


def _put_reference(data: Array, indices: Sequence[Array], values: Array, accumulate: bool) -> Array:
    out, at = data.copy(), _resolved(data, indices)
    if accumulate:
        np.add.at(out, at, values)
    else:
        out[at] = values
    return out


index_put = define_op(
    "index_put", inputs=("data", "indices", "values"), attributes={"accumulate": False}, infer_type=_put_type,
    compute=select.index_put, reference=_put_reference,
    samples=[
        sample((5, 4), [((3,), "int64"), ((3,), "int64")], (3,)),
        sample((5, 4), [((6,), "int64")], (6, 4), accumulate=True), sample((3, 4), [((4, 2), "int64")], (1, 4)),
    ],
)  # fmt: skip


def _number(x: object) -> object:
    """A whole number that may be given as a constant or a scalar value."""
    if isinstance(x, Constant):
        return x.data.item()
    return as_int(x.value) if isinstance(x, PrimValue) else x


def _slice_type(
    input_tensor: StructInfo, src: StructInfo, start: int, end: int, step: int, axis: int
) -> TensorStructInfo:  # fmt: skip
    t, s = tensor(input_tensor), tensor(src)
    a = axis_index(axis, t.ndim)
    chosen = select.slice_bounds(t.static_shape[a], start, end, step)
    wanted = (*t.dims[:a], len(chosen), *t.dims[a + 1 :])
    if not same_dims(s.dims, wanted):
        raise ShapeError(f"values of shape {s.dims}; {wanted} is needed")
    common_dtype(t, s)
    return t


def _slice_reference(x: Array, src: Array, start: int, end: int, step: int, axis: int) -> Array:
    out = x.copy()
    np.moveaxis(out, axis, 0)[start:end:step] = np.moveaxis(src, axis, 0)
    return out


slice_scatter = define_op(
    "slice_scatter", inputs=("input_tensor", "src"), attributes={"start": 0, "end": None, "step": 1, "axis": 0},
    canonical=lambda a: {**a, **{k: _number(a[k]) for k in ("start", "end", "step")}},
    infer_type=_slice_type, compute=select.slice_scatter, reference=_slice_reference,
    samples=[sample((8, 3), (2, 3), start=1, end=5, step=2), sample((3, 8), (3, 3), start=-4, end=-1, axis=1)],
)  # fmt: skip


def _bucketize_type(x: StructInfo, boundaries: StructInfo, out_int32: bool, right: bool) -> TensorStructInfo:
    if tensor(boundaries).ndim != 1:
        raise ShapeError(f"boundaries {boundaries!r}, not a sequence")
    return TensorStructInfo(tensor(x).dims, "int32" if out_int32 else "int64")


bucketize = define_op(
    "bucketize", inputs=("input_tensor", "boundaries"), attributes={"out_int32": False, "right": False},
    infer_type=_bucketize_type,
    compute=lambda x, b, out_int32, right: select.searchsorted(b, x, right, "int32" if out_int32 else "int64"),
    reference=lambda x, b, out_int32, right: (b <= x[..., None] if right else b < x[..., None]).sum(
        -1, dtype="int32" if out_int32 else "int64"
    ),
    samples=[sample((3, 4), (5,)), sample(((3, 4), "int32"), ((5,), "int32"), out_int32=True, right=True)],
)  # fmt: skip


def _median_type(x: StructInfo, axis: Sequence[int] | int | None, keepdims: bool) -> StructInfo:
    t = tensor(x)
    axes = axes_tuple(axis, t.ndim)
    shape = tuple(1 if a in axes else d for a, d in enumerate(t.dims) if keepdims or a not in axes)
    values = TensorStructInfo(shape, t.dtype)
    return (
        TupleStructInfo((values, TensorStructInfo(shape, "int64"))) if len(axes) == 1 and axis is not None else values
    )


def _median_compute(x: Tensor, axis: Sequence[int] | int | None, keepdims: bool) -> Tensor | tuple[Tensor, Tensor]:
    """The element in the middle, the lower of two; with its position where it is taken along one axis."""
    axes, sizes = axes_tuple(axis, x.ndim), int_shape(x)
    kept = [a for a in range(x.ndim) if a not in axes]
    flat = topi.reshape(topi.transpose(x, [*kept, *axes]), [*(sizes[a] for a in kept), -1])
    order = argsort(flat, flat.ndim - 1, False, "int64")
    middle = (int_shape(flat)[-1] - 1) // 2
    shape = [1 if a in axes else d for a, d in enumerate(sizes) if keepdims or a not in axes]
    begin, end = [0] * len(kept) + [middle], [*(sizes[a] for a in kept), middle + 1]
    place = topi.strided_slice(order, begin, end)
    values, found = (topi.reshape(v, shape) for v in (take_along(flat, place, flat.ndim - 1), place))
    return (values, found) if len(axes) == 1 and axis is not None else values


def _median_reference(x: Array, axis: Sequence[int] | int | None, keepdims: bool) -> Array | tuple[Array, Array]:
    axes = axes_tuple(axis, x.ndim)
    kept = [a for a in range(x.ndim) if a not in axes]
    flat = x.transpose([*kept, *axes]).reshape([*(x.shape[a] for a in kept), -1])
    place = np.argsort(flat, axis=-1, kind="stable")[..., (flat.shape[-1] - 1) // 2 : (flat.shape[-1] + 1) // 2]
    shape = [1 if a in axes else d for a, d in enumerate(x.shape) if keepdims or a not in axes]
    values = np.take_along_axis(flat, place[..., :1], -1).reshape(shape)
    return (values, place[..., :1].reshape(shape)) if len(axes) == 1 and axis is not None else values


median = define_op(
    "median", attributes={"axis": None, "keepdims": False}, infer_type=_median_type, compute=_median_compute,
    reference=_median_reference,
    samples=[sample((3, 5), axis=1), sample((2, 3, 4), axis=(0, 2), keepdims=True), sample((3, 4)),
             sample((4, 3), axis=-2, keepdims=True)],
)  # fmt: skip


def _meshgrid_type(tensors: StructInfo, indexing: str) -> TupleStructInfo:
    if not isinstance(tensors, TupleStructInfo) or any(tensor(f).ndim != 1 for f in tensors.fields):
        raise InvalidTypeError("takes a tuple of sequences")
    if indexing not in ("ij", "xy"):
        raise InvalidValueError(f"indexing '{indexing}'", hint="'ij' or 'xy'")
    sizes = [tensor(f).dims[0] for f in tensors.fields]
    if indexing == "xy":
        sizes[:2] = sizes[:2][::-1]
    return TupleStructInfo(tuple(TensorStructInfo(sizes, tensor(f).dtype) for f in tensors.fields))


meshgrid = define_op(
    "meshgrid", inputs=("tensors",), attributes={"indexing": "ij"}, infer_type=_meshgrid_type,
    compute=lambda tensors, indexing: tuple(compat.meshgrid(tensors, indexing)),
    reference=lambda tensors, indexing: tuple(np.meshgrid(*tensors, indexing=indexing)),
    samples=[sample([(3,), (4,), (2,)]), sample([(3,), (4,)], indexing="xy")],
)  # fmt: skip


def _sequences_type(data: StructInfo, seq_lengths: StructInfo, seq_axis: int, batch_axis: int) -> TensorStructInfo:
    t, n = tensor(data), positions_type(seq_lengths)
    axis_index(seq_axis, t.ndim)
    if not same_dims(n.dims, (t.dims[axis_index(batch_axis, t.ndim)],)):
        raise ShapeError(f"lengths {n!r} of sequences {t!r}")
    return t


def _sequences_reference(data: Array, seq_lengths: Array, seq_axis: int, batch_axis: int) -> Array:
    moved = np.moveaxis(data, (batch_axis, seq_axis), (0, 1))
    out = moved.copy()
    for b, n in enumerate(seq_lengths):
        out[b, :n] = moved[b, :n][::-1]
    return np.ascontiguousarray(np.moveaxis(out, (0, 1), (batch_axis, seq_axis)))


reverse_sequence = define_op(
    "reverse_sequence", inputs=("data", "seq_lengths"), attributes={"seq_axis": 1, "batch_axis": 0},
    infer_type=_sequences_type, compute=compat.reverse_sequence, reference=_sequences_reference,
    samples=[
        sample((3, 5, 2), ((3,), "int64"), low=1, high=4),
        sample((5, 3), ((3,), "int32"), seq_axis=0, batch_axis=1, low=1, high=4),
    ],
)  # fmt: skip


def _multinomial_type(prob: StructInfo, uniform: StructInfo, indices: StructInfo, dtype: str) -> TensorStructInfo:
    p, u, i = tensor(prob), tensor(uniform), positions_type(indices)
    if p.ndim != 2 or u.ndim != 2 or not same_dims(u.dims, i.dims):
        raise ShapeError(f"{p!r}, samples {u!r} of rows {i!r}", hint="[batch, classes], [n, 1], [n, 1]")
    return TensorStructInfo(u.dims, dtype)


def _multinomial_reference(prob: Array, uniform: Array, indices: Array, dtype: str) -> Array:
    running = np.cumsum(prob, axis=1, dtype=prob.dtype)[resolve(indices[:, 0], len(prob), "raise")]
    below: Array = (running <= uniform).sum(1, keepdims=True)
    found: Array = np.minimum(below, prob.shape[1] - 1).astype(dtype)
    return found


multinomial_from_uniform = define_op(
    "multinomial_from_uniform", inputs=("prob", "uniform_sample", "sample_indices"), attributes={"dtype": "int64"},
    infer_type=_multinomial_type, compute=select.multinomial_from_uniform, reference=_multinomial_reference,
    samples=[sample((3, 4), (5, 1), ((5, 1), "int64"), low=0.1, high=0.9)],
)  # fmt: skip


def _window_attrs(attrs: Attrs) -> Attrs:
    return {k: _number(v) if k != "dtype" else v for k, v in attrs.items()}


hamming_window = define_op(
    "hamming_window", inputs=(),
    attributes={"window_size": 1, "periodic": True, "alpha": 0.54, "beta": 0.46, "dtype": "float32"},
    canonical=_window_attrs,
    infer_type=lambda window_size, periodic, alpha, beta, dtype: TensorStructInfo((window_size,), dtype),
    compute=select.hamming_window,
    reference=lambda window_size, periodic, alpha, beta, dtype: (
        alpha - beta * np.cos(2 * np.pi * np.arange(window_size) / (window_size if periodic else window_size - 1))
    ).astype(dtype),
    samples=[sample(window_size=8), sample(window_size=5, periodic=False, alpha=0.5, beta=0.5)],
)  # fmt: skip


def _count(x: Tensor) -> Tensor:
    total = te.const(1, "int64")
    for d in open_shape(x):
        total = total * d
    return te.compute((), lambda: total, name="T_size")


size = define_op(
    "size", inputs=("expr",), infer_type=lambda x: TensorStructInfo((), "int64") if tensor(x) else x, compute=_count,
    reference=lambda x: np.asarray(x.size, "int64"), samples=[sample((3, 4)), sample((1,))],
)  # fmt: skip
