"""The table holds what the records hold."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import open_store
from autosched.records.csv_file import COLUMNS, write_csv
from autosched.task import Measurement, Status
from autosched.testing.tasks import matmul_task, record


def test_a_line_for_each_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crash = Measurement(Status.CRASH, error='signal 11,\nin "main"')
    records = [record(1, default=True), record(4, winner=True), dataclasses.replace(record(5), measurement=crash)]
    with open_store(tmp_path / "r.db") as store:
        store.add(records)
    path = tmp_path / "t.csv"
    assert main(["logs", "export", str(path), "--to", "csv", "--db", str(tmp_path / "r.db")]) == 0
    assert "3 records written" in capsys.readouterr().err
    with path.open(newline="") as file:
        rows = {row["uid"]: row for row in csv.DictReader(file)}
    assert set(rows) == {r.uid for r in records} and all(tuple(row) == COLUMNS for row in rows.values())
    winner, failed = rows[records[1].uid], rows[records[2].uid]
    assert float(winner["median_s"]) == 2.5e-4 and json.loads(winner["knobs"]) == {"rows": 4}
    assert (winner["is_winner"], winner["is_default"], winner["threads"]) == ("True", "False", "2")
    assert winner["workload"] == matmul_task().key and winner["op"] == "matmul"
    assert (failed["status"], failed["median_s"], failed["error"]) == ("crash", "", crash.error)


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write the table"):
        write_csv(tmp_path / "no" / "t.csv", [record(1)])
