"""1x1 convolutions with stride 1 see an image as one row of pixels, so that tiles need not divide its rows."""

from __future__ import annotations

from autosched.templates.classify import Contraction, extents, reduced, spatial
from autosched.tir import Buffer, BufferLoad
from autosched.tir.functor import substitute
from autosched.tir.schedule import Schedule


def is_pointwise(c: Contraction, data: BufferLoad) -> bool:
    """Whether each pixel of a convolution's output (NCHW or NCHWc) depends on the same pixel of its data alone."""
    _, _, y, x = spatial(c.block)[:4]
    _, ky, kx, *_ = reduced(c.block)
    if extents((ky, kx)) != (1, 1):
        return False
    row, column = (substitute(i, {ky.var: ky.dom.min, kx.var: kx.dom.min}) for i in data.indices[2:4])
    return row is y.var and column is x.var


def reshape_images(sch: Schedule, anchor: str, out: str, *, width: int = 0, per_group: int = 0) -> None:
    """Let an anchor that writes [N, C, H, W(, c)] and its one consumer run over other dimensions of the same elements.

    width      of an image that is to be one row: [N, C, 1, H * W(, c)]; 0 keeps the rows
    per_group  channels of a group, which become a dimension of their own: [N, C / per_group, per_group, H, W]; or 0

    The buffer between the two is stored so; the function's arguments stay as they are.
    """
    buffer = sch.get(sch.get_block(anchor)).writes[0].buffer
    sch.transform_layout(anchor, ("write", 0), _index_map(buffer.ndim, width, per_group))
    for block in (anchor, out):
        count = len(sch.get(sch.get_block(block)).iter_vars)
        sch.transform_block_layout(block, _index_map(count, width, per_group))


def _index_map(count: int, width: int, per_group: int) -> str:
    """The index map for `count` indices, of which the first four are image, channel, row and column."""
    names = [f"i{d}" for d in range(count)]
    channel = [f"i1 // {per_group}", f"i1 % {per_group}"] if per_group else ["i1"]
    pixel = ["0", f"i2 * {width} + i3"] if width else ["i2", "i3"]
    return f"lambda {', '.join(names)}: ({', '.join(['i0', *channel, *pixel, *names[4:]])})"


def flat_copy(sch: Schedule, anchor: str, data: Buffer, made_by: str, width: int) -> str:
    """The block that copies an anchor's data, [N, C, H, W, c], into a buffer [N, C, 1, H * W, c]; gives its name.

    made_by  the block that makes the data, which then makes them in this form; "" for an argument, which is copied
    """
    name = made_by or sch.get(sch.cache_read(anchor, data, "global")).name_hint
    sch.transform_layout(name, ("write", 0), _index_map(data.ndim, width, 0))
    sch.transform_block_layout(name, _index_map(data.ndim, width, 0))
    return name
