"""transform_layout and transform_block_layout."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.errors import InvalidValueError, ScheduleError
from autosched.tir import IndexMap, Schedule, interpret
from autosched.tir.expr import Var, as_int, const
from autosched.tir.function import shape_vars, specialize
from autosched.tir.functor import substitute
from autosched.tir.simplify import simplify
from autosched.tir.verify import verify
from tests.tir.programs import arguments, assert_same_result, chain, conv, dense, matmul, run


def test_intermediate_buffer() -> None:
    sch = Schedule(dense(8, 9, 5))
    sch.transform_layout("C", ("write", 0), lambda i, j: (i // 4, j, i % 4))
    assert "C[v_i // 4, v_j, v_i % 4]" in sch.func.script()
    assert_same_result(dense(8, 9, 5), sch.func)
    verify(sch.func)


def test_packed_weight_of_the_interface() -> None:
    sch = Schedule(matmul(4, 8, 5))
    sch.transform_layout("C", "B", lambda k, j: (j // 4, k, j % 4))
    a, b, _ = arguments(sch.func)
    c = np.zeros((4, 8), "float32")
    interpret(sch.func, [a, b, c])
    natural = b.transpose(1, 0, 2).reshape(5, 8)
    np.testing.assert_allclose(c, a @ natural, rtol=1e-5, atol=1e-5)
    verify(sch.func)


def test_padding_of_an_intermediate_buffer() -> None:
    func = chain(5, 6)
    sch = Schedule(func)
    sch.transform_layout("B", ("write", 0), lambda i, j: (i, j // 4, j % 4), pad_value=0.0)
    buffer = sch.get(sch.get_block("B")).writes[0].buffer
    assert buffer.const_shape() == (5, 2, 4)
    assert_same_result(func, sch.func)
    verify(sch.func)
    seen = Schedule(sch.func)  # the padding holds the pad value: read it back through a copy
    seen.cache_read("C", 0, "global")
    assert_same_result(func, seen.func)


def test_padding_is_written() -> None:
    sch = Schedule(chain(5, 6))
    sch.transform_layout("B", ("write", 0), lambda i, j: (i, j // 4, j % 4), pad_value=3.0)
    text = sch.func.script()
    assert "T.float32(3.0)" in text and "v1 * 4 + v2 < 6" in text


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda s: s.transform_layout("D", "V", lambda j: (j // 4, j % 4)), "no read buffer|it reads"),
        (lambda s: s.transform_layout("C", "V", lambda j: (j // 4, j % 4)), "interface and cannot be padded"),
        (lambda s: s.transform_layout("C", "B", lambda i, j: (i // 4, i % 4, j)), "give pad_value"),
        (lambda s: s.transform_layout("C", "B", lambda i, j: (i, i)), "two elements in one place"),
        (lambda s: s.transform_layout("C", "B", lambda i, j: (i - 2, j)), "no bounds from 0"),
        (lambda s: s.transform_layout("C", ("inout", 0), lambda i, j: (j, i)), "'read' or 'write'"),
    ],
)
def test_refusals(call, reason: str) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(chain())
    before = sch.func
    with pytest.raises(ScheduleError, match=reason):
        call(sch)
    assert sch.func is before


def test_a_reduction_cannot_be_padded() -> None:
    sch = Schedule(dense())
    with pytest.raises(ScheduleError, match="reduces"):
        sch.transform_layout("C", ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=0.0)


@pytest.mark.parametrize("index_map", [lambda i, j: (i * 6 + j,), lambda i, j: (j // 2, i, j % 2), lambda i, j: (j, i)])
def test_block_layout(index_map) -> None:  # type: ignore[no-untyped-def]
    sch = Schedule(chain(5, 6))
    sch.transform_block_layout("B", index_map)
    assert_same_result(chain(5, 6), sch.func)
    verify(sch.func)


def test_block_layout_of_a_reduction() -> None:
    sch = Schedule(conv())
    sch.transform_block_layout("conv", lambda n, o, h, w, rc, rh, rw: (n, o, h, w, rc, rh * 3 + rw))
    assert [iv.kind for iv in sch.get(sch.get_block("conv")).iter_vars] == ["S", "S", "S", "S", "R", "R"]
    assert_same_result(conv(), sch.func)


def test_block_layout_refuses() -> None:
    sch = Schedule(chain(5, 6))
    with pytest.raises(ScheduleError, match="not a bijection"):
        sch.transform_block_layout("B", lambda i, j: (i, j // 4, j % 4))
    with pytest.raises(ScheduleError, match="takes 1"):
        sch.transform_block_layout("B", lambda i: (i,))
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="mixes"):
        sch.transform_block_layout("C", lambda i, j, k: (i, j * 5 + k))


def test_index_map_text() -> None:
    m = IndexMap.from_func(lambda n, c, h: (n, c // 16, h, c % 16))
    assert str(m) == "lambda n, c, h: (n, c // 16, h, c % 16)"
    assert str(IndexMap.from_text(str(m))) == str(m)
    assert [s.value for s in m.map_shape([2, 30, 7])] == [2, 2, 7, 16]
    assert str(IndexMap.from_text("lambda i: (((i + 1) * 2) - 1,)")) == "lambda i: (((i + 1) * 2) - 1,)"


@pytest.mark.parametrize(
    "text", ["1", "lambda i: i", "lambda i: (open(i),)", "lambda i: (j,)", "lambda i: (i ** 2,)", "lambda i: ("]
)
def test_index_map_text_runs_nothing(text: str) -> None:
    with pytest.raises(InvalidValueError, match="index map"):
        IndexMap.from_text(text)


def test_results_stay_finite() -> None:
    assert all(np.isfinite(x).all() for x in run(chain()))


def test_a_length_of_run_time_is_padded_to_whole_panels() -> None:
    n = Var("n", "int64")
    a = te.placeholder((n, 6), name="A", dtype="float32")
    b = te.compute((n, 6), lambda i, j: a[i, j] + 1, name="B")
    c = te.compute((n, 6), lambda i, j: b[i, j] * 2, name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    sch.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4), pad_value=0.0)
    shape = sch.get(sch.get_block("B")).writes[0].buffer.shape
    verify(sch.func)
    for size in (1, 4, 7):
        func = specialize(sch.func, {shape_vars(sch.func)[0]: size})
        assert [as_int(simplify(substitute(s, {n: const(size, "int64")}))) for s in shape] == [-(-size // 4), 6, 4]
        x, y = np.random.default_rng(size).standard_normal((size, 6)).astype("float32"), np.zeros((size, 6), "float32")
        interpret(func, [x, y])
        np.testing.assert_allclose(y, (x + 1) * 2, rtol=1e-6)


def test_dimensions_of_run_time_lengths_stay_unpadded() -> None:
    n = Var("n", "int64")
    a = te.placeholder((n, 8), name="A", dtype="float32")
    b = te.compute((n, 8), lambda i, j: a[i, j] + 1, name="B")
    sch = Schedule(te.create_prim_func([a, te.compute((n, 8), lambda i, j: b[i, j] * 2, name="C")]))
    sch.transform_layout("B", ("write", 0), lambda i, j: (j // 4, i, j % 4))
    assert "if_then_else" not in sch.func.script()
