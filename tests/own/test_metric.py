"""Functions that are tuned for something else than time: real workers, kept metrics, the Pareto set."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from autosched.errors import UsageError
from autosched.own.metric import Metrics
from autosched.records import Record, make_record
from autosched.records.metrics import metrics_of, pareto
from autosched.space import Config
from autosched.task import Measurement, Status, Trial
from autosched.testing.tasks import matmul_task
from autosched.tuner.measure.base import CandidateError
from tests.own import kernels


def test_the_winner_is_the_best_by_the_first_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOSCHED_DB", str(tmp_path / "metric.db"))
    x, out = np.linspace(0, 1, 500), np.empty(500)
    report = kernels.exponential.tune(x, out, threads=1)
    (task,) = report.tasks
    assert task.state == "done" and report.n_failed == 0
    assert kernels.exponential.best_config(x, out)["terms"] == 12, "the slowest one, and the nearest to the truth"
    (name, before, after), (other, *_) = task.metrics
    assert (name, other) == ("error", "terms_used") and before == pytest.approx(math.e - 1) and after < 1e-8
    kernels.exponential(x, out)
    assert out == pytest.approx(np.exp(x), rel=1e-8)
    chosen = kernels.exponential.pareto(x, out)
    assert sorted(record.config["terms"] for record in chosen) == [1, 4, 12]
    assert metrics_of(chosen[0].measurement).keys() == {"error", "terms_used"}
    assert report.tasks[0].gain == pytest.approx(task.default_s / task.best_s)
    assert "error" in str(report).splitlines()[0] and str(report).endswith(report.reason)
    assert main(["logs", "best"]) == 0
    shown = capsys.readouterr().out
    assert "metrics" in shown and "terms_used" in shown
    assert main(["logs", "best", "--pareto", "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    rows = rows["rows"] if isinstance(rows, dict) else rows
    assert {row["knobs"]["terms"] for row in rows} == {1, 4, 12}
    again = kernels.exponential.tune(x, out, threads=1)
    assert again.n_trials == 0 and again.tasks[0].state == "done before"


def trial(config: int, time_s: float, **metrics: float) -> Record:
    measurement = Measurement(Status.OK, (time_s,), how={"metrics": metrics} if metrics else {})
    return make_record(matmul_task(), Trial(Config("t", {"n": config}), measurement))


def test_the_pareto_set_is_what_no_other_beats() -> None:
    records = [
        trial(1, 1.0, error=3.0),
        trial(2, 2.0, error=2.0),
        trial(3, 3.0, error=2.0),  # slower than 2, and no better
        trial(4, 4.0, error=0.0),
        trial(5, 0.5),  # no metric
        trial(2, 1.5, error=2.5),  # the later one of a configuration counts
    ]
    failed = dataclasses.replace(records[0], measurement=Measurement(Status.CRASH))
    assert [record.config["n"] for record in pareto([*records, failed])] == [1, 2, 3, 4]
    assert [record.config["n"] for record in pareto(records[:4])] == [1, 2, 4]
    assert pareto([]) == []


def test_metrics_are_checked() -> None:
    with pytest.raises(UsageError, match=r"metric 'error' reads 'y'.*it may read time_s, result, x"):
        Metrics.of({"error": lambda y: y}, ("x",), "f")
    with pytest.raises(UsageError, match="metric 'error' is no function"):
        Metrics.of({"error": 3}, ("x",), "f")  # type: ignore[dict-item]
    made = Metrics.of(lambda time_s, x: time_s * x, ("x",), "f")
    assert made.names == ("metric",) and made.values({"time_s": 2.0, "x": 3.0}) == {"metric": 6.0}
    for value, status in ((-1.0, Status.NON_FINITE), (math.nan, Status.NON_FINITE), ("a", Status.RUN_ERROR)):
        with pytest.raises(CandidateError) as found:
            made.values({"time_s": 1.0, "x": value})
        assert found.value.status is status
