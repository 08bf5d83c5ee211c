"""Which tile registers a product of bytes or of bfloat16 takes on CPUs with AMX."""

from __future__ import annotations

from autosched.target import Target
from autosched.templates.cpu.register_tile import RegisterTile
from autosched.templates.product import BYTE_GROUP

AMX = "amx"  # the annotation of the loop that a row of a tile runs over: see codegen.cpu.amx
TILE_ROWS, TILE_WORDS = 16, 16
LEAST_WORDS = 8  # of a step: with fewer, tiles are loaded for longer than they are multiplied
# With fewer rows a tile takes longer than vectors do: its product takes 16 cycles for any number of rows.
LEAST_TILE_ROWS = 3
# Columns of 2 KB or more leave the first-level cache between pairs of tiles of rows: 0.85 of the time with four pairs.
MANY_ROWS, LONG_ROW = 512, 2048
_FEATURES = {BYTE_GROUP: "amx-int8", 2: "amx-bf16"}  # by the elements in a word


def tile_words(words: int, group: int, target: Target) -> int:
    """How many words of 32 bits, of so many that a sum has, a step takes; 0: it is not for tile registers.

    group  elements in a word
    """
    if "amx-tile" not in target.features or _FEATURES.get(group) not in target.features or target.vector_bits != 512:
        return 0
    best = next((n for n in range(TILE_WORDS, LEAST_WORDS - 1, -1) if words % n == 0), 0)
    return best


def choose_tiles(rows: int, n_vectors: int, row_bytes: int) -> RegisterTile:
    """Two tiles of rows by two of columns, whose steps load one tile for each product; few rows: more columns.

    row_bytes  of a row of data: of long ones more rows meet a part of the columns before the next part
    """
    if rows >= MANY_ROWS and n_vectors > 1 and row_bytes >= LONG_ROW:
        return RegisterTile(8 * TILE_ROWS, 2)
    if rows > TILE_ROWS and n_vectors > 1:
        return RegisterTile(2 * TILE_ROWS, 2)
    if rows > 2 * TILE_ROWS:
        return RegisterTile(3 * TILE_ROWS, 1)
    return RegisterTile(min(rows, TILE_ROWS), min(n_vectors, 4))


__all__ = ["AMX", "LEAST_TILE_ROWS", "TILE_ROWS", "choose_tiles", "tile_words"]
