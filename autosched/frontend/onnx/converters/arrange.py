"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from autosched.frontend.onnx.converters.conv import require_images
from autosched.frontend.onnx.node import Held, Node, constant, info_of, is_empty
from autosched.frontend.onnx.packed import PackedWeight
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import (
    TO_THE_END,
    beside,
    cut,
    is_natural,
    is_same,
    plain,
    reversed_cut,
    sliced,
    tiled,
    with_ends,
)
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, ShapeExpr, Tuple, TupleGetItem
from autosched.relax.struct_info import Dim


@converter("Transpose")
def transpose(node: Node) -> Expr | Held:
    weight = node.inputs[0]
    if isinstance(weight, PackedWeight) and list(node.attr("perm", [1, 0])) == [1, 0]:
        return weight.transposed()
    return op.permute_dims(node.input(0), axes=node.attr("perm"))


@converter("Concat")
def concat(node: Node) -> Expr:
    parts = [node.input(i) for i, x in enumerate(node.inputs) if x is not None]
    axis = node.attr("axis", 1)
    # parts without elements occur in exported shape computations
    parts = [x for x in parts if not (is_empty(x) and _adds_nothing(x, axis))] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return op.concat(Tuple(tuple(beside(parts, axis, node.emit))), axis=axis)


def _adds_nothing(part: Expr, axis: int) -> bool:
    """Whether a part without elements adds nothing to a dimension: another one may be that of none."""
    dims = info_of(part).dims
    return not -len(dims) <= axis < len(dims) or dims[axis] == 0


@converter("Split")
def split(node: Node) -> Expr | tuple[Expr, ...]:
    axis = node.axis(node.attr("axis", 0))
    whole = node.info(0).dims[axis]
    if node.has(1) and not all(isinstance(d, int) for d in node.sizes_of(1)):
        return _open_pieces(node, axis, node.sizes_of(1))
    if not isinstance(whole, int):
        return _open_pieces(node, axis, _sizes_of_pieces(node, whole))
    sizes = node.integers(1) if node.has(1) else node.attr("split")
    if sizes is None:
        parts: object = int(node.attr("num_outputs", node.num_outputs))
        if parts != node.num_outputs:
            raise node.fail(f"num_outputs={parts}, and the node has {node.num_outputs}")
        if whole % parts and node.opset >= 18:  # the last one is smaller
            size = -(-whole // parts)
            parts = [size * n for n in range(1, parts)]
            if parts[-1] >= whole:
                raise node.fail(f"{node.num_outputs} pieces of {whole} elements")
    else:
        if len(sizes) != node.num_outputs or sum(sizes) != whole or min(sizes, default=0) < 0:
            raise node.fail(f"sizes {list(sizes)} for {node.num_outputs} pieces of {whole} elements")
        if 0 in sizes:
            return _pieces(node, axis, sizes)
        parts = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    if node.num_outputs == 1:
        return node.input(0)
    pieces = node.emit(op.split(node.input(0), indices_or_sections=parts, axis=axis))
    if isinstance(pieces, Tuple):
        return tuple(pieces.fields)
    return tuple(TupleGetItem(pieces, i) for i in range(node.num_outputs))


def _sizes_of_pieces(node: Node, whole: Dim) -> Sequence[Dim]:
    """The sizes of pieces of an open dimension: those that are given, else equal ones, the last maybe smaller."""
    given = node.integers(1) if node.has(1) else node.attr("split")
    if given is not None:
        return tuple(given)
    count = node.num_outputs
    if node.opset < 18:
        return (plain(whole // count),) * count
    size = plain((whole + (count - 1)) // count)
    return (*(size,) * (count - 1), plain(whole - size * (count - 1)))


def _open_pieces(node: Node, axis: int, sizes: Sequence[Dim]) -> tuple[Expr, ...]:
    """Pieces whose sizes are known in a call; a run sees that they are all of the dimension."""
    if len(sizes) != node.num_outputs or any(isinstance(d, int) and d < 1 for d in sizes):
        raise node.fail(f"sizes {list(map(str, sizes))} for {node.num_outputs} pieces")
    pieces, x, begin = [], node.input(0), cast(Dim, 0)
    dims = node.info(0).dims
    for size in sizes[:-1]:
        pieces.append(sliced(x, axis, (begin, size)))
        begin = plain(begin + size)
    rest = node.emit(sliced(x, axis, (begin, plain(dims[axis] - begin))))
    return (*pieces, op.reshape(rest, ShapeExpr((*dims[:axis], sizes[-1], *dims[axis + 1 :]))))


def _pieces(node: Node, axis: int, sizes: Sequence[int]) -> tuple[Expr, ...]:
    """Pieces of which some have no elements."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    cuts = [{"begin": (a,), "end": (a + n,)} for a, n in zip(starts, sizes)]
    whole = node.info(0).dims[axis]
    x = node.input(0)
    return tuple(
        x if n == whole and n else op.strided_slice(x, axes=(axis,), strides=(1,), **c) for n, c in zip(sizes, cuts)
    )


@converter("Slice")
def slice_(node: Node) -> Expr:
    if (found := open_slice(node, sliced)) is not None:
        return found
    dims = node.info(0).dims
    if node.opset < 10:
        begin, end = tuple(node.attr("starts")), tuple(node.attr("ends"))
        axes = tuple(node.attr("axes", range(len(begin))))
        steps: tuple[int, ...] = (1,) * len(begin)
    else:
        axes, steps = _axes_and_steps(node)
        begin, end = node.integers(1), node.integers(2)
    if not len(begin) == len(end) == len(axes) == len(steps):
        raise node.fail(f"{len(begin)} starts, {len(end)} ends, {len(axes)} axes and {len(steps)} steps")
    axes = tuple(node.axis(a) for a in axes)
    if len(set(axes)) != len(axes) or 0 in steps:
        raise node.fail(f"axes {list(axes)} in steps of {list(steps)}")
    begin = tuple(
        max(first, -size) if step < 0 and isinstance(size := dims[a], int) else first  # the first element, not none
        for a, first, step in zip(axes, begin, steps, strict=True)
    )
    whole = all(
        step == 1 and first in (0, -size if isinstance(size := dims[a], int) else 0)
        and end >= (size if isinstance(size, int) else TO_THE_END)
        for a, first, end, step in zip(axes, begin, end, steps, strict=True)
    )  # fmt: skip
    return node.input(0) if whole else op.strided_slice(node.input(0), axes=axes, begin=begin, end=end, strides=steps)


def _axes_and_steps(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes = node.integers(3) if node.has(3) else tuple(range(len(node.sizes_of(1))))
    return axes, node.integers(4) if node.has(4) else (1,) * len(axes)


def open_slice(node: Node, part: Callable[[Expr, int, tuple[Dim, Dim], int], Expr]) -> Expr | None:
    """A slice where sizes that are not known say where it begins or ends; None for others.

    part  as `sliced`
    """
    if node.opset < 10:
        return None
    (axes, steps), dims = _axes_and_steps(node), node.info(0).dims
    begin, end, x = node.sizes_of(1), node.sizes_of(2), node.input(0)
    if all(isinstance(d, int) for d in (*(dims[node.axis(a)] for a in axes), *begin, *end)):
        return None
    if not len(begin) == len(end) == len(axes) == len(steps):
        raise node.fail(f"{len(begin)} starts, {len(end)} ends, {len(axes)} axes and {len(steps)} steps")
    for axis, first, last, step in zip(map(node.axis, axes), begin, end, steps, strict=True):
        whole = info_of(x).dims[axis]
        found = reversed_cut(whole, first, last, step) if step < 0 else cut(whole, first, last, step)
        if found is None:
            raise node.fail(f"from {first} to {last} in steps of {step} of a dimension '{whole}'")
        x = node.emit(part(x, axis, found, step))
    return x


@converter("Trilu")
def trilu(node: Node) -> Expr:
    """The upper or lower triangle, the rest zero; the diagonal is known at import."""
    keep = op.triu if node.attr("upper", 1) else op.tril
    return keep(node.input(0), k=node.integers(1)[0] if node.has(1) else 0)


@converter("Tile")
def tile(node: Node) -> Expr:
    return tiled(node.input(0), node.sizes_of(1), node.emit)


@converter("Pad")
def pad(node: Node) -> Expr:
    """Widths are an attribute before opset 11; negative ones cut. Modes: a constant, or elements of the tensor."""
    dims, mode = node.info(0).dims, node.attr("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise node.fail(f"there is no mode '{mode}'")
    rank = len(dims)
    sizes = node.attr("pads") if node.opset < 11 else node.sizes_of(1)
    value = node.attr("value", 0.0) if node.opset < 11 else node.number(2) if node.has(2) else 0.0
    axes = [node.axis(int(a)) for a in node.integers(3)] if node.has(3) else list(range(rank))
    if len(sizes) != 2 * len(axes) or len(set(axes)) != len(axes):
        raise node.fail(f"{len(sizes)} widths for axes {axes}")
    x = node.input(0)
    if not all(isinstance(n, int) for n in sizes) and all(map(is_natural, sizes)):
        for n, a in enumerate(axes):
            both = sizes[n], sizes[len(axes) + n]
            x = _padded(node, x, a, *both, value) if mode == "constant" else _repeated(node, x, a, *both, mode)
        return x
    widths = node.attr("pads") if node.opset < 11 else node.integers(1)
    pairs = [0] * 2 * rank
    for n, a in enumerate(axes):
        pairs[2 * a : 2 * a + 2] = [max(widths[n], 0), max(widths[len(axes) + n], 0)]
    if mode in PAD_MODES and min(widths, default=0) >= 0 and _copies_rows(dims, pairs, int(mode == "reflect")):
        return op.nn.pad(x, pad_width=pairs, pad_mode=PAD_MODES[mode])
    for n, a in enumerate(axes):
        before, after, size = widths[n], widths[len(axes) + n], dims[a]
        if not before and not after:
            continue
        if not isinstance(size, int):
            if mode != "constant":
                if min(before, after) < 0:
                    raise node.fail(f"{before} and {after} elements around a dimension '{size}'")
                x = with_ends(x, a, before, after, mode, node.emit)
                continue
            if (inside := cut(size, max(-before, 0), plain(size + min(after, 0)))) is None:
                raise node.fail(f"{before} and {after} elements around a dimension '{size}'")
            x = node.emit(sliced(x, a, inside)) if min(before, after) < 0 else x
            continue
        if size + min(before, 0) + min(after, 0) < 0:
            raise node.fail(f"{before} and {after} elements around {size}")
        if mode != "constant":
            x = node.emit(op.take(x, Constant(_around(node, size, before, after, mode)), axis=a))
        elif before < 0 or after < 0:
            kept = {"begin": (max(-before, 0),), "end": (size + min(after, 0),)}
            x = node.emit(op.strided_slice(x, axes=(a,), strides=(1,), **kept))
    return x if mode != "constant" or not any(pairs) else op.nn.pad(x, pad_width=pairs, pad_value=value)


def _padded(node: Node, x: Expr, axis: int, before: Dim, after: Dim, value: float) -> Expr:
    """A value around a dimension, in so many places as sizes say, maybe none: they are copies of one on each side."""
    if is_same(before, 0) and is_same(after, 0):
        return x
    size = info_of(x).dims[axis]
    wide = node.emit(op.nn.pad(x, pad_width=[int(d // 2 == axis) for d in range(2 * info_of(x).ndim)], pad_value=value))
    count = plain(size + before + after)
    at = node.emit(op.size_range(ShapeExpr((plain(1 - before), count))))
    last = node.emit(op.size_values(ShapeExpr((plain(size + 1),)), is_scalar=True))
    return node.emit(op.take(wide, op.minimum(op.maximum(at, constant(0, "int64")), last), axis=axis))


def _repeated(node: Node, x: Expr, axis: int, before: Dim, after: Dim, mode: str) -> Expr:
    """Elements of a dimension around it, in so many places as sizes say: "edge", "reflect" or "wrap"."""
    if is_same(before, 0) and is_same(after, 0):
        return x
    size, zero = info_of(x).dims[axis], constant(0, "int64")
    at = node.emit(op.size_range(ShapeExpr((plain(0 - before), plain(size + before + after)))))
    last = node.emit(op.size_values(ShapeExpr((plain(size - 1),)), is_scalar=True))
    if mode == "edge":
        at = op.minimum(op.maximum(at, zero), last)
    elif mode == "wrap":
        at = op.floor_mod(at, node.emit(op.add(last, constant(1, "int64"))))
    else:
        at = op.subtract(last, op.abs(op.subtract(last, op.abs(at))))
    return node.emit(op.take(x, node.emit(at), axis=axis))


PAD_MODES = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def _copies_rows(dims: Sequence[Dim], pairs: Sequence[int], less: int) -> bool:
    """Whether several axes are padded of a tensor whose last one is not: each row is copied once then, from its place.

    less  how many elements of an axis cannot be taken on one side
    """
    padded = [d for d in range(len(dims)) if pairs[2 * d] or pairs[2 * d + 1]]
    if len(padded) < 2 or len(dims) - 1 in padded:
        return False
    most = [max(pairs[2 * d : 2 * d + 2]) for d in range(len(dims))]
    return all(isinstance(size, int) and size and n <= size - less for size, n in zip(dims, most, strict=True))


def _around(node: Node, size: int, before: int, after: int, mode: str) -> np.ndarray:
    """Positions in a dimension: `before` in front of it, itself, and `after` behind, as the mode has them."""
    node.require_small(8 * (before + size + after))
    at = np.arange(-before, size + after, dtype=np.int64)
    if not size and at.size:
        raise node.fail(f"there is nothing to pad with in mode '{mode}'")
    if mode == "edge" or size == 1:
        return np.clip(at, 0, max(size - 1, 0))
    if mode == "wrap":
        return at % max(size, 1)
    period = 2 * (size - 1)
    folded = at % max(period, 1)
    return np.where(folded >= size, period - folded, folded)


@converter("DepthToSpace")
def depth_to_space(node: Node) -> Expr:
    n, c, h, w = require_images(node)
    b = node.attr("blocksize")
    if b < 1 or c % (b * b) or node.attr("mode", "DCR") not in ("DCR", "CRD"):
        raise node.fail(f"blocks of {b} x {b}, mode '{node.attr('mode', 'DCR')}', {c} channels")
    if node.attr("mode", "DCR") == "DCR":
        parts, order = (n, b, b, c // (b * b), h, w), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (n, c // (b * b), b, b, h, w), (0, 1, 4, 2, 5, 3)
    moved = op.permute_dims(node.emit(op.reshape(node.input(0), ShapeExpr(parts))), axes=order)
    return op.reshape(node.emit(moved), ShapeExpr((n, c // (b * b), h * b, w * b)))


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> Expr:
    n, c, h, w = require_images(node)
    b = node.attr("blocksize")
    rows, columns = (plain(d // b) if b >= 1 else 0 for d in (h, w))
    if b < 1 or any(not is_same(n * b, d) and isinstance(d, int) for n, d in ((rows, h), (columns, w))):
        raise node.fail(f"blocks of {b} x {b} in images of {h} x {w}")
    parts = op.reshape(node.input(0), ShapeExpr((n, c, rows, b, columns, b)))
    order = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = op.permute_dims(node.emit(parts), axes=order)
    return op.reshape(node.emit(moved), ShapeExpr((n, c * b * b, rows, columns)))
