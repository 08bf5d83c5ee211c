"""Convolution of plain NCHW images with stride 1, grouped ones too, vectorised along the pixels of a row.

    for (n, group, row, chunk of tiles) in parallel:
        for pixel tile, channel tile:
            tile[rows, vectors] = 0                                           # stays in registers
            for i, kh, kw: tile += weight[o, i, kh, kw] (broadcast) * data[n, i, …]
            out = epilogue(tile)

A 1x1 convolution runs over an image as one row of H * W pixels. Weights are taken as they are. This serves groups
whose channels do not fill blocks, and images that stay plain.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import Contraction, extents, find_contraction, is_parameter, reduced, spatial
from autosched.templates.cpu.conv_flat import is_pointwise, reshape_images
from autosched.templates.cpu.padding import schedule_before
from autosched.templates.cpu.register_tile import choose_tile
from autosched.templates.cpu.task_order import LEAST_TASKS
from autosched.tir import BufferLoad, PrimFunc
from autosched.tir.functor import free_vars
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer


@dataclass(frozen=True)
class PlainConv:
    """The roles in a convolution of plain images."""

    weight: BufferLoad  # [O, I / groups, KH, KW]
    data: BufferLoad
    chain: Chain
    width: int  # of the output
    is_flat: bool


def _roles(func: PrimFunc, c: Contraction) -> tuple[BufferLoad, BufferLoad] | None:
    """(weight, data) of a convolution whose data are read with stride 1 along the output's last axis."""
    _, channel, _, x = (iv.var for iv in spatial(c.block))
    for weight, data in ((c.a, c.b), (c.b, c.a)):
        if len(weight.indices) != 4 or len(data.indices) != 4 or weight.indices[0] is not channel:
            continue
        terms = Analyzer().linear(data.indices[3]).terms.values()
        stride = [k for k, atom in terms if atom is x]
        if is_parameter(func, weight) and stride == [1] and x not in free_vars(weight):
            return weight, data
    return None


class PlainConv2d:
    """Convolutions that read and write NCHW."""

    name = "conv_plain"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        if c is None or len(spatial(c.block)) != 4 or len(reduced(c.block)) != 3:
            return None
        roles, chain = _roles(func, c), chain_around(func, c.block)
        if roles is None or chain is None:
            return None
        weight, data = roles
        n, out, oh, ow = extents(spatial(c.block))
        per_group, kh, kw = extents(reduced(c.block))
        channels = data.buffer.const_shape()[1]
        groups = max(channels // per_group, 1)
        if out % groups or channels % per_group:
            return None
        flat = is_pointwise(c, data)
        conv = PlainConv(weight, data, chain, ow, flat)
        sizes = {"N": n, "G": groups, "O": out // groups, "I": per_group, "KH": kh, "KW": kw}
        sizes |= {"OH": 1, "OW": oh * ow} if flat else {"OH": oh, "OW": ow}
        return Anchor(c.block.name_hint, "conv2d", sizes, conv)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32"), "registers": target.num_registers}
        space = load_space(target.backend, self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s, lanes = anchor.sizes, target.lanes("float32")
        tile = choose_tile(s["O"], min(-(-s["OW"] // lanes), 6), s["I"] * s["KH"] * s["KW"], target)
        tiles = -(-s["OW"] // (tile.vectors * lanes))
        chunk = 1
        while 2 * chunk <= min(tiles, 64) and s["N"] * s["G"] * s["OH"] * -(-tiles // (2 * chunk)) >= LEAST_TASKS:
            chunk *= 2
        return Config(self.name, {"rows": tile.rows, "vectors": tile.vectors, "chunk": chunk, "unroll_i": 1})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv: PlainConv = anchor.details
        s, name = anchor.sizes, conv.chain.anchor.name_hint
        sch = Schedule(func)
        schedule_before(sch, conv.chain)
        out = schedule_epilogue(sch, conv.chain)
        reshape_images(sch, name, out, width=conv.width if conv.is_flat else 0, per_group=s["O"])
        n, group, channel, row, x = sch.get_loops(out)
        channel_tile, channel_in = sch.split(channel, [None, config["rows"]])
        width = config["vectors"] * target.lanes("float32")
        chunk, x_tile, x_in = sch.split(x, [None, min(config["chunk"], -(-s["OW"] // width)), width])
        sch.reorder(n, group, row, chunk, x_tile, channel_tile, channel_in, x_in)
        sch.parallel(sch.fuse(n, group, row, chunk))
        sch.unroll(channel_in)
        sch.vectorize(x_in)
        sch.compute_at(name, channel_tile, True)
        _schedule_update(sch, name, config["unroll_i"])
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _schedule_update(sch: Schedule, anchor: str, unroll: int) -> None:
    *_, channel_in, row, x_in, i, kh, kw = sch.get_loops(anchor)
    steps = [i, kh, kw]
    if unroll > 1:
        i, i_in = sch.split(i, [None, unroll])
        steps = [i, kh, kw, i_in]
        sch.unroll(i_in)
    sch.reorder(*steps, channel_in, row, x_in)
    sch.unroll(channel_in)
    sch.vectorize(x_in)
    sch.decompose_reduction(anchor, i)
