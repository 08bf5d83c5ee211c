"""Convolution and transposed convolution over one, two or three dimensions of plain images, [N, C, …]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autosched import te
from autosched.errors import ShapeError
from autosched.te import Tensor
from autosched.tir.axis import IterVar
from autosched.tir.expr import PrimExpr, const, if_then_else
from autosched.topi.conv2d import out_size
from autosched.topi.shapes import ImageShape, dims, image_shape, int_shape, is_below, known

LETTERS = {1: "x", 2: "yx", 3: "zyx"}


@dataclass(frozen=True)
class Spatial:
    """How windows lie in the images; each field has one number per dimension, `padding` the begins, then the ends."""

    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.strides)

    def around(self, axis: int) -> tuple[int, int]:
        """(before, after): the padding of one dimension."""
        return self.padding[axis], self.padding[self.rank + axis]


def conv_shape(data: ImageShape, weight: Sequence[int], g: Spatial, groups: int) -> ImageShape:
    """The result's shape for a weight [O, C / groups, …]. Raises ShapeError saying what does not fit."""
    _require_ranks(data, weight, g.rank)
    if groups < 1 or data[1] % groups or weight[0] % groups or weight[1] * groups != data[1]:
        raise ShapeError(
            f"conv{g.rank}d: {data[1]} channels in {groups} groups do not fit a weight of shape {tuple(weight)}"
        )
    sizes = (out_size(data[2 + i], weight[2 + i], g.strides[i], g.dilation[i], *g.around(i)) for i in range(g.rank))
    return (data[0], weight[0], *sizes)


def conv_transpose_shape(
    data: ImageShape, weight: Sequence[int], g: Spatial, output_padding: Sequence[int], groups: int
) -> ImageShape:
    """The result's shape for a weight [C, O / groups, …]. Raises ShapeError saying what does not fit."""
    _require_ranks(data, weight, g.rank)
    if groups < 1 or data[1] % groups or weight[0] != data[1]:
        raise ShapeError(
            f"conv{g.rank}d_transpose: {data[1]} channels in {groups} groups do not fit "
            f"a weight of shape {tuple(weight)}"
        )
    sizes = []
    for i, extra in enumerate(output_padding):
        if extra < 0 or extra >= max(g.strides[i], g.dilation[i]):
            raise ShapeError(f"output_padding {extra} must be below the stride or the dilation")
        beside = (weight[2 + i] - 1) * g.dilation[i] + 1 + extra - sum(g.around(i))
        size = known((data[2 + i] - 1) * g.strides[i] + beside)
        if is_below(size, 1):
            raise ShapeError(f"padding {g.around(i)} leaves nothing of dimension {i}")
        sizes.append(size)
    return (data[0], weight[1] * groups, *sizes)


def _require_ranks(data: ImageShape, weight: Sequence[int], rank: int) -> None:
    if len(data) != rank + 2 or len(weight) != rank + 2:
        raise ShapeError(f"data of shape {tuple(data)} and weight {tuple(weight)} need {rank + 2} dimensions")


def conv_nd(data: Tensor, weight: Tensor, g: Spatial, groups: int = 1) -> Tensor:
    """Convolution. data [N, C, …]; weight [O, C / groups, …]. Raises ShapeError where they do not fit."""
    source, kernel = image_shape(data), int_shape(weight)
    shape = conv_shape(source, kernel, g, groups)
    padded = _spread(data, (1,) * g.rank, g.padding)
    rc, taps = _reduce_axes(kernel[1], kernel[2:])
    per_group = shape[1] // groups

    def body(n: PrimExpr, f: PrimExpr, *place: PrimExpr) -> PrimExpr:
        channel = rc if groups == 1 else f // per_group * kernel[1] + rc
        at = [p * s + t * d for p, s, t, d in zip(place, g.strides, taps, g.dilation, strict=True)]
        return te.sum(padded(n, channel, *at) * weight(f, rc, *taps), axis=[rc, *taps])

    return _compute(shape, body, f"conv{g.rank}d")


def conv_transpose_nd(
    data: Tensor, weight: Tensor, g: Spatial, output_padding: Sequence[int], groups: int = 1
) -> Tensor:
    """Transposed convolution: the gradient of convolution with respect to its data.

    data     [N, C, …]
    weight   [C, O / groups, …]
    returns  [N, O, …], each size (in - 1) * stride + (kernel - 1) * dilation + 1 - padding + output_padding
    Raises   ShapeError where they do not fit.
    Source   Dumoulin and Visin 2016, chapter 4: a convolution with stride 1 over data with zeros between them.
    """
    source, kernel = image_shape(data), int_shape(weight)
    shape = conv_transpose_shape(source, kernel, g, output_padding, groups)
    reach = [(k - 1) * d for k, d in zip(kernel[2:], g.dilation, strict=True)]
    before = [r - g.around(i)[0] for i, r in enumerate(reach)]
    after = [r - g.around(i)[1] + output_padding[i] for i, r in enumerate(reach)]
    spread = _spread(data, g.strides, (*before, *after))
    rc, taps = _reduce_axes(kernel[0] // groups, kernel[2:])

    def body(n: PrimExpr, f: PrimExpr, *place: PrimExpr) -> PrimExpr:
        channel = rc if groups == 1 else f // kernel[1] * (kernel[0] // groups) + rc
        out = f if groups == 1 else f % kernel[1]
        at = [p + t * d for p, t, d in zip(place, taps, g.dilation, strict=True)]
        flipped = [k - 1 - t for k, t in zip(kernel[2:], taps, strict=True)]
        return te.sum(spread(n, channel, *at) * weight(channel, out, *flipped), axis=[rc, *taps])

    return _compute(shape, body, f"conv{g.rank}d_transpose")


def plane_windows(
    data: Tensor, count: int, depth: int, kernel: int, stride: int, padding: tuple[int, int], dilation: int, groups: int
) -> Tensor:
    """The planes that windows over volumes read, as channels of images.

    data     [N * depth, C, H, W]
    returns  [N * count, C * kernel, H, W]; a group's channels are those of its first plane, then those of the next
    """
    images, channels, *size = image_shape(data)
    per_group = channels // groups

    def body(i: PrimExpr, c: PrimExpr, y: PrimExpr, x: PrimExpr) -> PrimExpr:
        tap, group = c // per_group % kernel, c // (per_group * kernel)
        at = i % count * stride + tap * dilation - padding[0]
        value = data(i // count * depth + at, group * per_group + c % per_group, y, x)
        inside = [at >= 0] if padding[0] else []
        inside += [at < depth] if padding[1] else []
        return if_then_else(te.all(*inside), value, const(0, data.dtype)) if inside else value

    shape = (known(images // depth * count), channels * kernel, *size)
    return te.compute(dims(shape), body, name="plane_windows")


def _spread(data: Tensor, steps: Sequence[int], padding: Sequence[int]) -> Tensor:
    """The data with `step - 1` zeros between neighbours and zeros around; negative padding cuts off."""
    rank = len(steps)
    before, after = padding[:rank], padding[rank:]
    if not any(padding) and all(s == 1 for s in steps):
        return data
    shape = image_shape(data)
    grown = [(size - 1) * s + 1 + b + a for size, s, b, a in zip(shape[2:], steps, before, after, strict=True)]

    def body(n: PrimExpr, c: PrimExpr, *place: PrimExpr) -> PrimExpr:
        conditions, at = [], []
        for p, size, s, b, a in zip(place, shape[2:], steps, before, after, strict=True):
            i = p - b
            conditions += [i >= 0] if b > 0 else []
            conditions += [i < (size - 1) * s + 1] if a > 0 else []
            conditions += [i % s == 0] if s > 1 else []
            at.append(i // s if s > 1 else i)
        value = data(n, c, *at)
        return if_then_else(te.all(*conditions), value, const(0, data.dtype)) if conditions else value

    names = [f"i{i}" for i in range(rank + 2)]
    return te.compute(dims((*shape[:2], *grown)), lambda *i: body(*i), name="pad_temp", varargs_names=names)


def _reduce_axes(channels: int, kernel: Sequence[int]) -> tuple[IterVar, list[IterVar]]:
    extents = dims((channels, *kernel))
    rc = te.reduce_axis((0, extents[0]), "rc")
    return rc, [te.reduce_axis((0, e), f"r{a}") for e, a in zip(extents[1:], LETTERS[len(kernel)], strict=True)]


def _compute(shape: ImageShape, body: Callable[..., PrimExpr], name: str) -> Tensor:
    assert not any(is_below(size, 1) for size in shape), "sizes were checked"
    names = ["n", "f", *LETTERS[len(shape) - 2]]
    return te.compute(dims(shape), lambda *i: body(*i), name=name, varargs_names=names)
