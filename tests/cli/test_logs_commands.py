"""`autosched logs stats, explain, diff, merge, verify, prune, watch`, filters, and the help of every one."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.cli.logs import COMMANDS
from autosched.records import Record, open_store, write_lines
from autosched.space import Config
from autosched.target import Target
from autosched.task import Measurement, Status, Workload

pytestmark = pytest.mark.host


def workload(n: int = 4) -> Workload:
    return Workload("matmul", ("float32",) * 3, ((8, 16), (16, n), (8, n)))


def make(time: float, rows: int, measurement: Measurement, n: int = 4, **more: object) -> Record:
    config = Config("matmul", {"rows": rows})
    device = Target("cpu").fingerprint()
    return Record(workload(n), config, measurement, device, time=time, session="s1", **more)  # type: ignore[arg-type]


def ok(*times: float, **how: float) -> Measurement:
    return Measurement(Status.OK, times, how=how)


ELSEWHERE = dataclasses.replace(Target("cpu").fingerprint(), isa_level="aarch64", vector_bits=128)
RECORDS = (
    make(1.0, 4, ok(2e-3), is_default=True),
    make(2.0, 6, ok(1e-3)),
    make(3.0, 8, Measurement(Status.TIMEOUT, error="took too long")),
    make(4.0, 6, ok(1.1e-3, baseline_s=2.2e-3), is_winner=True),
    make(5.0, 4, ok(5e-3), n=32, is_default=True),
    make(70.0, 2, Measurement(Status.CRASH, error="signal 11"), n=32),
)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tuned.db"
    with open_store(path) as store:
        store.add(RECORDS)
    return path


def read(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, object]]:
    assert main([*words, "-f", "json"]) == code
    found = json.loads(capsys.readouterr().out)
    rows: list[dict[str, object]] = found["rows"] if isinstance(found, dict) else found
    return rows


@pytest.mark.parametrize("name", [*COMMANDS, "ls"])
def test_every_command_shows_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", name, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Example: autosched logs {'list' if name == 'ls' else name}" in text


def test_stats(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    small, large = sorted(read(capsys, "logs", "stats", "--db", str(database)), key=lambda row: str(row["workload"]))[
        ::-1
    ]
    assert (small["n_trials"], small["failures"], small["gain"]) == (3, {"timeout": 1}, 2.0)  # and a comparison
    assert (small["n_to_near"], small["n_since_best"], small["expected_gain"]) == (2, 1, None)
    assert small["spent_s"] == 3.0 and large["spent_s"] == 1.0  # the pause of 65 s was no tuning
    assert large["gain"] is None and large["failures"] == {"crash": 1}
    assert main(["logs", "stats", "--db", str(database)]) == 0
    printed = capsys.readouterr()
    assert "1 timeout" in printed.out and "5 trials of 2 tasks, 2 failed, 0:04 spent" in printed.err
    assert main(["logs", "stats", "--db", str(database), "-f", "csv"]) == 0
    assert capsys.readouterr().out.startswith("workload,device,threads,n_trials,failures,spent_s,")


def test_filters(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    def n(*words: str) -> int:
        return len(read(capsys, "logs", *words, "--db", str(database)))

    assert n("show", "--where", "status!=ok") == 2
    assert n("show", "--where", "op=matmul and target=cpu and (ms>1.5 or winner=yes)") == 3
    assert n("show", "--where", "not (op=matmul)") == 0
    assert n("list", "--where", "workload~16,32") == 1
    assert n("list", "--status", "crash") == 1
    assert n("ls", "--since", "1h") == 0
    assert n("show", "--since", "1970-01-02") == 0
    assert n("best", "--where", "threads=2") == 0
    for bad in ("op", "color=red", "op=conv2d and", "ms>fast", "(op=a", "winner=maybe", "op<a", "x" * 3000):
        assert main(["logs", "list", "--where", bad, "--db", str(database)]) == 2
        assert "condition" in capsys.readouterr().err
    assert main(["logs", "list", "--since", "yesterday", "--db", str(database)]) == 2


def test_a_query_is_a_part_of_the_workload_s_text(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    for command, n in (("list", 2), ("best", 1), ("stats", 2)):
        words = ["logs", command, "--db", str(database)]
        assert len(read(capsys, *words, "matmul 8x16")) == n
        assert len(read(capsys, *words, "16x32")) == n - 1 and read(capsys, *words, "conv2d") == []


def test_the_fastest_come_first(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    rows = read(capsys, "logs", "show", "--top", "3", "--db", str(database))
    assert [row["median_s"] for row in rows] == [1e-3, 1.1e-3, 2e-3]
    rows = read(capsys, "logs", "show", "--limit", "3", "--db", str(database))
    assert [row["time"] for row in rows] == [1.0, 2.0, 3.0]  # as they were measured


COLUMNS = {
    "list": "workload device threads n_trials n_failed default_s best_s winner last_time kernel",
    "best": "workload device threads default_s median_s gain template knobs uid kernel",
    "show": "uid time workload threads template status median_s mark kernel",
    "stats": "workload device threads n_trials failures spent_s default_s best_s gain times n_to_near n_since_best "
    "expected_gain kernel",
    "explain": "workload verdict trust origin template knobs median_s expected_gain reason uid",
    "watch": "workload n_trials n_failed default_s best_s gain state kernel",
    "verify": "record reason",
    "prune": "database n_deleted n_left size_bytes",
    "diff": "workload threads device_a device_b a_s b_s speedup verdict",
    "plot": "kind x y",
    "report": "file n_tasks size_bytes",
    "upgrade": "database old_version new_version copy",
    "export": "file n_records",
    "import": "file n_read n_added n_refused",
    "merge": "file n_read n_added n_refused",
}


@pytest.mark.parametrize("name", COLUMNS)
def test_column_names_are_stable(name: str, capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path) -> None:
    """Other people's scripts read them: a name that is here may be joined by others, and never changes."""
    log = tmp_path / "log.jsonl"
    write_lines(log, RECORDS)
    more = {
        "explain": ["matmul"],
        "watch": ["--once"],
        "prune": ["--keep", "9"],
        "diff": [str(database), str(log)],
        "report": ["-o", str(tmp_path / "r.html"), "--no-roofline"],
        "export": [str(tmp_path / "out.jsonl")],
        "import": [str(log)],
        "merge": [str(log)],
    }
    words = ["logs", name, *more.get(name, []), "--db", str(database)]
    assert main([*words, "-f", "csv"]) == 0
    shown = capsys.readouterr().out.splitlines()[0].split(",")
    assert shown[: len(COLUMNS[name].split())] == COLUMNS[name].split()
    assert main([*words, "-f", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["rows"] if isinstance(document, dict) else document
    assert all(list(row) == shown for row in rows)


def test_a_winner_never_shows_a_gain_below_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with open_store(path) as store:
        store.add(
            [
                make(1.0, 4, ok(0.5e-3), is_default=True),  # another day's default, faster than the winner is today
                make(2.0, 6, ok(1e-3), is_winner=True),
                make(3.0, 4, ok(1e-3), n=8, is_default=True, is_winner=True),
                make(4.0, 6, ok(1.01e-3, baseline_s=1e-3), n=16, is_winner=True),  # drift between rounds
            ]
        )
    rows = read(capsys, "logs", "best", "--db", str(path))
    gains = {json.loads(str(row["workload"]))["shapes"][1][1]: row["gain"] for row in rows}
    assert gains == {4: None, 8: 1.0, 16: 1.0}


def test_explain(capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path) -> None:
    foreign = dataclasses.replace(RECORDS[3], device=ELSEWHERE)
    with open_store(database) as store:
        store.add([foreign, dataclasses.replace(RECORDS[3], time=3.5)])
    rows = read(capsys, "logs", "explain", "matmul 8x16 16x4", "--db", str(database), "--threads", "1")
    assert [row["verdict"] for row in rows] == ["used", "not needed", "foreign"]
    assert rows[0]["uid"] == RECORDS[3].uid and rows[0]["knobs"] == {"rows": 6}
    assert str(rows[2]["reason"]).startswith("tuned on")
    (row,) = read(capsys, "logs", "explain", "16x32", "--db", str(database), "--threads", "1")
    assert row["verdict"] == "default" and row["expected_gain"] == 0.5  # what tuning saved for the other matmul
    assert main(["logs", "explain", "conv9d", "--db", str(database)]) == 2
    assert "logs list" in capsys.readouterr().err


def test_diff(capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path) -> None:
    log = tmp_path / "b.jsonl"
    faster = dataclasses.replace(RECORDS[3], measurement=ok(0.5e-3), time=9.0)
    write_lines(log, [faster, make(9.0, 4, ok(1e-3), n=8, is_winner=True, is_default=True)])
    rows = read(capsys, "logs", "diff", str(database), str(log))
    assert [(row["verdict"], row["speedup"]) for row in rows] == [("faster", pytest.approx(2.2)), ("only in B", None)]
    rows = read(capsys, "logs", "diff", str(log), str(database))
    assert {row["verdict"] for row in rows} == {"slower", "only in A"}
    (row,) = read(capsys, "logs", "diff", str(database), str(database))
    assert row["verdict"] == "same"
    elsewhere = tmp_path / "c.jsonl"
    write_lines(elsewhere, [dataclasses.replace(faster, device=ELSEWHERE)])
    (row,) = read(capsys, "logs", "diff", str(database), str(elsewhere))
    assert row["verdict"] == "faster" and row["device_a"] != row["device_b"]
    assert main(["logs", "diff", str(database), str(tmp_path / "none.db")]) == 2


def test_merge_twice_adds_nothing(capsys: pytest.CaptureFixture[str], database: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "more.jsonl", tmp_path / "all.db"
    write_lines(log, [RECORDS[0], make(9.0, 5, ok(1e-3))])
    rows = read(capsys, "logs", "merge", str(database), str(log), "--db", str(out))
    assert [row["n_added"] for row in rows] == [6, 1]
    rows = read(capsys, "logs", "merge", str(database), str(log), str(out), "--db", str(out))
    assert [row["n_added"] for row in rows] == [0, 0, 0]
    with open_store(out, write=False) as store:
        assert store.count() == 7 and store.check() == []


def test_verify(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert main(["logs", "verify", "--db", str(database)]) == 0
    said = capsys.readouterr()
    assert said.out == "" and "6 records" in said.err
    for form, text in (("json", "[]"), ("csv", "record,reason")):
        assert main(["logs", "verify", "--db", str(database), "-f", form]) == 0
        assert capsys.readouterr().out.strip() == text
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("update records set median_s = 1, threads = 3 where id = 2")
    assert main(["logs", "verify", "--db", str(database)]) == 4
    assert "record 2 cannot be read" in capsys.readouterr().err


def test_prune(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert main(["logs", "prune", "--keep", "1", "--dry-run", "--db", str(database)]) == 0
    assert "2 records of 6 would be deleted" in capsys.readouterr().err
    (row,) = read(capsys, "logs", "prune", "--keep", "1", "--db", str(database))
    assert (row["n_deleted"], row["n_left"]) == (2, 4)
    with open_store(database) as store:
        assert store.check() == [] and {r.measurement.status for r in store.records()} == {Status.OK}
        many = [make(100.0 + i, i + 10, ok(1e-3 + 1e-6 * i)) for i in range(2000)]
        store.add(many)
    size = database.stat().st_size
    (row,) = read(capsys, "logs", "prune", "--size", f"{size // 2}", "--db", str(database))
    assert database.stat().st_size <= size // 2
    with open_store(database, write=False) as store:
        left = list(store.records())
        assert sum(r.is_winner or r.is_default for r in left) == 3
        slowest = max(r.measurement.median_s for r in left if not (r.is_winner or r.is_default))
        assert 1e-3 < slowest < 1e-3 + 1e-6 * 1500  # the slowest went first
    assert main(["logs", "prune", "--size", "1", "--db", str(database)]) == 1
    assert "winners and defaults are not deleted" in capsys.readouterr().err
    assert main(["logs", "prune", "--db", str(database)]) == 2


def test_watch(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    rows = read(capsys, "logs", "watch", "--db", str(database))
    assert {row["state"] for row in rows} == {"winner named", "searching (single trials)"}
    assert main(["logs", "watch", "--every", "50ms", "--for", "120ms", "--db", str(database)]) == 0
    text = capsys.readouterr().out
    assert text.count("matmul 8x16 16x4 8x4: trials 3, failed 1") == 1 and "5 trials of 2 tasks" in text
