"""Ragged loops are split into full iterations, those that need a test, and those in which nothing happens."""

import numpy as np
import pytest

from autosched import te
from autosched.codegen.cpu.text import loop_lines
from autosched.codegen.lower import lower_func
from autosched.codegen.lower.partition import FULL_APART, INSIDE_APART
from autosched.ir.node import preorder
from autosched.tir import For, IfThenElse, Var
from autosched.tir.expr import Call
from autosched.tir.functor import stores
from autosched.tir.interpret import interpret
from autosched.tir.prefetch import PREFETCH_WINDOW
from autosched.tir.schedule import Schedule


def tiled(n: int, chunk: int, tile: int, parallel: bool, asks: bool = False):
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="y")
    s = Schedule(te.create_prim_func([x, y]))
    (i,) = s.get_loops("y")
    outer, middle, inside = s.split(i, [None, chunk, tile])
    if asks:
        s.annotate(middle, PREFETCH_WINDOW, {"x": 2})
    if parallel:
        s.parallel(outer)
    s.unroll(inside)
    return lower_func(s.mod["main"])


def test_iterations_beyond_the_end_are_gone():
    body = tiled(49, 16, 6, False).body
    loops = [n for n in preorder(body) if isinstance(n, For) and n.kind.name == "SERIAL"]
    assert [loop.extent.value for loop in loops] == [8]  # eight full tiles, one of a single element, seven of none
    assert len(stores(body)) == 2


def test_tiles_beyond_the_end_of_the_last_chunk_are_skipped():
    lines = loop_lines(tiled(49, 5, 6, True).body)
    assert any("if" in line for line in lines)
    assert not any("unroll(6)" in line and "if" in line for line in lines)  # no test for each element


def test_tiles_beyond_the_end_ask_for_no_cache_lines():
    body = tiled(49, 5, 6, True, asks=True).body
    assert len(stores(body)) == sum(isinstance(n, Call) for n in preorder(body)) == 2


@pytest.mark.parametrize(
    ("n", "chunk", "tile"), [(49, 16, 6), (49, 5, 6), (48, 5, 6), (7, 4, 3), (5, 2, 8), (100, 3, 7)]
)
@pytest.mark.parametrize("parallel", [False, True])
def test_every_element_is_computed_once(n, chunk, tile, parallel):
    x, y = np.arange(n, dtype="f"), np.zeros(n, "f")
    interpret(tiled(n, chunk, tile, parallel), [x, y])
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("apart", [False, True])
def test_full_tiles_of_an_open_length_are_apart_where_that_is_asked_for(apart):
    n = Var("n", "int64")
    x = te.placeholder((n,), name="x")
    s = Schedule(te.create_prim_func([x, te.compute((n,), lambda i: x[i] + 1.0, name="y")]))
    outer, inside = s.split(s.get_loops("y")[0], [None, 4])
    s.unroll(inside)
    if apart:
        s.annotate(outer, FULL_APART, True)
    lowered = lower_func(s.mod["main"])
    assert len(stores(lowered.body)) == (2 if apart else 1)
    for length in (1, 4, 7, 8):
        given, made = np.arange(length, dtype="f"), np.zeros(length, "f")
        interpret(lowered, [given, made])
        np.testing.assert_array_equal(made, given + 1)


def test_tiles_at_no_border_are_apart_where_that_is_asked_for():
    n, k = Var("n", "int64"), te.reduce_axis((0, 3), "k")
    x = te.placeholder((n,), name="x")

    def padded(i):
        return te.if_then_else(te.all(i >= 1, i < n + 1), x[i - 1], 0.0)

    s = Schedule(te.create_prim_func([x, te.compute((n,), lambda i: te.sum(padded(i + k.var), axis=k), name="y")]))
    i, window = s.get_loops("y")
    outer, inside = s.split(i, [None, 4])
    s.unroll(inside)
    s.unroll(window)
    s.annotate(outer, INSIDE_APART, True)
    lowered = lower_func(s.mod["main"])
    tests = [node for node in preorder(lowered.body) if isinstance(node, IfThenElse) and node.else_case is not None]
    assert len(tests) == 1 and not any(isinstance(node, IfThenElse) for node in preorder(tests[0].then_case))
    for length in (1, 2, 5, 12, 14):
        given, made = np.arange(1, length + 1, dtype="f"), np.zeros(length, "f")
        interpret(lowered, [given, made])
        np.testing.assert_array_equal(made, np.convolve(given, np.ones(3, "f"))[1:-1])


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("parallel", [False, True])
def test_vectors_behind_the_whole_steps_of_an_open_length(lanes, parallel):
    n = Var("n", "int64")
    x = te.placeholder((n,), name="x")
    s = Schedule(te.create_prim_func([x, te.compute((n,), lambda i: x[i] + 1.0, name="y")]))
    outer, inside = s.split(s.get_loops("y")[0], [None, 12])
    s.vectorize(inside)
    if parallel:
        s.parallel(outer)
    s.annotate(outer, FULL_APART, lanes)
    lowered = lower_func(s.mod["main"])
    lines = list(loop_lines(lowered.body))
    whole = lines.index(next(line for line in lines if "vector(12)" in line))
    assert " if " not in lines[whole], lines
    assert sum("vector(4)" in line for line in lines) == (3 if lanes == 4 else 0), lines
    for length in (1, 3, 4, 5, 8, 11, 12, 13, 24, 29):
        given, made = np.arange(length, dtype="f"), np.zeros(length, "f")
        interpret(lowered, [given, made])
        np.testing.assert_array_equal(made, given + 1)
