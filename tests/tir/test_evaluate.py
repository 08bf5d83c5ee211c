"""evaluate against interpret, on every program; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, tir
from autosched.errors import InvalidValueError, ShapeError
from autosched.tir import evaluate as evaluate_module
from autosched.tir.evaluate import Sample, evaluate
from autosched.tir.schedule import Schedule
from tests.tir.programs import PROGRAMS, arguments, matmul, run


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_interpreter(name: str) -> None:
    func = PROGRAMS[name]()
    arrays = run(func)
    written = [i for i, (a, b) in enumerate(zip(arrays, arguments(func), strict=True)) if not np.array_equal(a, b)]
    outputs = evaluate(func, [a for i, a in enumerate(arrays) if i not in written])
    assert len(outputs) == len(written) > 0
    for out, i in zip(outputs, written, strict=True):
        np.testing.assert_allclose(out, arrays[i], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["conv", "conv_nchwc", "softmax", "dense"])
def test_chunks_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    func = PROGRAMS[name]()
    inputs = arguments(func)[:-1]
    whole = evaluate(func, inputs)
    monkeypatch.setattr(evaluate_module, "CHUNK_ELEMENTS", 16)
    for a, b in zip(whole, evaluate(func, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("chunk", [1 << 22, 16])
@pytest.mark.parametrize("name", ["conv", "conv_nchwc", "softmax", "dense"])
def test_a_sample_has_some_of_the_results(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are without it, the others NaN; of several blocks some may be evaluated whole."""
    monkeypatch.setattr(evaluate_module, "CHUNK_ELEMENTS", chunk)
    monkeypatch.setattr(evaluate_module, "LEAST_PLACES", 2)
    func = PROGRAMS[name]()
    inputs = arguments(func)[:-1]
    (whole,), (some,) = evaluate(func, inputs), evaluate(func, inputs, Sample(1, seed=3))
    is_there = ~np.isnan(some)
    np.testing.assert_allclose(some[is_there], whole[is_there], rtol=1e-12)
    if name != "softmax":
        assert 0 < is_there.mean() < 1


def test_is_more_exact_than_float32() -> None:
    func = matmul(1, 1, 4)
    a = np.array([[1e8, 1, -1e8, 1]], "float32")
    assert evaluate(func, [a, np.ones((4, 1), "float32")])[0][0, 0] == 2.0


def test_integers_wrap_in_casts() -> None:
    x = te.placeholder((3,), "int32", name="X")
    func = te.create_prim_func([x, te.compute((3,), lambda i: x[i].astype("int8"), name="Y")])
    given = np.array([1, 200, -129], "int32")
    assert evaluate(func, [given])[0].tolist() == [1, -56, 127]
    out = np.zeros(3, "int8")
    tir.interpret(func, [given, out])
    assert out.tolist() == [1, -56, 127]


def test_depthwise_and_grouped_products() -> None:
    a, w = te.placeholder((4, 6, 6), name="A"), te.placeholder((4, 3), name="W")
    r = te.reduce_axis((0, 3), "r")
    func = te.create_prim_func(
        [a, w, te.compute((4, 4, 6), lambda c, h, x: te.sum(a[c, h + r, x] * w[c, r], axis=r), name="D")]
    )
    arrays = run(func)
    np.testing.assert_allclose(evaluate(func, arrays[:2])[0], arrays[2], rtol=1e-5, atol=1e-5)


def test_sum_that_does_not_depend_on_its_axis() -> None:
    a = te.placeholder((3,), name="A")
    r = te.reduce_axis((0, 5), "r")
    func = te.create_prim_func([a, te.compute((3,), lambda i: te.sum(a[i], axis=r), name="S")])
    assert evaluate(func, [np.ones(3, "float32")])[0].tolist() == [5, 5, 5]


def test_refuses_a_scheduled_function() -> None:
    sch = Schedule(matmul())
    sch.split(sch.get_loops("C")[0], [None, 4])
    with pytest.raises(InvalidValueError, match="not been scheduled"):
        evaluate(sch.func, arguments(matmul())[:2])


def test_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="'A'"):
        evaluate(matmul(), [np.zeros((2, 2)), np.zeros((5, 9))])
    with pytest.raises(InvalidValueError, match="2 inputs"):
        evaluate(matmul(), [])


def test_unguarded_access_out_of_bounds_is_an_error() -> None:
    a = te.placeholder((4,), name="A")
    func = te.create_prim_func([a, te.compute((4,), lambda i: a[i + 1], name="B")])
    with pytest.raises(IndexError, match="A"):
        evaluate(func, [np.zeros(4, "float32")])
