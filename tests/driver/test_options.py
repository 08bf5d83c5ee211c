from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import autosched
from autosched.driver import options as tune_options
from autosched.driver.options import TuneOptions
from autosched.errors import UsageError
from autosched.records import open_store
from autosched.target.threads import ThreadLimits
from autosched.tuner.measure import MeasureOptions
from tests.cli.models import dense_file
from tests.driver.tune.test_shapes import Pretended


@pytest.mark.parametrize(
    ("run_as", "cores", "quota", "threads", "companions"),
    [
        ("latency", 8, None, 8, None),
        ("throughput", 8, None, 1, 7),
        ("throughput", 8, 4.5, 1, 3),
        ("throughput", 8, None, 3, 1),
        ("throughput", 1, None, 1, 0),
    ],
)
def test_there_is_an_instance_for_each_core(
    monkeypatch: pytest.MonkeyPatch, run_as: Any, cores: int, quota: float | None, threads: int, companions: int | None
) -> None:
    limits = ThreadLimits(cores, quota, 2, 1)  # what else is allowed to this process says nothing of the others
    monkeypatch.setattr(tune_options, "thread_limits", lambda: limits)
    assert TuneOptions(run_as=run_as).companions(threads) == companions


def test_throughput_is_of_one_thread_and_of_each_kernel_alone() -> None:
    found = TuneOptions(run_as="throughput").for_run_as()
    assert (found.threads, found.verify) == (1, "task")
    assert TuneOptions(run_as="throughput", threads=2).for_run_as().threads == 2
    latency = TuneOptions()
    assert latency.for_run_as() is latency
    with pytest.raises(UsageError, match="run_as 'speed'"):
        TuneOptions(run_as="speed")  # type: ignore[arg-type]


def test_times_of_one_use_are_no_facts_for_the_other(tmp_path: Path) -> None:
    """A tuning for throughput measures what a tuning for latency has measured; its records say for what."""
    seen: list[MeasureOptions] = []

    class Seen(Pretended):
        def __init__(self, target: Any, options: MeasureOptions):
            super().__init__(target, options)
            seen.append(options)

    model, database = dense_file(tmp_path / "m.onnx"), tmp_path / "r.db"
    for run_as in ("latency", "throughput"):
        options = TuneOptions(trials=5, verify="task", strategy="random", run_as=run_as)  # type: ignore[arg-type]
        report = autosched.tune(model, "cpu", records=database, options=options, measurer=Seen, shapes={"x": (4, 16)})
        assert report.n_trials == 5
    assert seen[0].companions is None and seen[1].companions is not None and seen[1].threads == 1
    with open_store(database) as store:
        assert store.count() > 10
