"""Every released format stays readable: databases after an upgrade that copies first, lines as they are."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import ReadReport, open_store, read_lines
from autosched.records.schema import DATABASE_VERSION
from autosched.records.upgrade import differences, upgrade_database

CORPUS = Path(__file__).parent / "corpus"
DATABASES = sorted(CORPUS.glob("schema-*.db"))


def test_the_corpus_has_every_version_before_this_one() -> None:
    assert [path.stem for path in DATABASES] == [f"schema-{version}" for version in range(1, DATABASE_VERSION)]


@pytest.fixture(params=DATABASES, ids=lambda path: path.stem)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "old 100%.db"
    shutil.copy(request.param, path)
    return path


def version_of(path: Path) -> int:
    """The schema version that a database says it has."""
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("select value from autosched_meta where name = 'schema_version'").fetchone()[0])


def dump(path: Path) -> list[str]:
    """All of a database's tables and rows as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_an_old_database_is_refused_with_the_command_that_upgrades_it(old: Path) -> None:
    before = old.read_bytes()
    for write in (True, False):
        with pytest.raises(RecordError, match=f"needs {DATABASE_VERSION}.*autosched logs upgrade --db"):
            open_store(old, write=write)
    assert old.read_bytes() == before and [p.name for p in old.parent.iterdir()] == [old.name]


def test_an_upgrade_copies_and_then_loses_nothing(old: Path) -> None:
    before = dump(old)
    done = upgrade_database(old)
    assert done.copy is not None and dump(Path(done.copy)) == before
    assert (done.old_version, done.new_version) == (version_of(Path(done.copy)), DATABASE_VERSION)
    lines = (CORPUS / "lines-1.jsonl").read_text().splitlines()
    with open_store(old) as store:
        assert [r.line for r in store.records()] == lines and store.check() == []
        with store.engine.connect() as connection:
            assert differences(connection) == []
        winners = {task.winner.baseline_s for task in store.tasks() if task.winner}
        assert winners == {1.95e-3, None}
    with closing(sqlite3.connect(old)) as connection:
        rows = connection.execute("select baseline_s from records where baseline_s is not null").fetchall()
    assert rows == [(1.95e-3,)]


def test_a_second_upgrade_does_nothing_and_copies_never_overwrite(old: Path) -> None:
    taken = old.with_name(f"{old.name}.v{version_of(old)}")
    taken.write_text("somebody's")
    first, again = upgrade_database(old), upgrade_database(old)
    assert first.copy == f"{taken}.2" and taken.read_text() == "somebody's"
    assert again.copy is None and again.old_version == DATABASE_VERSION


def test_an_upgrade_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = version_of(old)
    with closing(sqlite3.connect(old)) as connection, connection:  # what a step of each version cannot work with
        damage = {1: "update records set details = 'no json' where is_winner", 2: "create table leases (x)"}
        damage[3] = "alter table devices add kind"
        connection.execute(damage[version])
    before = dump(old)
    with pytest.raises(
        RecordError, match="cannot be upgraded|refused: table leases already exists|duplicate column name: kind"
    ):
        upgrade_database(old)
    assert version_of(old) == version
    with closing(sqlite3.connect(old)) as connection:
        columns = [row[1] for row in connection.execute("pragma table_info(records)")]
        assert ("baseline_s" in columns) == (version > 1)
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    copies = [p for p in old.parent.iterdir() if f".v{version}" in p.name]
    assert [dump(p) for p in copies] == [before] == [dump(old)]


def test_a_new_database_has_the_models_tables(tmp_path: Path) -> None:
    with open_store(tmp_path / "new.db") as store, store.engine.connect() as connection:
        assert differences(connection) == []


def test_the_first_lines_are_read_as_they_were() -> None:
    report = ReadReport("")
    text = (CORPUS / "lines-1.jsonl").read_text()
    assert [r.line for r in read_lines(CORPUS / "lines-1.jsonl", report)] == text.splitlines()
    assert report.refused == []


def test_upgrading_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no tuning database"):
        upgrade_database(tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_the_command(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    version = version_of(old)
    assert main(["logs", "list", "--db", str(old)]) == 2
    assert "logs upgrade" in capsys.readouterr().err
    assert main(["logs", "upgrade", "--db", str(old)]) == 0
    text = capsys.readouterr().err
    assert f"from version {version} to {DATABASE_VERSION}" in text and f"{old}.v{version}" in text
    assert main(["logs", "upgrade", "--db", str(old)]) == 0
    assert f"is of version {DATABASE_VERSION} already" in capsys.readouterr().err
    assert main(["logs", "list", "--db", str(old)]) == 0
