"""Convolutions and transposed convolutions over one to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autosched.frontend.onnx.node import Node, info_of
from autosched.frontend.onnx.registry import converter
from autosched.frontend.size_arithmetic import larger, plain
from autosched.relax import op
from autosched.relax.expr import Expr, ShapeExpr
from autosched.relax.op.col2im import windows_along
from autosched.relax.struct_info import Dim

MOST_TERMS = 64  # of a pixel's sum over windows, which are written out


def window_padding(
    node: Node, size: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Padding, all begins then all ends, from `pads` or worked out for `auto_pad`.

    Raises ImportModelError where the window's numbers are too few, too many or impossible, or follow from open sizes.
    """
    rank, mode = len(size), node.attr("auto_pad", "NOTSET")
    for name, values in (("kernel_shape", kernel), ("strides", strides), ("dilations", dilations)):
        if len(values) != rank or min(values, default=1) < 1:
            raise node.fail(f"{name} {list(values)} of a window over {rank} dimensions")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"there is no auto_pad '{mode}'")
    if mode == "NOTSET":
        pads = list(node.attr("pads", [0] * 2 * rank))
        if len(pads) != 2 * rank or min(pads, default=0) < 0:
            raise node.fail(f"pads {pads} of a window over {rank} dimensions")
        return pads
    if mode == "VALID":
        return [0] * 2 * rank
    begins, ends = [], []
    for s, k, stride, d in zip(size, kernel, strides, dilations, strict=True):
        total = _known_padding(node, larger(0, plain((-(-s // stride) - 1) * stride + (k - 1) * d + 1 - s)))
        small = total // 2
        begins.append(total - small if mode == "SAME_LOWER" else small)
        ends.append(small if mode == "SAME_LOWER" else total - small)
    return begins + ends


def _known_padding(node: Node, total: Dim) -> int:
    if not isinstance(total, int):
        raise node.fail(f"padding of '{total}' elements, a number that is not known")
    return total


@converter("Conv")
def conv(node: Node) -> Expr:
    """Convolution over one to three dimensions, and bias."""
    shape, rank = node.shape(1), _rank(node)
    kernel = list(node.attr("kernel_shape", shape[2:]))
    strides, dilations = list(node.attr("strides", [1] * rank)), list(node.attr("dilations", [1] * rank))
    if kernel != list(shape[2:]):
        raise node.fail(f"kernel_shape {kernel}, and weights of {list(shape[2:])}")
    pads = window_padding(node, node.info(0).dims[2:], kernel, strides, dilations)
    convolve = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[rank]
    out = convolve(
        node.input(0), node.input(1), strides=strides, padding=pads, dilation=dilations, groups=node.attr("group", 1)
    )
    return _biased(node, out, shape[0])


@converter("ConvTranspose")
def conv_transpose(node: Node) -> Expr:
    """Transposed convolution over one to three dimensions, and bias."""
    shape, rank, groups = node.shape(1), _rank(node), node.attr("group", 1)
    kernel = list(node.attr("kernel_shape", shape[2:]))
    strides, dilations = list(node.attr("strides", [1] * rank)), list(node.attr("dilations", [1] * rank))
    extra = list(node.attr("output_padding", [0] * rank))
    if kernel != list(shape[2:]):
        raise node.fail(f"kernel_shape {kernel}, and weights of {list(shape[2:])}")
    for name, values, least in (("strides", strides, 1), ("dilations", dilations, 1), ("output_padding", extra, 0)):
        if len(values) != rank or min(values) < least:
            raise node.fail(f"{name} {values} of a window over {rank} dimensions")
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = _transposed_padding(node, node.info(0).dims[2:], spans, strides, extra)
    extra = [more - min(0, pad) for more, pad in zip(extra, pads[rank:], strict=True)]
    pads = [*pads[:rank], *(max(0, pad) for pad in pads[rank:])]
    convolve = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}[rank]
    out = convolve(
        node.input(0), node.input(1), strides=strides, padding=pads, output_padding=extra, dilation=dilations,
        groups=groups,
    )  # fmt: skip
    return _biased(node, out, shape[1] * groups)


@converter("Col2Im")
def col2im(node: Node) -> Expr:
    """Images from the columns of their windows; windows side by side only change their order."""
    size, window, info = node.integers(1), node.integers(2), node.info(0)
    rank = len(size)
    strides, dilations = (list(node.attr(name, [1] * rank)) for name in ("strides", "dilations"))
    pads = window_padding(node, size, window, strides, dilations)
    if info.ndim != 3 or math.prod(window) > MOST_TERMS or info.dtype == "bool":
        raise node.no_kernel(f"columns of shape {list(info.dims)} and windows {list(window)}")
    both = [before + after for before, after in zip(pads[:rank], pads[rank:], strict=True)]
    places = [*map(windows_along, size, window, strides, both, dilations)]
    n, columns, count = info.dims[0], *node.sizes_from(0, 1)
    if columns % math.prod(window) or count != math.prod(places):
        raise node.fail(f"{columns} columns of {count} places, for images {list(size)} in windows {list(window)}")
    apart = node.emit(op.reshape(node.input(0), ShapeExpr((n, columns // math.prod(window), *window, *places))))
    if list(window) == strides and not any(pads) and [k * p for k, p in zip(window, places, strict=True)] == list(size):
        order = (0, 1, *(axis for a in range(2, 2 + rank) for axis in (a + rank, a)))
        moved = node.emit(op.permute_dims(apart, axes=order))
        return op.reshape(moved, ShapeExpr((n, columns // math.prod(window), *size)))
    return op.nn.col2im(
        apart, size=size, strides=tuple(strides), padding=tuple(pads[:rank]), dilation=tuple(dilations)
    )  # fmt: skip


def _rank(node: Node) -> int:
    """The number of dimensions convolved over."""
    rank = len(node.shape(1)) - 2
    if rank not in (1, 2, 3) or node.info(0).ndim != rank + 2:
        raise node.no_kernel(f"convolution over {rank} dimensions")
    return rank


def _biased(node: Node, out: Expr, channels: int) -> Expr:
    if not node.has(2):
        return out
    bias = node.emit(op.reshape(node.input(2), ShapeExpr((1, channels, *[1] * _rank(node)))))
    return op.add(node.emit(out), bias)


def _transposed_padding(
    node: Node, size: Sequence[Dim], spans: Sequence[int], strides: Sequence[int], extra: Sequence[int]
) -> list[int]:
    """Padding, all begins then all ends, from `pads`, or worked out for `output_shape` or `auto_pad`.

    An end is negative where that much is missing behind the output.
    """
    mode, wanted = node.attr("auto_pad", "NOTSET"), node.attr("output_shape", None)
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"there is no auto_pad '{mode}'")
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = list(node.attr("pads", [0] * 2 * len(size))) if mode == "NOTSET" else [0] * 2 * len(size)
        if len(pads) != 2 * len(size) or min(pads) < 0:
            raise node.fail(f"pads {pads} of a window over {len(size)} dimensions")
        return pads
    if wanted is not None and len(wanted) < len(size):
        raise node.fail(f"output_shape {list(wanted)} of a window over {len(size)} dimensions")
    if wanted is None:
        wanted = [n * s for n, s in zip(size, strides, strict=True)]
    begins, ends = [], []
    for n, s, span, more, out in zip(size, strides, spans, extra, wanted[-len(size) :], strict=True):
        total = _known_padding(node, plain(s * (n - 1) + more + span - out))
        begin = max(0, total // 2 if mode == "SAME_UPPER" else total - total // 2)
        begins.append(begin)
        ends.append(total - begin)
    return begins + ends


def require_images(node: Node) -> tuple[Dim, int, Dim, Dim]:
    """The shape of the first input, which must be [N, C, H, W]; all but C may be open."""
    info = info_of(node.input(0))
    if info.ndim != 4:
        raise node.fail(f"only images [N, C, H, W] are supported, got {info.ndim} dimensions")
    n, c, h, w = info.image_shape
    return n, c, h, w
