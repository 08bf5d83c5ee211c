"""Tuning for a range of shapes: few configurations, and a rule that a build at any shape of the range follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched
from autosched.driver import build_report
from autosched.driver.model_files import load_model
from autosched.driver.options import TuneOptions
from autosched.driver.tune.shapes import pick
from autosched.records import FallbackContext, open_store
from autosched.records.near import RANGE
from autosched.task import Measurement, Status, Task, Trial
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.base import Compared
from tests.cli.models import WEIGHT, dense_file


@pytest.mark.parametrize(
    ("costs", "picked"),
    [
        ([[1.0, 0.5], [1.0, 0.6]], [1, 1]),  # one for all
        ([[1.0, 0.5, 0.51], [1.0, 0.9, 0.5]], [2, 2]),  # as good as the best everywhere: one is enough
        ([[1.0, 0.5, 0.8], [1.0, 0.9, 0.5]], [1, 2]),
        ([[1.0, 1.01], [1.0, 0.5]], [0, 1]),  # never slower than the default
        ([[1.0, 2.0], [1.0, 0.5]], [0, 1]),
        ([[1.0, float("inf")], [1.0, 1.2]], [0, 0]),
    ],
)
def test_few_are_kept_and_none_loses(costs: Sequence[Sequence[float]], picked: list[int]) -> None:
    assert pick(costs) == picked


class Pretended:
    """Times by the configuration: rows = 2 is best up to 8 rows of x, rows = 4 above; the default takes 1."""

    def __init__(self, target: Any, options: MeasureOptions):
        del target
        self.cache = options.cache

    def __enter__(self) -> Pretended:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def _time(self, task: Task, config: Any) -> float:
        first = task.workload.shapes[0][0]
        good = 2 if first <= 8 else 4
        known: tuple[int, ...] = (2, 4)
        return {True: 0.5, False: 0.8}[config["rows"] == good] if config["rows"] in known else 1.0

    def measure(self, task: Task, configs: Sequence[Any], best_s: float | None = None) -> list[Trial]:
        how = {"cache": self.cache}
        return [Trial(c, Measurement(Status.OK, (self._time(task, c) * 1e-5,), "a test", how=how)) for c in configs]

    def compare(self, task: Task, configs: Sequence[Any]) -> list[Compared]:
        times = [self._time(task, config) * 1e-5 for config in configs]
        how = {"cache": self.cache, "interleaved": len(times), "baseline_s": times[0]}
        ratios = [t / times[0] for t in times]
        found = [Measurement(Status.OK, (t,), "a test", how=how) for t in times]
        return [Compared(c, m, r, r, r) for c, m, r in zip(configs, found, ratios, strict=True)]


def _plain(model: Path, size: int) -> str:
    """The default of so many rows."""
    built = autosched.build(load_model(model, {"x": (size, 16)}), "cpu", records=FallbackContext(), threads=1)
    return str(build_report(built).rows[0]["config"])


def test_a_range_is_tuned_and_every_shape_of_it_uses_the_rule(tmp_path: Path) -> None:
    model, database = dense_file(tmp_path / "m.onnx", batch="batch"), tmp_path / "r.db"
    options = TuneOptions(trials=200, threads=1, verify="task", strategy="random")
    report = autosched.tune(
        model, "cpu", records=database, options=options, shapes={"x": (range(1, 65), 16)}, measurer=Pretended
    )
    assert {task.name.partition(" at ")[2] for task in report.tasks} == {f"x:{n}x16" for n in (1, 4, 16, 64)}
    assert any("2 configurations for 4 shapes" in note for note in report.notes)
    with open_store(database) as store:
        ranged = [r for r in store.records() if r.is_winner and RANGE in r.measurement.how]
    assert {r.workload.shapes[0][0]: r.config["rows"] for r in ranged} == {1: 2, 4: 2, 16: 4, 64: 4}
    for size, rows, trust in (
        (4, 2, "verified here"),
        (7, 2, "near shape"),
        (23, 4, "near shape"),
    ):
        built = autosched.build(load_model(model, {"x": (size, 16)}), "cpu", records=database, threads=1)
        (row,) = build_report(built).rows
        assert (row["trust"], f"rows={rows}" in str(row["config"])) == (trust, True), (size, row)
        x = np.random.default_rng(0).standard_normal((size, 16)).astype("float32")
        np.testing.assert_allclose(built(x), np.maximum(x @ WEIGHT, 0), rtol=1e-4, atol=1e-5)
    at_63 = autosched.build(load_model(model, {"x": (63, 16)}), "cpu", records=database, threads=1)
    (row,) = build_report(at_63).rows  # rows=4 was no faster than the default of 64 rows, or of 16
    if _plain(model, 63) == _plain(model, 64):
        assert row["trust"] == "near shape"
    else:
        assert row["trust"] == "default" and "tuned for a range of sizes" in row["reason"]
    outside = autosched.build(load_model(model, {"x": (200, 16)}), "cpu", records=database, threads=1)
    assert build_report(outside).rows[0]["trust"] == "default"
