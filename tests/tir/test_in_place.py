"""What may be written over its input: said of what is safe, not of what is not, and true in one memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from autosched import te
from autosched.tir import PrimFunc, Schedule
from autosched.tir.in_place import overwritable
from autosched.tir.interpret import interpret
from tests.tir.programs import PROGRAMS, arguments, layer_norm, softmax
from tests.tir.random_schedule import take_steps


def _pairs(func: PrimFunc) -> set[tuple[str, str]]:
    return {(func.buffers[i].name, func.buffers[o].name) for i, o in overwritable(func)}


def _elementwise(index, shape=(6, 8)) -> PrimFunc:
    a, b = te.placeholder(shape, name="a"), te.placeholder(shape, name="b")
    return te.create_prim_func([a, b, te.compute(shape, lambda *i: a(*index(*i)) + b(*i), name="out")])


def test_element_by_element() -> None:
    assert _pairs(_elementwise(lambda i, j: (i, j))) == {("a", "out"), ("b", "out")}


@pytest.mark.parametrize(
    "index", [lambda i, j: (5 - i, j), lambda i, j: (i, 7 - j), lambda i, j: (i, 0), lambda i, j: (0, j)]
)
def test_other_elements(index) -> None:
    assert _pairs(_elementwise(index)) == {("b", "out")}


def test_another_shape_or_dtype() -> None:
    a, b = te.placeholder((4, 6), name="a"), te.placeholder((4, 6), "int32", name="b")
    out = te.compute((6, 4), lambda i, j: a[j, i] + b[j, i].astype("float32"), name="out")
    assert _pairs(te.create_prim_func([a, b, out])) == set()


def test_input_that_is_read_later() -> None:
    a = te.placeholder((5, 6), name="a")
    first = te.compute((5, 6), lambda i, j: a[i, j] * 2.0, name="first")
    second = te.compute((5, 6), lambda i, j: a[i, 5 - j] + first[i, j], name="second")
    assert _pairs(te.create_prim_func([a, first, second])) == set()
    third = te.compute((5, 6), lambda i, j: a[i, j] + 1.0, name="third")
    assert _pairs(te.create_prim_func([a, first, third])) == {("a", "third")}


def test_an_output_that_is_added_to() -> None:
    a = te.placeholder((5,), name="a")
    k = te.reduce_axis((0, 3), "k")
    out = te.compute((5,), lambda i: te.sum(a[i] * k.var.astype("float32"), axis=k), name="out")
    assert _pairs(te.create_prim_func([a, out])) == set()


@pytest.mark.parametrize("program", [softmax, layer_norm])
def test_rows(program) -> None:
    """Rows that one iteration reads and writes; with another division of work they are not its own."""
    func = program(6, 8)
    data, last = func.buffers[0].name, func.buffers[-1].name
    sch = Schedule(func)
    *inner, out = (b.name_hint for b in _blocks(sch))
    row, column = sch.get_loops(out)
    sch.parallel(row)
    for name in reversed(inner):
        sch.compute_at(name, row)
    assert (data, last) in _pairs(sch.func)

    sch = Schedule(func)
    column_tile, _ = sch.split(sch.get_loops(out)[1], [None, 4])
    for name in reversed(inner):  # whole rows for half a row: the second half finds the first one overwritten
        sch.compute_at(name, column_tile)
    assert (data, last) not in _pairs(sch.func)


def _blocks(sch: Schedule):
    from autosched.templates.classify import blocks_of

    return blocks_of(sch.func)


def test_stored_more_than_once() -> None:
    sch = Schedule(_elementwise(lambda i, j: (i, j)))
    sch.add_unit_loop("out")
    assert _pairs(sch.func) == {("a", "out"), ("b", "out")}
    from autosched.script import from_source

    twice = from_source("""
@T.prim_func
def main(a: T.Buffer((4,), "float32"), out: T.Buffer((4,), "float32")):
    for r, i in T.grid(2, 4):
        with T.block("out"):
            v = T.axis.spatial(4, i)
            out[v] = a[v] + T.float32(1)
""")
    assert overwritable(twice) == frozenset()


def _run_in_place(func: PrimFunc, pair: tuple[int, int], *, backward: bool) -> np.ndarray:
    arrays = arguments(func)
    arrays[pair[1]] = arrays[pair[0]]
    interpret(func, arrays, backward=backward)
    return arrays[pair[1]]


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_in_one_memory(seed: int) -> None:
    rng = random.Random(seed)
    programs = [*PROGRAMS.values(), lambda: _elementwise(lambda i, j: (i, j))]
    sch = Schedule(programs[seed % len(programs)]())
    take_steps(sch, rng.randrange(2, 12), rng.randrange)
    arrays = arguments(sch.func)
    interpret(sch.func, arrays)
    for pair in overwritable(sch.func):
        for backward in (False, True):
            np.testing.assert_array_equal(_run_in_place(sch.func, pair, backward=backward), arrays[pair[1]])
