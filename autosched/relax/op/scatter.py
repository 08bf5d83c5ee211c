"""Values written to, or joined with, the elements that positions name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autosched import te, topi
from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.relax.op.conv2d import Array
from autosched.relax.op.indexing import along_axis, check_mode, positions_type, refuse_constants, resolve
from autosched.relax.op.registry import Limit, define_op, sample
from autosched.relax.op.types import axis_index, common_dtype, tensor
from autosched.relax.struct_info import Dim, StructInfo, TensorStructInfo, same_dims, to_dim
from autosched.te import Tensor
from autosched.tir import expr as E
from autosched.tir.axis import IterVar
from autosched.tir.checked_index import position
from autosched.tir.dtypes import is_float
from autosched.tir.expr import PrimExpr
from autosched.tir.size_expr import same_extent
from autosched.topi.shapes import as_int, axis_names, dims, open_shape

MOST_UNROLLED = 8  # updates that are written out, one after the other
_JOIN: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "update": lambda old, new: new, "add": lambda old, new: old + new, "mul": lambda old, new: old * new,
    "min": E.minimum, "max": E.maximum,
}  # fmt: skip
_STEPS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _compute(shape: Sequence[Dim], element: Callable[..., PrimExpr], name: str) -> Tensor:
    return te.compute(dims(shape), element, name=name, varargs_names=axis_names(len(shape)))


def _joined(reduction: str, hit: PrimExpr, value: PrimExpr, axis: IterVar) -> PrimExpr:
    """All values that are hit joined with each other; what leaves a value alone where none is."""
    dtype = value.dtype
    match reduction:
        case "add":
            return te.sum(E.select(hit, value, E.const(0, dtype)), axis=axis)
        case "mul":
            return te.prod(E.select(hit, value, E.const(1, dtype)), axis=axis)
        case "min":
            highest = E.const(math.inf, dtype) if is_float(dtype) else te.max_value(dtype)
            return te.min(E.select(hit, value, highest), axis=axis)
    lowest = E.const(-math.inf, dtype) if is_float(dtype) else te.min_value(dtype)
    return te.max(E.select(hit, value, lowest), axis=axis)


def _last_value(step: PrimExpr, count: Dim, old: PrimExpr, new: PrimExpr) -> PrimExpr:
    """The value of the last update that hit, if one did: there are `count`, and none has the number -1."""
    if isinstance(count, int):
        return E.select(step < 0, old, new)
    return E.if_then_else(te.any(step < 0, count < 1), old, new)


def _check_reduction(reduction: str, known: Sequence[str]) -> None:
    if reduction not in known:
        raise InvalidValueError(f"reduction '{reduction}'", hint=f"use one of {', '.join(known)}")


# --- along one axis ------------------------------------------------------------------------------------------------


def _elements_type(
    data: StructInfo, indices: StructInfo, updates: StructInfo, axis: int, reduction: str, mode: str
) -> TensorStructInfo:
    t, i, u = tensor(data), positions_type(indices), tensor(updates)
    a = axis_index(axis, t.ndim)
    check_mode(mode)
    _check_reduction(reduction, (*_JOIN, "mean"))
    if reduction == "mean" and not is_float(t.dtype):
        raise InvalidTypeError(f"means of {t.dtype}", hint="a float type")
    if t.ndim == i.ndim and t.is_static and i.is_static:
        if any(n > m for d, (n, m) in enumerate(zip(i.static_shape, t.static_shape, strict=True)) if d != a):
            raise ShapeError(f"positions of shape {i.static_shape} reach over data of shape {t.static_shape}")
    if t.ndim != i.ndim or not same_dims(i.dims, u.dims):
        raise ShapeError(f"positions of shape {i.dims} and values of shape {u.dims} for data of {t.ndim} dimensions")
    common_dtype(t, u)
    return t


def _elements_limits(data: StructInfo, indices: StructInfo, updates: StructInfo, axis: int, **_: object) -> list[Limit]:
    """Positions reach over data along the axis alone."""
    t, i = tensor(data), tensor(indices)
    pairs = [pair for d, pair in enumerate(zip(t.dims, i.dims, strict=True)) if d != axis_index(axis, t.ndim)]
    return [(to_dim(there) - to_dim(own), 0, None) for there, own in pairs if not same_extent(there, own)]


def _last(size: Dim) -> PrimExpr:
    return E.sub(E.to_expr(size, "int64"), E.const(1, "int64"))


def _scatter_compute(data: Tensor, indices: Tensor, updates: Tensor, axis: int, reduction: str, mode: str) -> Tensor:
    if reduction == "mean":  # of the element and all values for it
        total = _scatter_compute(data, indices, updates, axis, "add", mode)
        ones = (topi.full_like(x, 1.0) for x in (data, updates))
        count = _scatter_compute(next(ones), indices, next(ones), axis, "add", mode)
        return topi.divide(total, count)
    a = axis % data.ndim
    sizes, data_sizes = open_shape(indices), open_shape(data)
    size, n = data_sizes[a], sizes[a]
    if any(isinstance(s, int) and s == 0 for s in sizes):
        return _compute(data.shape, lambda *i: data(*i), "T_scatter")
    fewer = [d for d in range(data.ndim) if d != a and not same_extent(sizes[d], data_sizes[d])]

    def at(i: tuple[PrimExpr, ...], k: PrimExpr) -> list[PrimExpr]:
        """The place in `indices` of the k-th update along the axis, within its bounds."""
        return [k if d == a else E.minimum(v, _last(sizes[d])) if d in fewer else v for d, v in enumerate(i)]

    def is_hit(i: tuple[PrimExpr, ...], k: PrimExpr) -> PrimExpr:
        target = position(indices(*at(i, k)), size, f"scatter along axis {a}", mode)
        inside = [i[d] < E.to_expr(sizes[d], "int64") for d in fewer]
        return te.all(E.compare(E.EQ, target, i[a]), *inside)

    if isinstance(n, int) and n <= MOST_UNROLLED:

        def element(*i: PrimExpr) -> PrimExpr:
            value: PrimExpr = data(*i)
            for step in range(n):  # in order: the last update wins
                k = E.IntImm(step, "int64")
                value = E.select(is_hit(i, k), _JOIN[reduction](value, updates(*at(i, k))), value)
            return value

        return _compute(data.shape, element, "T_scatter")
    k = te.reduce_axis((0, dims(indices.shape)[a]), "k")
    if reduction == "update":
        none = E.const(-1, "int64")
        last = _compute(
            data.shape, lambda *i: te.max(E.select(is_hit(i, k.var), E.cast("int64", k.var), none), axis=k), "T_last"
        )

        def chosen(*i: PrimExpr) -> PrimExpr:
            step = last(*i)
            return _last_value(step, n, data(*i), updates(*at(i, E.maximum(step, E.const(0, "int64")))))

        return _compute(data.shape, chosen, "T_scatter")
    joined = _compute(
        data.shape, lambda *i: _joined(reduction, is_hit(i, k.var), updates(*at(i, k.var)), k), "T_joined"
    )
    return _compute(data.shape, lambda *i: _JOIN[reduction](data(*i), joined(*i)), "T_scatter")


def _scatter(data: Array, indices: Array, updates: Array, axis: int, reduction: str, mode: str) -> Array:
    if reduction == "mean":
        total = _scatter(data, indices, updates, axis, "add", mode)
        found: Array = total / _scatter(np.ones_like(data), indices, np.ones_like(updates), axis, "add", mode)
        return found
    out, indices = data.copy(), resolve(indices, data.shape[axis], mode)
    for place in np.ndindex(*indices.shape):
        target = list(place)
        target[axis] = indices[place]
        at = tuple(target)
        out[at] = updates[place] if reduction == "update" else _STEPS[reduction](out[at], updates[place])
    return out


scatter_elements = define_op(
    "scatter_elements", inputs=("data", "indices", "updates"),
    attributes={"axis": 0, "reduction": "update", "mode": "raise"},
    infer_type=_elements_type, compute=_scatter_compute, reference=_scatter,
    limits=_elements_limits, validate=refuse_constants(along_axis),
    samples=[sample((3, 4), ((2, 4), "int64"), (2, 4)),
        sample((3, 4), ((2, 4), "int64"), (2, 4), reduction="mean"),
        sample((5,), ((3,), "int64"), (3,), reduction="add"),
        sample((5,), ((3,), "int64"), (3,), mode="clip", low=-9, high=9),
        sample((5, 3), ((11, 2), "int64"), (11, 2), low=0, high=5),
        sample((5,), ((11,), "int64"), (11,), reduction="add", mode="clip", low=0, high=5)],
)  # fmt: skip


# --- by vectors of positions ---------------------------------------------------------------------------------------


def _nd_type(data: StructInfo, indices: StructInfo, updates: StructInfo, reduction: str, mode: str) -> TensorStructInfo:
    t, i, u = tensor(data), positions_type(indices), tensor(updates)
    check_mode(mode)
    _check_reduction(reduction, tuple(_JOIN))
    if not i.dims or not isinstance(depth := i.dims[-1], int):
        raise ShapeError(f"positions of shape {i.dims}: the number of dimensions that they are in has to be known")
    if depth > t.ndim:
        raise ShapeError(f"index vectors of {depth} for {t.ndim} dimensions")
    wanted = (*i.dims[:-1], *t.dims[depth:])
    if not same_dims(u.dims, wanted):
        raise ShapeError(f"values of shape {u.dims} for positions of {i.dims} in {t.dims}; {wanted} is needed")
    common_dtype(t, u)
    return t


def _nd_compute(data: Tensor, indices: Tensor, updates: Tensor, reduction: str, mode: str) -> Tensor:
    shape, lead = open_shape(data), open_shape(indices)[:-1]
    depth, n = as_int(indices.shape[-1]), math.prod(lead)
    if n == 0:
        return _compute(data.shape, lambda *i: data(*i), "T_scatter")

    def place(k: PrimExpr) -> list[PrimExpr]:
        """Where in `indices` the k-th vector is."""
        found, rest = [], k
        for size in reversed(lead[1:]):
            found.append(E.floormod(rest, E.to_expr(size, "int64")))
            rest = E.floordiv(rest, E.to_expr(size, "int64"))
        return [rest, *found[::-1]] if lead else []

    def target(k: PrimExpr) -> PrimExpr:
        at, total = place(k), E.const(0, "int64")
        for d in range(depth):
            here = position(indices(*at, d), shape[d], f"scatter along axis {d}", mode)
            total = total * shape[d] + E.cast("int64", here)
        return total

    targets = _compute((n,), lambda k: target(E.cast("int64", k)), "T_targets")
    k = te.reduce_axis((0, n), "k")

    def is_hit(i: tuple[PrimExpr, ...]) -> PrimExpr:
        flat = E.const(0, "int64")
        for d in range(depth):
            flat = flat * shape[d] + E.cast("int64", i[d])
        return E.compare(E.EQ, targets(k.var), flat)

    def update(step: PrimExpr, i: tuple[PrimExpr, ...]) -> PrimExpr:
        return updates(*place(E.cast("int64", step)), *i[depth:])

    if reduction == "update":
        none = E.const(-1, "int64")
        last = _compute(
            shape[:depth] or (1,),
            lambda *i: te.max(E.select(is_hit(i), E.cast("int64", k.var), none), axis=k), "T_last",
        )  # fmt: skip

        def chosen(*i: PrimExpr) -> PrimExpr:
            step = last(*(i[:depth] or (0,)))
            return _last_value(step, n, data(*i), update(E.maximum(step, E.const(0, "int64")), i))

        return _compute(data.shape, chosen, "T_scatter")
    joined = _compute(data.shape, lambda *i: _joined(reduction, is_hit(i), update(k.var, i), k), "T_joined")
    return _compute(data.shape, lambda *i: _JOIN[reduction](data(*i), joined(*i)), "T_scatter")


def _nd_reference(data: Array, indices: Array, updates: Array, reduction: str, mode: str) -> Array:
    out = data.copy()
    for place in np.ndindex(*indices.shape[:-1]):
        at = tuple(int(resolve(v, data.shape[d], mode)) for d, v in enumerate(indices[place]))
        out[at] = updates[place] if reduction == "update" else _STEPS[reduction](out[at], updates[place])
    return out


scatter_nd = define_op(
    "scatter_nd", inputs=("data", "indices", "updates"), attributes={"reduction": "update", "mode": "raise"},
    infer_type=_nd_type, compute=_nd_compute, reference=_nd_reference,
    validate=refuse_constants(lambda ndim, attrs: None),
    samples=[sample((4, 5), ((3, 2), "int64"), (3,)), sample((5, 2), ((2, 3, 1), "int64"), (2, 3, 2), low=0, high=5),
        sample((3, 4), ((6, 2), "int64"), (6,), reduction="add", mode="clip", low=0, high=4),
        sample((4, 3), ((6, 1), "int64"), (6, 3), reduction="max", mode="clip", low=0, high=4)],
)  # fmt: skip


# --- side by side --------------------------------------------------------------------------------------------------


def _write_type(data: StructInfo, updates: StructInfo, starts: StructInfo, axis: int, mode: str) -> TensorStructInfo:
    t, u, s = tensor(data), tensor(updates), positions_type(starts)
    a = axis_index(axis, t.ndim)
    check_mode(mode)
    if a == 0 or t.ndim != u.ndim or not same_dims((*t.dims[:a], *t.dims[a + 1 :]), (*u.dims[:a], *u.dims[a + 1 :])):
        raise ShapeError(f"values of shape {u.dims} along axis {axis} of data of shape {t.dims}")
    if not same_dims(s.dims, t.dims[:1]):
        raise ShapeError(f"starts of shape {s.dims} for data of shape {t.dims}")
    size, count = t.dims[a], u.dims[a]
    if isinstance(size, int) and isinstance(count, int) and count > size:
        raise ShapeError(f"{count} values for {size} places")
    common_dtype(t, u)
    return t


def _write_limits(data: StructInfo, updates: StructInfo, starts: StructInfo, axis: int, mode: str) -> list[Limit]:
    """No more values than places."""
    a = axis_index(axis, tensor(data).ndim)
    return [(to_dim(tensor(data).dims[a]) - to_dim(tensor(updates).dims[a]), 0, None)]


def _write_compute(data: Tensor, updates: Tensor, starts: Tensor, axis: int, mode: str) -> Tensor:
    a = axis % data.ndim
    size, count = open_shape(data)[a], open_shape(updates)[a]
    if count == 0:
        return _compute(data.shape, lambda *i: data(*i), "T_write")

    def element(*i: PrimExpr) -> PrimExpr:
        at = E.cast("int64", i[a])
        if mode == "wrap":
            step = E.floormod(at - E.cast("int64", starts(i[0])), E.to_expr(size, "int64"))
        else:
            step = at - position(starts(i[0]), size - count + 1, f"write along axis {a}", mode)
        inside = te.all(step >= 0, step < count)
        near = E.maximum(E.minimum(step, E.to_expr(count - 1, "int64")), E.const(0, "int64"))
        return E.if_then_else(inside, updates(*(near if d == a else v for d, v in enumerate(i))), data(*i))

    return _compute(data.shape, element, "T_write")


def _write_reference(data: Array, updates: Array, starts: Array, axis: int, mode: str) -> Array:
    out, size, count = data.copy(), data.shape[axis], updates.shape[axis]
    firsts = starts if mode == "wrap" else resolve(starts, size - count + 1, mode)
    for entry, values, first in zip(out, updates, firsts, strict=True):
        places = (first + np.arange(count)) % size
        np.moveaxis(entry, axis % data.ndim - 1, 0)[places] = np.moveaxis(values, axis % data.ndim - 1, 0)
    return out


write_at = define_op(
    "write_at", inputs=("data", "updates", "starts"), attributes={"axis": 1, "mode": "positive"},
    infer_type=_write_type, limits=_write_limits, compute=_write_compute, reference=_write_reference,
    samples=[sample((2, 5, 3), (2, 2, 3), ((2,), "int64"), low=0, high=4),
        sample((3, 2, 5), (3, 2, 3), ((3,), "int64"), axis=-1, mode="wrap", low=-9, high=9),
        sample((2, 6, 2, 4), (2, 1, 2, 4), ((2,), "int32"), mode="clip", low=-9, high=9)],
)  # fmt: skip
