"""Which register tile a direct convolution gets without tuning, and whether its weights are fetched ahead."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autosched.target import CacheSizes, Target
from autosched.templates.cpu.depthwise import even_tile
from autosched.templates.cpu.register_tile import (
    FLOAT_BYTES,
    LOAD_COST,
    cycles,
    fits,
    is_cold,
    pieces,
)
from autosched.templates.cpu.winograd_cost import COLD_BYTES_PER_CYCLE, LATENCY_CYCLES, LEAST_ACCUMULATORS
from autosched.templates.product import BYTE_GROUP

MOST_PREFETCHED = 1024  # pixels: with more, the products take longer than the weights' way from memory
# Tiles across rows: at most so many pixels, whose pointers share 16 registers, and the cycles to find each pixel.
MOST_POINTERS, POINTER_CYCLES = 8, 8
LEAST_GAIN = 0.03  # of the estimated time, for which tiles go across rows
MOST_WITHOUT_ROOM = 200  # pixels: with fewer, the next panel of weights is fetched even where it displaces data
HIDDEN_LOADS = 0.75  # for each multiply-add: 13x1 reaches 0.77 of the rate of 5x2 (Zen 3), which needs 1.08 and 0.7
# Of the estimated time, for which tiles of plain images that nothing copies have several rows, each of them in lines
# that no cache has: 224x224 in patches of 4x4 to 40 channels takes .47 of the time in 1x8 that it takes in 3x3 (Zen 4).
FLAT_GAIN = 0.02
NOT_HIDDEN = 0.25  # of the weights' way from memory, where the next panel does not fit


@dataclass(frozen=True)
class ConvTile:
    """A register tile: so many rows, pixels of each (of all rows together, if it goes across them), channel blocks."""

    oh_tile: int
    ow_tile: int
    oc_blocks: int
    across_rows: bool = False


def _panel_bytes(s: Mapping[str, int], oc_blocks: int) -> int:
    return s["IC"] * s["IB"] * s["KH"] * s["KW"] * oc_blocks * s["block"] * FLOAT_BYTES


def _is_cold(s: Mapping[str, int], caches: CacheSizes) -> bool:
    """Whether weights come from memory, being too many for the second-level cache, and few products hide their way."""
    return s["OH"] * s["OW"] <= MOST_PREFETCHED and is_cold(_panel_bytes(s, s["OC"]), caches)


def _has_room_for_next(panel_bytes: int, caches: CacheSizes) -> bool:
    """Whether the second-level cache holds a panel of weights, the next one, and data."""
    return 2 * panel_bytes <= caches.l2_bytes * 5 / 8


def is_worth_prefetching(s: Mapping[str, int], oc_blocks: int, target: Target) -> bool:
    """Whether to fetch the next panel: where it fits, and also where few products hide its way from memory."""
    caches = target.cache
    has_room = _has_room_for_next(_panel_bytes(s, oc_blocks), caches)
    return _is_cold(s, caches) and (has_room or s["OH"] * s["OW"] <= MOST_WITHOUT_ROOM)


def choose_conv_tile(s: Mapping[str, int], per_block: int, target: Target) -> ConvTile:
    """The tile of least estimated time; the larger one wins a tie, and one within rows a small difference.

    s          the sizes of the template `conv2d`
    per_block  vectors that hold a block of channels
    """
    return min(rank_conv_tiles(s, per_block, target), default=((), ConvTile(1, 1, 1)), key=lambda kept: kept[0])[1]


def rank_conv_tiles(
    s: Mapping[str, int], per_block: int, target: Target
) -> list[tuple[tuple[int, bool, int, int], ConvTile]]:
    """Each tile behind its key, which begins with the estimated cycles; the least key is the best."""
    caches, ranked = target.cache, []
    for tile in _tiles(s, per_block, target):
        cost, size = _estimate(s, tile, per_block, target, caches), tile.oh_tile * tile.ow_tile * tile.oc_blocks
        if s["IB"] == 1 and not s["copied"] and tile.oh_tile > 1:
            cost *= 1 + FLAT_GAIN
        cycles_of = round(cost if tile.across_rows else cost * (1 - LEAST_GAIN))
        ranked.append(((cycles_of, tile.across_rows, tile.oh_tile, -size), tile))
    return ranked


def _tiles(s: Mapping[str, int], per_block: int, target: Target) -> Iterator[ConvTile]:
    """The tiles that stay in registers: within rows, and across them where an image is not one row; of one group.

    Of those that cover a row in equally many pieces, the smallest: 49 pixels by 13 take .985 of the time of 14, whose
    last 7 read as many weights (Emerald Rapids).
    """
    shapes = [(h, w, False) for h in range(1, min(s["OH"], 3) + 1) for w in _even(s["OW"], 16)]
    if s["OH"] > 1:
        shapes += [(1, w, True) for w in _even(s["pixels"], MOST_POINTERS)]
    per_group = max(s["OC"] // s["G"], 1)
    all_blocks = [b for b in range(1, min(s["OC"], 4) + 1) if s["G"] == 1 or per_group % b == 0]
    is_whole = s["group"] == BYTE_GROUP or bool(s.get("shorts"))
    for (h, w, across), blocks in itertools.product(shapes, all_blocks):
        if fits(h * w, blocks * per_block, target.num_registers, is_whole):
            yield ConvTile(h, w, blocks, across)


def _even(extent: int, most: int) -> list[int]:
    """The sizes of up to `most` that cover the extent in pieces as equal as they can be."""
    return sorted({even_tile(extent, w) for w in range(1, min(extent, most) + 1)})


def _estimate(s: Mapping[str, int], tile: ConvTile, per_block: int, target: Target, caches: CacheSizes) -> float:
    """Cycles of a convolution in such tiles, with what is not hidden of its loads and its weights' way from memory."""
    size, vectors, panels = tile.oh_tile * tile.ow_tile, tile.oc_blocks * per_block, -(-s["OC"] // tile.oc_blocks)
    panel_bytes = _panel_bytes(s, tile.oc_blocks)
    beside = 0.0
    if tile.across_rows:
        rows = pieces(s["pixels"], tile.ow_tile)
        beside = float(POINTER_CYCLES * s["pixels"] * panels)
    else:
        heights, widths = pieces(s["OH"], tile.oh_tile), pieces(s["OW"], tile.ow_tile)
        rows = [(h * w, many_h * many_w) for h, many_h in heights for w, many_w in widths]
    if _is_cold(s, caches) and not _has_room_for_next(panel_bytes, caches):
        beside += NOT_HIDDEN * panels * panel_bytes / COLD_BYTES_PER_CYCLE
    steps = s["IC"] * s["IB"] * s["KH"] * s["KW"]
    products = cycles(rows, vectors, s["OC"] * per_block, steps, target, caches)
    if target.num_registers <= 16 and size * vectors < LEAST_ACCUMULATORS:  # `cycles` knows of it where there are more
        products += LATENCY_CYCLES * sum(count for _, count in rows) * panels * steps
    many_loads = max(0.0, (size + vectors) / (size * vectors) - HIDDEN_LOADS)
    return products * (1 + LOAD_COST * many_loads) + beside


__all__ = ["ConvTile", "choose_conv_tile", "is_worth_prefetching", "rank_conv_tiles"]
