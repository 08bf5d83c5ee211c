"""Views, permutations, joining and cutting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.frontend.size_arithmetic import (
    are_same,
    beside,
    is_natural,
    is_same,
    new_shape,
    plain,
    sliced,
    tiled,
    with_ends,
)  # fmt: skip
from autosched.frontend.torch.converters.index import slice_
from autosched.frontend.torch.emitter import Emitter, Ints, common_dtype, constant, info_of, positive
from autosched.frontend.torch.registry import converter
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr, TupleGetItem
from autosched.relax.op.manipulate import split_sizes
from autosched.relax.struct_info import Dim
from autosched.tir.expr import PrimExpr


def _numbers(args: tuple[Any, ...]) -> list[Any]:
    """view(2, 3) and view([2, 3]) alike."""
    if len(args) == 1 and isinstance(args[0], list | tuple):
        return list(args[0])
    return [a for a in args if isinstance(a, int | PrimExpr)]


@converter("view", "reshape", "_unsafe_view", "view_copy", "_reshape_copy")
def view(
    t: Emitter, input: Expr, *args: Any, shape: Sequence[int] | None = None, size: Sequence[int] | None = None
) -> Expr:
    if args and not isinstance(args[0], int | list | tuple | PrimExpr) and args[0] in t.dtypes:
        raise t.fail("a view of a tensor's memory as another dtype is not supported")
    given = shape if shape is not None else size
    return _viewed(t, input, given if given is not None else _numbers(args))


def _viewed(t: Emitter, input: Expr, wanted: Sequence[Dim]) -> Expr:
    if all(isinstance(d, int) for d in (*t.shape(input), *wanted)):
        known = math.prod(d for d in wanted if d != -1)
        left = math.prod(t.shape(input)) // known if known else 0
        return t.reshape(input, [left if d == -1 else d for d in wanted])
    shape = new_shape(t.shape(input), wanted)
    if shape is None:
        raise t.fail(f"the shape {list(t.shape(input))} as {list(wanted)}: whether that fits depends on open sizes")
    return t.reshape(input, shape)


@converter("flatten")
def flatten(t: Emitter, input: Expr, start_dim: int = 0, end_dim: int = -1) -> Expr:
    shape = t.shape(input)
    first, last = positive(start_dim, len(shape)), positive(end_dim, len(shape))
    return t.reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


@converter("unflatten")
def unflatten(t: Emitter, input: Expr, dim: int, sizes: Sequence[int]) -> Expr:
    shape = t.shape(input)
    dim = positive(dim, len(shape))
    return _viewed(t, input, (*shape[:dim], *sizes, *shape[dim + 1 :]))


@converter("permute", "permute_copy")
def permute(t: Emitter, input: Expr, *args: Ints, dims: Sequence[int] | None = None) -> Expr:
    axes = list(dims if dims is not None else _numbers(args))
    return op.permute_dims(input, axes=[positive(a, len(axes)) for a in axes]) if axes else input


@converter("transpose", "transpose_copy", "swapaxes")
def transpose(t: Emitter, input: Expr, dim0: int, dim1: int) -> Expr:
    axes = list(range(len(t.shape(input))))
    if not axes:
        return input
    axes[dim0], axes[dim1] = axes[dim1], axes[dim0]
    return op.permute_dims(input, axes=axes)


@converter("unsqueeze", "unsqueeze_copy")
def unsqueeze(t: Emitter, input: Expr, dim: int) -> Expr:
    return op.expand_dims(input, axis=positive(dim, len(t.shape(input)) + 1))


@converter("squeeze", "squeeze_copy")
def squeeze(t: Emitter, input: Expr, dim: Ints | None = None) -> Expr:
    shape = t.shape(input)
    axes = range(len(shape)) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {positive(a, len(shape)) for a in axes}
    return t.reshape(input, [s for a, s in enumerate(shape) if a not in gone or not is_same(s, 1)])


@converter("expand", "expand_copy")
def expand(t: Emitter, input: Expr, *args: Ints, size: Sequence[int] | None = None, implicit: bool = False) -> Expr:
    own, wanted = t.shape(input), list(size if size is not None else _numbers(args))
    for back in range(1, len(own) + 1):
        if is_same(wanted[-back], -1):
            wanted[-back] = own[-back]
    return t.broadcast(input, wanted)


@converter("expand_as")
def expand_as(t: Emitter, input: Expr, other: Expr) -> Expr:
    return expand(t, input, t.shape(other))


@converter("repeat", "tile")
def repeat(
    t: Emitter, input: Expr, *args: Ints, repeats: Sequence[int] | None = None, dims: Sequence[int] | None = None
) -> Expr:
    given = repeats if repeats is not None else dims
    counts = list(given if given is not None else _numbers(args))
    shape = t.shape(input)
    counts = [1] * (len(shape) - len(counts)) + counts
    if not counts:
        return input
    x = t.reshape(input, (*(1,) * (len(counts) - len(shape)), *shape))
    return tiled(x, counts, t)


@converter("cat", "concat", "concatenate")
def cat(t: Emitter, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    dtype = common_dtype(*tensors)
    parts = [x for x in tensors if not are_same(t.shape(x), (0,))] or list(tensors[:1])  # empty ones go with any shape
    if len(parts) == 1:
        return t.cast(parts[0], dtype)
    return op.concat(beside([t.cast(x, dtype) for x in parts], dim, t), axis=dim)


@converter("stack")
def stack(t: Emitter, tensors: Sequence[Expr], dim: int = 0) -> Expr:
    axis = positive(dim, len(t.shape(tensors[0])) + 1)
    return op.concat([t(op.expand_dims(x, axis=axis)) for x in tensors], axis=axis)


@converter("split", "split_with_sizes", "split_copy", "split_with_sizes_copy")
def split(
    t: Emitter, input: Expr, split_size: Ints | Dim | None = None, dim: int = 0, **kwargs: Ints
) -> tuple[Expr, ...]:
    """In pieces of one size (the last may be smaller), or of the sizes given."""
    sizes = kwargs.get("split_size_or_sections", kwargs.get("split_sizes", split_size))
    assert sizes is not None, "an argument of the operator"
    extent, axis = t.shape(input)[dim], positive(dim, len(t.shape(input)))
    if isinstance(sizes, PrimExpr) or (isinstance(sizes, int) and not isinstance(extent, int)):
        count = _noted_count(t)
        before = [sizes] * (count - 1)
        return _open_pieces(t, input, [*before, plain(extent - sizes * (count - 1))], axis)
    if not isinstance(sizes, int) and not all(isinstance(n, int) for n in (extent, *sizes)):
        return _open_pieces(t, input, sizes, axis)
    if isinstance(sizes, int):
        if not sizes and not extent:
            return (input,)
        cuts = list(range(sizes, extent, sizes))
    else:
        cuts, at = [], 0
        for s in sizes[:-1]:
            at += s
            cuts.append(at)
    if not cuts:
        return (input,)
    if 0 in split_sizes(extent, cuts):
        return _open_pieces(t, input, split_sizes(extent, cuts), axis)
    pieces = t(op.split(input, indices_or_sections=cuts, axis=positive(dim, len(t.shape(input)))))
    return tuple(TupleGetItem(pieces, i) for i in range(len(cuts) + 1))


def _noted_count(t: Emitter) -> int:
    """How many pieces the operator at work gave when the program was exported: it is for sizes that give as many."""
    noted = None if t.source is None else t.source.meta.get("val")
    if noted is None:
        raise t.fail("pieces of an open size")
    return len(noted)


def _open_pieces(t: Emitter, x: Expr, sizes: Sequence[Dim], axis: int) -> tuple[Expr, ...]:
    """Pieces of sizes that are not known."""
    pieces: list[Expr] = []
    begin: Dim = 0
    for size in sizes:
        pieces.append(t(sliced(x, axis, (begin, size))))
        begin = plain(begin + size)
    return tuple(pieces)


@converter("chunk")
def chunk(t: Emitter, input: Expr, chunks: int, dim: int = 0) -> tuple[Expr, ...]:
    return split(t, input, plain((t.shape(input)[dim] + (chunks - 1)) // chunks), dim)


@converter("unbind")
def unbind(t: Emitter, input: Expr, dim: int = 0) -> tuple[Expr, ...]:
    shape = t.shape(input)
    axis = positive(dim, len(shape))
    pieces = split(t, input, 1, axis)
    return tuple(t.reshape(t(p), (*shape[:axis], *shape[axis + 1 :])) for p in pieces)


@converter("pad", "constant_pad_nd")
def pad(t: Emitter, input: Expr, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Expr:
    """Widths come from the last dimension on, negative ones cut; the decomposed form has the value for a mode."""
    if isinstance(mode, int | float):
        mode, value = "constant", mode
    if mode != "constant":
        return continued(t, input, pad, mode)
    x, ndim = input, len(t.shape(input))
    widths = [0] * (2 * ndim)
    for i in range(len(pad) // 2):
        d, before, after = ndim - 1 - i, pad[2 * i], pad[2 * i + 1]
        if isinstance(before, PrimExpr) or isinstance(after, PrimExpr):
            x = _open_border(t, x, d, before, after, value or 0)
            continue
        widths[2 * d], widths[2 * d + 1] = max(before, 0), max(after, 0)
        if before < 0 or after < 0:
            x = t(slice_(t, x, d, max(-before, 0), after if after < 0 else None))
    if not any(widths):
        return x
    dtype = info_of(x).dtype
    if dtype == "bool":
        padded = t(op.nn.pad(t.cast(x, "int8"), pad_width=widths, pad_value=float(bool(value))))
        return t.cast(padded, "bool")
    return op.nn.pad(x, pad_width=widths, pad_value=value or 0.0)


def _open_border(t: Emitter, x: Expr, axis: int, before: Dim, after: Dim, value: float) -> Expr:
    """A dimension with a border of an open width, which may be 0."""
    if not (is_natural(before) and is_natural(after)):
        raise t.fail(f"a border of {before} and {after}: whether it is cut off depends on open sizes")
    shape, dtype = t.shape(x), info_of(x).dtype
    wide = plain(shape[axis] + before + after)
    place = t(op.subtract(t(op.size_range(ShapeExpr((0, wide)))), t.as_dtype(before, "int64")))
    zero, last = constant(0, "int64"), t.as_dtype(plain(shape[axis] - 1), "int64")
    nearest = t(op.minimum(t(op.maximum(place, zero)), last))
    inside = t.reshape(t(op.equal(place, nearest)), [wide if a == axis else 1 for a in range(len(shape))])
    return t(op.where(inside, t(op.take(x, nearest, axis=axis)), constant(value, dtype)))


OPEN_MODES = {"reflect": "reflect", "circular": "wrap", "replicate": "edge"}  # as `with_ends` calls them


def continued(t: Emitter, x: Expr, pad: Sequence[int], mode: str) -> Expr:
    """Borders that repeat what is inside: mirrored, the last element, or from the other side."""
    ndim = len(t.shape(x))
    for i in range(len(pad) // 2):
        d, before, after = ndim - 1 - i, pad[2 * i], pad[2 * i + 1]
        n = t.shape(x)[d]
        if not isinstance(n, int) and mode in OPEN_MODES and min(before, after) >= 0:
            x = with_ends(x, d, before, after, OPEN_MODES[mode], t) if before or after else x
            continue
        at = np.arange(-before, n + after)
        if mode == "reflect":
            at = np.where(at < 0, -at, at)
            at = np.where(at >= n, 2 * (n - 1) - at, at)
        elif mode == "circular":
            first, kept = max(-before, 0), n + min(before, 0) + min(after, 0)  # what is cut off does not return
            at = first + (at - first) % kept
        elif mode == "replicate":
            at = np.clip(at, 0, n - 1)
        else:
            raise t.fail(f"pad with mode '{mode}' is not supported")
        if before or after:
            x = t(op.take(x, constant(at, "int64"), axis=d))
    return x


@converter("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(t: Emitter, input: Expr, padding: Sequence[int]) -> Expr:
    return continued(t, input, padding, "reflect")


@converter("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(t: Emitter, input: Expr, padding: Sequence[int]) -> Expr:
    return continued(t, input, padding, "replicate")


@converter("size")
def size(t: Emitter, input: Expr, dim: int | None = None) -> tuple[int, ...] | int:
    """Known when the model is imported."""
    return t.shape(input) if dim is None else t.shape(input)[dim]


@converter("sym_numel", "numel")
def numel(t: Emitter, input: Expr) -> int:
    return math.prod(t.shape(input))


@converter("sym_stride", "stride")
def stride(t: Emitter, input: Expr, dim: int | None = None) -> tuple[int, ...] | int:
    """Of a tensor that lies in memory without gaps, as ours do."""
    shape = t.shape(input)
    steps = tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
    return steps if dim is None else steps[dim]


@converter("sym_storage_offset")
def storage_offset(t: Emitter, input: Expr) -> int:
    return 0


@converter("channel_shuffle")
def channel_shuffle(t: Emitter, input: Expr, groups: int) -> Expr:
    n, c, *rest = t.shape(input)
    grouped = t.reshape(input, (n, groups, c // groups, *rest))
    axes = [0, 2, 1, *range(3, 3 + len(rest))]
    return t.reshape(t(op.permute_dims(grouped, axes=axes)), (n, c, *rest))


@converter("pixel_shuffle")
def pixel_shuffle(t: Emitter, input: Expr, upscale_factor: int) -> Expr:
    n, c, h, w = t.shape(input)
    r = upscale_factor
    split_up = t.reshape(input, (n, c // (r * r), r, r, h, w))
    return t.reshape(t(op.permute_dims(split_up, axes=[0, 1, 4, 2, 5, 3])), (n, c // (r * r), h * r, w * r))
