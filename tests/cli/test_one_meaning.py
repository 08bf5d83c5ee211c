"""Best, default and gain are the same numbers wherever they are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autosched.cli import main
from autosched.cli.logs_watch import _state
from autosched.records import make_record, open_store
from autosched.records.report import make_document
from autosched.space import Config
from autosched.task import Measurement, Status, Trial
from autosched.testing.tasks import matmul_task

Run = Callable[..., Any]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Any:
        capsys.readouterr()
        assert main([*arguments, "-f", "json"]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def rows_of(found: Any) -> list[dict[str, Any]]:
    return found if isinstance(found, list) else found["rows"]


def shown(run: Run, database: str) -> dict[str, tuple[Any, Any, Any]]:
    """(default, best, gain) of the first task in seconds, by who shows them."""
    found = {}
    for name, best in (("list", "best_s"), ("stats", "best_s"), ("best", "median_s")):
        for row in rows_of(run("logs", name, "--db", database))[:1]:
            found[name] = row["default_s"], row[best], row.get("gain")
    with open_store(database, write=False) as store:
        (row,) = _state(store)[0][:1]
        found["watch"] = row["default_s"], row["best_s"], row["gain"]
        task = make_document(store)["tasks"][0]
        found["report"] = task["default_ms"] / 1e3, task["best_ms"] / 1e3, task["gain"]
    return found


def test_lucky_single_trials_are_no_result(run: Run, tmp_path: Path) -> None:
    task, database = matmul_task(), str(tmp_path / "a.db")

    def trial(rows: int, time_s: float, **how: Any) -> Trial:
        return Trial(Config("matmul", {"rows": rows}), Measurement(Status.OK, (time_s,), how=how))

    with open_store(database) as store:
        store.add([make_record(task, trial(1, 1.2e-3), session="s", is_default=True)])
        store.add([make_record(task, trial(4, 0.5e-3), session="s")])
    found = shown(run, database)
    assert "best" not in found and {values[:2] for values in found.values()} == {(1.2e-3, 0.5e-3)}
    assert rows_of(run("logs", "list", "--db", database))[0]["winner"] == "single trials"
    assert rows_of(run("logs", "stats", "--db", database))[0]["times"] == "single trials"
    with open_store(database) as store:
        store.add([make_record(task, trial(4, 0.8e-3, baseline_s=1e-3), session="s", is_winner=True)])
    found = shown(run, database)
    for name, values in found.items():
        assert values == pytest.approx((1e-3, 0.8e-3, 1.25)) or (name == "list" and values[:2] == (1e-3, 0.8e-3)), name
    with open_store(database) as store:  # tuned again: the default has won
        store.add([make_record(task, trial(1, 1.1e-3), session="s", is_default=True, is_winner=True)])
    for name, values in shown(run, database).items():
        assert values[:2] == (1.1e-3, 1.1e-3) and values[2] in (1.0, None), name


def test_tune_says_what_its_records_say(run: Run, tmp_path: Path) -> None:
    database = str(tmp_path / "own.db")
    tuned = rows_of(run("tune", "tests.own.kernels:scale", "--trials", "3", "--until", "0", "--db", database))[0]
    wanted = pytest.approx((tuned["default_s"], tuned["best_s"], tuned["gain"]), rel=1e-3)
    for name, values in shown(run, database).items():
        assert (*values[:2], tuned["gain"] if values[2] is None else values[2]) == wanted, name
    listed = rows_of(run("tune", "tests.own.kernels:scale", "--list", "--db", database))[0]
    assert listed["best_s"] == pytest.approx(tuned["best_s"])
