"""Convolutions of images [N, C, H, W], grouped ones too, in tiles of shared memory and registers.

    for image in blockIdx.z, channel tile in blockIdx.y, tile of pixels in blockIdx.x:
        for a few input channels:
            window_shared, weight_shared = what the tile needs of both       # copied by all threads, padding with it
            for channel, kh, kw: acc[channels of the thread, pixels of the thread] += weight_shared * window_shared
        out = epilogue(acc)

Threads of x, and virtual ones, run along a row of pixels, threads of z over rows, threads of y over output channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, require, schedule_epilogue
from autosched.templates.classify import extents, find_contraction, is_injective, reduced, spatial
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import (
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    MOST_GRID_YZ,
    THREAD_X,
    THREAD_Y,
    THREAD_Z,
    VTHREAD_X,
    copy_together,
    power_of_two_below,
    read_index,
)
from autosched.tir import BufferLoad, PrimFunc
from autosched.tir.dtypes import item_bytes
from autosched.tir.functor import free_vars
from autosched.tir.schedule import BlockRV, Schedule

MOST_UNROLLED = 9  # places of a window: more of them are compiled for seconds
MOST_WIDE, MOST_PIXELS, MOST_THREADS = 32, 64, 256  # threads along a row, over pixels, and in all: defaults' limits


@dataclass(frozen=True)
class Convolution:
    """The roles in a convolution."""

    weight: BufferLoad  # [O, I / groups, KH, KW]
    data: BufferLoad  # [N, I, H, W]
    chain: Chain


class Conv2d:
    """Convolutions over images with several input channels to a group."""

    name = "conv2d"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        if c is None or len(spatial(c.block)) != 4 or len(reduced(c.block)) != 3:
            return None
        n, channel, y, x = (iv.var for iv in spatial(c.block))
        chain = chain_around(func, c.block)
        if chain is None or not all(is_injective(b) for b in chain.before):
            return None
        weight, data = c.a, c.b
        if {n, y, x} & set().union(*map(free_vars, weight.indices)):
            weight, data = data, weight
        if {n, y, x} & set().union(*map(free_vars, weight.indices)) or len(weight.indices) != 4:
            return None
        if weight.indices[0] is not channel or len(data.indices) != 4 or data.indices[0] is not n:
            return None
        batch, out, height, width = extents(spatial(c.block))
        per_group, kh, kw = extents(reduced(c.block))
        groups = max(1, data.buffer.const_shape()[1] // per_group)
        if batch > MOST_GRID_YZ or out % groups:
            return None
        sizes = {"N": batch, "G": groups, "O": out // groups, "I": per_group, "KH": kh, "KW": kw}
        stride = max(1, data.buffer.const_shape()[2] // height)
        sizes |= {"OH": height, "OW": width, "S": stride}
        return Anchor(c.block.name_hint, "conv2d", sizes, Convolution(weight, data, chain))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target, bytes=item_bytes(anchor.details.data.buffer.dtype))

    def default(self, anchor: Anchor, target: Target) -> Config:
        """As many pixels and channels to a thread as still give every SM work."""
        s = anchor.sizes
        wide = _evenly(s["OW"], MOST_WIDE)
        high = min(_evenly(s["OH"], max(1, MOST_PIXELS // wide)), 64)
        channels = power_of_two_below(max(1, min(s["O"], MOST_THREADS // (wide * high))))
        while s["G"] > 1 and s["O"] % channels:
            channels //= 2
        per_channel, per_pixel = 1, 1
        for more_channels, more_pixels in ((2, 1), (4, 1), (4, 2), (8, 2)):
            tiles = s["N"] * s["G"] * -(-s["O"] // (channels * more_channels))
            tiles *= -(-s["OH"] // high) * -(-s["OW"] // (wide * more_pixels))
            if s["G"] > 1 and s["O"] % (channels * more_channels):
                break
            if tiles < target.gpu.sm_count or channels * more_channels > s["O"] or wide * more_pixels > s["OW"]:
                break
            per_channel, per_pixel = more_channels, more_pixels
        item = item_bytes(anchor.details.data.buffer.dtype)
        step = power_of_two_below(min(s["I"], 8))
        while step > 1 and item * step * _elements(s, wide * per_pixel, high, channels * per_channel) > 24 * 1024:
            step //= 2
        knobs = {"wide": wide, "high": high, "channels": channels, "per_channel": per_channel, "per_pixel": per_pixel}
        return Config(self.name, {**knobs, "step": step})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv: Convolution = anchor.details
        sch = Schedule(func)
        for block in conv.chain.before[:-1]:
            sch.compute_inline(block.name_hint)
        before = conv.chain.before[-1].name_hint if conv.chain.before else ""
        per_group = anchor.sizes["O"]
        tile = config["channels"] * config["per_channel"]
        require(anchor.sizes["G"] == 1 or per_group % tile == 0, "a tile of channels lies in one group")
        out = schedule_epilogue(sch, conv.chain)
        n, channel, y, x = sch.get_loops(out)
        channel_tile, channel_thread, channel_in = sch.split(channel, [None, config["channels"], config["per_channel"]])
        y_tile, y_thread = sch.split(y, [None, config["high"]])
        x_tile, x_far, x_thread = sch.split(x, [None, config["per_pixel"], config["wide"]])
        sch.reorder(n, channel_tile, y_tile, x_tile, x_far, y_thread, channel_thread, x_thread, channel_in)
        sch.bind(n, BLOCK_Z)
        sch.bind(channel_tile, BLOCK_Y)
        sch.bind(sch.fuse(y_tile, x_tile), BLOCK_X)
        for loop, axis in ((x_far, VTHREAD_X), (y_thread, THREAD_Z), (channel_thread, THREAD_Y), (x_thread, THREAD_X)):
            sch.bind(loop, axis)
        sch.unroll(channel_in)
        name = conv.chain.anchor.name_hint
        sch.compute_at(name, x_thread, True)
        *_, c_in, _, _, i, kh, kw = sch.get_loops(name)
        i_tile, i_in = sch.split(i, [None, config["step"]])
        sch.reorder(i_tile, i_in, kh, kw, c_in)
        if anchor.sizes["KH"] * anchor.sizes["KW"] <= MOST_UNROLLED:
            sch.unroll(kh)
        sch.unroll(kw)
        sch.unroll(c_in)
        copies: list[BlockRV | str] = [sch.cache_read(name, read_index(sch, name, conv.weight.buffer.name), "shared")]
        if before:
            sch.set_scope(before, 0, "shared")
            copies.append(before)
        else:
            copies.append(sch.cache_read(name, read_index(sch, name, conv.data.buffer.name), "shared"))
        threads = (config["high"], config["channels"], config["wide"])
        for copy in copies:
            sch.compute_at(copy, i_tile, True)
            copy_together(sch, copy, 4, threads)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _evenly(extent: int, most: int) -> int:
    """The number up to `most` that divides an extent with the least rest, the largest of several."""
    return max(range(1, min(extent, most) + 1), key=lambda n: (-(-(-extent // n) * n) // max(1, extent // 8), n))


def _elements(s: Mapping[str, int], wide: int, high: int, channels: int) -> int:
    """Elements of both tiles for one input channel."""
    return (wide * s["S"] + s["KW"]) * (high * s["S"] + s["KH"]) + channels * math.prod((s["KH"], s["KW"]))
