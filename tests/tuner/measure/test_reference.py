from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched import te, tir
from autosched.runtime.kernel import ArgSpec
from autosched.task import Status
from autosched.tir import PrimFunc
from autosched.tuner.measure import make_reference as making
from autosched.tuner.measure.base import CandidateError
from autosched.tuner.measure.check import check_output
from autosched.tuner.measure.make_reference import index_limit, make_reference, reduction_length, split_buffers
from autosched.tuner.measure.reference import Reference, rounding_share, store_reference
from autosched.tuner.measure.workbench import _only_known
from tests.tuner.measure.kernels import K, M, N, evaluate, matmul_task

MATMUL: PrimFunc = matmul_task().func


def elementwise(name: str) -> PrimFunc:
    a = te.placeholder((40, 50), name="A")
    return te.create_prim_func([a, te.compute((40, 50), lambda i, j: getattr(te, name)(a[i, j]), name="B")])


def gather() -> PrimFunc:
    table, rows = te.placeholder((7, 4), name="table"), te.placeholder((90,), "int64", name="rows")
    return te.create_prim_func([table, rows, te.compute((90, 4), lambda i, j: table[rows[i], j], name="out")])


def test_inputs_are_of_order_one_and_repeat_with_the_seed() -> None:
    one, same, other = (make_reference(MATMUL, seed, evaluate) for seed in (0, 0, 1))
    assert [x.shape for x in one.inputs] == [(M, K), (K, N)] and one.inputs[0].dtype == np.float32
    assert 0.8 < one.inputs[0].std() < 1.2
    assert all(np.array_equal(a, b) for a, b in zip(one.inputs, same.inputs))
    assert not np.array_equal(one.inputs[0], other.inputs[0])
    assert one.outputs[0].dtype == np.float64 and one.outputs[0].shape == (M, N)
    assert one.seed == 0 and other.seed == 1


def test_rounding_grows_with_the_root_of_the_terms() -> None:
    assert reduction_length(MATMUL) == K and reduction_length(elementwise("exp")) == 1
    assert rounding_share("float32", 10.0) == pytest.approx(10 * rounding_share("float32", 1.0))
    assert rounding_share("int8", 10.0) == 0
    (share,) = make_reference(MATMUL, 0, evaluate).rounding
    exact = make_reference(MATMUL, 0, evaluate)
    error = np.abs(exact.inputs[0] @ exact.inputs[1] - exact.outputs[0]).max()
    assert error < share * np.abs(exact.outputs[0]).max() < 1e-3


def test_inputs_are_positive_where_others_give_nothing_finite() -> None:
    found = make_reference(elementwise("sqrt"), 0, lambda _, inputs: [np.sqrt(inputs[0].astype(np.float64))])
    assert found.inputs[0].min() >= 0.5 and found.inputs[0].max() < 1.5


def test_inputs_are_positive_where_a_division_makes_one_value_dwarf_the_others() -> None:
    def divide(func: PrimFunc, inputs: list[np.ndarray]) -> list[np.ndarray]:
        result = 1 / inputs[0].astype(np.float64)
        result[3, 4] *= 1e7 if inputs[0].min() < 0 else 1
        return [result]

    assert make_reference(elementwise("exp"), 0, divide).inputs[0].min() >= 0.5


def test_indices_stay_in_range() -> None:
    func = gather()
    table, rows = split_buffers(func)[0]
    assert index_limit(func, rows) == 7 and index_limit(func, table) is None
    found = make_reference(func, 0, lambda _, inputs: [inputs[0].astype(np.float64)[inputs[1]]])
    assert found.inputs[1].dtype == np.int64 and set(found.inputs[1]) == set(range(7))


def test_what_is_stored_to_is_an_output() -> None:
    inputs, outputs = split_buffers(MATMUL)
    assert [b.name for b in inputs] == ["A", "B"] and [b.name for b in outputs] == ["C"]


def test_stored_references_come_back(tmp_path: Path) -> None:
    made = make_reference(MATMUL, 3, evaluate)
    stored = store_reference(made, tmp_path, "one")
    found: Reference = stored.load()
    assert all(np.array_equal(a, b) for a, b in zip(made.inputs + made.outputs, found.inputs + found.outputs))
    assert found.rounding == made.rounding and found.seed == 3
    with pytest.raises(ValueError):
        found.inputs[0][0, 0] = 1  # a mapped file is not to be changed
    stored.remove()
    assert not list(tmp_path.iterdir())


def test_unsigned_and_boolean_inputs() -> None:
    a, b = te.placeholder((64,), "uint8", name="A"), te.placeholder((64,), "bool", name="B")
    func = te.create_prim_func([a, b, te.compute((64,), lambda i: tir.select(b[i], a[i], a[i]), name="C")])
    found = make_reference(func, 0, lambda _, inputs: [inputs[0].astype(np.float64)])
    assert found.inputs[0].dtype == np.uint8 and found.inputs[0].max() < 8 and found.inputs[1].dtype == bool


def test_of_a_large_reduction_a_random_part_is_evaluated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Padding before it and an epilogue behind it do not hinder; what is known is what the whole evaluation gives."""
    a, b, k = te.placeholder((64, 30), name="A"), te.placeholder((30, 40), name="B"), te.reduce_axis((0, 30), "k")
    c = te.compute((64, 40), lambda i, j: te.sum((a[i, k] + 1.0) * b[k, j], axis=k), name="C")
    func = te.create_prim_func([a, b, te.compute((64, 40), lambda i, j: tir.max(c[i, j], 0.0), name="D")])
    whole = make_reference(func)
    monkeypatch.setattr(making, "MOST_STEPS", 64 * 30 * 40 // 8)
    parts = [make_reference(func, seed) for seed in (0, 1)]
    known = [~np.isnan(part.outputs[0]) for part in parts]
    assert all(part.is_part for part in parts) and not whole.is_part
    assert [mask.sum() for mask in known] == [8 * 40, 8 * 40] and (known[0] != known[1]).any()
    assert np.allclose(parts[0].outputs[0][known[0]], whole.outputs[0][known[0]], rtol=1e-12)
    assert store_reference(parts[0], tmp_path, "one").load().is_part


def test_where_each_result_hangs_on_all_everything_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    a, k, r = te.placeholder((16, 30), name="A"), te.reduce_axis((0, 30), "k"), te.reduce_axis((0, 16), "r")
    sums = te.compute((16,), lambda i: te.sum(a[i, k], axis=k), name="S")
    func = te.create_prim_func([a, te.compute((1,), lambda i: te.sum(sums[r], axis=r), name="T")])
    monkeypatch.setattr(making, "MOST_STEPS", 16)
    found = make_reference(func)
    assert not found.is_part and np.isfinite(found.outputs[0]).all()


def test_results_that_are_not_known_must_be_finite_and_known_ones_right(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = np.array([[1.0, np.nan], [np.nan, 4.0]])
    arg = ArgSpec("C", "output", "float32", (2, 2))
    found = _only_known(arg, np.array([[1, 7], [8, 4]], np.float32), expected)
    assert check_output("C", found, expected, 1e-6).status is Status.OK
    wrong = _only_known(arg, np.array([[1, 7], [8, 5]], np.float32), expected)
    assert check_output("C", wrong, expected, 1e-6).status is Status.WRONG_RESULT
    with pytest.raises(CandidateError) as caught:
        _only_known(arg, np.array([[1, np.inf], [8, 4]], np.float32), expected)
    assert caught.value.status is Status.NON_FINITE


def test_values_of_bfloat16_come_back_from_files(tmp_path: Path) -> None:
    a = te.placeholder((4, 6), "bfloat16", name="A")
    func = te.create_prim_func([a, te.compute((4, 6), lambda i, j: a[i, j] * a[i, j], name="B")])
    made = make_reference(func)
    stored = store_reference(made, tmp_path, "r")
    found = stored.load()
    assert found.inputs[0].dtype == made.inputs[0].dtype == np.dtype("bfloat16")
    np.testing.assert_array_equal(found.inputs[0], made.inputs[0])
    assert 2.0**-8 <= found.rounding[0] < 2.0**-6


def test_bytes_that_are_made_of_floats_may_be_the_neighbour() -> None:
    a = te.placeholder((40,), name="A")
    quantised = te.compute((40,), lambda i: te.round(a[i] * 9.0).astype("int8"), name="B")
    assert make_reference(te.create_prim_func([a, quantised])).rounding == (1.0,)
    b = te.placeholder((40,), "int8", name="A")
    assert make_reference(te.create_prim_func([b, te.compute((40,), lambda i: b[i] * 2, name="B")])).rounding == (0.0,)
