from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from autosched.records import Found, Trust
from autosched.records.found import WinnerSource
from autosched.records.lookup import Lookup
from autosched.records.near import RANGE, covers, sizes_of
from autosched.records.record import Record
from autosched.task import Task
from autosched.testing.records import matmul_task, record


def ranged(value: Any, *, is_default: bool = False) -> Record:
    made = record(1)
    how = {**made.measurement.how, RANGE: value}
    measurement = dataclasses.replace(made.measurement, how=how)
    return dataclasses.replace(made, measurement=measurement, is_winner=True, is_default=is_default)


SIZES = sizes_of(record(1).workload)


def task_of(factor: int) -> Task:
    """The recorded task with its first size so many times as large."""
    task = matmul_task()
    sizes = (SIZES[0] * factor, *SIZES[1:])
    if "sizes" in task.workload.attrs:
        workload = dataclasses.replace(task.workload, attrs={**task.workload.attrs, "sizes": sizes})
    else:
        first = (task.workload.shapes[0][0] * factor, *task.workload.shapes[0][1:])
        workload = dataclasses.replace(task.workload, shapes=(first, *task.workload.shapes[1:]))
    return dataclasses.replace(task, workload=workload)


class Leaf(WinnerSource):
    origin = "a test"

    def __init__(self, *records: Record):
        self.records = records

    def best(self, task: Task, valid: Any = None) -> Found:
        return Found(None, self.origin, Trust.DEFAULT, "no record")

    def winners_of(self, task: Task) -> tuple[Record, ...]:
        return ()

    def winners_of_op(self, task: Task, op: str) -> tuple[Record, ...]:
        return self.records


@pytest.mark.parametrize("is_default", [False, True])
def test_within_a_range_the_nearest_size_decides_and_no_gain_is_asked_for(is_default: bool) -> None:
    low, high = list(SIZES), [SIZES[0] * 16, *SIZES[1:]]
    reader = Lookup(Leaf(ranged({"low": low, "high": high}, is_default=is_default)), predict=lambda *_: 1.0)
    found = reader.best(task_of(8))
    assert found.trust is Trust.NEAR and "tuned for a range of sizes" in found.reason
    assert found.rule == "a range of sizes"
    assert bool(found) is not is_default and ("the default is best" in found.reason) is is_default
    beyond = reader.best(task_of(32))
    assert not beyond and beyond.trust is Trust.DEFAULT


@pytest.mark.parametrize(
    "value",
    [3, {}, {"low": 1, "high": 2}, {"low": [1], "high": [2]}, {"low": ["a"] * 3, "high": [None] * 3}, [[1], [2]]],
)
def test_what_is_no_range_covers_nothing(value: Any) -> None:
    assert not covers(ranged(value), record(1).workload)
