"""`autosched logs` on a small database: list, best, show, export, import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.records import Record, open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Workload


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuned.db"
    workload = Workload("matmul", ("float32",) * 3, ((8, 16), (16, 4), (8, 4)))
    device = Target("cpu").fingerprint()

    def record(time: float, rows: int, measurement: Measurement, **marks: bool) -> Record:
        return Record(workload, Config("matmul", {"rows": rows}), measurement, device, time=time, **marks)

    with open_store(path) as store:
        store.add(
            [
                record(1.0, 4, Measurement(Status.OK, (2e-3,)), is_default=True),
                record(2.0, 6, Measurement(Status.OK, (1e-3,))),
                record(3.0, 8, Measurement(Status.TIMEOUT, error="took too long")),
                record(4.0, 6, Measurement(Status.OK, (1.1e-3,), how={"baseline_s": 2.2e-3}), is_winner=True),
            ]
        )
    return path


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main([*words, "-f", "json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_list(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    (row,) = rows(capsys, "logs", "list", "--db", str(database))
    assert (row["n_trials"], row["n_failed"], row["default_s"], row["winner"]) == (3, 1, 2.2e-3, "matmul")
    assert main(["logs", "list", "--db", str(database)]) == 0
    captured = capsys.readouterr()
    assert "matmul 8x16 16x4 8x4" in captured.out
    assert "1 workload in" in captured.err


def test_best(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    (row,) = rows(capsys, "logs", "best", "--db", str(database))
    assert row["knobs"] == {"rows": 6}
    assert row["gain"] == pytest.approx(2)


def test_show(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert len(rows(capsys, "logs", "show", "--db", str(database))) == 4
    (row,) = rows(capsys, "logs", "show", "--status", "timeout", "--db", str(database))
    assert row["median_s"] is None
    assert main(["logs", "show", str(row["uid"])[:12], "--db", str(database), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == "took too long"
    assert main(["logs", "show", "zz", "--db", str(database)]) == 2
    assert "no record begins with 'zz'" in capsys.readouterr().err


def test_export_and_import(capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path) -> None:
    log, other = tmp_path / "best.jsonl", tmp_path / "other.db"
    assert main(["logs", "export", str(log), "--winners", "--db", str(database)]) == 0
    assert len(log.read_text().splitlines()) == 1
    assert main(["logs", "import", str(log), "--db", str(other)]) == 0
    assert "1 added" in capsys.readouterr().err
    with log.open("a") as file:
        file.write("nonsense\n")
    assert main(["logs", "import", str(log), "--db", str(other)]) == 1
    assert "line 2" in capsys.readouterr().err
    assert len(rows(capsys, "logs", "show", "--db", str(other))) == 1


def test_two_databases_are_one_too_many(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert main(["logs", "list", "--db", str(database), "--db", "b.db"]) == 2
    assert "takes one" in capsys.readouterr().err
