"""Pooling over one and three dimensions, in any order of the plain layout's dimensions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched import topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.ir.node import Attrs
from autosched.relax.op.conv2d import Array
from autosched.relax.op.conv_nd import AXES, begins_and_ends, several
from autosched.relax.op.registry import OpDef, Sample, define_op, sample
from autosched.relax.op.types import tensor
from autosched.relax.struct_info import StructInfo, TensorStructInfo
from autosched.te import Tensor
from autosched.tir.dtypes import is_float, largest_finite
from autosched.topi.conv_nd import Spatial
from autosched.topi.pool_nd import adaptive_pool_nd, pool_nd, pool_shape


def _order(layout: str) -> tuple[int, ...]:
    """Where N, C and the other dimensions stand in a layout."""
    plain = "NC" + AXES[len(layout) - 2]
    return tuple(layout.index(c) for c in plain)


def _back(layout: str) -> tuple[int, ...]:
    order = _order(layout)
    return tuple(order.index(a) for a in range(len(order)))


def _layouts(attrs: Attrs, rank: int) -> Attrs:
    plain, layout = "NC" + AXES[rank], attrs["layout"] or "NC" + AXES[rank]
    out = attrs["out_layout"] or layout
    for name in (layout, out):
        if sorted(name) != sorted(plain):
            raise InvalidValueError(f"layout '{name}'", hint=f"an order of {plain}")
    return {**attrs, "layout": layout, "out_layout": out}


def _plain_dims(data: StructInfo, layout: str) -> tuple[int, ...]:
    t = tensor(data)
    if t.ndim != len(layout):
        raise ShapeError(f"{t!r} is not of layout {layout}")
    return tuple(t.static_shape[a] for a in _order(layout))


def _windows(attrs: Attrs) -> Spatial:
    return Spatial(attrs["strides"], attrs["padding"], attrs["dilation"])


def _type(data: StructInfo, **attrs: Any) -> TensorStructInfo:
    shape = pool_shape(
        _plain_dims(data, attrs["layout"]), attrs["pool_size"], _windows(attrs), attrs["ceil_mode"]
    )  # fmt: skip
    return TensorStructInfo([shape[a] for a in _back(attrs["out_layout"])], tensor(data).dtype)


def _reference(kind: str, data: Array, attrs: Attrs) -> Array:
    x = data.transpose(_order(attrs["layout"]))
    g, kernel = _windows(attrs), attrs["pool_size"]
    shape = pool_shape(x.shape, kernel, g, attrs["ceil_mode"])
    lowest = -largest_finite(data.dtype.name) if is_float(data.dtype.name) else np.iinfo(data.dtype).min
    out = np.empty(shape, data.dtype)
    for at in itertools.product(*map(range, shape[2:])):
        index, counted = [], 1
        for a, i in enumerate(at):
            first = i * g.strides[a] - g.around(a)[0]
            places = first + np.arange(kernel[a]) * g.dilation[a]
            index.append(places[(places >= 0) & (places < x.shape[2 + a])])
            end = x.shape[2 + a] + g.around(a)[1]
            counted *= int((places < end).sum()) if attrs["count_include_pad"] else len(index[-1])
        part = x[(slice(None), slice(None), *np.ix_(*index))].reshape(*shape[:2], -1)
        place: Any = (slice(None), slice(None), *at)
        if kind == "max":
            out[place] = part.max(axis=2, initial=lowest)
        else:
            out[place] = part.sum(axis=2, dtype=np.float64) / max(counted, 1)
    return out.transpose(_back(attrs["out_layout"]))


def _pool(kind: str, rank: int, samples: Sequence[Sample]) -> OpDef:
    def canonical(attrs: Attrs) -> Attrs:
        new = {k: several(attrs[k], rank, k) for k in ("pool_size", "strides", "dilation")}
        return _layouts({**attrs, **new, "padding": begins_and_ends(attrs["padding"], rank)}, rank)

    def compute(data: Tensor, **attrs: Any) -> Tensor:
        x = topi.transpose(data, _order(attrs["layout"]))
        found = pool_nd(
            x, attrs["pool_size"], _windows(attrs), kind, attrs["ceil_mode"], attrs["count_include_pad"]
        )  # fmt: skip
        return topi.transpose(found, _back(attrs["out_layout"]))

    return define_op(
        f"nn.{kind}_pool{rank}d", inputs=("data",),
        attributes={
            "pool_size": 1, "strides": 1, "padding": 0, "dilation": 1, "ceil_mode": False,
            "count_include_pad": kind == "avg", "layout": "NC" + AXES[rank], "out_layout": None,
        },
        canonical=canonical, infer_type=_type, compute=compute,
        reference=lambda data, **attrs: _reference(kind, data, attrs), samples=samples,
    )  # fmt: skip


def _samples(kind: str, rank: int) -> list[Sample]:
    image, last = ((1, 2, 9), (2, 7, 3)) if rank == 1 else ((1, 2, 4, 5, 6), (1, 4, 5, 3, 2))
    counts = {"count_include_pad": True} if kind == "avg" else {}
    return [
        sample(image, pool_size=3, strides=2, padding=1, **counts),
        sample(last, pool_size=2, strides=2, padding=1, ceil_mode=True, layout="N" + AXES[rank] + "C",
               count_include_pad=False),
    ]  # fmt: skip


max_pool1d, max_pool3d = (_pool("max", rank, _samples("max", rank)) for rank in (1, 3))
avg_pool1d, avg_pool3d = (_pool("avg", rank, _samples("avg", rank)) for rank in (1, 3))


def _adaptive_type(data: StructInfo, output_size: Sequence[int] | None, layout: str, out_layout: str) -> StructInfo:
    shape = _plain_dims(data, layout)
    result = (*shape[:2], *(output_size or shape[2:]))
    return TensorStructInfo([result[a] for a in _back(out_layout)], tensor(data).dtype)


def _adaptive_reference(data: Array, output_size: Sequence[int] | None, layout: str, out_layout: str) -> Array:
    x = data.transpose(_order(layout))
    size = tuple(output_size or x.shape[2:])
    out = np.empty((*x.shape[:2], *size), data.dtype)
    for at in itertools.product(*map(range, size)):
        part = tuple(
            slice(i * s // n, -(-(i + 1) * s // n)) for i, s, n in zip(at, x.shape[2:], size, strict=True)
        )  # fmt: skip
        seen = x[(slice(None), slice(None), *part)]
        place: Any = (slice(None), slice(None), *at)
        out[place] = seen.mean(axis=tuple(range(2, x.ndim)), dtype=np.float64)
    return out.transpose(_back(out_layout))


def _adaptive_compute(x: Tensor, output_size: Sequence[int] | None, layout: str, out_layout: str) -> Tensor:
    plain = topi.transpose(x, _order(layout))
    return topi.transpose(adaptive_pool_nd(plain, output_size) if output_size else plain, _back(out_layout))


def _adaptive(rank: int, samples: Sequence[Sample]) -> OpDef:
    def canonical(attrs: Attrs) -> Attrs:
        size = attrs["output_size"]
        return _layouts({**attrs, "output_size": None if size is None else several(size, rank, "output_size")}, rank)

    return define_op(
        f"nn.adaptive_avg_pool{rank}d", inputs=("data",),
        attributes={"output_size": None, "layout": "NC" + AXES[rank], "out_layout": None},
        canonical=canonical, infer_type=_adaptive_type, compute=_adaptive_compute, reference=_adaptive_reference,
        samples=samples,
    )  # fmt: skip


adaptive_avg_pool1d = _adaptive(1, [sample((1, 2, 7), output_size=3), sample((1, 7, 2), layout="NWC", output_size=4)])
adaptive_avg_pool3d = _adaptive(3, [sample((1, 2, 3, 4, 5), output_size=(2, 4, 3)), sample((1, 2, 3, 2, 2))])
