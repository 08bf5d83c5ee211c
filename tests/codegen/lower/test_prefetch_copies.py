"""Requests of the lines that the next piece of work will copy, by the steps of what the present one computes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from autosched.codegen.lower.flops import evaluate_index
from autosched.codegen.lower.prefetch_copies import MOST_LINES, prefetch_copies
from autosched.ir.node import preorder
from autosched.tir import BufferStore, For, Stmt
from autosched.tir.expr import Call, PrimExpr, Var
from autosched.tir.prefetch import PREFETCH_COPIES, requested
from autosched.tir.stmt import seq
from tests.codegen.programs import apart, buffer, loop

PIECES, CHANNELS, ROWS, LANES = 3, 2, 9, 16


def pieces(
    pixels: int, copied: int, tiles: int, steps: int, first: Callable[[Var], PrimExpr] = lambda p: p * 3
) -> Stmt:
    """Pieces that each copy three rows of all channels, so many pixels of each, and multiply them in tiles.

    first  of the rows, by the piece
    """
    data, copy = buffer("DATA", CHANNELS, ROWS, pixels, LANES), buffer("COPY", CHANNELS, 3, copied, LANES)
    weight, out = buffer("W", steps, LANES), buffer("OUT", PIECES, tiles, LANES)

    def piece(p: Var) -> Stmt:
        def line(c: Var, y: Var, x: Var) -> Stmt:
            return loop("b", LANES, lambda b: BufferStore(copy, data[c, first(p) + y, x, b], (c, y, x, b)))

        def add(t: Var, k: Var, b: Var) -> Stmt:
            return BufferStore(out, out[p, t, b] + copy[0, 0, 0, b] * weight[k, b], (p, t, b))

        rows = loop("c", CHANNELS, lambda c: loop("y", 3, lambda y: loop("x", copied, lambda x: line(c, y, x))))
        sums = loop(
            "t", tiles, lambda t: loop("k", steps, lambda k: loop("b", LANES, lambda b: add(t, k, b), "vectorized"))
        )
        return seq(rows, sums)

    return loop("p", PIECES, piece, "parallel", annotations={PREFETCH_COPIES: {"DATA": "W"}})


def requests(made: Stmt, pixels: int) -> tuple[list[str], list[list[int]]]:
    """The loops around the requests, and the lines that the second piece asks for at each turn of them."""
    (call,) = [n for n in preorder(made) if isinstance(n, Call)]
    around = [n for n in preorder(made) if isinstance(n, For) and any(x is call for x in preorder(n))]
    first, steps, writes, _ = requested(call)
    assert not writes
    asked = []
    for turn in itertools.product(*(range(int(evaluate_index(n.extent, {}))) for n in around[1:])):
        values = dict(zip((n.loop_var for n in around), (1, *turn), strict=True))
        c, y, x, b = (int(evaluate_index(i, values)) for i in first.indices)
        asked.append([((c * ROWS + y) * pixels + x) + (b + n) // LANES for n in apart(steps, first.buffer)])
    return [n.loop_var.name for n in around], asked


@pytest.mark.parametrize(
    ("pixels", "copied", "tiles", "steps", "loops"),
    [
        (6, 6, 4, 10, ["p", "t", "k"]),  # rows lie one after the other: a run of each channel
        (6, 6, 11, 10, ["p", "t"]),  # tiles are enough to ask
        (8, 6, 3, 5, ["p", "t", "k"]),  # each row is a run
    ],
)
def test_steps_ask_for_the_lines_of_the_next_piece(
    pixels: int, copied: int, tiles: int, steps: int, loops: list[str]
) -> None:
    names, asked = requests(prefetch_copies(pieces(pixels, copied, tiles, steps)), pixels)
    assert names == loops and all(len(lines) <= MOST_LINES for lines in asked)
    wanted = {
        (c * ROWS + 6 + y) * pixels + x for c in range(CHANNELS) for y in range(3) for x in range(copied)
    }  # of the last piece
    found = {line for lines in asked for line in lines}
    assert wanted <= found and len(found - wanted) <= len(wanted) / 3


def test_too_few_steps_ask_for_nothing() -> None:
    assert not any(isinstance(n, Call) for n in preorder(prefetch_copies(pieces(6, 6, 2, 2))))


def test_rows_that_data_name_are_not_asked_for() -> None:
    table = buffer("FIRST", PIECES, dtype="int32")
    made = prefetch_copies(pieces(6, 6, 4, 10, lambda p: table[p]))
    assert not any(isinstance(n, Call) for n in preorder(made))
