"""Winners are judged inside the built model: what loses there is reverted, and what wins there is taken."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

import autosched
from autosched.driver import TuneOptions
from autosched.driver.bench.rounds import Comparison
from autosched.driver.build.graph import prepare
from autosched.driver.task_space import default_of
from autosched.driver.tasks import prepared_tasks
from autosched.driver.tune.model_check import ModelCheck, Swap, settle
from autosched.driver.tune.report import ModelTimes
from autosched.frontend.onnx import from_onnx
from autosched.records import RecordFilter, open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task
from benchmarks.models import get_model

pytestmark = pytest.mark.early

CPU = Target("cpu")


@pytest.fixture(scope="module")
def model() -> tuple[ModelCheck, Task]:
    """A model and its heaviest task, a matrix product."""
    module = from_onnx(get_model("mlp", 128))
    prepared = prepare(module, CPU, {})
    return ModelCheck(module, prepared, CPU, 1), prepared_tasks(prepared, CPU, threads=1, cache="cold")[0]


def slow(task: Task) -> Config:
    """The narrowest register tile."""
    return default_of(task).with_knobs(rows=1, vectors=1, unroll_k=1)


def test_a_choice_that_loses_in_the_model_is_reverted(model: tuple[ModelCheck, Task]) -> None:
    check, task = model
    chosen, times = settle(check, {}, {task.key: slow(task)}, [], lambda s: True)
    assert chosen == {} and times.reverted == ("everything is as it was",)
    assert times.before_s == times.after_s > 0


def test_winners_that_do_not_show_in_the_model_are_reverted(model: tuple[ModelCheck, Task]) -> None:
    check, task = model
    verdict = Comparison("before", "after", 1.001, 0.99, 1.01)
    with patch.object(check, "compare", return_value=(verdict, 1e-3, 1.001e-3)):
        chosen, times = settle(check, {}, {task.key: slow(task)}, [], lambda s: True)
    assert chosen == {} and times.reverted == ("everything is as it was",)


def test_a_finalist_that_wins_in_the_model_is_taken(model: tuple[ModelCheck, Task]) -> None:
    check, task = model
    default = default_of(task)
    before = {task.key: slow(task)}
    swaps = [Swap(task.key, "dense", default)]
    chosen, times = settle(check, before, {task.key: default.with_knobs(rows=1, vectors=2)}, swaps, lambda s: True)
    assert chosen == {task.key: default} and "rows" in times.reverted[0]
    assert times.low is not None and times.high is not None and times.low < times.after_s / times.before_s < times.high
    assert times.high < 1 and "→" in times.text and "−" in times.text
    none, _ = settle(check, before, before, swaps, lambda s: False)  # no time to try it
    assert none == before


def test_nothing_changed_is_measured_once(model: tuple[ModelCheck, Task]) -> None:
    check, task = model
    chosen, times = settle(check, {task.key: slow(task)}, {task.key: slow(task)}, [], lambda s: True)
    assert chosen == {task.key: slow(task)} and times.low is None and "nothing found makes faster" in times.text


def test_weights_are_counted_once(model: tuple[ModelCheck, Task]) -> None:
    sizes = [784 * 256, 256, 256 * 10, 10]
    assert 4 * sum(sizes) <= model[0].weight_bytes < 4 * sum(sizes) + 4096


def test_times_are_told_with_their_interval() -> None:
    assert ModelTimes(25.8e-3, 19.6e-3, 0.758, 0.762).text == "checked in the model: 25.8 → 19.6 ms (−24.0 %, ± 0.2)"
    assert ModelTimes(1e-3, 9e-4, 0.8, 1.0, ("dense: matmul: rows=4",)).text.endswith(
        "; changed there: dense: matmul: rows=4"
    )


@pytest.mark.slow
def test_tuning_a_model_ends_inside_it(tmp_path: Path) -> None:
    """Whole runs before and after are reported, and a build afterwards uses what was judged."""
    module, database = from_onnx(get_model("mlp", 1)), tmp_path / "r.db"
    report = autosched.tune(module, "cpu", records=database, options=TuneOptions(trials=12, threads=1))
    assert report.model is not None and report.model.after_s > 0 and not report.notes, report.notes
    with open_store(database) as store:
        cached = {r.measurement.how["cache"] for r in store.records()}
        winners = {r.workload.key: r.config for r in store.records(RecordFilter(winners_only=True))}
    assert cached == {"cold"}
    built = autosched.build(module, target="cpu", records=database, threads=1)
    tasks = {t.name: t for t in autosched.driver.extract_tasks(module, CPU)}
    for row in built.manifest["report"]:
        assert row["config"] == str(winners[tasks[row["kernel"]].key])
    assert report.model.after_s <= report.model.before_s * 1.0001 or (report.model.low or 0) <= 1
    alone = autosched.tune(
        module, "cpu", records=tmp_path / "s.db", options=TuneOptions(trials=2, threads=1, verify="task")
    )
    assert alone.model is None
