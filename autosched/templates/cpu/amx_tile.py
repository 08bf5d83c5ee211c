"""Which tile registers a product of bytes or of bfloat16 takes on CPUs with AMX."""

from __future__ import annotations

from autosched.codegen.cpu.amx_nest import ROWS, WORDS
from autosched.target import Target
from autosched.templates.cpu.register_tile import RegisterTile
from autosched.templates.product import BYTE_GROUP, PAIR

LEAST_WORDS = 8  # of a step: with fewer, tiles are loaded for longer than they are multiplied
# With fewer rows a tile takes longer than vectors do: its product takes 16 cycles for any number of rows.
LEAST_TILE_ROWS = 3
# Columns of 2 KB or more leave the first-level cache between pairs of tiles of rows: 0.85 of the time with four pairs.
MANY_ROWS, LONG_ROW = 512, 2048
_FEATURES = {BYTE_GROUP: "amx-int8", PAIR: "amx-bf16"}


def has_tiles(group: int, target: Target) -> bool:
    """Whether the CPU has tile registers for words of so many elements."""
    return {"amx-tile", _FEATURES.get(group)} <= target.features and target.vector_bits == 512


def tile_words(words: int, group: int, target: Target) -> int:
    """How many words of 32 bits, of so many that a sum has, a step takes; 0: it is not for tile registers.

    group  elements in a word
    """
    if not has_tiles(group, target):
        return 0
    return next((n for n in range(WORDS, LEAST_WORDS - 1, -1) if words % n == 0), 0)


def choose_tiles(rows: int, n_vectors: int, row_bytes: int) -> RegisterTile:
    """Two tiles of rows by two of columns, whose steps load one tile for each product; few rows: more columns.

    row_bytes  of a row of data: of long ones more rows meet a part of the columns before the next part
    """
    if rows >= MANY_ROWS and n_vectors > 1 and row_bytes >= LONG_ROW:
        return RegisterTile(8 * ROWS, 2)
    if rows > ROWS and n_vectors > 1:
        return RegisterTile(2 * ROWS, 2)
    if rows > 2 * ROWS:
        return RegisterTile(3 * ROWS, 1)
    return RegisterTile(min(rows, ROWS), min(n_vectors, 4))


__all__ = ["LEAST_TILE_ROWS", "choose_tiles", "has_tiles", "tile_words"]
