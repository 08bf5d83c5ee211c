"""The record store on a real PostgreSQL server."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import RecordFilter, RecordStore, open_store, write_lines
from autosched.records.engine import WRITER_LOCK
from autosched.records.statistics import task_statistics
from autosched.records.upgrade import differences
from autosched.records.where import parse_where
from autosched.task import Status
from autosched.testing.records import RecordStoreSuite
from autosched.testing.tasks import matmul_task, record, trial
from tests.postgres import Server
from tests.records.writers import start_writer

psycopg = pytest.importorskip("psycopg", reason="the driver for PostgreSQL is not installed")


class TestPostgres(RecordStoreSuite):
    @pytest.fixture(autouse=True)
    def _server(self, new_database: Callable[[], str]) -> None:
        self.new_database = new_database

    def store(self) -> RecordStore:
        self.url = self.new_database()
        return open_store(self.url)

    def another(self, store: RecordStore) -> RecordStore:
        return open_store(self.url)


def test_two_processes_write_at_once(postgres_url: str) -> None:
    open_store(postgres_url).close()
    writers = [start_writer(postgres_url, name, 10) for name in ("a", "b", "c")]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    with open_store(postgres_url) as store:
        assert store.count() == 3 * 10 * 3 and store.check() == []


def test_several_make_the_tables_at_once(postgres_url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(postgres_url), range(4)))
    assert [store.count() for store in stores] == [0] * 4
    with stores[0].engine.connect() as connection:
        assert differences(connection) == []


def test_everything_that_a_file_can(postgres_url: str, tmp_path: Path) -> None:
    failed = dataclasses.replace(record(5), measurement=trial(5, status=Status.CRASH).measurement, session="s" * 300)
    records = [record(1, default=True), record(2), record(4, winner=True), failed]
    records = [dataclasses.replace(r, time=float(i)) for i, r in enumerate(records)]
    with open_store(tmp_path / "f.db") as file, open_store(postgres_url) as server:
        file.add(records)
        assert server.merge(file) == 4 and server.merge(file) == 0
        assert [r.line for r in server.records()] == [r.line for r in file.records()]
        assert server.tasks() == file.tasks() and server.winners() == file.winners()
        assert server.last_session() == file.last_session()
        of_server, of_file = (task_statistics(*s.trial_table(), s.winners()) for s in (server, file))
        assert of_server == of_file and of_file[0].failures == {"crash": 1}
        for text in ("op=matmul and ms<1", "not (winner=yes)", "status=crash", "target=cpu", 'device~"x86" or ms>0.3'):
            chosen = RecordFilter(where=parse_where(text))
            assert [r.uid for r in server.records(chosen)] == [r.uid for r in file.records(chosen)]
        log = tmp_path / "x.jsonl"
        assert server.export_jsonl(log, RecordFilter(winners_only=True)) == 1
        assert server.import_jsonl(log).added == 0
        assert server.size_bytes() is None and server.check() == []
        assert server.delete([records[1].uid]) == 1 and server.count() == 3
        assert server.import_jsonl(log).added == 0 and server.add(records) == 1


def test_the_command_line(postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "x.jsonl"
    write_lines(log, [record(1, default=True), record(4, winner=True)])
    assert main(["logs", "import", str(log), "--db", postgres_url]) == 0
    assert "2 lines read, 2 added" in capsys.readouterr().err
    for command in (["list"], ["best"], ["stats"], ["show"], ["verify"], ["explain", "matmul"]):
        assert main(["logs", *command, "--db", postgres_url, "-f", "json"]) == 0, command
    assert main(["logs", "export", str(tmp_path / "y.jsonl"), "--db", postgres_url]) == 0
    assert (tmp_path / "y.jsonl").read_text() == log.read_text()
    assert main(["logs", "prune", "--status", "ok", "--db", postgres_url, "--dry-run"]) in (0, 2)
    assert main(["logs", "upgrade", "--db", postgres_url]) == 0
    assert main(["logs", "merge", str(tmp_path / "y.jsonl"), "--db", postgres_url]) == 0


def test_reading_only_writes_nothing(new_database: Callable[[], str]) -> None:
    url = new_database()
    with pytest.raises(RecordError, match="empty"):
        open_store(url, write=False)
    with open_store(url) as store:
        store.add([record(1)])
    with open_store(url, write=False) as store:
        assert store.count() == 1
        for write in (lambda: store.add([record(2)]), lambda: store.claim(matmul_task(), [record(2).config], 1.0)):
            with pytest.raises(RecordError, match="reading only"):
                write()
        store.write = True  # what a mistake in this package would do: the server itself refuses
        with pytest.raises(RecordError, match="read-only"):
            store.add([record(2)])


def test_another_programs_database(postgres_url: str) -> None:
    with closing(psycopg.connect(plain(postgres_url))) as connection:
        connection.execute("CREATE TABLE songs (name text)")
        connection.commit()
    with pytest.raises(RecordError, match="another program"):
        open_store(postgres_url)


def test_a_newer_version(postgres_url: str) -> None:
    open_store(postgres_url).close()
    with closing(psycopg.connect(plain(postgres_url))) as connection:
        connection.execute("UPDATE autosched_meta SET value = '99' WHERE name = 'schema_version'")
        connection.commit()
    with pytest.raises(RecordError, match="schema version 99"):
        open_store(postgres_url)


def test_a_writer_that_hangs_locks_nobody_out_for_ever(postgres_url: str) -> None:
    store = open_store(postgres_url, busy_s=0.2)
    with closing(psycopg.connect(plain(postgres_url))) as other:
        other.execute(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")
        with pytest.raises(RecordError, match="locked by another process"):
            store.add([record(1)])
        other.rollback()
        assert store.add([record(1)]) == 1


def test_a_server_that_dies_loses_nothing_committed(postgres: Server) -> None:
    store = open_store(postgres.new_database())
    store.add([record(1)])
    postgres.stop()
    try:
        with pytest.raises(RecordError, match="server") as error:
            store.add([record(2)])
        assert "reached" in str(error.value) or "answer" in str(error.value) or "gone" in str(error.value)
        with pytest.raises(RecordError, match="server"):
            open_store(postgres.new_url("none"))
    finally:
        postgres.start()
    assert store.add([record(2)]) == 1 and store.count() == 2  # the same store goes on


def test_passwords_are_never_shown(postgres_url: str) -> None:
    secret = postgres_url.replace("tester@", "tester:hunter2@")
    with open_store(secret) as store:
        assert "hunter2" not in store.where + store.origin and ":***@" in store.origin
    for url in (secret + "&port=1", "mysql://me:hunter2@host/db", "postgresql+none://me:hunter2@host/db"):
        with pytest.raises(RecordError) as error:
            open_store(url)
        assert "hunter2" not in str(error.value) and "***" in str(error.value)


def test_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(RecordError, match=r"not installed.*autosched\[postgres\]"):
        open_store("postgresql://me@host/db")


def plain(url: str) -> str:
    """The URL as the driver itself reads it."""
    return url.replace("+psycopg", "")
