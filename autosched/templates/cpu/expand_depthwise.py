"""A 1x1 convolution and the depthwise one that reads it, over blocked channels: the hidden image stays in a cache.

    for (n, part of rows, panel of hidden channels) in parallel:
        for tile of pixels that the part's windows reach:                    # in scratch of the worker
            tile[pixels, oc_blocks * block] = 0                              # stays in registers
            for ic, ib: tile += data[n, ic, pixel, ib] (broadcast) * expand_packed[panel, ic, ib, :]
            hidden[pixel, :] = epilogue(tile)
        for block of the panel, row, tile of pixels:
            tile[pixels, lanes] = 0
            for kh, kw: tile += hidden[…] * weight_packed[c, 0, kh, kw, :]
            out = epilogue(tile)

Networks of inverted bottlenecks (Sandler et al. 2018) expand an image to six times its channels; written and read as a
whole it passes through the caches twice. Two parts of an image both compute the rows that windows of both reach. What
pads the hidden image is left out of the windows, as in `depthwise`. Both weights are packed as the templates of either
convolution pack them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, consumers, schedule_epilogue
from autosched.templates.classify import (
    Contraction,
    blocks_of,
    contraction,
    extents,
    find_contraction,
    is_injective,
    is_parameter,
    reduced,
    spatial,
)
from autosched.templates.cpu.conv2d import choose_unroll, schedule_products, weight_pack
from autosched.templates.cpu.conv_flat import is_pointwise, reshape_images
from autosched.templates.cpu.conv_sized import padding_of
from autosched.templates.cpu.conv_tile import ConvTile, is_worth_prefetching, rank_conv_tiles
from autosched.templates.cpu.depthwise import (
    choose_pixels,
    column_stride,
    depthwise_roles,
    schedule_window,
    window_pack,
)
from autosched.templates.cpu.register_tile import FLOAT_BYTES, FMA_PER_CYCLE
from autosched.templates.pack import repack
from autosched.tir import Block, Buffer, BufferLoad, PrimExpr, PrimFunc, Var
from autosched.tir.function import size_vars, specialize
from autosched.tir.functor import free_vars, loads
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.prefetch import PANEL, PREFETCH_NEXT, PREFETCH_STEPS, PREFETCH_STORES, STEPS_AHEAD
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer
from autosched.tir.size_expr import same_extent

PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)  # of an image's rows, by default
MOST_SHARING = 16  # threads among which pieces of work are shared evenly by default
SCRATCH_SHARE = 0.6  # of the second-level cache, which the hidden image of a piece may fill
SPILLED = 0.1  # of the time, where it takes twice as much
# What a hidden image larger than the second-level cache costs beside its arithmetic, at least: 4.8 MB, 37 bytes a
# cycle; 1.8 MB, 44 to 82 (Zen 5).
BYTES_PER_CYCLE = 80
# Of the arithmetic's time, what one kernel saves anyhow: threads read no half of the hidden image from each other, and
# wait for each other once less. EfficientNet-lite0 takes .97 of its time with 0.05 here, MnasNet .98 with 0.25
# (Emerald Rapids, two threads; as long as before on one).
SAVED = 0.25
USUAL_PIXELS = 224  # of an open image's rows and columns


@dataclass(frozen=True)
class Bottleneck:
    """The blocks of both convolutions.

    expand, window  the weights' and the data's access of each
    padding         element-wise blocks between: what pads the hidden image
    """

    expand: tuple[BufferLoad, BufferLoad]
    window: tuple[BufferLoad, BufferLoad]
    hidden: Chain
    padding: tuple[Block, ...]
    result: Chain


@dataclass(frozen=True)
class Plan:
    """Tiles of the 1x1 convolution, parts of an image, and the expected time as a multiple of the arithmetic's."""

    tile: ConvTile
    parts: int
    cost: float


def find_bottleneck(func: PrimFunc) -> Bottleneck | None:
    """A 1x1 convolution, element-wise blocks, a depthwise convolution, element-wise blocks; all float32."""
    blocks = blocks_of(func)
    products = [c for c in map(contraction, blocks) if c is not None]
    if len(products) != 2 or products[0].block is not blocks[0]:
        return None
    first, second = products
    expand, window = _expansion(func, first), depthwise_roles(func, second.block)
    dtypes = {b.dtype for b in func.buffers} | {w.buffer.dtype for b in blocks for w in b.writes}
    if expand is None or window is None or dtypes != {"float32"}:
        return None
    at = next(n for n, b in enumerate(blocks) if b is second.block)
    between, behind = blocks[1:at], blocks[at + 1 :]
    epilogue = consumers(first.block, between)
    padding = between[len(epilogue) :]
    if consumers(second.block, behind) != behind or not all(map(is_injective, padding)):
        return None
    if any(map(too_large_to_inline, (epilogue, (*padding, second.block), behind))):
        return None
    image = (first.block, *epilogue)[-1].writes[0].buffer
    inner = {w.buffer for b in blocks[:at] for w in b.writes}
    if inner & {*func.buffers, *(x.buffer for b in behind for x in loads(b.body))}:
        return None  # somebody else reads the hidden image
    if not _reads_own_channels(second.block, window[1], padding, image):
        return None
    return Bottleneck(expand, window, Chain((), first.block, epilogue), padding, Chain((), second.block, behind))


def _expansion(func: PrimFunc, c: Contraction) -> tuple[BufferLoad, BufferLoad] | None:
    """(weight [O, I, 1, 1], data) of a 1x1 convolution of parameters with blocked channels, stride 1, one group."""
    if len(spatial(c.block)) != 5 or len(reduced(c.block)) != 4:
        return None
    lane = spatial(c.block)[4].var
    for weight, data in ((c.a, c.b), (c.b, c.a)):
        natural = len(weight.indices) == 4 and len(data.indices) == 5 and lane in free_vars(weight.indices[0])
        if natural and is_parameter(func, weight) and is_parameter(func, data) and is_pointwise(c, data):
            image, _, rows, columns, _ = (iv.dom.extent for iv in spatial(c.block))
            blocks, *_, block = extents(reduced(c.block))
            whole = all(map(same_extent, data.buffer.shape, (image, blocks, rows, columns, block)))
            return (weight, data) if whole else None
    return None


def _reads_own_channels(block: Block, data: BufferLoad, padding: tuple[Block, ...], image: Buffer) -> bool:
    """Whether each window, and all that pads its image, reads the image and channel that it is for."""
    own = [*((b.body, [iv.var for iv in b.iter_vars]) for b in padding), (data, [iv.var for iv in spatial(block)])]
    made = {b.writes[0].buffer for b in padding} | {image}
    for what, variables in own:
        read = [x for x in ([what] if isinstance(what, BufferLoad) else loads(what)) if x.buffer in made]
        if not read or any(x.indices[d] is not variables[d] for x in read for d in (0, 1, 4) if len(x.indices) == 5):
            return False
    return True


def _sizes(expand: Block, window: Block, read: BufferLoad) -> dict[str, int]:
    """The sizes of a 1x1 convolution and of the windows that read its image, or a padded copy, as `read` says.

    stride, reach  how far apart windows are, and rows of the image from the first to the last of one
    """
    n, channels, height, width, block = extents(spatial(expand))
    blocks, _, _, lanes = extents(reduced(expand))
    (_, _, oh, ow, _), (kh, kw) = extents(spatial(window)), extents(reduced(window))
    stride, dilation = _step(read.indices[2], spatial(window)[2].var), _step(read.indices[2], reduced(window)[0].var)
    image = {"N": n, "C": channels, "block": block, "IC": blocks, "IB": lanes, "H": height, "W": width}
    return image | {"OH": oh, "OW": ow, "KH": kh, "KW": kw, "stride": stride, "reach": (kh - 1) * dilation + 1}


def _step(index: PrimExpr, axis: Var) -> int:
    """How far an index moves along with an axis."""
    return next((k for k, atom in Analyzer().linear(index).terms.values() if atom is axis), 0)


def choose_plan(s: Mapping[str, int], target: Target) -> Plan:
    """The plan of least cost: rows computed twice, threads that wait for others, a hidden part too large for L2."""
    return min(_plans(s, target), key=lambda plan: plan.cost)


def _plans(s: Mapping[str, int], target: Target) -> Iterator[Plan]:
    """For each number of parts, the best tile of each number of channel blocks."""
    per_block = -(-s["block"] // target.lanes("float32"))
    whole, rows = (rank_conv_tiles(_tile_sizes(s, parts), per_block, target) for parts in (1, 2))
    for parts in PARTS:
        ranked = whole if parts == 1 else rows
        if not _has_rows(s, parts):
            continue
        (least, *_), _ = min(ranked, key=lambda kept: kept[0])
        for oc_blocks in {tile.oc_blocks for _, tile in ranked}:
            (cycles, *_), tile = min((x for x in ranked if x[1].oc_blocks == oc_blocks), key=lambda kept: kept[0])
            yield Plan(tile, parts, cycles / least * _cost(s, parts, oc_blocks, target))


def _has_rows(s: Mapping[str, int], parts: int) -> bool:
    """Whether the last part of an image has rows."""
    return (parts - 1) * -(-s["OH"] // parts) < s["OH"]


def _cost(s: Mapping[str, int], parts: int, oc_blocks: int, target: Target) -> float:
    rows = min(s["H"], (-(-s["OH"] // parts) - 1) * s["stride"] + s["reach"])
    again = 1 + (parts - 1) * max(s["reach"] - s["stride"], 0) / s["H"]
    fill = rows * s["W"] * oc_blocks * s["block"] * FLOAT_BYTES / (SCRATCH_SHARE * target.cache.l2_bytes)
    waits = _unevenness(s, parts, oc_blocks, min(target.num_cores, MOST_SHARING))
    return again * waits * (1 + SPILLED * min(max(fill - 1, 0.0), 1.0))


def _unevenness(s: Mapping[str, int], parts: int, oc_blocks: int, threads: int) -> float:
    """The time of the thread with most blocks and rows, by what it were if all had as many.

    Each has pieces that follow each other, and the last panel of an image may have fewer blocks, the last part rows.
    """
    panels, rows = -(-s["C"] // oc_blocks), -(-s["OH"] // parts)
    blocks = [min(oc_blocks, s["C"] - panel * oc_blocks) for panel in range(panels)]
    heights = [min(rows, s["OH"] - part * rows) for part in range(parts)]
    work = [height * block for height in heights for block in blocks] * s["N"]
    ends = [len(work) * thread // threads for thread in range(threads + 1)]
    return max(sum(work[a:b]) for a, b in itertools.pairwise(ends)) * threads / sum(work)


def _tile_sizes(s: Mapping[str, int], parts: int) -> dict[str, int]:
    """The 1x1 convolution as `choose_conv_tile` takes it: over an image as one row, or over a row."""
    pixels = s["W"] * (s["H"] if parts == 1 else 1)
    image = {"OC": s["C"], "OH": 1, "OW": pixels, "pixels": pixels, "KH": 1, "KW": 1, "G": 1, "group": 1}
    return image | {name: s[name] for name in ("N", "block", "IC", "IB")}


def is_faster_fused(s: Mapping[str, int], target: Target) -> bool:
    """Whether one kernel is faster beyond doubt: what it computes twice costs less than a hidden image's way."""
    size = _hidden_bytes(s)
    cycles = size / FLOAT_BYTES * s["IC"] * s["IB"] / (FMA_PER_CYCLE * target.lanes("float32"))
    saved = size / BYTES_PER_CYCLE if size > target.cache.l2_bytes else 0.0
    return choose_plan(s, target).cost <= 1 + SAVED + saved / cycles


def _hidden_bytes(s: Mapping[str, int]) -> int:
    return s["N"] * s["C"] * s["block"] * s["H"] * s["W"] * FLOAT_BYTES


def joins_convolutions(target: Target, first: PrimFunc, second: PrimFunc, read: Buffer, always: bool = False) -> bool:
    """Whether a 1x1 convolution and a depthwise one that reads its result as `read` are faster as one kernel.

    always  wherever they can be one
    Over open images a usual one is asked about.
    """
    buffers = (*first.buffers, *second.buffers)
    symbols = {v for b in buffers for d in b.shape for v in free_vars(d)}
    batch = {v for b in buffers for v in free_vars(b.shape[0])}
    if any(b.dtype != "float32" for b in buffers) or (symbols and symbols <= batch):
        return False
    one, two = find_contraction(first), find_contraction(second)
    if one is None or two is None or one.block is not blocks_of(first)[0]:
        return False
    expand, window = _expansion(first, one), depthwise_roles(second, two.block)
    if expand is None or window is None:
        return False
    blocks = blocks_of(second)
    if blocks[-1] is not two.block or not all(map(is_injective, blocks[:-1])):
        return False
    if not _reads_own_channels(two.block, window[1], blocks[:-1], read):
        return False
    if not symbols:
        return always or is_faster_fused(_sizes(one.block, two.block, window[1]), target)
    if padded_rows(blocks[:-1], read) is None:
        return False
    usual = {v: 1 if v in batch else USUAL_PIXELS for v in symbols}
    one, two = (
        find_contraction(specialize(f, {v: usual.get(v, USUAL_PIXELS) for v in size_vars(f)})) for f in (first, second)
    )
    assert one is not None and two is not None, "numbers change no form"
    sizes = _sizes(one.block, two.block, two.a if len(two.a.indices) == 5 else two.b)
    return always or is_faster_fused(sizes, target)


def padded_rows(padding: Sequence[Block], image: Buffer) -> int | None:
    """How many rows a padded image has before its own; None where it is padded in a way that is not known."""
    if not padding:
        return 0
    found = padding_of(padding[0])
    if len(padding) > 1 or found is None or not isinstance(found.inside, BufferLoad):
        return None
    row = Analyzer().linear(found.inside.indices[2])
    moves_along = [k for k, atom in row.terms.values() if atom is padding[0].iter_vars[2].var] == [1]
    is_known = found.inside.buffer is image and moves_along and len(row.terms) == 1
    return -row.const if is_known else None


class ExpandDepthwise:
    """1x1 convolutions and the depthwise ones behind them, as one kernel; data, hidden image and output are NCHWc."""

    name = "expand_depthwise"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = find_bottleneck(func)
        if found is None:
            return None
        sizes = _sizes(found.hidden.anchor, found.result.anchor, found.window[1])
        return Anchor(found.hidden.anchor.name_hint, self.name, sizes, found)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        s, lanes = anchor.sizes, target.lanes("float32")
        more = {"block_vectors": -(-s["block"] // lanes), "registers": target.num_registers}
        space = load_space(target.backend, self.name, {**s, **more})
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s = anchor.sizes
        plan = choose_plan(s, target)
        window = anchor.details.window[1]
        pixels, unroll = choose_pixels(s, column_stride(anchor.details.result.anchor, window), target)
        cold = is_worth_prefetching(_tile_sizes(s, plan.parts), plan.tile.oc_blocks, target)
        knobs: dict[str, KnobValue] = {
            "ow_tile": plan.tile.ow_tile,
            "oc_blocks": plan.tile.oc_blocks,
            "parts": plan.parts,
            "pixels": pixels,
            "unroll_kh": unroll,
            "prefetch": cold and plan.parts == 1,
        }
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        found: Bottleneck = anchor.details
        s, lanes = anchor.sizes, target.lanes("float32")
        expand, weight = found.expand[0].buffer, found.window[0].buffer
        packs = {
            expand: weight_pack(expand.const_shape(), config["oc_blocks"] * s["block"], s["IB"]),
            weight: window_pack(weight.const_shape(), s["block"]),
        }
        sch = Schedule(repack(repack(func, expand, packs[expand]), weight, packs[weight]))
        for block in found.padding:
            sch.compute_inline(block.name_hint)
        out, hidden = schedule_epilogue(sch, found.result), schedule_epilogue(sch, found.hidden)
        first, second = found.hidden.anchor.name_hint, found.result.anchor.name_hint

        n, c, oh, ow, lane = sch.get_loops(out)
        panel, c_in = sch.split(c, [None, config["oc_blocks"]])
        part, row = sch.split(oh, [None, -(-s["OH"] // config["parts"])])
        pixel_tile, pixels = sch.split(ow, [None, config["pixels"]])
        vector, lane = sch.split(lane, [None, lanes])
        row, row_in = sch.split(row, [None, 1])
        sch.reorder(n, part, panel, c_in, vector, row, pixel_tile, row_in, pixels, lane)
        task = sch.fuse(n, part, panel)
        sch.parallel(task)
        sch.unroll(pixels)
        sch.vectorize(lane)
        sch.compute_at(second, pixel_tile, True)
        schedule_window(sch, second, config)

        if config["parts"] == 1:
            reshape_images(sch, first, hidden, width=s["W"])  # tiles go across the ends of rows
        sch.compute_at(hidden, task, True)
        n, c, rows, columns, lane = sch.get_loops(hidden)[1:]
        tile, pixel = sch.split(columns, [None, config["ow_tile"]])
        sch.reorder(n, rows, tile, c, pixel, lane)
        sch.unroll(c)
        sch.unroll(pixel)
        sch.vectorize(lane)
        sch.compute_at(first, tile, True)
        sch.annotate(
            task, PREFETCH_STORES, {sch.get(sch.get_block(out)).writes[0].buffer.name: f"{expand.name}_packed"}
        )
        sch.annotate(tile, PREFETCH_STEPS, {found.expand[1].buffer.name: STEPS_AHEAD})
        if config["prefetch"]:
            sch.annotate(tile, PREFETCH_NEXT, {f"{expand.name}_packed": PANEL})
        unroll = choose_unroll(s["IB"], config["ow_tile"] * config["oc_blocks"] * -(-s["block"] // lanes), target)
        schedule_products(sch, first, Config(self.name, {"unroll_kw": False, "unroll_ic": unroll}), s["IB"])
        params = tuple(packs.get(func.buffer_map[p]) for p in func.params)
        return Applied(sch.func, params, sch.trace.to_json_text())


__all__ = ["ExpandDepthwise", "choose_plan", "find_bottleneck", "is_faster_fused", "joins_convolutions"]
