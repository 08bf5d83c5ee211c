import dataclasses
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records import RecordFilter, RecordStore, open_store
from autosched.task import Status
from autosched.testing.records import RecordStoreSuite
from autosched.testing.tasks import matmul_task, record, trial
from tests.records.writers import start_writer


class TestSqlStore(RecordStoreSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def store(self) -> RecordStore:
        return open_store(self.folder / "records.db")

    def another(self, store: RecordStore) -> RecordStore:
        return open_store(self.folder / "records.db")


def test_records_survive_and_the_file_is_wal(tmp_path: Path) -> None:
    path = tmp_path / "a folder?" / "ré%20c#.db"
    with open_store(path) as store:
        store.add([record(1)])
    assert path.is_file()
    with open_store(path, write=False) as store:
        assert [r.config for r in store.trials(matmul_task())] == [record(1).config]
    assert sqlite3.connect(path).execute("pragma journal_mode").fetchone() == ("wal",)


def test_filters_and_summaries(tmp_path: Path) -> None:
    store = open_store(tmp_path / "r.db")
    crash = dataclasses.replace(record(5), measurement=trial(5, status=Status.CRASH).measurement, session="other")
    lost = dataclasses.replace(record(6), measurement=trial(6, status=Status.LOST).measurement)
    store.add([record(1, default=True), record(2), record(4, winner=True), crash, lost])
    assert store.count() == 5
    assert [r.config["rows"] for r in store.records(RecordFilter(status=Status.CRASH))] == [5]
    assert [r.config["rows"] for r in store.records(RecordFilter(session="other"))] == [5]
    assert [r.config["rows"] for r in store.records(RecordFilter(uid=record(2).uid[:4]))] in ([], [2])
    assert len(list(store.records(RecordFilter(limit=2)))) == 2
    assert len(list(store.records(RecordFilter(op="matmul", template="matmul")))) == 5
    assert list(store.records(RecordFilter(op="conv2d"))) == []
    (summary,) = store.tasks()
    assert (summary.n_trials, summary.n_failed) == (5, 1)
    assert summary.best_s == 1e-3 / 4 and summary.default_s == 1e-3
    assert summary.winner is not None and summary.winner.config == record(4).config
    for noted, default_s in (("x", 1e-3), (True, 1e-3), (-1.0, 1e-3), (2e-3, 2e-3)):  # in turn with the winner
        measurement = dataclasses.replace(record(4).measurement, how={"baseline_s": noted})
        store.add([dataclasses.replace(record(4, winner=True), measurement=measurement)])
        assert store.tasks()[0].default_s == default_s
    assert store.tasks()[0].n_trials == 8, "one of the nine notes the default's time: a comparison"


def test_reading_walks_over_many_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autosched.records import sql

    monkeypatch.setattr(sql, "BATCH", 3)
    store = open_store(tmp_path / "r.db")
    same = [dataclasses.replace(record(i), time=1.0) for i in range(1, 9)]
    store.add(same)
    assert [r.config["rows"] for r in store.records()] == list(range(1, 9))
    assert [r.config["rows"] for r in store.records(RecordFilter(limit=5))] == list(range(1, 6))


def test_export_and_import_are_lossless(tmp_path: Path) -> None:
    store, copy = open_store(tmp_path / "a.db"), open_store(tmp_path / "b.db")
    store.add([record(i, winner=i == 3) for i in range(1, 6)])
    path = tmp_path / "x.jsonl"
    assert store.export_jsonl(path) == 5
    path.write_text(path.read_text() + "{}\n")
    report = copy.import_jsonl(path)
    assert (report.read, report.added, len(report.refused)) == (6, 5, 1)
    assert [r.line for r in copy.records()] == [r.line for r in store.records()]
    assert copy.import_jsonl(path).added == 0
    assert copy.check() == []


def test_opening_refuses_what_is_no_tuning_database(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="folder"):
        open_store(tmp_path, write=False)
    with pytest.raises(RecordError, match="no tuning database.*autosched tune"):
        open_store(tmp_path / "none.db", write=False)
    (tmp_path / "empty.db").touch()
    with pytest.raises(RecordError, match="empty"):
        open_store(tmp_path / "empty.db", write=False)
    (tmp_path / "text.db").write_text("hello, this is no database at all")
    with pytest.raises(RecordError, match="not a tuning database"):
        open_store(tmp_path / "text.db")
    (tmp_path / "log.db").write_text(record(1).line)
    with pytest.raises(RecordError, match="logs import"):
        open_store(tmp_path / "log.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table songs (name text)")
    with pytest.raises(RecordError, match="another program"):
        open_store(tmp_path / "other.db")
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="cannot open|Not a directory"):
        open_store(tmp_path / "file" / "r.db")


@pytest.mark.parametrize(
    ("version", "hint"),
    [
        ("5", "newer autosched"),
        ("3", "autosched logs upgrade"),
        ("2", "autosched logs upgrade"),
        ("1", "autosched logs upgrade"),
        ("0", "another"),
        ("x", "another"),
    ],
)
def test_other_schema_versions(tmp_path: Path, version: str, hint: str) -> None:
    path = tmp_path / "r.db"
    open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("update autosched_meta set value = ? where name = 'schema_version'", (version,))
    before = path.read_bytes()
    with pytest.raises(RecordError, match=hint) as error:
        open_store(path)
    assert str(path) in str(error.value) and error.value.exit_code == 2
    assert path.read_bytes() == before


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with open_store(path) as store:
        store.add([record(i) for i in range(1, 200)])
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    with pytest.raises(RecordError, match="damaged") as error, open_store(path) as store:
        list(store.records())
    assert str(path) in str(error.value)
    path.write_bytes(bytes(content[:3000]))  # cut in the middle of a page
    with pytest.raises(RecordError, match="damaged|not a tuning database|disk"), open_store(path) as store:
        list(store.records())


def test_a_locked_database(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    store = open_store(path, busy_s=0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(RecordError, match="locked by another process.*wait"):
        store.add([record(1)])
    other.execute("rollback")
    assert store.add([record(1)]) == 1


def test_reading_only(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with open_store(path) as store:
        store.add([record(1)])
    before = path.read_bytes()
    with open_store(path, write=False) as store:
        assert store.count() == 1
        with pytest.raises(RecordError, match="reading only"):
            store.add([record(2)])
    assert path.read_bytes() == before


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with open_store(path) as store:
        store.add([record(1)])
        connection = store.engine.raw_connection()
        pages = connection.cursor().execute("pragma page_count").fetchone()[0]
        connection.cursor().execute(f"pragma max_page_count = {pages}")
        connection.close()
        many = [dataclasses.replace(record(i), session="x" * 64) for i in range(2, 500)]
        with pytest.raises(RecordError, match="disk is full"):
            store.add(many)
    with open_store(path) as store:
        assert [r.config["rows"] for r in store.records()] == [1] and store.check() == []


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    writers = [start_writer(path, name, 20) for name in ("a", "b")]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    assert open_store(path).count() == 2 * 20 * 3


def test_a_kill_loses_at_most_the_batch_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    for attempt, delay_s in enumerate((0.0, 0.013, 0.037)):
        writer = start_writer(path, f"run{attempt}", 10_000)
        assert writer.stdout is not None
        said = int(writer.stdout.readline())
        time.sleep(delay_s)
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()  # with what `readline` has read ahead, which `communicate` would lose
        writer.communicate(timeout=30)
        said = int(rest[-1]) if rest else said
        with open_store(path) as store:
            found = sum(1 for _ in store.records(RecordFilter(session=f"run{attempt}")))
            assert store.check() == []
        assert found % 3 == 0 and (said + 1) * 3 <= found <= (said + 2) * 3


@pytest.mark.parametrize("batches", [[[0, 1, 2]], [[0], [1], [2]], [[2], [1, 0]]])
def test_devices_whose_keys_are_equal_stay_apart(tmp_path: Path, batches: list[list[int]]) -> None:
    """A key is made for people: a log from elsewhere may have a device that differs in a space alone."""
    names = ("A CPU", "A_CPU", "A CPU")
    records = [
        dataclasses.replace(record(i), device=dataclasses.replace(record(i).device, model_name=name))
        for i, name in enumerate(names, start=1)
    ]
    assert records[0].device.key == records[1].device.key
    with open_store(tmp_path / "r.db") as store:
        for batch in batches:
            store.add([records[i] for i in batch])
        assert store.check() == [] and {r.line for r in store.records()} == {r.line for r in records}
        assert sorted(t.n_trials for t in store.tasks()) == [1, 2]
