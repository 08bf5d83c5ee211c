"""Requests, to write to them, of the lines that a piece of work stores behind the nest that computes them."""

from __future__ import annotations

import pytest

from autosched.codegen.lower.flops import evaluate_index
from autosched.codegen.lower.prefetch_stores import LINES_AT_ONCE, prefetch_stores
from autosched.ir.node import preorder
from autosched.tir import BufferStore, For, Stmt
from autosched.tir.expr import Call, Var
from autosched.tir.prefetch import PREFETCH_STORES, requested
from autosched.tir.stmt import seq
from tests.codegen.programs import apart, buffer, loop

PIECES, TILES, STEPS, LANES = 3, 4, 5, 16


def pieces(rows: int, apart: int) -> Stmt:
    """Pieces that each sum in `TILES` tiles, then store so many rows of lanes, which lie so far apart."""
    x, out = buffer("X", TILES, STEPS, LANES), buffer("OUT", PIECES, rows * apart, LANES)
    hidden = buffer("HIDDEN", TILES, LANES)

    def add(t: Var, c: Var, b: Var) -> Stmt:
        return BufferStore(hidden, hidden[t, b] + x[t, c, b], (t, b))

    def piece(p: Var) -> Stmt:
        sums = loop("t", TILES, lambda t: loop("c", STEPS, lambda c: loop("b", LANES, lambda b: add(t, c, b))))
        store = loop("r", rows, lambda r: loop("b", LANES, lambda b: BufferStore(out, hidden[0, b], (p, r * apart, b))))
        return seq(sums, store)

    return loop("p", PIECES, piece, "parallel", annotations={PREFETCH_STORES: {"OUT": "X"}})


def requests(made: Stmt, piece: int, tile: int, step: int) -> list[int]:
    """The lines that a step asks for, counted from the first of its piece."""
    loops = [n for n in preorder(made) if isinstance(n, For)][:3]
    values = dict(zip((n.loop_var for n in loops), (piece, tile, step), strict=True))
    ((first, steps, writes, _),) = [requested(n) for n in preorder(loops[2]) if isinstance(n, Call)]
    offsets = apart(steps, first.buffer)
    assert writes, "to write to them"
    p, row, lane = (int(evaluate_index(i, values)) for i in first.indices)
    assert p == piece and all((lane + offset) % LANES == 0 for offset in offsets)
    return [row + (lane + offset) // LANES for offset in offsets]


@pytest.mark.parametrize("rows", [TILES, 10 * TILES, 10 * TILES + 1])
def test_steps_of_tiles_ask_for_all_lines_once_and_those_of_the_last_again(rows: int) -> None:
    made = prefetch_stores(pieces(rows, 1))
    found = [requests(made, 1, t, c) for t in range(TILES) for c in range(STEPS)]
    assert all(len(lines) <= LINES_AT_ONCE for lines in found)
    assert sorted({line for lines in found for line in lines}) == list(range(-(-rows // TILES) * TILES))


def test_rows_apart_are_not_asked_for() -> None:
    assert not any(isinstance(n, Call) for n in preorder(prefetch_stores(pieces(TILES, 2))))
