"""What a function does with its arguments is found by running it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched.own.arguments import store_arguments
from autosched.own.compare import close_places, compare_arrays
from autosched.own.expected import Expected, find_expected
from autosched.own.memory import Memory
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError


def expected_of(call: Callable[..., Any], tmp_path: Path, **named: Any) -> tuple[Expected, Memory]:
    memory = Memory(store_arguments(named, tmp_path, "key"))
    shares = [1e-6] * len(memory.views)
    return find_expected(call, memory, shares, is_probed=True), memory


def copy_into(x: Any, out: Any) -> None:
    out[:] = 2 * x


def test_an_output_is_poisoned_and_an_input_is_not(tmp_path: Path) -> None:
    x, out = np.arange(5.0), np.zeros(5)
    found, memory = expected_of(copy_into, tmp_path, x=x, out=out)
    assert found.arrays[0] is None and (found.arrays[1] == 2 * x).all()
    assert found.is_reset == (False, False) or not any(found.is_reset)
    assert np.isnan(memory.views[1].of(list(found.start))).all()
    assert (memory.views[0].of(list(found.start)) == x).all()


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "complex128", "uint8"])
def test_an_output_that_holds_its_result_already_is_still_one(tmp_path: Path, dtype: str) -> None:
    x = np.array([3, 0, 1, 1, 0, 5]).astype(dtype)

    def copy(x: Any, out: Any) -> None:
        out[:] = x

    found, memory = expected_of(copy, tmp_path, x=x, out=x.copy())
    assert found.arrays[0] is None and found.arrays[1] is not None
    assert not (memory.views[1].of(list(found.start)) == x).all(), "nothing can pass by doing nothing"


def test_in_place_contents_are_fresh_each_time(tmp_path: Path) -> None:
    def twice(x: Any) -> float:
        x *= 2
        return float(x[0])

    x = np.arange(1.0, 4.0)
    found, _ = expected_of(twice, tmp_path, x=x)
    assert found.is_reset == (True,) and (found.arrays[0] == 2 * x).all() and found.returned == 2.0
    assert (found.start[0].view(float) == x).all()
    assert (x == np.arange(1.0, 4.0)).all()


def test_a_border_that_is_never_written_keeps_its_values(tmp_path: Path) -> None:
    def inside(x: Any, out: Any) -> None:
        out[1:-1] = x[1:-1]

    found, memory = expected_of(inside, tmp_path, x=np.arange(5.0), out=np.full(5, 7.0))
    start = memory.views[1].of(list(found.start))
    assert start[0] == 7.0 and start[-1] == 7.0 and np.isnan(start[1:-1]).all()
    assert not any(found.is_reset)


def test_a_sum_into_an_output_is_in_place(tmp_path: Path) -> None:
    def add(x: Any, out: Any) -> None:
        out += x

    found, _ = expected_of(add, tmp_path, x=np.ones(3), out=np.full(3, 2.0))
    assert (found.arrays[1] == 3.0).all() and sum(found.is_reset) == 1


def test_indices_are_not_poisoned(tmp_path: Path) -> None:
    def gather(x: Any, index: Any, out: Any) -> None:
        assert index.min() >= 0 and index.max() < x.size, "indices stay indices"
        out[:] = x[index]

    found, _ = expected_of(gather, tmp_path, x=np.arange(9.0), index=np.array([8, 0, 3]), out=np.zeros(3))
    assert [a is None for a in found.arrays] == [True, True, False]


def test_without_probing_only_the_first_run_is_made(tmp_path: Path) -> None:
    calls: list[int] = []

    def count(x: Any, out: Any) -> None:
        calls.append(1)
        out[:] = x

    memory = Memory(store_arguments({"x": np.ones(2), "out": np.zeros(2)}, tmp_path, "key"))
    found = find_expected(count, memory, [0.0, 0.0], is_probed=False)
    assert len(calls) == 1 and found.arrays[1] is not None


def test_a_call_that_differs_each_time_is_refused(tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def draw(out: Any) -> None:
        out[:] = random.random(out.size)

    with pytest.raises(CandidateError, match="two calls with equal arguments give different results"):
        expected_of(draw, tmp_path, out=np.zeros(5))


RECORD = np.dtype([("a", "f8"), ("b", "f4", (2,)), ("n", "i4")])


def test_records_are_compared_field_by_field() -> None:
    one = np.ones(3, RECORD)
    other = one.copy()
    other["a"][1] += 1e-12
    assert close_places(one, other, 1e-9).all() and not close_places(one, other, 0.0)[1]
    assert compare_arrays("x", one, other, 1e-9).status is Status.OK
    other["n"][2] = 5
    assert close_places(one, other, 1e-9).tolist() == [True, True, False]
    verdict = compare_arrays("x", one, other, 1e-9)
    assert verdict.status is Status.WRONG_RESULT and "x['n']" in verdict.text
    other["n"][2], other["b"][0, 1] = 1, 3.0
    assert close_places(one, other, 1e-9).tolist() == [False, True, True]


def test_records_that_are_written_are_found(tmp_path: Path) -> None:
    def add(x: Any) -> None:
        x["a"] += x["n"]

    found, _ = expected_of(add, tmp_path, x=np.ones(4, RECORD))
    assert found.arrays[0] is not None and (found.arrays[0]["a"] == 2).all() and found.is_reset == (True,)
