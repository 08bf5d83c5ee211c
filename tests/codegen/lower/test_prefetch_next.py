"""Requests for the next panel: each line once, spread over the passes."""

import itertools

import pytest

from autosched.codegen.cpu.text import loop_lines
from autosched.codegen.lower.flops import evaluate_index
from autosched.codegen.lower.prefetch_next import spread_prefetches
from autosched.ir.node import preorder
from autosched.tir import BufferStore, For, LoopKind
from autosched.tir.expr import Call, const_int
from autosched.tir.prefetch import PANEL, PREFETCH_NEXT, requested
from autosched.tir.separable import TURN, TURNS
from tests.codegen.programs import apart, buffer, loop

PANELS, PASSES, STEPS, WIDTH = 3, 4, 32, 16
W, X, OUT = buffer("W", PANELS, STEPS, WIDTH), buffer("X", PASSES, STEPS), buffer("OUT", PASSES, WIDTH)


def _product(annotations=None, steps=STEPS):
    def update(p, t, k, j):
        return BufferStore(OUT, OUT[t, j] + X[t, k] * W[p, k, j], (t, j))

    return loop(
        "p",
        PANELS,
        lambda p: loop(
            "t",
            PASSES,
            lambda t: loop("k", steps, lambda k: loop("j", WIDTH, lambda j: update(p, t, k, j), "vectorized")),
            annotations=annotations,
        ),
    )


def _text(stmt):
    return "\n".join(loop_lines(stmt))


def _prefetches(stmt):
    return [n for n in preorder(stmt) if isinstance(n, Call) and n.op == "prefetch"]


def test_without_the_annotation_nothing_changes():
    stmt = _product()
    assert spread_prefetches(stmt) is stmt


def _places(made, panel, turns=None):
    """The elements that are asked for while a panel is read, as distances from the buffer's start.

    turns  values of TURN and TURNS, where blocks take turns
    """
    found = []
    apart_from_lanes = (n for n in preorder(made) if isinstance(n, For) and n.kind != LoopKind.VECTORIZED)
    loops = {n.loop_var: const_int(n.extent) for n in apart_from_lanes}
    for fetch in _prefetches(made):
        load, steps, _, is_far = requested(fetch)
        assert is_far
        offsets = apart(steps, load.buffer)
        for values in itertools.product(*(range(n) for v, n in loops.items() if v.name != "p")):
            at = dict(zip((v for v in loops if v.name != "p"), values, strict=True))
            at |= {v: panel for v in loops if v.name == "p"} | (turns or {})
            numbers = [int(evaluate_index(i, at)) for i in load.indices]
            place = (numbers[0] * STEPS + numbers[1]) * WIDTH + numbers[2]
            found += [place + offset for offset in offsets]
    return found


@pytest.mark.parametrize("elements", [STEPS * WIDTH, PANEL])
def test_every_line_of_the_next_panel_is_asked_for(elements):
    made = spread_prefetches(_product({PREFETCH_NEXT: {"W": elements}}))
    for panel in range(PANELS):
        lines = {place // 16 for place in _places(made, panel)}
        assert lines == {(panel + 1) * STEPS * WIDTH // 16 + i for i in range(STEPS * WIDTH // 16)}


def test_pieces_of_work_that_read_the_same_panel_share_the_lines():
    def update(task, t, k, j):
        at = task % 2 * 2 + t
        return BufferStore(OUT, OUT[at, j] + X[at, k] * W[task // 2, k, j], (at, j))

    def piece(task):
        def steps(t):
            return loop("k", STEPS, lambda k: loop("j", WIDTH, lambda j: update(task, t, k, j), "vectorized"))

        return loop("t", PASSES // 2, steps, annotations={PREFETCH_NEXT: {"W": PANEL}})

    made = spread_prefetches(loop("p", 2 * PANELS, piece, "parallel"))
    halves = [{place // 16 for place in _places(made, task)} for task in (2, 3)]
    assert not halves[0] & halves[1]
    assert halves[0] | halves[1] == {2 * STEPS * WIDTH // 16 + i for i in range(STEPS * WIDTH // 16)}


def test_blocks_that_take_turns_share_the_lines_whatever_their_number():
    made = spread_prefetches(_product({PREFETCH_NEXT: {"W": STEPS * WIDTH}}), takes_turns=True)
    wanted = {STEPS * WIDTH // 16 + i for i in range(STEPS * WIDTH // 16)}
    for n in (1, 2, 3, 8):
        found = [{place // 16 for place in _places(made, 0, {TURN: turn, TURNS: n})} for turn in range(n)]
        assert wanted <= set().union(*found)
        assert all(len(lines) <= 2 * -(-len(wanted) // n) for lines in found)


def test_each_pass_asks_for_a_share_of_its_own():
    made = spread_prefetches(_product({PREFETCH_NEXT: {"W": STEPS * WIDTH}}))
    places = _places(made, 0)
    share = len(places) // PASSES
    shares = [{place // 16 for place in places[i * share : (i + 1) * share]} for i in range(PASSES)]
    assert all(not a & b for a, b in itertools.combinations(shares, 2)) and {len(s) for s in shares} == {8}


def test_the_request_stands_where_one_line_an_iteration_is_enough():
    made = _text(spread_prefetches(_product({PREFETCH_NEXT: {"W": 16 * PASSES}})))
    assert made.index("for t") < made.index("prefetch") < made.index("for k")
