"""Direct convolution with blocked channels: out[n, oc, oh, ow, ob] += data[…] * weight[o, i, kh, kw].

    for (n, oc tile, chunk of tiles) in parallel:               # or (n, chunk, oc tile)
        for oh tile, ow tile:
            tile[oh_tile * ow_tile, oc_blocks * block] = 0      # stays in registers
            for ic, kh, kw, ib: tile += data[…] (broadcast) * weight_packed[oc tile, ic, kh, kw, ib, :]
            out = epilogue(tile)

What pads the data, or picks every second pixel of them (`before` the anchor), is one of
    copy  a phase before copies the data into scratch with its zero border
    task  each chunk copies what it needs, then meets all panels of weights, in groups each panel of each chunk

Where a block holds several groups, lanes read the channels of their own: a vector of the data, moved in registers for
each channel of a group, is multiplied for all taps of a row.

A 1x1 convolution with stride 1 runs over an image as one row of H * W pixels (`conv_flat`). So can any other
(`across_rows`): each pixel of a tile then has a pointer of its own, and 7 x 7 pixels are 9 tiles of 5 and one of 4.
Weights are packed from their natural [O, I, KH, KW] into [O / width, I / block, KH, KW, block, width]; those of bytes,
which are multiplied with unsigned ones and summed in 32 bits, into [O / width, I / 4, KH, KW, width, 4], and those of
bfloat16 into [O / width, I / 2, KH, KW, width, 2].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import Contraction, extents, find_contraction, is_parameter, reduced, spatial
from autosched.templates.cpu.conv_flat import flat_copy, is_pointwise, reshape_images
from autosched.templates.cpu.conv_loops import schedule_tiles
from autosched.templates.cpu.conv_tile import ConvTile, choose_conv_tile, is_worth_prefetching
from autosched.templates.cpu.depthwise import MOST_PIXELS, column_stride, even_tile
from autosched.templates.cpu.padding import inline_all_but_last, schedule_before
from autosched.templates.cpu.register_tile import FLOAT_BYTES, FMA_PER_CYCLE, default_unroll, stores_wait
from autosched.templates.cpu.task_order import LEAST_TASKS, TaskOrder, Traffic, choose_even_order, choose_order
from autosched.templates.cpu.winograd_cost import direct_cycles
from autosched.templates.pack import Pack, packed_params, repack
from autosched.templates.product import lane_group
from autosched.tir import BufferLoad, PrimFunc, Var
from autosched.tir.functor import free_vars, loads
from autosched.tir.prefetch import PREFETCH_COPIES
from autosched.tir.schedule import Schedule

MOST_TILES = 1024  # in a chunk
MOST_UNROLLED = 28  # taps of a row
# Of an output: with fewer, stores wait for lines longer than sums last: 3x3 of 3 channels to 64 of 224x224 takes 1.4 of
# the time with requests for what it stores, 1x1 of 32 to 192 of 28x28 1.45, of 64 to 256 1.01 (Zen 4, one thread).
LEAST_SUMMED = 64
LIGHT = 16  # of the second-level cache, a part that weights may be which each of some pieces of work reads


@dataclass(frozen=True)
class Conv:
    """The roles in a blocked convolution."""

    weight: BufferLoad  # natural [O, I, KH, KW]
    data: BufferLoad
    chain: Chain
    width: int  # of the image
    group: int = 1  # input channels that a lane multiplies and adds at once
    step: int = 0  # where a block holds several groups, whose channels lanes take in turn: pixels between outputs

    @property
    def is_copied(self) -> bool:
        """Whether something before it pads its data, or picks pixels."""
        return bool(self.chain.before)


def _reads_block(load: BufferLoad, v: Var) -> bool:
    """Whether the innermost output channel occurs in the first index: the weight's."""
    return v in free_vars(load.indices[0])


def match_blocked_conv(func: PrimFunc) -> tuple[Contraction, Conv] | None:
    """A convolution with a blocked output, its weight in natural layout, element-wise blocks behind it."""
    c = find_contraction(func)
    if c is None or len(spatial(c.block)) != 5:
        return None
    block_var = spatial(c.block)[4].var
    for weight, data in ((c.a, c.b), (c.b, c.a)):
        if len(weight.indices) == 4 and _reads_block(weight, block_var) and is_parameter(func, weight):
            chain = chain_around(func, c.block)
            loops = extents(reduced(c.block))
            group = lane_group(c, data, weight) if len(loops) == 4 else 1
            group = group if loops[-1] % group == 0 else 1
            if chain is None:
                return None
            holds_groups = len(loops) == 3 and block_var in free_vars(data)
            step = column_stride(c.block, data) if holds_groups else 0
            return c, Conv(weight, data, chain, extents(spatial(c.block))[3], group, step)
    return None


class Conv2dBlocked:
    """Convolutions (grouped ones too) whose output is NCHWc; the data may be NCHWc or, in a first layer, NCHW."""

    name = "conv2d"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = match_blocked_conv(func)
        if found is None:
            return None
        c, conv = found
        loops = extents(reduced(c.block))
        if len(loops) not in (3, 4):
            return None
        n, oc, oh, ow, block = extents(spatial(c.block))
        ic, kh, kw = loops[:3]
        ib = loops[3] if len(loops) == 4 else 1
        flat = is_pointwise(c, conv.data)
        if flat:
            oh, ow = 1, oh * ow
        sizes = {"N": n, "OC": oc, "OH": oh, "OW": ow, "block": block, "IC": ic, "IB": ib, "KH": kh, "KW": kw}
        sizes |= {"copied": int(conv.is_copied), "flat": int(flat), "line": ow if oh == 1 else oh}
        return Anchor(c.block.name_hint, "conv2d", sizes, conv)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        vectors = -(-anchor.sizes["block"] // target.lanes("float32"))
        values = {**_all_sizes(anchor), "block_vectors": vectors, "registers": target.num_registers}
        space = load_space(target.backend, self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s = _all_sizes(anchor)
        per_block = -(-s["block"] // target.lanes("float32"))
        step = anchor.details.step
        tile = _tile_of_groups(s, per_block, step, target) if step else choose_conv_tile(s, per_block, target)
        traffic = _traffic(anchor, tile, target)
        choose = choose_order if s["G"] > 1 else choose_even_order
        order, padding = choose(traffic, target), "copy" if s["copied"] else "none"
        by_rows = not s["flat"] and not tile.across_rows
        if s["copied"] and by_rows and s["G"] > 1:  # a piece needs its group alone, which the first-level cache holds
            most = target.cache.l1_bytes * traffic.tiles * s["G"] // int(2 * traffic.data_bytes)
            order, padding = TaskOrder(order.outer, min(order.chunk, 1 << max(most, 1).bit_length() - 1)), "task"
        elif s["copied"] and _is_copied_in_pieces(s, traffic, by_rows, target):
            order, padding = TaskOrder("data", 1 << (traffic.tiles // LEAST_TASKS).bit_length() - 1), "task"
        unroll = choose_unroll(s["IB"], tile.oh_tile * tile.ow_tile * tile.oc_blocks * per_block, target)
        knobs: dict[str, KnobValue] = {
            "oh_tile": tile.oh_tile,
            "ow_tile": tile.ow_tile,
            "oc_blocks": tile.oc_blocks,
            "across_rows": tile.across_rows,
            "outer": order.outer,
            "chunk": min(order.chunk, MOST_TILES, s["OH"] if by_rows else s["pixels"]),
            "padding": padding,
            "unroll_ic": unroll,
            "unroll_kw": step > 0 and s["KW"] <= MOST_UNROLLED,
            "prefetch": is_worth_prefetching(s, tile.oc_blocks, target),
        }
        return Config(self.name, knobs)

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a good configuration takes on one core."""
        s, lanes = anchor.sizes, target.lanes("float32")
        points, steps = s["N"] * s["OH"] * s["OW"], s["IC"] * s["IB"] * s["KH"] * s["KW"]
        return direct_cycles(points, s["OC"] * -(-s["block"] // lanes), steps, target)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv: Conv = anchor.details
        s = anchor.sizes
        buffer = conv.weight.buffer
        pack = weight_pack(buffer.const_shape(), config["oc_blocks"] * s["block"], s["IB"], conv.group)
        sch = Schedule(repack(func, buffer, pack))
        name, padding = conv.chain.anchor.name_hint, config["padding"]
        if padding == "copy":
            schedule_before(sch, conv.chain)
        out = schedule_epilogue(sch, conv.chain)
        across = s["flat"] or config.get("across_rows", False)
        height, width = (1, s["OH"] * s["OW"]) if across else (s["OH"], s["OW"])
        if across:
            if padding == "task":
                made_by = inline_all_but_last(sch, conv.chain)
                copy = flat_copy(sch, name, conv.data.buffer, made_by, conv.width)
            reshape_images(sch, name, out, width=conv.width)
        n, oc, oh, ow, ob = sch.get_loops(out)
        oc_tile, oc_in = sch.split(oc, [None, config["oc_blocks"]])
        loops, image = (n, oc_tile, oh, ow, ob), (height, width)
        groups = _all_sizes(anchor)["G"]
        # patches of a plain image: nothing has read their lines before; 224x224 takes .8 of the time so (Zen 4)
        is_plain = s["IB"] == 1 and conv.group == 1 and not conv.step and not conv.is_copied
        ahead = conv.data.buffer.name if s["flat"] or is_plain else ""
        steps = next((n for n in (s["IC"], s["KH"], s["KW"], s["IB"] // config["unroll_ic"]) if n > 1), 1)
        is_long = s["IC"] * s["IB"] * s["KH"] * s["KW"] >= LEAST_SUMMED
        results = out if is_long and stores_wait(target) else ""
        task = schedule_tiles(
            sch, name, loops, config, image, buffer, (oc_in,), groups, ahead=ahead, results=results, steps=steps
        )
        if padding == "task" and s["flat"]:
            sch.compute_at(copy, task)
            sch.vectorize(sch.get_loops(copy)[-1])
        elif padding == "task":
            schedule_before(sch, conv.chain, task)
            sch.annotate(task, PREFETCH_COPIES, dict.fromkeys(_copied(conv), f"{buffer.name}_packed"))
        schedule_products(sch, name, config, s["IB"], conv.group, conv.step > 0)
        return Applied(sch.func, packed_params(func, buffer, pack), sch.trace.to_json_text())


def _all_sizes(anchor: Anchor) -> Mapping[str, int]:
    """With what follows from the sizes that name a workload: pixels of an image, groups `G`, and channels at once."""
    s = anchor.sizes
    groups = s["OC"] if anchor.details.step else anchor.details.data.buffer.const_shape()[1] // s["IC"]
    group, shorts = anchor.details.group, int(anchor.details.data.buffer.dtype == "int16")
    return {
        **s,
        "IB": s["IB"] // group,
        "group": group,
        "shorts": shorts,
        "pixels": s["OH"] * s["OW"],
        "G": max(groups, 1),
    }


def _is_copied_in_pieces(s: Mapping[str, int], traffic: Traffic, by_rows: bool, target: Target) -> bool:
    """Whether each piece of work copies its pixels: there are pieces enough without channels, which read all weights.

    Of a 1x1 convolution these have to be few, since each of them is multiplied but a few times in a piece. With stride
    2, 64 channels of 56x56 to 128 take .87 of the time of a copy beforehand, 256 of 56x56 to 512 1.03 (Emerald Rapids,
    two threads).
    """
    light = s["flat"] > 0 and s["G"] == 1 and traffic.weight_bytes <= target.cache.l2_bytes / LIGHT
    return (by_rows or light) and traffic.tiles >= LEAST_TASKS


def _copied(conv: Conv) -> list[str]:
    """The names of the images of which pieces of work copy a part."""
    made = {w.buffer for block in conv.chain.before for w in block.writes}
    read = {x.buffer for block in conv.chain.before for x in loads(block.body)} - made
    half = math.prod(conv.data.buffer.const_shape()) / 2  # what is smaller is no image
    return sorted(buffer.name for buffer in read if math.prod(buffer.const_shape()) > half)


def _traffic(anchor: Anchor, tile: ConvTile, target: Target) -> Traffic:
    s, conv = _all_sizes(anchor), anchor.details
    data, weight = (math.prod(x.buffer.const_shape()) * FLOAT_BYTES for x in (conv.data, conv.weight))
    in_line = tile.across_rows or s["OH"] == 1
    tiles = -(-s["pixels"] // tile.ow_tile) if in_line else -(-s["OH"] // tile.oh_tile)
    points, steps = s["pixels"] * s["OC"] * s["block"], s["IC"] * s["IB"] * s["group"] * s["KH"] * s["KW"]
    products = points * steps / (target.unit_bits // 32) / FMA_PER_CYCLE
    panels, result = -(-s["OC"] // tile.oc_blocks), points * FLOAT_BYTES
    return Traffic(s["N"], tiles, panels, data / s["N"], weight, result, products)


def _tile_of_groups(s: Mapping[str, int], per_block: int, step: int, target: Target) -> ConvTile:
    """Pixels of a row whose sums stay in registers, beside one channel of each group for all taps of a row.

    More than 8 take as long: LLVM moves loads ahead until some go to the stack.
    """
    window = s["KW"] - step
    most = (target.num_registers // per_block - 4 - window) // (1 + step)
    return ConvTile(1, even_tile(s["OW"], min(max(most, 1), MOST_PIXELS)), 1)


def choose_unroll(block: int, accumulators: int, target: Target) -> int:
    """Input channels in the innermost body.

    With 16 registers all of a block: half of it costs 1x1 convolutions up to 1.4 times, 3x3 ones of stride 2 1.1
    (Zen 3). The tiles that 32 registers hold are twice as long; of more of their steps LLVM moves loads ahead until
    accumulators go to the stack: 28 of them in 16 steps 492 times (znver4, znver5), in 8 steps 96 times (x86-64-v4).
    """
    if target.num_registers > 16:
        return default_unroll(accumulators, block)
    return next(u for u in (16, 8, 4, 2, 1) if block % u == 0)


def schedule_products(
    sch: Schedule, anchor: str, config: Config, ib: int, group: int = 1, holds_groups: bool = False
) -> None:
    """The update of a tile: the reduction's loops outside of the tile's; `ib` input channels are in a block.

    holds_groups  a block is of several groups: which lanes are moved for a channel has to be known in the code
    """
    loops = sch.get_loops(anchor)
    count = 4 if ib > 1 else 3
    reduction = list(loops[-count:])
    n, oc_in, oh_in, ow_in, ob = loops[-count - 5 : -count]
    at_once = []
    if holds_groups:
        channel, kh, kw = reduction
        sch.unroll(channel)
        reduction = [kh, channel, kw]
    if group > 1:  # the channels are outside of the window, as the packed weights have them
        ic, kh, kw, channel = reduction
        channel, last = sch.split(channel, [None, group])
        reduction, count = [ic, channel, kh, kw], 0
        at_once.append(last)
    if config["unroll_kw"] and not group > 1:
        sch.unroll(reduction[2])
    if count == 4 and config["unroll_ic"] > 1:
        reduction[3:] = sch.split(reduction[3], [None, config["unroll_ic"]])
        sch.unroll(reduction[4])
    sch.reorder(n, *reduction, oc_in, oh_in, ow_in, ob, *at_once)
    for loop in (oc_in, oh_in, ow_in):
        sch.unroll(loop)
    sch.vectorize(ob)
    sch.decompose_reduction(anchor, reduction[0])


def weight_pack(shape: tuple[int, ...], width: int, ib: int, group: int = 1) -> Pack:
    """[O, I, KH, KW] -> [O / width, I / ib, KH, KW, ib, width], or [O / width, I / group, KH, KW, width, group]."""
    if group > 1:
        return Pack(shape, (width, group, 0, 0), (0, 2, 4, 5, 1, 3))
    if ib > 1:
        return Pack(shape, (width, ib, 0, 0), (0, 2, 4, 5, 3, 1))
    return Pack(shape, (width, 0, 0, 0), (0, 2, 3, 4, 1))
