"""Direct convolution with blocked channels: out[n, oc, oh, ow, ob] += data[…] * weight[o, i, kh, kw].

    for (n, oc tile, chunk of tiles) in parallel:               # or (n, chunk, oc tile)
        for oh tile, ow tile:
            tile[oh_tile * ow_tile, oc_blocks * block] = 0      # stays in registers
            for ic, kh, kw, ib: tile += data[…] (broadcast) * weight_packed[oc tile, ic, kh, kw, ib, :]
            out = epilogue(tile)

What pads the data, or picks every second pixel of them (`before` the anchor), is one of
    copy  a phase before copies the data into scratch with its zero border
    task  each chunk copies what it needs, then meets all panels of weights

A 1x1 convolution with stride 1 runs over an image as one row of H * W pixels (`conv_flat`). So can any other
(`across_rows`): each pixel of a tile then has a pointer of its own, and 7 x 7 pixels are 9 tiles of 5 and one of 4.
Weights are packed from their natural [O, I, KH, KW] into [O / width, I / block, KH, KW, block, width].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autosched.codegen.lower.prefetch_next import PREFETCH_NEXT
from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import Contraction, extents, find_contraction, is_parameter, reduced, spatial
from autosched.templates.cpu.conv_flat import flat_copy, is_pointwise, reshape_images
from autosched.templates.cpu.padding import inline_all_but_last, schedule_before
from autosched.templates.cpu.parts import Chain, chain_around, schedule_epilogue
from autosched.templates.cpu.register_tile import L3_BYTES_PER_CYCLE, LOAD_COST, cycles, default_unroll, fits, pieces
from autosched.templates.cpu.task_order import LEAST_TASKS, TaskOrder, Traffic, choose_order
from autosched.templates.cpu.task_order import cycles as traffic_cycles
from autosched.templates.cpu.winograd_cost import COLD_BYTES_PER_CYCLE, LATENCY_CYCLES, LEAST_ACCUMULATORS, direct_cycles
from autosched.templates.pack import Pack, repack
from autosched.tir import BufferLoad, PrimFunc, Var
from autosched.tir.functor import free_vars
from autosched.tir.schedule import Schedule

FLOAT_BYTES = 4
MOST_TILES = 1024  # in a chunk
MOST_PREFETCHED = 1024  # pixels: with more, the products take longer than the weights' way from memory
# Tiles across rows: pixels with a pointer each, of which a core has 16 registers, and the cycles to find each of them.
MOST_POINTERS, POINTER_CYCLES = 8, 8
LEAST_GAIN = 0.03  # of the estimated time, for which tiles go across rows
MOST_WITHOUT_ROOM = 200  # pixels: with fewer, the next panel of weights is fetched even where it displaces data
HIDDEN_LOADS = 0.75  # for each multiply-add: 13x1 reaches 0.77 of the rate of 5x2 (Zen 3), which needs 1.08 and 0.7
NOT_HIDDEN = 0.25  # of the weights' way from memory, where the next panel has no room


@dataclass(frozen=True)
class ConvTile:
    """A register tile: so many rows, pixels of each (of all rows together, if it goes across them), channel blocks."""

    oh_tile: int
    ow_tile: int
    oc_blocks: int
    across_rows: bool = False


@dataclass(frozen=True)
class Conv:
    """The roles in a blocked convolution."""

    weight: BufferLoad  # natural [O, I, KH, KW]
    data: BufferLoad
    chain: Chain
    width: int  # of the image

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
            return (c, Conv(weight, data, chain, extents(spatial(c.block))[3])) if chain is not None else None
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
        sizes |= {"copied": int(conv.is_copied), "flat": int(flat), "pixels": oh * ow}
        sizes["G"] = max(conv.data.buffer.const_shape()[1] // ic, 1)
        return Anchor(c.block.name_hint, "conv2d", sizes, conv)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        vectors = -(-anchor.sizes["block"] // target.lanes("float32"))
        values = {**anchor.sizes, "block_vectors": vectors, "registers": target.num_registers}
        space = load_space("cpu", self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s = anchor.sizes
        per_block = -(-s["block"] // target.lanes("float32"))
        tile = _choose_tile(s, per_block, target)
        traffic = _traffic(anchor, tile)
        by_rows = not s["flat"] and not tile.across_rows
        order, padding = _order_and_padding(traffic, bool(s["copied"]), by_rows, target)
        unroll = _unroll(s["IB"], tile.oh_tile * tile.ow_tile * tile.oc_blocks * per_block, target)
        knobs: dict[str, KnobValue] = {
            "oh_tile": tile.oh_tile,
            "ow_tile": tile.ow_tile,
            "oc_blocks": tile.oc_blocks,
            "across_rows": tile.across_rows,
            "outer": order.outer,
            "chunk": min(order.chunk, MOST_TILES, s["OH"] if by_rows else s["pixels"]),
            "padding": padding,
            "unroll_ic": unroll,
            "unroll_kw": False,
            "prefetch": _is_worth_prefetching(s, tile.oc_blocks, target),
        }
        return Config(self.name, knobs)

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles that a good configuration takes on one core."""
        s, lanes = anchor.sizes, target.lanes("float32")
        points, steps = s["N"] * s["OH"] * s["OW"], s["IC"] * s["IB"] * s["KH"] * s["KW"]
        return direct_cycles(points, s["OC"] * -(-s["block"] // lanes), steps, lanes)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv: Conv = anchor.details
        s = anchor.sizes
        buffer = conv.weight.buffer
        pack = _weight_pack(buffer.const_shape(), config["oc_blocks"] * s["block"], s["IB"])
        packs: list[Pack | None] = [None] * len(func.params)
        packs[next(i for i, b in enumerate(func.buffers) if b is buffer)] = pack
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
        if height == 1:
            oh_tile, oh_in = sch.split(oh, [None, 1])
            chunk, ow_tile, ow_in = sch.split(ow, [None, _chunk(config, width, "ow_tile"), config["ow_tile"]])
        else:
            chunk, oh_tile, oh_in = sch.split(oh, [None, _chunk(config, height, "oh_tile"), config["oh_tile"]])
            ow_tile, ow_in = sch.split(ow, [None, config["ow_tile"]])
        tasks = (oc_tile, chunk) if config["outer"] == "weight" and padding != "task" else (chunk, oc_tile)
        sch.reorder(n, *tasks, oh_tile, ow_tile, oc_in, oh_in, ow_in, ob)
        task = sch.fuse(n, chunk) if padding == "task" else sch.fuse(n, *tasks)
        sch.parallel(task)
        for loop in (oc_in, oh_in, ow_in):
            sch.unroll(loop)
        sch.vectorize(ob)
        sch.compute_at(name, ow_tile, True)
        if config["prefetch"]:
            panel = math.prod(pack.packed_shape[1:])
            sch.annotate(ow_tile if height == 1 else oh_tile, PREFETCH_NEXT, {f"{buffer.name}_packed": panel})
        if padding == "task" and s["flat"]:
            sch.compute_at(copy, task)
            sch.vectorize(sch.get_loops(copy)[-1])
        elif padding == "task":
            schedule_before(sch, conv.chain, task)
        _schedule_update(sch, name, config, s)
        return Applied(sch.func, tuple(packs), sch.trace.to_json_text())


def _chunk(config: Config, extent: int, tile: str) -> int:
    """Tiles in a chunk, not more than there are."""
    return min(int(config["chunk"]), -(-extent // int(config[tile])))


def _traffic(anchor: Anchor, tile: ConvTile) -> Traffic:
    s, conv = anchor.sizes, anchor.details
    data, weight = (math.prod(x.buffer.const_shape()) * FLOAT_BYTES for x in (conv.data, conv.weight))
    in_line = tile.across_rows or s["OH"] == 1
    tiles = -(-s["pixels"] // tile.ow_tile) if in_line else -(-s["OH"] // tile.oh_tile)
    return Traffic(s["N"], tiles, -(-s["OC"] // tile.oc_blocks), data / s["N"], weight)


def _unroll(block: int, accumulators: int, target: Target) -> int:
    """Input channels in the innermost body.

    With 16 registers all of a block: half of it costs 1x1 convolutions up to 1.4 times, 3x3 ones of stride 2 1.1
    (Zen 3). The tiles that 32 registers hold are twice as long; of more of their steps LLVM moves loads ahead until
    accumulators go to the stack: 28 of them in 16 steps 492 times (znver4, znver5), in 8 steps 96 times (x86-64-v4).
    """
    if target.num_registers > 16:
        return default_unroll(accumulators, block)
    return next(u for u in (16, 8, 4, 2, 1) if block % u == 0)


def _order_and_padding(traffic: Traffic, copied: bool, by_rows: bool, target: Target) -> tuple[TaskOrder, str]:
    """In which order pieces run, and who copies what is padded: each piece its rows, where they are enough pieces.

    Each piece then reads all weights; 5x5 96->256 on 27x27 pixels takes 1.12 times as long so (Zen 3).
    """
    order = choose_order(traffic, target)
    if not copied:
        return order, "none"
    if by_rows and traffic.tiles >= LEAST_TASKS:
        rows = TaskOrder("data", 1 << (traffic.tiles // LEAST_TASKS).bit_length() - 1)
        copying = 2 * traffic.data_bytes / L3_BYTES_PER_CYCLE
        if traffic_cycles(traffic, rows, target) <= traffic_cycles(traffic, order, target) + copying:
            return rows, "task"
    return order, "copy"


def _panel_bytes(s: Mapping[str, int], oc_blocks: int) -> int:
    return s["IC"] * s["IB"] * s["KH"] * s["KW"] * oc_blocks * s["block"] * FLOAT_BYTES


def _is_cold(s: Mapping[str, int], target: Target) -> bool:
    """Whether weights come from memory, being too many for the second-level cache, and few products hide their way."""
    return s["OH"] * s["OW"] <= MOST_PREFETCHED and _panel_bytes(s, s["OC"]) > target.cache.l2_bytes / 2


def _has_room_for_next(panel_bytes: int, target: Target) -> bool:
    """Whether the second-level cache holds a panel of weights, the next one, and data."""
    return 2 * panel_bytes <= target.cache.l2_bytes * 5 / 8


def _is_worth_prefetching(s: Mapping[str, int], oc_blocks: int, target: Target) -> bool:
    """Whether to fetch the next panel: where it has room, and also where few products hide its way from memory."""
    has_room = _has_room_for_next(_panel_bytes(s, oc_blocks), target)
    return _is_cold(s, target) and (has_room or s["OH"] * s["OW"] <= MOST_WITHOUT_ROOM)


def _choose_tile(s: Mapping[str, int], per_block: int, target: Target) -> ConvTile:
    """The tile of least estimated time; the larger one wins a tie, and one within rows a small difference."""
    estimates = [(_estimate(s, tile, per_block, target), tile) for tile in _tiles(s, per_block, target)]
    keys = {
        tile: (round(cost * (1 - LEAST_GAIN) if not tile.across_rows else cost), tile.across_rows, tile.oh_tile, -size)
        for cost, tile in estimates
        for size in [tile.oh_tile * tile.ow_tile * tile.oc_blocks]
    }
    return min(keys, key=keys.__getitem__, default=ConvTile(1, 1, 1))


def _tiles(s: Mapping[str, int], per_block: int, target: Target) -> Iterator[ConvTile]:
    """The tiles that stay in registers: within rows, and across them where an image is not one row; of one group."""
    shapes = [(h, w, False) for h in range(1, min(s["OH"], 3) + 1) for w in range(1, min(s["OW"], 16) + 1)]
    if s["OH"] > 1:
        shapes += [(1, w, True) for w in range(1, min(s["pixels"], MOST_POINTERS) + 1)]
    per_group = max(s["OC"] // s["G"], 1)
    all_blocks = [b for b in range(1, min(s["OC"], 4) + 1) if s["G"] == 1 or per_group % b == 0]
    for (h, w, across), blocks in itertools.product(shapes, all_blocks):
        if fits(h * w, blocks * per_block, target.num_registers):
            yield ConvTile(h, w, blocks, across)


def _estimate(s: Mapping[str, int], tile: ConvTile, per_block: int, target: Target) -> float:
    """Cycles of a convolution in such tiles, and what is not hidden of its loads and of its weights' way from memory."""
    size, vectors, panels = tile.oh_tile * tile.ow_tile, tile.oc_blocks * per_block, -(-s["OC"] // tile.oc_blocks)
    panel_bytes = _panel_bytes(s, tile.oc_blocks)
    beside = 0.0
    if tile.across_rows:
        rows = pieces(s["pixels"], tile.ow_tile)
        beside = float(POINTER_CYCLES * s["pixels"] * panels)
    else:
        heights, widths = pieces(s["OH"], tile.oh_tile), pieces(s["OW"], tile.ow_tile)
        rows = [(h * w, many_h * many_w) for h, many_h in heights for w, many_w in widths]
    if _is_cold(s, target) and not _has_room_for_next(panel_bytes, target):
        beside += NOT_HIDDEN * panels * panel_bytes / COLD_BYTES_PER_CYCLE
    steps = s["IC"] * s["IB"] * s["KH"] * s["KW"]
    products = cycles(rows, vectors, s["OC"] * per_block, steps, target)
    if target.num_registers <= 16 and size * vectors < LEAST_ACCUMULATORS:  # `cycles` knows of it where there are more
        products += LATENCY_CYCLES * sum(count for _, count in rows) * panels * steps
    many_loads = max(0.0, (size + vectors) / (size * vectors) - HIDDEN_LOADS)
    return products * (1 + LOAD_COST * many_loads) + beside


def _schedule_update(sch: Schedule, anchor: str, config: Config, sizes: Mapping[str, int]) -> None:
    loops = sch.get_loops(anchor)
    count = 4 if sizes["IB"] > 1 else 3
    reduction = list(loops[-count:])
    n, oc_in, oh_in, ow_in, ob = loops[-count - 5 : -count]
    if config["unroll_kw"]:
        sch.unroll(reduction[2])
    if count == 4 and config["unroll_ic"] > 1:
        reduction[3:] = sch.split(reduction[3], [None, config["unroll_ic"]])
        sch.unroll(reduction[4])
    sch.reorder(n, *reduction, oc_in, oh_in, ow_in, ob)
    for loop in (oc_in, oh_in, ow_in):
        sch.unroll(loop)
    sch.vectorize(ob)
    sch.decompose_reduction(anchor, reduction[0])


def _weight_pack(shape: tuple[int, ...], width: int, ib: int) -> Pack:
    """[O, I, KH, KW] -> [O / width, I / ib, KH, KW, ib, width]."""
    if ib > 1:
        return Pack(shape, (width, ib, 0, 0), (0, 2, 4, 5, 3, 1))
    return Pack(shape, (width, 0, 0, 0), (0, 2, 3, 4, 1))
