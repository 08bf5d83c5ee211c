"""Convolutions that have no fast kernels of their own become two-dimensional ones that do, of as few taps as they need.

layouts such as NHWC -> NCHW between transpositions
conv1d            -> conv2d over images of one row
conv2d_transpose  -> conv2d with an output channel for each place in a stride, and the interleaving of these images;
                     likewise over one and three dimensions
any convolution   -> without the taps that meet nothing but padding, as those of 3x3 around images of one pixel
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import starmap

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Var
from autosched.relax.op.other_layouts import inverse, plain_attrs
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.transform.blocked import image_shape_of
from autosched.tir.size_expr import same_extent
from autosched.topi.shapes import known

Array = np.ndarray
ROWS = 2  # the axis that conv1d gets
MOST_ZEROS = 4  # so many times as large as a kernel its stride may be: the weights for each phase are filled up to that
CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
CONVOLUTION_OF = {  # what a transposed convolution becomes
    "relax.nn.conv1d_transpose": op.nn.conv1d, "relax.nn.conv2d_transpose": op.nn.conv2d,
    "relax.nn.conv3d_transpose": op.nn.conv3d,
}  # fmt: skip
LAYOUT_OF = {  # operators over images, and the attribute that names the layout of their data
    "relax.nn.conv1d": "data_layout", "relax.nn.conv3d": "data_layout",
    "relax.nn.conv2d": "data_layout", "relax.nn.max_pool2d": "layout", "relax.nn.avg_pool2d": "layout",
    "relax.nn.adaptive_avg_pool2d": "layout",
}  # fmt: skip


def phase_weights(weight: Array, strides: Sequence[int]) -> Array:
    """Weights [C, O, KH, KW] of a transposed convolution as [O * SH * SW, C, ceil(KH / SH), ceil(KW / SW)].

    Output pixel q * S + r sums data[q - m] * weight[r + m * S] over m: a convolution for each r, its taps in reverse.
    The same holds for one and three dimensions.
    """
    c, o, *kernel = weight.shape
    taps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    padded = np.zeros((c, o, *(t * s for t, s in zip(taps, strides, strict=True))), weight.dtype)
    padded[tuple(map(slice, weight.shape))] = weight
    backwards = (slice(None, None, -1), slice(None))
    split = padded.reshape(c, o, *(n for pair in zip(taps, strides, strict=True) for n in pair))
    split = split[(slice(None), slice(None), *backwards * len(taps))]
    tap_axes = range(2, split.ndim, 2)
    return np.ascontiguousarray(split.transpose(1, *(t + 1 for t in tap_axes), 0, *tap_axes)).reshape(-1, c, *taps)


def taps_within(size: int, out: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> range:
    """The taps of a window along one axis from the first to the last that meets data at any of `out` places.

    Those that are left out take their part of the padding with them, which so stays positive.
    """
    before, after = pads
    met = [
        k
        for k in range(kernel)
        if max(0, -((k * dilation - before) // stride)) <= min(out - 1, (size - 1 + before - k * dilation) // stride)
    ]
    if not met:
        return range(kernel)
    return range(min(met[0], before // dilation), max(met[-1], kernel - 1 - after // dilation) + 1)


def trimmed(call: Call) -> Call:
    """A plain convolution without taps at the edges of its window that meet padding alone; itself if it has none.

    Padding is zeros here: that of quantised data may be another value.
    """
    data, weight = call.args
    strides, padding, dilation = (call.attrs[name] for name in ("strides", "padding", "dilation"))
    rank, sizes = len(strides), (*image_shape_of(data)[2:], *image_shape_of(call)[2:])
    if not isinstance(weight, Constant) or weight.data.ndim != rank + 2 or len(sizes) != 2 * rank:
        return call
    if not all(isinstance(n, int) for n in sizes) or min(padding) < 0 or call.attrs.get("pad_value", 0):
        return call
    kernel, axes = weight.data.shape[2:], range(rank)
    taps = [
        taps_within(sizes[a], sizes[rank + a], kernel[a], strides[a], dilation[a], (padding[a], padding[rank + a]))
        for a in axes
    ]
    if all(len(t) == k for t, k in zip(taps, kernel, strict=True)):
        return call
    before = [padding[a] - taps[a].start * dilation[a] for a in axes]
    after = [padding[rank + a] - (kernel[a] - taps[a].stop) * dilation[a] for a in axes]
    left = np.ascontiguousarray(weight.data[(slice(None), slice(None), *(slice(t.start, t.stop) for t in taps))])
    return remake(call, [data, Constant(left)], {"padding": (*before, *after)})


class _Expander(Rewriter):
    """Expands convolutions; with `keeps_images` the phases of transposed ones stay an operator of its own."""

    def __init__(self, keeps_images: bool):
        super().__init__()
        self.keeps_images = keeps_images

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name in LAYOUT_OF and (plain := self.plain(call)) is not call:
            return plain
        if call.op_name in CONVOLUTIONS:
            call = trimmed(call)
            return self.conv1d(call) if call.op_name == "relax.nn.conv1d" else call
        if call.op_name in CONVOLUTION_OF and isinstance(call.args[1], Constant):
            return self.transposed(call)
        return call

    def plain(self, call: Call) -> Expr:
        """The call in NCHW, its operands transposed into that order and the result back."""
        orders, attrs = plain_attrs(dict(call.attrs), LAYOUT_OF[call.op_name])
        if not any(orders):
            return call
        args = [self.emit(op.permute_dims(a, o)) if o else a for a, o in zip(call.args, orders, strict=False)]
        result = remake(call, args, attrs)
        if call.op_name in CONVOLUTIONS:
            result = trimmed(result)
        value = self.conv1d(result) if call.op_name == "relax.nn.conv1d" else result
        return op.permute_dims(self.emit(value), inverse(orders[2])) if orders[2] else value

    def conv1d(self, call: Call) -> Expr:
        data, weight = (self.emit(op.expand_dims(x, axis=ROWS)) for x in call.args)
        begin, end = call.attrs["padding"]
        images = op.nn.conv2d(
            data,
            weight,
            strides=(1, *call.attrs["strides"]),
            padding=(0, begin, 0, end),
            dilation=(1, *call.attrs["dilation"]),
            groups=call.attrs["groups"],
            out_dtype=call.attrs["out_dtype"],
        )
        return op.squeeze(self.emit(images), axis=(ROWS,))

    def transposed(self, call: Call) -> Expr:
        groups, strides, padding = (call.attrs[k] for k in ("groups", "strides", "padding"))
        data, weight, rank = call.args[0], call.args[1].data, len(strides)
        shape = image_shape_of(call)
        if not shape or call.attrs["dilation"] != (1,) * rank:
            return call
        n, channels, *size = shape
        if any(s > MOST_ZEROS * k for s, k in zip(strides, weight.shape[2:], strict=True)):
            return call
        # one pixel meets each tap once, whatever the stride: with that of the kernel's size no phase has other taps
        strides = tuple(
            k if have == 1 else s
            for have, k, s in zip(image_shape_of(data)[2:], weight.shape[2:], strides, strict=True)
        )
        per_group = np.split(weight, groups)
        phases = np.concatenate([phase_weights(w, strides) for w in per_group])
        # how many pixels of each phase there are, and how far their windows reach beyond the data
        count = [known((out + before + s - 1) // s) for out, before, s in zip(size, padding, strides, strict=False)]
        reach = [k - 1 for k in phases.shape[2:]]
        beyond = [known(q - have) for q, have in zip(count, image_shape_of(data)[2:], strict=True)]
        if not all(isinstance(more, int) and more >= 0 for more in beyond):
            return call
        spare = [known(q * s - before - out) for q, s, before, out in zip(count, strides, padding, size, strict=False)]
        is_shuffle = self.keeps_images and rank == 2 and groups == 1 and all(isinstance(n, int) for n in spare)
        if is_shuffle:  # phases before channels, so that blocks of channels stay together
            phases = phases.reshape(channels, -1, *phases.shape[1:]).swapaxes(0, 1).reshape(phases.shape)
        convolved = CONVOLUTION_OF[call.op_name](
            data, Constant(phases), padding=(*reach, *beyond), groups=groups, out_dtype=call.attrs["out_dtype"]
        )
        if is_shuffle:
            return op.nn.depth_to_space(self.emit(convolved), strides=strides, crop=(*padding[:2], *spare))
        images = self.emit(self.conv1d(convolved) if rank == 1 else convolved)
        split = self.emit(op.reshape(images, ShapeExpr((n, channels, *strides, *count))))
        mixed = self.emit(op.permute_dims(split, axes=(0, 1, *(a for i in range(2, 2 + rank) for a in (i + rank, i)))))
        whole = self.emit(
            op.reshape(mixed, ShapeExpr((n, channels, *(q * s for q, s in zip(count, strides, strict=True)))))
        )
        if all(starmap(same_extent, zip(size, image_shape_of(whole)[2:], strict=True))):
            return whole
        if all(isinstance(out, int) for out in size):
            ends = tuple(before + out for before, out in zip(padding, size, strict=False))
            return op.strided_slice(whole, axes=tuple(range(2, 2 + rank)), begin=tuple(padding[:rank]), end=ends)
        for axis, (before, out) in enumerate(zip(padding, size, strict=False), 2):
            whole = self.emit(op.sized_slice(whole, ShapeExpr((before, out)), axis=axis))
        return whole


def phases_interleaved(data: Expr, call: Call, emit: Callable[[Expr], Expr]) -> Expr:
    """What `nn.depth_to_space` computes in plain layout, by changes of shape, of order and a slice."""
    (rows, columns), (top, left, *_) = call.attrs["strides"], call.attrs["crop"]
    (n, _, h, w), (_, channels, *size) = image_shape_of(data), image_shape_of(call)
    split = emit(op.reshape(data, ShapeExpr((n, rows, columns, channels, h, w))))
    mixed = emit(op.permute_dims(split, axes=(0, 3, 4, 1, 5, 2)))
    whole = op.reshape(mixed, ShapeExpr((n, channels, known(h * rows), known(w * columns))))
    if not any(call.attrs["crop"]):
        return whole
    for axis, (before, out) in enumerate(zip((top, left), size, strict=True), 2):
        whole = op.sized_slice(emit(whole), ShapeExpr((before, out)), axis=axis)
    return whole


def expand_convolutions(module: IRModule, keeps_images: bool = False) -> IRModule:
    """Replace `nn.conv1d` by `nn.conv2d`, and transposed convolutions with constant weights and no dilation.

    Constant weights lose the taps that meet padding alone.
    A transposed convolution whose stride is many times its kernel stays: nearly all of its phases are zero.

    keeps_images  phases of images are brought together by `nn.depth_to_space`, which `ChooseLayouts` knows
    """
    return map_functions(module, lambda function: _Expander(keeps_images).rewrite(function))


def ExpandConvolutions(keeps_images: bool = False) -> Pass:  # noqa: N802
    """See `expand_convolutions`."""
    return graph_pass("ExpandConvolutions")(lambda module: expand_convolutions(module, keeps_images))
