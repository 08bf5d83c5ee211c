"""Lines that are JSON and no record, and databases that are no databases: refused by name, nothing lost."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import ReadReport, from_document, open_store, read_lines
from autosched.testing.tasks import record

ROOT = Path(__file__).parents[2]
GOOD = json.loads(record(3, winner=True).line)
DEEP = "[" * 900 + "]" * 900
HUGE = "1" + "0" * 400


def with_part(field: str, text: str) -> str:
    """A good line with one field's text replaced."""
    return json.dumps({**GOOD, field: "@@"}).replace('"@@"', text)


def config(value: str) -> str:
    return with_part("config", f'{{"template": "t", "knobs": {{"a": {value}}}}}')


def workload(**parts: str) -> str:
    fields = {"op": '"x"', "dtypes": '["float32"]', "shapes": "[[1]]", **parts}
    return with_part("workload", f"{{{', '.join(f'{json.dumps(k)}: {v}' for k, v in fields.items())}}}")


HOSTILE = {
    "cut in the middle": json.dumps(GOOD)[:400],
    "cut at the end": json.dumps(GOOD)[:-1],
    "a list": "[1]",
    "null": "null",
    "NaN": with_part("times_s", "[NaN]"),
    "infinite by overflow": with_part("time", "1e999"),
    "infinite inside": with_part("how", '{"a": 1e999}'),
    "a huge int": with_part("threads", HUGE),
    "an int beyond 64 bits": with_part("threads", str(2**64)),
    "a huge int inside": config(HUGE),
    "a huge time": with_part("times_s", f"[{HUGE}]"),
    "deep": with_part("how", f'{{"a": {DEEP}}}'),
    "deep knobs": config(DEEP),
    "deep attributes": workload(attrs=f'{{"a": {DEEP}}}'),
    "half a character": with_part("host", r'"\ud800"'),
    "half a character in a key": with_part("versions", r'{"\udfff": "1"}'),
    "times as text": with_part("times_s", '["1e-3"]'),
    "times as bools": with_part("times_s", "[true]"),
    "no time at all": with_part("times_s", "[]"),
    "negative time": with_part("times_s", "[-1.0]"),
    "versions as numbers": with_part("versions", '{"numba": 1}'),
    "a knob that is an object": config('{"b": 1}'),
    "a knob that is a fraction": config("0.5"),
    "shapes as text": workload(shapes='["12"]'),
    "shapes as fractions": workload(shapes="[[1.5]]"),
    "negative shapes": workload(shapes="[[-1]]"),
    "dtypes as numbers": workload(dtypes="[1]"),
    "attributes as a list": workload(attrs="[1]"),
    "an epilogue that is a number": workload(epilogue="3"),
    "a device with -3 cores": with_part("device", json.dumps({**GOOD["device"], "cores": -3})),
    "an unknown status": with_part("status", '"great"'),
    "a winner that crashed": json.dumps({**GOOD, "status": "crash", "times_s": []}),
    "schema true": with_part("schema", "true"),
    "a line without end": with_part("host", json.dumps("x" * (1 << 20))),
    "bytes": "\udcff\udcfe",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_refused_by_its_number_and_the_others_are_kept(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [record(1).line, HOSTILE[name], record(2).line]
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    with open_store(tmp_path / "r.db") as store:
        report = store.import_jsonl(path)
        assert (report.read, report.added, [e.line for e in report.refused]) == (3, 2, [2])
        assert "1 refused: line 2: " in str(report) and len(str(report)) < 400
        assert [r.config["rows"] for r in store.records()] == [1, 2] and store.check() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(field=st.sampled_from(sorted(GOOD)), value=JSON, data=st.data())
def test_what_is_accepted_comes_back_as_it_was(field: str, value: Any, data: st.DataObject) -> None:
    """Any value in any place of a record: refused with a reason, or good for ever."""
    document = json.loads(json.dumps(GOOD))
    if isinstance(document[field], dict) and document[field] and data.draw(st.booleans()):
        document[field][data.draw(st.sampled_from(sorted(document[field])))] = value
    else:
        document[field] = value
    try:
        accepted = from_document(document)
    except RecordError as error:
        assert str(error)
        return
    assert dataclasses.replace(accepted).line == accepted.line  # made anew from the fields
    again = from_document(json.loads(accepted.line))
    assert again.uid == accepted.uid and accepted.line.encode("utf-8")


# ---- databases


def damage(change: Callable[[bytearray], None]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        content = bytearray(path.read_bytes())
        change(content)
        path.write_bytes(bytes(content))

    return apply


def flip_a_digit(content: bytearray) -> None:
    """A time is another one: all of SQLite's structures are whole."""
    content[content.index(b'"times_s":[0.00') + len('"times_s":[0.00')] ^= 1


def turn_a_page_over(content: bytearray) -> None:
    for i in range(4096, len(content)):
        content[i] ^= 0xFF


def set_version(version: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update autosched_meta set value = ? where name = 'schema_version'", (version,))

    return apply


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


GARBAGE = b"\x93" + random.Random(0).randbytes(5000)  # beginning with a brace they would be JSON lines
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "garbage": (lambda path: path.write_bytes(GARBAGE) and None, "not a tuning database"),
    "text": (lambda path: path.write_text("hello") and None, "not a tuning database"),
    "JSON lines": (lambda path: path.write_text(record(1).line) and None, "logs import"),
    "a folder": (become_folder, "no tuning logs in this folder"),
    "cut": (damage(lambda content: content.__delitem__(slice(9000, None))), "damaged"),
    "a flipped digit": (damage(flip_a_digit), r"record \d+ cannot be read: its content is not what was stored"),
    "flipped pages": (damage(turn_a_page_over), "damaged|not a tuning database"),
    "newer": (set_version("9"), "schema version 9.*newer autosched"),
    "older": (set_version("1"), "schema version 1.*logs upgrade"),
    "gone": (lambda path: path.unlink(), "no tuning database"),
}


def make_database(path: Path) -> None:
    """A database of one file: no log of what was written last beside it."""
    with open_store(path) as store:
        store.add([record(i, winner=i == 7) for i in range(1, 60)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")


@pytest.mark.parametrize("name", DAMAGES)
def test_a_bad_database_is_two_lines_and_exit_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    apply, reason = DAMAGES[name]
    path = tmp_path / "r.db"
    make_database(path)
    apply(path)
    before = path.read_bytes() if path.is_file() else None
    commands = [["export", str(tmp_path / "out.jsonl")], ["show"]]
    for command in commands:
        assert main(["logs", *command, "--db", str(path)]) == 2
        printed = capsys.readouterr()
        lines = printed.err.strip().splitlines()
        assert 1 <= len(lines) <= 2 and "Traceback" not in printed.err and str(path) in printed.err
        assert re.search(reason, printed.err), printed.err
    assert not (tmp_path / "out.jsonl").exists()
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_locked_database_is_exit_code_2_and_readers_do_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from autosched.records import sql

    path, log = tmp_path / "r.db", tmp_path / "log.jsonl"
    make_database(path)
    log.write_text(record(100).line)
    real = sql.connect_file
    monkeypatch.setattr(sql, "connect_file", lambda path, *, write, busy_s: real(path, write=write, busy_s=0.2))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin exclusive")
        assert main(["logs", "import", str(log), "--db", str(path)]) == 2
        assert "locked by another process" in capsys.readouterr().err
        assert main(["logs", "list", "--db", str(path), "-q"]) == 0
        other.execute("rollback")
    assert main(["logs", "import", str(log), "--db", str(path)]) == 0


WRITE_UNDER_A_LIMIT = """
    import resource, sys
    from autosched.cli import main
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
    sys.exit(main(["logs", "import", sys.argv[2], "--db", sys.argv[3]]))
"""


@pytest.mark.parametrize("limit", [0, 20_000, 90_000])
def test_a_disk_that_is_full_loses_nothing(limit: int, tmp_path: Path) -> None:
    """Files may not grow beyond a limit, which is what a full disk is to SQLite."""
    path, log, fresh = tmp_path / "r.db", tmp_path / "log.jsonl", tmp_path / "fresh.db"
    make_database(path)
    log.write_text("\n".join(record(i).line for i in range(1000, 1400)))
    for database in (path, fresh):
        command = [sys.executable, "-c", textwrap.dedent(WRITE_UNDER_A_LIMIT), str(limit), str(log), str(database)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
        assert done.returncode == 2, done.stderr
        assert "disk" in done.stderr and len(done.stderr.strip().splitlines()) <= 2
    with open_store(path) as store:
        assert store.count() == 59 and store.check() == []
        assert store.import_jsonl(log).added == 400
    with open_store(fresh) as store:  # what was begun there can be gone on with
        assert store.count() == 0 and store.import_jsonl(log).added == 400


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="needs to mount a file system")
@pytest.mark.slow
def test_read_only_and_full_file_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        path, log = folder / "r.db", tmp_path / "log.jsonl"
        make_database(path)
        log.write_text("\n".join(record(i).line for i in range(1000, 6000)))
        assert main(["logs", "import", str(log), "--db", str(path)]) == 2
        assert "disk is full" in capsys.readouterr().err
        with open_store(path, write=False) as store:
            assert store.count() == 59 and store.check() == []
        (folder / "fill").write_bytes(bytes(max(0, shutil.disk_usage(folder).free)))
        assert main(["logs", "export", str(folder / "out.jsonl"), "--db", str(path)]) == 2
        assert "No space left" in capsys.readouterr().err and not (folder / "out.jsonl").exists()
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        assert main(["logs", "list", "--db", str(path), "-q"]) == 0
        capsys.readouterr()
        for name in ("r.db", "new.db"):
            assert main(["logs", "import", str(log), "--db", str(folder / name)]) == 2
            assert "read-only" in (text := capsys.readouterr().err) or "cannot be opened" in text
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_read_only_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "r.db"
    make_database(path)
    path.chmod(0o444)
    with pytest.raises(RecordError, match="read-only"), open_store(path) as store:
        store.add([record(100)])
    folder.chmod(0o555)
    try:
        with open_store(path, write=False) as store:
            assert store.count() == 59
        with pytest.raises(RecordError, match="read-only|cannot"), open_store(folder / "new.db"):
            pass
    finally:
        folder.chmod(0o755)


def test_a_report_of_many_refusals_stays_short(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("{}\n" * 1000)
    report = ReadReport(str(path))
    assert list(read_lines(path, report)) == [] and len(report.refused) == 1000
    assert "and 995 more" in str(report) and len(str(report)) < 400
