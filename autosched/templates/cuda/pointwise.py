"""Convolutions with windows of one place as batched products: out[n, o, p] += weight[o, c] * data[n, c, p].

The dimensions of an image, of which the window visits each element, are one dimension p. A template schedules the
product, and what it made reads and writes the natural arguments again, at (p // W, p % W); boxes are cut from them as
if they had the product's shapes (`codegen.lower.merge_dimensions`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.ir.node import FrozenDict
from autosched.templates.cuda.product_form import (
    HALVES,
    PRODUCT,
    RESULT,
    MatrixForm,
    block_axes,
    block_nest,
    find_matrix_form,
    result_of,
)
from autosched.templates.nests import index
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.axis import REDUCE, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import is_float
from autosched.tir.expr import IntImm, PrimExpr, const_int
from autosched.tir.function import make_root
from autosched.tir.functor import loads, rewrite
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import BufferRegion, BufferStore, seq


@dataclass(frozen=True)
class Pointwise:
    """A convolution as a product, and the arguments of the convolution by those of the product."""

    func: PrimFunc
    natural: Mapping[Buffer, Buffer]

    def restored(self, made: PrimFunc) -> PrimFunc:
        """What a schedule made of the product, as a function of the convolution's arguments."""

        def step(x: object) -> object:
            if isinstance(x, BufferLoad | BufferStore) and x.buffer in self.natural:
                old = self.natural[x.buffer]
                return replace(x, buffer=old, indices=_unfolded(x.indices, old))
            if isinstance(x, BufferRegion) and x.buffer in self.natural:
                old = self.natural[x.buffer]
                return BufferRegion(old, tuple(Range(IntImm(0, n.dtype), n) for n in old.shape))
            return x

        buffers = {p: self.natural.get(b, b) for p, b in made.buffer_map.items()}
        return replace(made, buffer_map=FrozenDict(buffers), body=rewrite(made.body, step))


def _unfolded(indices: Sequence[PrimExpr], natural: Buffer) -> tuple[PrimExpr, ...]:
    """The natural indices, of those in which the last one counts through all dimensions behind the first two.

    A matrix is a weight of such dimensions with one element.
    """
    *first, last = indices if len(indices) == 3 else (*indices, IntImm(0, indices[0].dtype))
    return (*first, *pixel(last, natural.const_shape()[2:]))


def pixel(flat: PrimExpr, shape: Sequence[int]) -> tuple[PrimExpr, ...]:
    """The indices of an element that is counted along the last dimension first."""
    found: tuple[PrimExpr, ...] = ()
    for size in reversed(shape[1:]):
        found = (E.floormod(flat, size) if size > 1 else IntImm(0, flat.dtype), *found)
        flat = E.floordiv(flat, size) if size > 1 else flat
    if shape and shape[0] == 1:
        flat = IntImm(0, flat.dtype)
    return (flat, *found) if shape else ()


def find_pointwise(func: PrimFunc) -> Pointwise | None:
    """The product that a convolution of arguments [N, C, …] is; None for other functions, and for groups."""
    form = find_matrix_form(func)
    if form is None or form.groups or form.chain.before or len(form.terms) != 1 or len(form.rows) != 1:
        return None
    if form.chain.anchor.writes[0].buffer.ndim < 3 or not form.dtype:
        return None
    weight, data = form.row_operand, form.column_operand
    outputs = [b.writes[0].buffer for b in (*form.chain.after[-1:], form.chain.anchor)]
    (term, channels), (row, rows) = form.terms[0], form.rows[0]
    shape, analyzer = data.buffer.const_shape(), Analyzer()
    if weight.buffer in form.blocks or data.buffer in form.blocks or outputs[0].const_shape()[2:] != shape[2:]:
        return None
    at = tuple(map(analyzer.simplify, data.indices))
    images, pixels = shape[0], [v for v, _ in form.columns]
    counted = [i for d, i in enumerate(at) if d != 1 and shape[d] > 1]
    if len(shape) < 3 or at[1] is not term or [*map(id, counted)] != [*map(id, pixels)]:
        return None
    if weight.indices[0] is not row or weight.indices[1] is not term:
        return None
    if weight.buffer.const_shape()[:2] != (rows, channels):
        return None
    if any(const_int(i) != 0 for i in (*weight.indices[2:], *(i for d, i in enumerate(at) if shape[d] == 1 != d))):
        return None
    if outputs[0].const_shape()[:2] != (images, rows):
        return None
    return _product(func, form, shape[2:], (images, rows, math.prod(shape[2:]), channels))


def _product(func: PrimFunc, form: MatrixForm, size: Sequence[int], extents: tuple[int, int, int, int]) -> Pointwise:
    """The product of so many images, rows, pixels and channels; images have the given size."""
    images, rows, pixels, channels = extents
    data, weight = form.column_operand.buffer, form.row_operand.buffer
    sums = form.chain.anchor.writes[0].buffer
    wide = "float32" if sums.dtype in HALVES else sums.dtype
    result = (images, rows, pixels)
    product = Buffer(PRODUCT, tuple(map(index, result)), wide)
    flat = {
        data: Buffer(data.name, tuple(map(index, (images, channels, pixels))), data.dtype),
        weight: Buffer(weight.name, tuple(map(index, (rows, channels))), weight.dtype),
    }

    axes = block_axes("g m p", product.shape)
    (term,) = block_axes("k", [index(channels)], REDUCE)
    (g, m, p), k = (iv.var for iv in axes), term.var
    factors = E.Mul(
        E.cast(wide, BufferLoad(flat[weight], (m, k))), E.cast(wide, BufferLoad(flat[data], (g, k, p)))
    )  # fmt: skip
    update = BufferStore(product, E.Add(BufferLoad(product, (g, m, p)), factors), (g, m, p))
    zero = E.const(0.0 if is_float(wide) else 0, wide)
    sum_of_products = block_nest(PRODUCT, [*axes, term], update, BufferStore(product, zero, (g, m, p)))

    axes = block_axes("g m p", product.shape)
    g, m, p = (iv.var for iv in axes)
    place = pixel(p, size)
    counted = [i for i, n in zip((g, *place), (images, *size), strict=True) if n > 1]
    values = {v: E.cast(v.dtype, i) for (v, _), i in zip((*form.rows, *form.columns), (m, *counted), strict=True)}
    value, out, _ = result_of(form, values, BufferLoad(product, (g, m, p)))
    value, more = _flattened(value, func.buffers, (images, rows, *size), place, p)
    flat |= more
    flat[out] = Buffer(out.name, product.shape, out.dtype)
    written = block_nest(RESULT, axes, BufferStore(flat[out], value, (g, m, p)))
    buffers = {v: flat.get(b, b) for v, b in func.buffer_map.items()}
    made = replace(func, buffer_map=FrozenDict(buffers), body=make_root(seq(sum_of_products, written), (product,)))
    return Pointwise(made, {new: old for old, new in flat.items()})


def _flattened(
    value: PrimExpr, arguments: Sequence[Buffer], size: tuple[int, ...], place: Sequence[PrimExpr], p: PrimExpr
) -> tuple[PrimExpr, dict[Buffer, Buffer]]:
    """(the value with arguments of images of this size read at p, their flat buffers by themselves)."""
    keys = [form_key(i) for i in place]

    def reads_pixel(x: BufferLoad) -> bool:
        return [form_key(_plain(i)) for i in x.indices[2:]] == keys

    found = [x for x in loads(value) if x.buffer in arguments and x.buffer.const_shape()[2:] == size[2:]]
    others = {x.buffer for x in found if not reads_pixel(x)}
    flat: dict[Buffer, Buffer] = {}
    for x in found:
        if x.buffer not in others and x.buffer not in flat:
            shape = (*x.buffer.const_shape()[:2], math.prod(size[2:]))
            flat[x.buffer] = Buffer(x.buffer.name, tuple(map(index, shape)), x.buffer.dtype)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in flat:
            return BufferLoad(flat[x.buffer], (*x.indices[:2], p))
        return x

    new: PrimExpr = rewrite(value, step)
    return new, flat


def _plain(e: PrimExpr) -> PrimExpr:
    return _plain(e.value) if isinstance(e, E.Cast) else e
