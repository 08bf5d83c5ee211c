"""Requests for a window's lines, those that neither the tile before nor the row above has read, and for a step's."""

from __future__ import annotations

import math
from operator import mul

import pytest

from autosched.codegen.lower.flops import evaluate_index
from autosched.codegen.lower.prefetch_window import prefetch_windows
from autosched.ir.node import preorder
from autosched.tir import BufferLoad, BufferStore, For, Stmt
from autosched.tir.expr import Call, Var, const, const_int, floordiv, floormod
from autosched.tir.functor import substitute
from autosched.tir.prefetch import (
    PREFETCH_RESULTS,
    PREFETCH_STEPS,
    PREFETCH_WINDOW,
    PREFETCH_WITHIN,
    TO_OWN,
    TO_READ,
    TO_WRITE,
    requested,
)
from autosched.tir.simplify import simplify
from autosched.tir.stmt import IfThenElse, seq
from tests.codegen.programs import apart, buffer, loop

ROWS, TILES, PIXELS, LANES, TAPS, AHEAD = 6, 5, 4, 16, 3, 2
WIDTH = TILES * PIXELS + TAPS - 1


def window(stride: int = 1, dtype: str = "float32") -> Stmt:
    """Sums of windows of `TAPS` rows and columns, in tiles of `PIXELS`."""
    x = buffer("X", stride * ROWS + TAPS, stride * WIDTH, LANES, dtype=dtype)
    out = buffer("OUT", ROWS, WIDTH, LANES, dtype=dtype)

    def update(y, t, ky, kx, p, lane):  # type: ignore[no-untyped-def]
        place = (y, t * PIXELS + p, lane)
        value = out[place] + x[stride * y + ky, stride * (t * PIXELS + p) + kx, lane]
        return BufferStore(out, value, place)

    def tile(y: Var, t: Var) -> Stmt:
        def taps(ky: Var, kx: Var, p: Var) -> Stmt:
            return loop("lane", LANES, lambda lane: update(y, t, ky, kx, p, lane), "vectorized")

        return loop("ky", TAPS, lambda ky: loop("kx", TAPS, lambda kx: loop("p", PIXELS, lambda p: taps(ky, kx, p))))

    annotations = {PREFETCH_WINDOW: {"X": AHEAD}}
    return loop("y", ROWS, lambda y: loop("t", TILES, lambda t: tile(y, t), annotations=annotations))


def places(made: Stmt, y: int, t: int) -> list[tuple[int, ...]]:
    """(row, first element within it) of each line that the tile `t` of the row `y` asks for."""
    loops = [n for n in preorder(made) if isinstance(n, For)][:2]
    values = dict(zip((n.loop_var for n in loops), (y, t), strict=True))
    found: list[tuple[int, ...]] = []
    for fetch in (n for n in preorder(made) if isinstance(n, Call)):
        first, steps, *_ = requested(fetch)
        offsets = apart(steps, first.buffer)
        (row, pixel, lane) = (int(evaluate_index(i, values)) for i in first.indices)
        at = row * WIDTH * LANES + pixel * LANES + lane
        found += [divmod(at + offset, WIDTH * LANES) for offset in offsets]
    return found


def test_a_tile_asks_for_the_new_columns_of_the_last_row() -> None:
    new = [((t + AHEAD) * PIXELS + TAPS - 1 + i) * LANES for t in (1,) for i in range(PIXELS)]
    assert places(prefetch_windows(window()), 2, 1) == [(2 + TAPS - 1, at) for at in new]


def test_what_is_annotated_is_the_same_apart_from_the_requests() -> None:
    made = prefetch_windows(window())
    assert not any(n.annotations for n in preorder(made) if isinstance(n, For))
    assert sum(isinstance(n, BufferStore) for n in preorder(made)) == 1


def test_elements_of_one_line_are_asked_for_once() -> None:
    assert len(places(prefetch_windows(window(dtype="float16")), 0, 0)) == PIXELS // 2


@pytest.mark.parametrize("stride", [4, 5])
def test_tiles_that_hardly_overlap_ask_for_nothing(stride: int) -> None:
    assert places(prefetch_windows(window(stride)), 0, 0) == []


STEPS = 3  # of channels, in the sums of `product`


def product(width: int, channels: int = STEPS, annotation: str = PREFETCH_STEPS) -> Stmt:
    """Sums over channels in tiles of `PIXELS`, which go across the ends of rows that are `width` pixels long."""
    x, out = buffer("X", channels, -(-TILES * PIXELS // width), width, LANES), buffer("OUT", TILES * PIXELS, LANES)

    def update(c, b, p, lane):  # type: ignore[no-untyped-def]
        return BufferStore(out, out[p, lane] + x[c, floordiv(p, width), floormod(p, width), b], (p, lane))

    def tile(t: Var) -> Stmt:
        def pixels(c: Var, b: Var) -> Stmt:
            def lanes(i: Var) -> Stmt:
                return loop("lane", LANES, lambda lane: update(c, b, t * PIXELS + i, lane), "vectorized")

            return loop("i", PIXELS, lanes, "unrolled")

        return loop("c", channels, lambda c: loop("b", LANES, lambda b: pixels(c, b)))

    return loop("t", TILES, tile, annotations={annotation: {"X": AHEAD}})


@pytest.mark.parametrize(("width", "is_scratch"), [(PIXELS, False), (PIXELS - 1, False), (PIXELS - 1, True)])
def test_each_step_asks_for_the_lines_of_one_a_few_steps_later(width: int, is_scratch: bool) -> None:
    stmt = product(width)
    scratch = {n.buffer for n in preorder(stmt) if isinstance(n, BufferLoad)} if is_scratch else ()
    made = prefetch_windows(stmt, scratch)
    tiles, steps = [n for n in preorder(made) if isinstance(n, For)][:2]
    requests = [requested(n) for n in preorder(steps) if isinstance(n, Call)]
    assert len(requests) == (PIXELS if is_scratch else 1)  # rows of scratch may become longer
    strides = [math.prod(requests[0][0].buffer.const_shape()[d:]) for d in range(1, 4)]
    for number in range(TILES * STEPS):
        place = {tiles.loop_var: const(number // STEPS, "int64"), steps.loop_var: const(number % STEPS, "int64")}
        found = []
        for fetch, asked, *_ in requests:
            at = sum(map(mul, (const_int(simplify(substitute(i, place))) or 0 for i in fetch.indices), (*strides, 1)))
            found += [at + offset for offset in apart(asked, fetch.buffer)]
        tile, step = divmod(number + AHEAD, STEPS)
        first = step * strides[0] + tile * PIXELS * LANES
        assert found == [first + i * LANES for i in range(PIXELS)]


def test_lines_in_rows_of_scratch_are_told_by_indices() -> None:
    """As a block of winograd's inputs is read, whose rows are then made longer."""
    x, out = buffer("X", TILES, PIXELS, STEPS, LANES), buffer("OUT", TILES, PIXELS, LANES)

    def pixel(t: Var, c: Var, p: Var, lane: Var) -> Stmt:
        return BufferStore(out, out[t, p, lane] + x[t, p, c, lane], (t, p, lane))

    def step(t: Var, c: Var) -> Stmt:
        lanes = loop("p", PIXELS, lambda p: loop("lane", LANES, lambda v: pixel(t, c, p, v), "vectorized"), "unrolled")
        return loop("once", 1, lambda _: lanes)

    tiles = loop("t", TILES, lambda t: loop("c", STEPS, lambda c: step(t, c)), annotations={PREFETCH_WITHIN: {"X": 2}})
    ((_, asked, *_),) = [requested(n) for n in preorder(prefetch_windows(tiles, {x})) if isinstance(n, Call)]
    assert asked == [(p, 0, 0) for p in range(PIXELS)]


def test_a_tile_of_one_step_asks_for_the_next_tile() -> None:
    tiles, inner = [n for n in preorder(prefetch_windows(product(PIXELS, 1))) if isinstance(n, For)][:2]
    assert not any(isinstance(n, Call) for n in preorder(inner))
    ((fetch, asked, *_),) = [requested(n) for n in preorder(tiles) if isinstance(n, Call)]
    offsets = apart(asked, fetch.buffer)
    assert const_int(simplify(fetch.indices[1] - tiles.loop_var)) == 1
    assert offsets == [i * LANES for i in range(PIXELS)]


def test_no_step_asks_for_what_is_beyond_its_tile() -> None:
    made = prefetch_windows(product(PIXELS, annotation=PREFETCH_WITHIN))
    tiles, steps = [n for n in preorder(made) if isinstance(n, For)][:2]
    ((fetch, asked, *_),) = [requested(n) for n in preorder(steps) if isinstance(n, Call)]
    offsets = apart(asked, fetch.buffer)
    assert offsets == [i * LANES for i in range(PIXELS)]
    for step in range(STEPS):
        place = {tiles.loop_var: const(1, "int64"), steps.loop_var: const(step, "int64")}
        found = [const_int(simplify(substitute(i, place))) for i in fetch.indices]
        assert found == [min(step + AHEAD, STEPS - 1), 1, 0, 0]


def stored_tiles(pixels: int, rows: int, channels: int, scale: int = 1) -> Stmt:
    """Tiles of `PIXELS` that sum over channels, then store what they have of so many pixels with a buffer added."""
    x, sums = buffer("X", channels, LANES), buffer("SUMS", PIXELS, LANES)
    skip, out = (buffer(name, pixels, LANES) for name in ("SKIP", "OUT"))

    def nest(of_lane):  # type: ignore[no-untyped-def]
        def row(p: Var) -> Stmt:
            return loop("lane", LANES, lambda v: of_lane(p, v), "vectorized")

        return loop("p", PIXELS, row, "unrolled")

    def store(t: Var, p: Var, v: Var) -> Stmt:
        place = (t * PIXELS + p, v)
        stored = BufferStore(out, sums[p, v] + skip[place], place)
        return stored if pixels % PIXELS == 0 else IfThenElse(place[0] * scale < pixels, stored)

    def tile(t: Var) -> Stmt:
        summed = nest(lambda p, v: BufferStore(sums, sums[p, v] + x[p, v], (p, v)))
        return seq(loop("c", channels, lambda _: summed), nest(lambda p, v: store(t, p, v)))

    annotations = {PREFETCH_RESULTS: {"OUT": rows, "SKIP": rows}}
    return loop("t", -(-pixels // PIXELS), tile, annotations=annotations)


@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("pixels", [TILES * PIXELS, TILES * PIXELS - 3])
def test_steps_ask_for_what_their_tile_stores_and_reads_as_it_stores(pixels: int, rows: int) -> None:
    """Of the last tile, which may have fewer pixels, no step owns what another one stores."""
    made = prefetch_windows(stored_tiles(pixels, rows, 4))
    tiles, steps = [n for n in preorder(made) if isinstance(n, For)][:2]
    for number in range(TILES):
        asked: dict[tuple[str, int], list[int]] = {}
        for step in range(4):
            place = {tiles.loop_var: number, steps.loop_var: step}
            for test in (n for n in preorder(steps) if isinstance(n, IfThenElse)):
                calls = [n for n in preorder(test) if isinstance(n, Call)]
                for fetch, lines, purpose, _ in map(requested, calls if evaluate_index(test.condition, place) else ()):
                    pixel, lane = (int(evaluate_index(i, place)) for i in fetch.indices)
                    found = [pixel + (lane + offset) // LANES for offset in apart(lines, fetch.buffer)]
                    asked.setdefault((fetch.buffer.name, purpose), []).extend(found)
        first, most = number * PIXELS, rows * min(4, -(-PIXELS // rows))
        own = sorted(set(asked["OUT", TO_OWN]))
        assert own == list(range(first, min(first + min(most, PIXELS), pixels)))
        assert asked["SKIP", TO_READ] == list(range(first, first + most))
        assert asked["OUT", TO_WRITE] == list(range(first + rows, first + rows + most))  # a step ahead


def test_what_is_stored_on_other_conditions_is_not_owned() -> None:
    made = prefetch_windows(stored_tiles(TILES * PIXELS - 3, 1, 4, scale=2))
    assert {requested(n)[2] for n in preorder(made) if isinstance(n, Call)} == {TO_READ, TO_WRITE}
