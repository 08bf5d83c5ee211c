"""Convolutions of bytes and bfloat16 in tile registers (AMX): out[n, oc, oh, ow, ob] += data[…] * weight[o, i, kh, kw].

    for (n, panel of 16 to 64 channels, chunk of rows) in parallel:      # or (n, chunk, panel)
        for tile of rows and pixels:
            for ic, kh, kw: tile[pixels, channels] += data[pixels, 64 bytes of channels] * weight[64 bytes, channels]
            out = epilogue(tile)

The channels of a block of data, 32 or 64 bytes of them, lie side by side as a row of a tile has them; the pixels that a
tile multiplies are in one row of the image, of which a 1x1 convolution sees all. In a first layer, whose data have four
bytes of channels in a block, a row of a tile holds a row of the window instead. Weights are packed into
[O / width, I / 4, KH, KW, width, 4], those of bfloat16 into [O / width, I / 2, KH, KW, width, 2].
"""

from __future__ import annotations

import math

from autosched.codegen.cpu.amx_nest import AMX, ROWS, WORD_BYTES, WORDS
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.chain import schedule_epilogue
from autosched.templates.classify import extents, reduced, spatial
from autosched.templates.cpu.amx_tile import has_tiles, tile_words
from autosched.templates.cpu.conv2d import Conv, match_blocked_conv
from autosched.templates.cpu.conv_flat import is_pointwise, reshape_images
from autosched.templates.cpu.conv_loops import schedule_tiles
from autosched.templates.cpu.padding import schedule_before
from autosched.templates.cpu.task_order import LEAST_TASKS, TaskOrder, Traffic, choose_order
from autosched.templates.pack import Pack, packed_params, repack
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule

PRODUCT_CYCLES = 16  # of two tiles, whatever rows and columns these have
LEAST_TAPS = 4  # of a window's row that a tile's row holds
# Steps of sums so short that what follows them waits for their way through memory: it does for four tiles of pixels at
# once, which takes 0.79 of the time of two with one step, 0.85 with three, and as long with nine (Granite Rapids).
MOST_SHORT = 8
MOST_PREFETCHED = 1024  # pixels, as of other convolutions


class AmxConv2d:
    """Convolutions of unsigned bytes and signed weights, or of bfloat16, where the CPU has tile registers for them."""

    name = "conv2d_amx"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = match_blocked_conv(func)
        if found is None or not has_tiles(found[1].group, target):
            return None
        c, conv = found
        n, oc, oh, ow, block = extents(spatial(c.block))
        ic, kh, kw, ib = extents(reduced(c.block))
        per_row = _words(ib, kw, conv.group, target)
        if not per_row or block % ROWS:
            return None
        flat = is_pointwise(c, conv.data)
        if flat:
            oh, ow = 1, oh * ow
        sizes = {"N": n, "OC": oc, "OH": oh, "OW": ow, "block": block, "IC": ic, "IB": ib, "KH": kh, "KW": kw}
        sizes |= {"copied": int(conv.is_copied), "flat": int(flat), "line": ow if oh == 1 else oh}
        return Anchor(c.block.name_hint, "conv2d", sizes, (conv, per_row))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        space = load_space(target.backend, self.name, {**anchor.sizes, "words": anchor.details[1]})
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s, (conv, _) = anchor.sizes, anchor.details
        width = min(s["block"], 2 * ROWS)
        steps = s["IC"] * s["KH"] * s["KW"]
        oh_tile, ow_tile = _tile(s["OH"], s["OW"], 4 if steps <= MOST_SHORT else 2)
        lines = -(-s["OW"] // ow_tile) if s["OH"] == 1 else -(-s["OH"] // oh_tile)
        size = WORD_BYTES // conv.group
        data, weight = (math.prod(x.buffer.const_shape()) * size for x in (conv.data, conv.weight))
        panels = s["OC"] * s["block"] // width
        order, padding = choose_order(Traffic(s["N"], lines, panels, data / s["N"], weight), target), "none"
        if s["copied"]:
            padding = "task" if lines >= LEAST_TASKS else "copy"
        if padding == "task":
            order = TaskOrder("data", 1 << (lines // LEAST_TASKS).bit_length() - 1)
        is_cold = weight > target.cache.l2_bytes / 2 and s["OH"] * s["OW"] <= MOST_PREFETCHED
        knobs = {
            "oh_tile": oh_tile,
            "ow_tile": ow_tile,
            "width": width,
            "outer": order.outer,
            "chunk": min(order.chunk, lines),
            "padding": padding,
            "prefetch": is_cold,
        }
        return Config(self.name, knobs)

    def estimate(self, anchor: Anchor, config: Config, target: Target) -> float:
        """Cycles on one core: twice those of the products alone."""
        s = anchor.sizes
        rows = s["N"] * s["OH"] * -(-s["OW"] // ROWS)
        conv, words = anchor.details
        steps = s["IC"] * s["KH"] * s["KW"] * s["IB"] // conv.group // words
        return 2.0 * PRODUCT_CYCLES * float(rows * s["OC"] * s["block"] // ROWS * steps)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        conv: Conv = anchor.details[0]
        s, buffer, width = anchor.sizes, conv.weight.buffer, config["width"]
        pack = Pack(buffer.const_shape(), (width, conv.group, 0, 0), (0, 2, 4, 5, 1, 3))
        sch = Schedule(repack(func, buffer, pack))
        name, padding = conv.chain.anchor.name_hint, config["padding"]
        if padding == "copy":
            schedule_before(sch, conv.chain)
        out = schedule_epilogue(sch, conv.chain)
        if s["flat"]:
            reshape_images(sch, name, out, width=conv.width)
        n, oc, oh, ow, ob = sch.get_loops(out)
        panel, ob = sch.split(ob, [None, width])
        sch.reorder(oc, panel, oh, ow, ob)
        task = schedule_tiles(sch, name, (n, oc, panel, oh, ow, ob), config, (s["OH"], s["OW"]), buffer)
        if padding == "task":
            schedule_before(sch, conv.chain, task)
        _schedule_update(sch, name, anchor.details[1], conv.group, is_first=s["IB"] == conv.group)
        return Applied(sch.func, packed_params(func, buffer, pack), sch.trace.to_json_text())


def _words(block: int, taps: int, group: int, target: Target) -> int:
    """Words of 32 bits in a row of a tile: of a block of channels, or the taps of a window's row; 0: of neither."""
    if block == group:
        return taps if LEAST_TAPS <= taps <= WORDS else 0
    return tile_words(block // group, group, target)


def _tile(oh: int, ow: int, tiles: int) -> tuple[int, int]:
    """(rows, pixels of each) of so many tiles of pixels: of one row where it has more, of more rows otherwise."""
    in_row = -(-ow // ROWS)
    if in_row >= tiles or oh == 1:
        return 1, min(ow, ROWS * tiles) if oh == 1 else -(-ow // -(-in_row // tiles))
    return min(oh, max(1, tiles // in_row)), ow


def _schedule_update(sch: Schedule, anchor: str, words: int, group: int, *, is_first: bool) -> None:
    """Order the anchor's own loops: steps, pixels, channels, then what a row of a tile of data runs over."""
    *_, n, oc, oh_in, ow_in, ob, ic, kh, kw, ib = sch.get_loops(anchor)
    if is_first:
        rest, last = sch.split(ib, [None, group])
        in_row, steps = kw, [ic, rest, kh]
    else:
        rest, in_row, last = sch.split(ib, [None, words, group])
        steps = [ic, rest, kh, kw]
    sch.reorder(n, *steps, oc, oh_in, ow_in, ob, in_row, last)
    sch.annotate(in_row, AMX, 1)
    for loop in (oh_in, ow_in, in_row, last):
        sch.unroll(loop)
    sch.vectorize(ob)
    sch.decompose_reduction(anchor, steps[0])


__all__ = ["AmxConv2d"]
