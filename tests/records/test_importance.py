"""The knob that decides the time is named first; chance explains nothing."""

from __future__ import annotations

import random

import pytest

from autosched.records import Record, make_record
from autosched.records.importance import knob_importance
from autosched.space import Config
from autosched.task import Measurement, Status, Trial
from autosched.testing.tasks import matmul_task


def measured(knobs: dict[str, int | bool], time_s: float | None) -> Record:
    status = Status.OK if time_s else Status.CRASH
    measurement = Measurement(status, (time_s,) if time_s else ())
    return make_record(matmul_task(), Trial(Config("matmul", knobs), measurement))  # type: ignore[arg-type]


def test_what_decides_comes_first() -> None:
    rng = random.Random(0)
    records = []
    for _ in range(200):
        rows, fine, idle = rng.randint(1, 4), rng.randint(1, 3), rng.randint(1, 5)
        records.append(measured({"rows": rows, "fine": fine, "idle": idle}, 1e-3 * 2**rows * (1 + fine / 10)))
    found = dict(knob_importance([*records, measured({"rows": 9}, None)]))
    assert list(found)[0] == "rows" and found["rows"] > 0.9
    assert found["idle"] < 0.05 and "template" not in found


def test_too_little_to_say() -> None:
    assert knob_importance([measured({"rows": i}, 1e-3) for i in range(1, 8)]) == []
    flat = dict(knob_importance([measured({"rows": i % 2}, 1e-3) for i in range(8)]))
    assert flat == {"rows": pytest.approx(0.0)}
