"""Depthwise convolution over blocked channels, a row kernel without a padded copy of the data.

    for (n, channel block, row chunk) in parallel:                           # or (n, half of the rows, block, chunk)
        for row tile, pixel tile:
            prefetch(data[…])                                                # new lines of a later tile
            tile[rows, pixels, lanes] = 0                                    # stays in registers
            for kh [, kw unrolled]: tile += data[…] * weight_packed[c, 0, kh, kw, :]     # neighbours share loads
            out = epilogue(tile)

Taps in the padding are left out: rows by a test at run time, columns in code of their own for the border tiles. The
weights are packed from their natural [C, 1, KH, KW] into [C / block, 1, KH, KW, block]. Where each channel has a few
outputs, which follow each other, the lanes of a vector repeat as many fewer elements of the data. Up to four vectors of
a block, which lie side by side, take turns at each tile of pixels.

Where the CPU has instructions for the bytes of a window's column (`codegen.cpu.column_dot`), bytes are summed in words
of up to four rows. Each piece of work then copies its rows with their padding, and its weights are packed into
[C / block, 1, KW, KH / 4, block, 4].
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.codegen.cpu.column_dot import COLUMN, MOST_ROWS
from autosched.space import Config, ConfigSpace, KnobValue, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import Chain, chain_around, schedule_epilogue
from autosched.templates.classify import (
    contraction,
    extents,
    find_contraction,
    is_injective,
    is_parameter,
    reduced,
    spatial,
)
from autosched.templates.cpu.byte_products import sums_columns
from autosched.templates.cpu.padding import inline_before, schedule_before
from autosched.templates.cpu.task_order import LEAST_TASKS
from autosched.templates.pack import Pack, packed_params, repack
from autosched.templates.product import BYTE_GROUP
from autosched.tir import Block, BufferLoad, BufferStore, PrimFunc
from autosched.tir.dtypes import item_bytes
from autosched.tir.functor import free_vars, loads
from autosched.tir.prefetch import PREFETCH_WINDOW
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import Analyzer

MOST_TAPS = 9  # unrolled where neighbours share data: 112x112x32 in 77 us instead of 100; stride 2 loses 5 % (Zen 3)
FEW_PIXELS = 4  # of a tile whose window is unrolled while its weights come from memory: all else stays in registers
PIXELS_AHEAD = 20  # of the output, whose data are asked for; 12 to 48 are as good
# Rows in a piece of work of an image whose halves are divided before its channels: two threads then read what they have
# written themselves. 112x112x32 takes 37 us instead of 52, and the 1x1 convolution behind it 45 instead of 50 (Emerald
# Rapids); on one thread 106 instead of 102.
HALF_CHUNK = 4
MOST_PIXELS = 8  # of a tile by default: with wide windows, the data that neighbours share need registers, too


@dataclass(frozen=True)
class Depthwise:
    """The weight, natural [C, 1, KH, KW], the data, and the blocks around the convolution."""

    weight: BufferLoad
    data: BufferLoad
    chain: Chain

    def in_words(self, sizes: Mapping[str, int], target: Target) -> bool:
        """Whether bytes are summed in words of a window's rows."""
        dtypes = self.data.buffer.dtype, self.weight.buffer.dtype, self.chain.anchor.writes[0].buffer.dtype
        fits = sizes["block"] % target.lanes("int32") == 0 and 1 < sizes["KH"] <= MOST_ROWS
        fits = fits and self.data.indices[4] is spatial(self.chain.anchor)[4].var  # one output of each channel
        return fits and dtypes == ("uint8", "int8", "int32") and sums_columns(target)

    def is_streamed(self, target: Target) -> bool:
        """Whether data that come from beyond the second level of caches are asked for ahead.

        Of a Zen 5: 96 channels of 150x150 take .73 of the time, 80x80 to 112x112 .95 to .97, smaller images as long as
        before, and longer with stride 2.
        """
        return self.exceeds_cache(target) and column_stride(self.chain.anchor, self.data) == 1

    def exceeds_cache(self, target: Target) -> bool:
        """Whether data and result are more than the second-level cache holds."""
        out = self.chain.anchor.writes[0].buffer
        size = sum(math.prod(b.const_shape()) * item_bytes(b.dtype) for b in (self.data.buffer, out))
        return size > target.cache.l2_bytes


def depthwise_roles(func: PrimFunc, block: Block) -> tuple[BufferLoad, BufferLoad] | None:
    """(weight [C, 1, KH, KW], data) of a depthwise convolution with blocked channels; None for any other block."""
    c = contraction(block)
    if c is None or len(spatial(block)) != 5 or len(reduced(block)) != 2:
        return None
    lane = spatial(block)[4].var
    for weight, data in ((c.a, c.b), (c.b, c.a)):
        if len(weight.indices) == 4 and lane in free_vars(weight.indices[0]) and is_parameter(func, weight):
            return weight, data
    return None


class DepthwiseConv2d:
    """Depthwise convolutions whose data and output are NCHWc."""

    name = "depthwise"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        c = find_contraction(func)
        roles = None if c is None else depthwise_roles(func, c.block)
        if c is None or roles is None:
            return None
        chain = chain_around(func, c.block)
        if chain is None or not all(is_injective(b) for b in chain.before):
            return None
        n, channels, oh, ow, block = extents(spatial(c.block))
        kh, kw = extents(reduced(c.block))
        sizes = {"N": n, "C": channels, "OH": oh, "OW": ow, "block": block, "KH": kh, "KW": kw}
        return Anchor(c.block.name_hint, "depthwise_conv2d", sizes, Depthwise(*roles, chain))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        words = int(anchor.details.in_words(anchor.sizes, target))
        machine = {"lanes": target.lanes("float32"), "registers": target.num_registers, "words": words}
        values = {**anchor.sizes, **machine}
        space = load_space(target.backend, self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s = anchor.sizes
        pixels, unroll = choose_pixels(s, column_stride(anchor.details.chain.anchor, anchor.details.data), target)
        if anchor.details.in_words(s, target):
            unroll, pixels = True, even_tile(s["OW"], MOST_PIXELS)
        by_halves = s["N"] == 1 < s["C"] and s["OH"] >= 2 * HALF_CHUNK and anchor.details.exceeds_cache(target)
        knobs: dict[str, KnobValue] = {
            "pixels": pixels,
            "rows": 1,
            "row_chunk": HALF_CHUNK if by_halves else _row_chunk(s),
            "halves": by_halves,
            "unroll_kh": unroll,
            "copy_pad": False,
        }
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        details: Depthwise = anchor.details
        buffer, chain = details.weight.buffer, details.chain
        block, in_words = anchor.sizes["block"], details.in_words(anchor.sizes, target)
        if in_words:
            pack = Pack(buffer.const_shape(), (block, 0, BYTE_GROUP, 0), (0, 2, 5, 3, 1, 4))
        else:
            pack = window_pack(buffer.const_shape(), block)
        sch = Schedule(repack(func, buffer, pack))
        if config["copy_pad"]:
            schedule_before(sch, chain)
        elif not in_words:
            inline_before(sch, chain)
        out = schedule_epilogue(sch, chain)
        n, channels, oh, ow, lane = sch.get_loops(out)
        row_chunk = min(config["row_chunk"], -(-anchor.sizes["OH"] // config["rows"]))
        chunk, row_tile, rows = sch.split(oh, [None, row_chunk, config["rows"]])
        pixel_tile, pixels = sch.split(ow, [None, config["pixels"]])
        neighbours = 1 if in_words else _neighbours(anchor.sizes, target)
        vector, side, lane = sch.split(lane, [None, neighbours, target.lanes("float32")])
        around = [n, channels, chunk] if in_words else [n, channels, chunk, vector]
        if config.get("halves", False):
            half, around[2] = sch.split(chunk, [2, None])
            around.insert(1, half)
        sch.reorder(*around, *([vector] if in_words else []), row_tile, pixel_tile, side, rows, pixels, lane)
        task = sch.fuse(*around)
        sch.parallel(task)
        sch.unroll(rows)
        sch.unroll(pixels)
        sch.vectorize(lane)
        sch.compute_at(chain.anchor.name_hint, side, True)
        if in_words and not config["copy_pad"]:
            schedule_before(sch, chain, task)
        if not in_words and not config["copy_pad"] and details.is_streamed(target):
            ahead = -(-PIXELS_AHEAD // config["pixels"])
            names = _images_read(sch, chain.anchor.name_hint)
            sch.annotate(pixel_tile, PREFETCH_WINDOW, dict.fromkeys(names, ahead))
        schedule_window(sch, chain.anchor.name_hint, config, in_words)
        return Applied(sch.func, packed_params(func, buffer, pack), sch.trace.to_json_text())


def schedule_window(sch: Schedule, anchor: str, config: Config, in_words: bool = False) -> None:
    """The update of a tile of rows and pixels, whose loops are the innermost but for the window's."""
    *_, rows, pixels, lane, kh, kw = sch.get_loops(anchor)
    if config["unroll_kh"]:
        sch.unroll(kh)
    sch.unroll(kw)
    if in_words:
        sch.annotate(kh, COLUMN, 1)
        sch.reorder(kw, rows, pixels, lane, kh)
    else:
        sch.reorder(kh, kw, rows, pixels, lane)
    sch.unroll(rows)
    sch.unroll(pixels)
    sch.vectorize(lane)
    sch.decompose_reduction(anchor, kw if in_words else kh)


def _images_read(sch: Schedule, anchor: str) -> tuple[str, ...]:
    """The names of the arguments from which a convolution reads other elements for each column of the output."""
    block = sch.get(sch.get_block(anchor))
    column, arguments = spatial(block)[3].var, {b.name for b in sch.func.buffers}
    assert isinstance(block.body, BufferStore), "a sum is stored"
    moving = (x.buffer.name for x in loads(block.body.value) if any(column in free_vars(i) for i in x.indices))
    return tuple(dict.fromkeys(name for name in moving if name in arguments))


def window_pack(shape: tuple[int, ...], block: int) -> Pack:
    """[C, 1, KH, KW] -> [C / block, 1, KH, KW, block]."""
    return Pack(shape, (block, 0, 0, 0), (0, 2, 3, 4, 1))


def even_tile(extent: int, most: int) -> int:
    """The size of at most `most` that covers the extent in the fewest pieces, as equal as they can be."""
    return -(-extent // -(-extent // most))


def choose_pixels(s: Mapping[str, int], stride: int, target: Target) -> tuple[int, bool]:
    """(pixels of a tile, whether the rows of the window are unrolled); `s` has OW, KH and KW."""
    pixels = even_tile(s["OW"], MOST_PIXELS if s["KW"] <= 3 else MOST_PIXELS - 2)
    unroll = s["KH"] * s["KW"] + 2 * pixels + 4 <= target.num_registers  # the weights stay in registers
    is_wide = s["OW"] > 3 * FEW_PIXELS  # else the tiles of a row become one body, which takes more registers
    if not unroll and is_wide and s["KH"] * s["KW"] <= MOST_TAPS and stride == 1:
        return even_tile(s["OW"], FEW_PIXELS), True
    return pixels, unroll


def _neighbours(s: Mapping[str, int], target: Target) -> int:
    """Vectors of a block that take turns at a tile of pixels, so that lines side by side are read and written together.

    One by one, 256 channels of 56x56 take 254 us, by fours 169; 640 of 14x14, 28.9 and 26.1; 7x7 windows take longer,
    whose rows are read again from a cache (Emerald Rapids, two threads).
    """
    vectors, rest = divmod(s["block"], target.lanes("float32"))
    return 1 if rest or s["KH"] * s["KW"] > MOST_TAPS else next(n for n in (4, 3, 2, 1) if vectors % n == 0)


def column_stride(convolution: Block, data: BufferLoad) -> int:
    """Of the data along a row of the output."""
    column = spatial(convolution)[3].var
    terms = Analyzer().linear(data.indices[3]).terms.values()
    return next((k for k, atom in terms if atom is column), 0)


def _row_chunk(s: Mapping[str, int]) -> int:
    """All rows of a channel block in one piece of work, unless that leaves too few pieces or a much smaller one."""
    chunk = 1 << (s["OH"] - 1).bit_length() if s["OH"] > 1 else 1
    while chunk > 4 and (s["N"] * s["C"] * -(-s["OH"] // chunk) < LEAST_TASKS or _is_ragged(s["OH"], chunk)):
        chunk //= 2
    return min(chunk, 128)


def _is_ragged(extent: int, chunk: int) -> bool:
    """Whether one of several chunks lacks more than a tenth of the extent."""
    return chunk < extent and -extent % chunk > extent / 10


__all__ = [
    "DepthwiseConv2d", "choose_pixels", "column_stride", "depthwise_roles", "even_tile", "schedule_window",
    "window_pack",
]  # fmt: skip
