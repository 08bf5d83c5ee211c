"""Two-dimensional convolution: plain, grouped and depthwise; channels last or in blocks.

The weight is always natural, [O, I / groups, KH, KW]. Padding is a block of its own that the convolution reads, so
that a schedule may inline it, or keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autosched import te
from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir.axis import IterVar
from autosched.tir.expr import PrimExpr, cast, const, if_then_else
from autosched.topi.shapes import Dim, ImageShape, dims, image_shape, int_shape, is_below, known


def channel_block(layout: str) -> int:
    """The number of channels in a block: 16 for "NCHW16c", 0 for "NCHW". Raises ShapeError for other layouts."""
    if layout == "NCHW":
        return 0
    if layout.startswith("NCHW") and layout.endswith("c") and layout[4:-1].isdigit() and int(layout[4:-1]) > 0:
        return int(layout[4:-1])
    raise ShapeError(f"unknown layout '{layout}'", hint="use NCHW or a blocked one such as NCHW16c")


def pad_spatial(data: Tensor, padding: Sequence[int], value: float = 0.0, name: str = "pad_temp") -> Tensor:
    """Put (top, left, bottom, right) rows and columns of `value` around dimensions 2 and 3; `data` itself for none."""
    top, left, bottom, right = padding
    if not any(padding):
        return data
    shape = image_shape(data)
    height, width = shape[2], shape[3]
    grown = (shape[0], shape[1], height + top + bottom, width + left + right, *shape[4:])

    def compute(n: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr, *rest: PrimExpr) -> PrimExpr:
        conditions = []
        if top or bottom:
            conditions += [y >= top, y < top + height]
        if left or right:
            conditions += [x >= left, x < left + width]
        return if_then_else(te.all(*conditions), data(n, c, y - top, x - left, *rest), const(value, data.dtype))

    names = [f"i{i}" for i in range(len(shape))]
    return te.compute(dims(grown), lambda *i: compute(*i), name=name, varargs_names=names)


@dataclass(frozen=True)
class Geometry:
    """Sizes of one convolution, integers but for a batch and images of any size."""

    batch: PrimExpr | int
    channels_in: int
    channels_out: int
    groups: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    out_size: tuple[Dim, Dim]
    block_in: int  # 0: plain NCHW
    block_out: int

    @property
    def per_group_in(self) -> int:
        return self.channels_in // self.groups

    @property
    def per_group_out(self) -> int:
        return self.channels_out // self.groups

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.per_group_in == 1

    @property
    def has_groups_in_blocks(self) -> bool:
        """Whether a block of channels, in and out, is that of several whole groups."""
        block, each = self.block_out, self.per_group_in
        return self.block_in == block > each > 1 and each == self.per_group_out and block % each == 0


def slack(size: Dim, kernel: int, dilation: int, before: Dim, after: Dim) -> Dim:
    """How many elements there are beside those of one window; of a size that is not known, 0 at least in each call."""
    return known(size + before + after - (kernel - 1) * dilation - 1)


def out_size(size: Dim, kernel: int, stride: int, dilation: int, before: Dim, after: Dim) -> Dim:
    """How many windows fit. Raises ShapeError when none does."""
    left = slack(size, kernel, dilation, before, after)
    if is_below(left, 0):
        span = (kernel - 1) * dilation + 1
        raise ShapeError(f"a window of {span} does not fit into {size} with padding {before} and {after}")
    return known(left // stride + 1)


def geometry(
    data: ImageShape, weight: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int, data_layout: str, out_layout: str,
) -> Geometry:  # fmt: skip
    """Check shapes against each other. Raises ShapeError saying what does not fit."""
    block_in, block_out = channel_block(data_layout), channel_block(out_layout)
    if len(data) != (5 if block_in else 4) or len(weight) != 4:
        raise ShapeError(f"data of shape {tuple(data)} in {data_layout} and weight {tuple(weight)} (OIHW) do not fit")
    if block_in and data[4] != block_in:
        raise ShapeError(f"the last dimension is {data[4]}, layout {data_layout} says {block_in}")
    channels_in, channels_out = data[1] * (block_in or 1), weight[0]
    if groups < 1 or channels_in % groups or channels_out % groups or weight[1] != channels_in // groups:
        raise ShapeError(
            f"conv2d: {channels_in} channels in {groups} groups do not fit a weight of shape {tuple(weight)} (OIHW)"
        )
    sizes = tuple(
        out_size(data[2 + i], weight[2 + i], strides[i], dilation[i], padding[i], padding[2 + i]) for i in (0, 1)
    )
    g = Geometry(
        data[0], channels_in, channels_out, groups, (weight[2], weight[3]), (strides[0], strides[1]),
        (dilation[0], dilation[1]), sizes, block_in, block_out,  # type: ignore[arg-type]
    )  # fmt: skip
    _check_blocks(g)
    return g


def _check_blocks(g: Geometry) -> None:
    if g.block_out and g.channels_out % g.block_out:
        raise ShapeError(f"{g.channels_out} output channels are no multiple of the block {g.block_out}")
    if g.groups == 1 or not (g.block_in or g.block_out):
        return
    if g.is_depthwise:
        if g.block_in != g.block_out or g.block_out % g.per_group_out:
            raise ShapeError(
                f"a blocked depthwise convolution needs one layout in and out, not blocks of {g.block_in} and"
                f" {g.block_out}, whose channels the {g.per_group_out} outputs of each channel divide"
            )
    elif not g.has_groups_in_blocks and (g.per_group_in % (g.block_in or 1) or g.per_group_out % (g.block_out or 1)):
        raise ShapeError(f"groups of {g.per_group_in} and {g.per_group_out} channels are no multiples of the block")


def conv2d(
    data: Tensor, weight: Tensor, strides: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int,
    data_layout: str = "NCHW", out_layout: str = "NCHW", out_dtype: str | None = None, pad_value: float = 0,
) -> Tensor:  # fmt: skip
    """Convolution.

    data     [N, C, H, W], or [N, C / c, H, W, c] for data_layout "NCHW{c}c"
    weight   [O, C / groups, KH, KW]
    padding  (top, left, bottom, right)
    out_dtype  what products are computed and summed in; the data's dtype by default
    pad_value  what is put around the image
    returns  [N, O, OH, OW], or [N, O / c, OH, OW, c] for out_layout "NCHW{c}c"
    Raises   ShapeError where shapes, groups and blocks do not fit.
    """
    g = geometry(image_shape(data), int_shape(weight), strides, padding, dilation, groups, data_layout, out_layout)
    padded, dtype = pad_spatial(data, padding, pad_value), out_dtype or data.dtype
    if g.is_depthwise:
        return _depthwise(padded, weight, g, dtype)
    if g.kernel == (1, 1) and g.strides != (1, 1):
        return _dense(_every_nth_pixel(padded, g), weight, replace(g, strides=(1, 1)), dtype)
    return _dense(padded, weight, g, dtype)


def _every_nth_pixel(data: Tensor, g: Geometry) -> Tensor:
    """The pixels that a 1x1 convolution with a stride reads, as a block of its own: the rest is a matrix product."""
    shape = image_shape(data)
    y, x = g.strides

    def compute(n: PrimExpr, c: PrimExpr, row: PrimExpr, column: PrimExpr, *rest: PrimExpr) -> PrimExpr:
        return data(n, c, row * y, column * x, *rest)

    names = [f"i{i}" for i in range(len(shape))]
    kept = dims((*shape[:2], *g.out_size, *shape[4:]))
    return te.compute(kept, lambda *i: compute(*i), name="stride_temp", varargs_names=names)


def _rows(g: Geometry, y: PrimExpr, x: PrimExpr, ky: IterVar, kx: IterVar) -> tuple[PrimExpr, PrimExpr]:
    """Where a window's element lies in the padded image."""

    def at(i: PrimExpr, k: IterVar, axis: int) -> PrimExpr:
        return i * g.strides[axis] + k * g.dilation[axis]

    return at(y, ky, 0), at(x, kx, 1)


Channel = tuple[PrimExpr, PrimExpr | None]  # its index, or its block's and that in the block


def _output(g: Geometry, body: Callable[[PrimExpr, Channel, PrimExpr, PrimExpr], PrimExpr], name: str) -> Tensor:
    """The compute over (n, channel, y, x), the channel split in blocks where the output is."""
    rows, columns = g.out_size
    if not g.block_out:
        shape = dims((g.batch, g.channels_out, rows, columns))
        return te.compute(shape, lambda nn, ff, yy, xx: body(nn, (ff, None), yy, xx), name=f"{name}_nchw")
    shape = dims((g.batch, g.channels_out // g.block_out, rows, columns, g.block_out))
    return te.compute(
        shape, lambda n, oc_chunk, oh, ow, oc_block: body(n, (oc_chunk, oc_block), oh, ow), name=f"{name}_nchwc"
    )


def _channel(g: Geometry, channel: Channel) -> PrimExpr:
    chunk, inner = channel
    return chunk if inner is None else chunk * g.block_out + inner


def _dense(data: Tensor, weight: Tensor, g: Geometry, dtype: str) -> Tensor:
    """Plain and grouped: sum over the group's input channels and the window."""
    ry, rx = te.reduce_axis((0, dims(g.kernel)[0]), "ry"), te.reduce_axis((0, dims(g.kernel)[1]), "rx")
    name = "conv2d" if g.groups == 1 else "group_conv2d"
    if g.block_in and not g.has_groups_in_blocks:
        chunks = g.per_group_in // g.block_in
        ic = te.reduce_axis((0, dims((chunks,))[0]), "ic_chunk")
        ib = te.reduce_axis((0, dims((g.block_in,))[0]), "ic_block")
        axes = [ic, ry, rx, ib]
    else:
        rc = te.reduce_axis((0, dims((g.per_group_in,))[0]), "rc")
        axes = [rc, ry, rx]

    def group_start(channel: Channel, step: int) -> PrimExpr | int:
        """The first input channel (or chunk) of the output channel's group."""
        if g.groups == 1:
            return 0
        width = g.per_group_out // g.block_out if channel[1] is not None else g.per_group_out
        return channel[0] // width * step

    def body(n: PrimExpr, channel: Channel, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        row, column = _rows(g, y, x, ry, rx)
        out = _channel(g, channel)
        if g.has_groups_in_blocks:
            chunk, lane = channel
            assert lane is not None, "blocks in, blocks out"
            value = data(n, chunk, row, column, lane // g.per_group_in * g.per_group_in + rc)
        elif g.block_in:
            value = data(n, ic + group_start(channel, chunks), row, column, ib)
            return te.sum(cast(dtype, value) * cast(dtype, weight(out, ic * g.block_in + ib, ry, rx)), axis=axes)
        else:
            value = data(n, rc + group_start(channel, g.per_group_in), row, column)
        return te.sum(cast(dtype, value) * cast(dtype, weight(out, rc, ry, rx)), axis=axes)

    return _output(g, body, name)


def _depthwise(data: Tensor, weight: Tensor, g: Geometry, dtype: str) -> Tensor:
    """One input channel for each output channel, or for a few that follow each other: sum over the window alone."""
    ry, rx = te.reduce_axis((0, dims(g.kernel)[0]), "ry"), te.reduce_axis((0, dims(g.kernel)[1]), "rx")

    def body(n: PrimExpr, channel: Channel, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        row, column = _rows(g, y, x, ry, rx)
        if g.block_in:
            assert channel[1] is not None, "blocks in, blocks out"
            value = data(n, *_source(g, channel[0], channel[1], row, column))
        else:
            source = channel[0] if g.per_group_out == 1 else channel[0] // g.per_group_out
            value = data(n, source, row, column)
        return te.sum(cast(dtype, value) * cast(dtype, weight(_channel(g, channel), 0, ry, rx)), axis=[ry, rx])

    return _output(g, body, "depthwise_conv2d")


def _source(g: Geometry, chunk: PrimExpr, lane: PrimExpr, row: PrimExpr, column: PrimExpr) -> tuple[PrimExpr, ...]:
    """Where the one input channel of an output channel in blocks lies: block, row, column and place in the block."""
    each = g.per_group_out
    if each == 1:
        return chunk, row, column, lane
    return chunk // each, row, column, chunk % each * (g.block_in // each) + lane // each
