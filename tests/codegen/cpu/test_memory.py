"""Loads and stores of vectors."""

import numpy as np
import pytest

from autosched import te, topi
from autosched.codegen import compile_func
from autosched.target import Target
from autosched.templates import apply_config, default_config
from autosched.templates.kernel import form_of
from autosched.tir import Schedule, cast
from tests.codegen.programs import run
from tests.spread import cover

TARGETS = ["cpu", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64"]


@pytest.mark.parametrize("n", [5, 7, 9])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64"])
def test_lanes_that_a_condition_leaves_out_may_lie_before_a_local_array(n, target):
    a = te.placeholder((n,), name="A")
    twice = te.compute((n,), lambda i: a[i] * 2.0, name="twice")
    joined = te.compute((2 * n,), lambda f: te.if_then_else(f < n, a[f], twice[f - n]), name="joined")
    sch = Schedule(te.create_prim_func([a, joined]))
    sch.set_scope("twice", 0, "local")
    sch.vectorize(sch.get_loops("twice")[0])
    sch.vectorize(sch.get_loops("joined")[0])
    x, y = np.arange(1, n + 1, dtype="f"), np.zeros(2 * n, "f")
    run(compile_func(sch.func, target, name="joined", use_cache=False), [x, y])
    np.testing.assert_array_equal(y, np.concatenate([x, x * 2]))


@pytest.mark.parametrize("n", [17, 21, 33, 35, 47, 97, 101])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("stored", ["float32", "int8"])
def test_several_masked_vectors_that_go_together_stay_within_a_local_array(n, target, stored):
    """Such a vector, more than half full, reaches further than one vector behind the last element."""
    a = te.placeholder((n, 1), name="A")
    power = te.compute((n, 1), lambda i, j: te.exp(a[i, j]), name="power")
    out = te.compute((n, 1), lambda i, j: cast(stored, te.log(power[i, j])), name="out")
    sch = Schedule(te.create_prim_func([a, out]))
    sch.set_scope("power", 0, "local")
    for block in ("power", "out"):
        sch.vectorize(sch.get_loops(block)[0])
    x, y = np.random.default_rng(0).uniform(1.2, 1.8, (n, 1)).astype("f"), np.zeros((n, 1), stored)
    run(compile_func(sch.func, target, name="out", use_cache=False), [x, y])
    np.testing.assert_allclose(y, x.astype(stored), rtol=1e-5)


@pytest.mark.parametrize("n", [3, 16, 37, 64])
@pytest.mark.parametrize("target", ["cpu", "llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_loads_from_places_of_their_own_behind_a_place_outside_of_the_buffer(n, target, dtype):
    table, at = te.placeholder((80,), dtype, "table"), te.placeholder((n,), "int32", "at")
    y = te.compute((n,), lambda i: table[cast("int64", at[i]) + i - 1000], name="y")
    sch = Schedule(te.create_prim_func([table, at, y]))
    sch.vectorize(sch.get_loops("y")[0])
    compiled = compile_func(sch.func, target, name="picked", use_cache=False)
    places = np.random.default_rng(0).integers(0, 80, n)
    x, out = np.random.default_rng(1).random(80).astype(dtype), np.zeros(n, dtype)
    run(compiled, [x, (places - np.arange(n) + 1000).astype("int32"), out])
    np.testing.assert_array_equal(out, x[places])


def test_elements_at_places_of_their_own_are_loaded_by_one_instruction():
    table, at = te.placeholder((5, 80), name="table"), te.placeholder((64,), "int32", "at")
    y = te.compute((5, 64), lambda r, i: table[r, cast("int64", at[i])], name="y")
    sch = Schedule(te.create_prim_func([table, at, y]))
    sch.vectorize(sch.get_loops("y")[1])
    for cpu, is_one in (("x86-64-v4", True), ("x86-64-v3", False), ("znver4", False)):
        compiled = compile_func(sch.func, f"llvm -mcpu={cpu}", name="picked", use_cache=False)
        assert ("gatherdps" in compiled.asm) == is_one
        assert "gatherqps" not in compiled.asm  # places of 64 bits: half as many at once


@pytest.mark.parametrize("height", [14, 56])
def test_an_open_dimension_behind_one_image_leaves_rows_that_lie_side_by_side(height):
    """Quotients and remainders of a loop over channels and pixels cancel, though the image's own stride is a symbol."""
    shape = (1, 256, height, height)
    a, b = te.placeholder(shape, name="A"), te.placeholder(shape, name="B")
    func = te.create_prim_func([a, b, topi.nn.relu(topi.add(a, b))], "int64")
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    form = form_of(apply_config(func, default_config(func, target), target).func)
    assert form is not None
    compiled = compile_func(form.func, target, name="added", use_cache=False)
    assert "vaddps" in compiled.asm and "vinsertps" not in compiled.asm


@cover(("times", [2, 4, 16, 3]), ("dtype", ["float32", "float64", "int8"]), ("target", TARGETS))
def test_elements_that_several_lanes_read(times, dtype, target):
    """The last vector reads the last elements of the buffer and nothing behind them."""
    x = te.placeholder((5, 16), dtype, "x")
    y = te.compute((4, times, 16), lambda i, j, k: x[i + 1, (j * 16 + k) // times], name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    sch.vectorize(sch.get_loops("y")[-1])
    compiled = compile_func(sch.func, target, name="repeated", use_cache=False)
    data, out = np.arange(80).reshape(5, 16).astype(dtype), np.zeros((4, times, 16), dtype)
    run(compiled, [data, out])
    np.testing.assert_array_equal(out.reshape(4, -1), np.repeat(data[1:], times, axis=1))


PLACES = {
    "even": lambda i: 2 * i,
    "odd": lambda i: 2 * i + 1,
    "backwards": lambda i: 79 - i,
    "every other one backwards": lambda i: 79 - 2 * i,
    "pairs turned around": lambda i: i + 1 - i % 2 * 2,
}


@cover(
    ("where", [*PLACES]),
    ("n", [64, 37, 18, 3]),
    ("dtype", ["float32", "float64", "int8", "float16"]),
    ("target", TARGETS),
)
def test_elements_that_lie_near_each_other(where, n, dtype, target):
    """They come from whole vectors, of which none reaches out of what is read: the buffer ends there."""
    place = PLACES[where]
    places = [place(i) for i in range(n)]
    first, last = min(places), max(places)
    x = te.placeholder((5, last - first + 1), dtype, "x")
    y = te.compute((4, n), lambda r, i: x[r + 1, place(i) - first], name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    sch.vectorize(sch.get_loops("y")[-1])
    compiled = compile_func(sch.func, target, name="near", use_cache=False)
    data, out = np.arange(5 * (last - first + 1)).reshape(5, -1).astype(dtype), np.zeros((4, n), dtype)
    run(compiled, [data, out])
    np.testing.assert_array_equal(out, data[1:, np.array(places) - first])


@pytest.mark.parametrize("width", [64, 60])
def test_lanes_of_a_block_read_an_element_of_their_four(width):
    """One vector, moved within its fours; rows that are not whole vectors have none that is sure to lie inside."""
    x = te.placeholder((3, width), name="x")
    y = te.compute((4, 3, width), lambda c, r, i: x[r, i // 4 * 4 + c], name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    sch.unroll(sch.get_loops("y")[0])
    sch.vectorize(sch.get_loops("y")[-1])
    compiled = compile_func(sch.func, "llvm -mcpu=x86-64-v4", name="fours", use_cache=False)
    assert ("vinsertf64x4" in compiled.asm) == (width == 60)
    data, out = np.arange(3 * width).reshape(3, -1).astype("float32"), np.zeros((4, 3, width), "float32")
    run(compiled, [data, out])
    fours = np.arange(width) // 4 * 4
    np.testing.assert_array_equal(out, [data[:, fours + c] for c in range(4)])


def test_every_other_element_is_taken_of_two_vectors():
    x = te.placeholder((1024,), name="x")
    y = te.compute((512,), lambda i: x[2 * i], name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    _, vector = sch.split(sch.get_loops("y")[0], [None, 16])
    sch.vectorize(vector)
    compiled = compile_func(sch.func, "llvm -mcpu=x86-64-v4", name="even", use_cache=False)
    assert "vpermt2ps" in compiled.asm or "vpermi2ps" in compiled.asm
    assert "vinsertps" not in compiled.asm


def test_halves_of_several_rows_go_into_a_new_register():
    """As floats the first of them would wait for what the vector's register held before."""
    x = te.placeholder((3, 200), "float16", "x")
    y = te.compute((200, 3), lambda i, j: x[j, i], name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    sch.vectorize(sch.get_loops("y")[1])
    compiled = compile_func(sch.func, "llvm -mcpu=x86-64-v4", name="turned", use_cache=False)
    assert "vpinsrw\t$0" not in compiled.asm
    data, out = np.random.default_rng(0).random((3, 200)).astype("float16"), np.zeros((200, 3), "float16")
    run(compiled, [data, out])
    np.testing.assert_array_equal(out, data.T)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 5, 7, 9), 0), ((2, 4, 10, 6), 1), ((1, 3, 5, 4, 7), 2)])
def test_rows_whose_place_is_read_are_copied_as_whole_vectors(shape, axis, dtype):
    """The axes behind the one that is looked up are one row, whose quotients and remainders cancel."""
    x, at = te.placeholder(shape, dtype, "x"), te.placeholder((4,), "int64", "at")
    func = te.create_prim_func([x, at, topi.take(x, at, axis=axis, mode="clip")])
    target = Target("llvm -mcpu=x86-64-v3")
    applied = apply_config(func, default_config(func, target), target)
    compiled = compile_func(applied.func, target, name="rows", use_cache=False)
    assert "vinsertps" not in compiled.asm and "vpinsr" not in compiled.asm
    data = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
    places = np.array([2, 0, 1, 2])
    expected = data.take(places, axis)
    out = np.zeros(expected.shape, dtype)
    run(compiled, [data, places, out])
    np.testing.assert_array_equal(out, expected)
