"""How large expressions become by inlining, and what stays a stage for that."""

from collections.abc import Callable

import numpy as np
import pytest

import autosched
from autosched import te
from autosched.te import Tensor
from autosched.templates import apply_config, default_config
from autosched.templates.classify import blocks_of
from autosched.tir import BufferLoad, IntImm, PrimExpr, PrimFunc, Var
from autosched.tir.buffer import Buffer
from autosched.tir.functor import blocks
from autosched.tir.inlined_size import MAX_INLINED, MAX_NESTED, ValueSize, inlined_size, too_large_to_inline, value_size
from autosched.tir.stmt import BufferStore


def chain(n: int, size: int = 40) -> PrimFunc:
    """x -> x + x, n times."""
    x = first = te.placeholder((size,), name="x")
    for _ in range(n):
        x = each(x, lambda v: v + v)
    return te.create_prim_func([first, x], "int64")


def each(x: Tensor, f: Callable[[PrimExpr], PrimExpr]) -> Tensor:
    """f of every element; the read of it is one node, however often f uses it."""
    return te.compute(x.shape, lambda *i: f(x(*i)), name="y")


def test_a_shared_value_counts_as_often_as_it_is_read() -> None:
    buffer = Buffer("x", (IntImm(4, "int64"),), "float32")
    value: PrimExpr = BufferLoad(buffer, (IntImm(0, "int64"),))
    for _ in range(60):
        value = value + value
    assert value_size(value) == ValueSize(2**60 - 1, {buffer: 2**60}, 60)


def test_blocks_inlined_one_into_the_other() -> None:
    func = chain(14)
    found = inlined_size(blocks_of(func))
    assert (found.own, dict(found.reads)) == (2**14 - 1, {func.buffers[0]: 2**14})
    assert found.total({func.buffers[0]: 3}) == 2**14 - 1 + 3 * 2**14


def test_an_index_that_is_data_is_written_out_too() -> None:
    x, places = Buffer("x", (IntImm(4, "int64"),), "float32"), Buffer("places", (IntImm(4, "int64"),), "int64")
    i = Var("i", "int64")
    at = BufferLoad(places, (i + 1,)) * 2 + 1
    value = BufferLoad(x, (at,)) + BufferLoad(x, (i * 2 + 1,))
    assert value_size(value) == ValueSize(1 + len("*2+1"), {x: 2, places: 1}, 4)


def test_the_sum_before_an_element_wise_block_is_read_and_not_inlined() -> None:
    x, k = te.placeholder((8, 8), name="x"), te.reduce_axis((0, 8), "k")
    s = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="s")
    y = te.compute((8,), lambda i: s[i] * s[i], name="y")
    func = te.create_prim_func([x, y], "int64")
    found = inlined_size(blocks_of(func))
    assert found.own == 1 and list(found.reads.values()) == [2]


@pytest.mark.parametrize("n", [3, 30])
def test_few_stages_stay_and_no_expression_is_large(n: int) -> None:
    func = chain(n)
    target = autosched.Target("cpu")
    scheduled = apply_config(func, default_config(func, target), target).func
    left = [b for b in blocks(scheduled.body) if isinstance(b.body, BufferStore)]
    assert len(left) == (1 if n == 3 else 4) == 1 + len(too_large_to_inline(blocks_of(func)))
    assert all(value_size(b.body.value).total({}) <= MAX_INLINED for b in left if isinstance(b.body, BufferStore))


def test_what_is_computed_in_stages() -> None:
    built = autosched.build(chain(30), target="cpu", records=[], threads=1)
    x, y = np.linspace(-1, 1, 40, dtype="f"), np.zeros(40, "f")
    built(x, y)
    np.testing.assert_array_equal(y, x * 2.0**30)


def test_large_expressions_around_an_anchor_are_no_epilogue() -> None:
    a, b, k = te.placeholder((8, 16), name="a"), te.placeholder((16, 32), name="b"), te.reduce_axis((0, 16), "k")
    y = te.compute((8, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    for _ in range(12):
        y = each(y, lambda v: v * v + v)
    func = te.create_prim_func([a, b, y], "int64")
    built = autosched.build(func, target="cpu", records=[], threads=1)
    rng = np.random.default_rng(0)
    left, right = rng.random((8, 16), "f") * 0.01, rng.random((16, 32), "f")
    out = np.zeros((8, 32), "f")
    built(left, right, out)
    expected = left.astype("d") @ right
    for _ in range(12):
        expected = expected * expected + expected
    np.testing.assert_allclose(out, expected, rtol=1e-4)


def test_a_long_chain_is_cut_before_passes_run_out_of_frames() -> None:
    x = first = te.placeholder((4,), name="x")
    for _ in range(130):  # 390 nodes, 260 levels
        x = each(x, lambda v: v * 0.5 + 1.0)
    func = te.create_prim_func([first, x], "int64")
    assert inlined_size(blocks_of(func)).depth == 260
    assert len(too_large_to_inline(blocks_of(func))) == 260 // MAX_NESTED
    out = np.zeros(4, "f")
    autosched.build(func, target="cpu", records=[], threads=1)(out + 1, out)
    np.testing.assert_allclose(out, 2)


def test_levels_of_positions_count() -> None:
    at, x = te.placeholder((8,), "int32", name="at"), te.placeholder((8,), name="x")
    func = te.create_prim_func([at, x, te.compute((8,), lambda i: x[at[i] * 2 + 1] + 1.0, name="y")])
    assert inlined_size(blocks_of(func)).depth == 3
