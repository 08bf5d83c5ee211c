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
from tests.cli.models import dense_file

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


def test_a_kernel_has_one_name(run: Run, tmp_path: Path) -> None:
    model, database = str(dense_file(tmp_path / "m.onnx")), ("--db", str(tmp_path / "m.db"))
    options = ("--threads", "1", *database)
    (tuned,) = rows_of(run("tune", model, "--trials", "2", *options))
    (kernel,) = run("inspect", model, "--no-time", *options)["kernels"]
    name = kernel["kernel"]
    assert tuned["name"] == name
    for command in ("list", "best", "stats", "show", "explain"):
        words = (model, *options) if command == "explain" else database
        assert {row["kernel"] for row in rows_of(run("logs", command, *words))} == {name}, command
    with open_store(database[1], write=False) as store:
        assert [row["kernel"] for row in _state(store)[0]] == [name]
    for command in ("list", "best", "stats", "explain"):  # and they are found by it
        assert rows_of(run("logs", command, name, *(options if command == "explain" else database))), command
    assert main(["build", model, "--pin", name, "rows=2", "-o", str(tmp_path / "m.asx"), *options]) == 0
