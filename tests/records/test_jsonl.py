import os
from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records import JsonlReader, ReadReport, read_lines, write_lines
from autosched.testing.tasks import matmul_task, record


def test_round_trip(tmp_path: Path) -> None:
    path, records = tmp_path / "new" / "log.jsonl", [record(i) for i in (1, 2, 3)]
    assert write_lines(path, records) == 3
    report = ReadReport(str(path))
    assert [r.line for r in read_lines(path, report)] == [r.line for r in records]
    assert report.read == 3 and not report.refused


def test_bad_lines_are_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    good = record(1).line
    lines = ["# comment", good, "", good[:50], '{"schema": 9}', good.replace("0.001", "NaN"), "[" * 5000, good]
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe\n")
    report = ReadReport(str(path))
    assert len(list(read_lines(path, report))) == 2
    assert report.read == 7 and [e.line for e in report.refused] == [4, 5, 6, 7, 9]
    text = str(report)
    assert "5 refused" in text and "line 5: schema version 9" in text and "NaN" in text


def test_nothing_is_unpickled_or_executed(tmp_path: Path) -> None:
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(trap),)

    import pickle

    path = tmp_path / "log.jsonl"
    path.write_bytes(pickle.dumps(Trap()))
    report = ReadReport(str(path))
    assert list(read_lines(path, report)) == [] and report.refused and not trap.exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write_lines(path, [record(1)])
    before = path.read_bytes()

    def broken() -> object:
        yield record(2)
        raise OSError(28, "No space left on device")

    with pytest.raises(RecordError, match="No space left"):
        write_lines(path, broken())  # type: ignore[arg-type]
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["log.jsonl"]


def test_reader(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write_lines(path, [record(1), record(4, winner=True)])
    reader = JsonlReader(path)
    assert reader.best(matmul_task()).config == record(4).config and reader.report.added == 2
    with pytest.raises(RecordError, match="cannot read"):
        JsonlReader(tmp_path / "none.jsonl").best(matmul_task())


def test_what_was_refused_is_said_in_words(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    report = ReadReport(str(path))
    assert list(read_lines(path, report)) == []
    assert str(report) == "1 line read, 0 added, 0 known before, 1 refused: line 1: not UTF-8 text"
