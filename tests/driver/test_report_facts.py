"""What a report shows beside the records: weights, arithmetic, schedules, sources, peaks that are measured once."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.driver import report_facts
from autosched.driver.bench import peaks
from autosched.driver.build.choose import make_task
from autosched.driver.report_facts import kernel_texts, known_peak, model_facts, model_times, read_peak, trace_text
from autosched.driver.tasks import extract_tasks
from autosched.records import make_record, open_store
from autosched.records.report import Peak
from autosched.runtime.cache import KernelCache
from autosched.target import Target
from autosched.task import Measurement, Status, Trial
from autosched.templates import default_config, space_for
from tests.driver.programs import matmul, one_call

TARGET = Target("cpu")


def test_the_winners_of_the_heaviest_tasks_show_their_sources(tmp_path: Path) -> None:
    functions = {"small": matmul(), "large": matmul(48, 64, 96)}
    tasks = {name: make_task(func, TARGET, name=name, threads=1) for name, func in functions.items()}
    with open_store(tmp_path / "r.db") as store:
        for time_s, (_name, task) in zip((1e-3, 5e-3), tasks.items(), strict=True):
            default = default_config(task.func, TARGET)
            good = Measurement(Status.OK, (time_s,), "float64 reference")
            store.add([make_record(task, Trial(default, good), is_default=True, is_winner=True)])
        facts = model_facts(autosched.IRModule(functions), TARGET, 1, store, n_sources=1)
    assert facts.weights == {task.key: 1 for task in tasks.values()}
    assert facts.flops == {tasks["small"].key: 2 * 32 * 48 * 64, tasks["large"].key: 2 * 48 * 64 * 96}
    (texts,) = facts.sources.values()
    assert list(facts.sources) == [tasks["large"].key]
    assert [title.partition(":")[0] for title in texts] == ["The default, which has won"] * 3


def test_whole_runs_of_a_model_that_is_tuned_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_facts, "RUN_S", 0.05)
    weight = np.ones((16, 16), "float32")
    model = one_call(lambda x: relax.op.tanh(relax.op.matmul(x, relax.const(weight))), ((4, 16), "float32"))
    with open_store(tmp_path / "r.db") as store:
        untuned = model_times(model, TARGET, 1, store)
        task = next(t for t in extract_tasks(model, TARGET, threads=1) if t.name == "fused_matmul_tanh")
        default = default_config(task.func, TARGET)
        winner = next(config for config in space_for(task.func, TARGET) if config != default)
        store.add([make_record(task, Trial(winner, Measurement(Status.OK, (1e-6,), "float64")), is_winner=True)])
        times = model_times(model, TARGET, 1, store)
    assert untuned.before_s == untuned.after_s and untuned.low is None
    assert times.before_s > 0 and times.low is not None and times.high is not None
    assert times.low <= times.after_s / times.before_s <= times.high


def test_winner_and_default_side_by_side() -> None:
    task = make_task(matmul(), TARGET, name="mm", threads=1)
    default = default_config(task.func, TARGET)
    winner = next(config for config in space_for(task.func, TARGET) if config != default)
    texts = kernel_texts(task, winner)
    titles = list(texts)
    assert [title.partition(":")[0] for title in titles] == ["Winner", "Default"] * 3
    assert str(winner) in titles[0] and str(default) in titles[1] and titles[2].endswith("schedule")
    assert "def mm" in texts[titles[0]] and "def mm" in texts[titles[1]]
    assert [title.partition(": ")[2] for title in titles[4:]] == ["assembly"] * 2
    assert all("ret" in texts[title] for title in titles[4:])
    for title in titles[2:4]:
        ast.parse(texts[title])
        assert "sch.get_block(" in texts[title]


def test_traces_as_python() -> None:
    trace = [["GetBlock", [], ["C", "main"], ["b0"]], ["SamplePerfectTile", ["l1"], [2, 16], ["v2", "v3"]]]
    text = trace_text(json.dumps([trace, [[1, [4, 8]]]]))
    assert text.splitlines() == [
        "b0 = sch.get_block(name='C', func_name='main')",
        "v2, v3 = sch.sample_perfect_tile(l1, n=2, max_innermost_factor=16, decision=[4, 8])",
    ]


def test_peaks_are_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def measure(target: Target, threads: int) -> peaks.Peaks:
        calls.append(threads)
        return peaks.Peaks(threads, 1e11, (peaks.Level("L1", 1 << 15, 2e11), peaks.Level("memory", 1 << 28, 2e10)))

    cache = KernelCache(tmp_path)
    monkeypatch.setattr(peaks, "measure_peaks", measure)
    monkeypatch.setattr(report_facts, "kernel_cache", lambda: cache)
    first = known_peak(TARGET, 2)
    assert known_peak(TARGET, 2) == first and calls == [2]
    assert known_peak(TARGET, 1).threads == 1 and calls == [2, 1]
    assert first == Peak(TARGET.fingerprint().model_name, 2, 1e11, (("L1", 1 << 15, 2e11), ("memory", 1 << 28, 2e10)))


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '["a", 1, 1e9, []]', '["a", 1, -1, [["L1", 1, 1]]]', '["a", 1, 1, [[1]]]']
)
def test_damaged_peaks_are_measured_again(text: str) -> None:
    assert read_peak(text.encode()) is None
