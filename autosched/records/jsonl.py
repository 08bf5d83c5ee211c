"""Records as JSON lines: one record a line, each with its schema version; data only, nothing is ever executed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from autosched.errors import RecordError
from autosched.records.autotvm_log import from_autotvm, is_autotvm
from autosched.records.canonical import read_canonical, read_row
from autosched.records.choose import choose
from autosched.records.files import replaced
from autosched.records.found import Found, Validator, WinnerSource, with_defaults
from autosched.records.record import Record, from_document
from autosched.records.rows import Row, to_row
from autosched.task import Task

MAX_LINE_BYTES = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True)
class LineError:
    """A line that is no record: its number from 1, and why."""

    line: int
    reason: str


@dataclass
class ReadReport:
    """What became of the lines of a file. `str()` of it is the sentence that users see."""

    path: str
    read: int = 0
    added: int = 0
    refused: list[LineError] = field(default_factory=list)

    def __str__(self) -> str:
        lines = "1 line" if self.read == 1 else f"{self.read} lines"
        text = f"{lines} read, {self.added} added, {self.read - self.added - len(self.refused)} known before"
        if not self.refused:
            return text
        shown = "; ".join(f"line {e.line}: {e.reason}" for e in self.refused[:5])
        more = f"; and {len(self.refused) - 5} more" if len(self.refused) > 5 else ""
        return f"{text}, {len(self.refused)} refused: {shown}{more}"


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def read_line(text: str) -> Record:
    """The record of one line, ours or AutoTVM's. Raises RecordError with the reason."""
    if len(text) > MAX_LINE_BYTES:
        raise RecordError(f"a line of more than {MAX_LINE_BYTES} bytes")
    if (record := read_canonical(text)) is not None:
        return record
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from None
    return from_autotvm(document) if is_autotvm(document) else from_document(document)


def row_of_line(text: str) -> Row:
    """The row of the record that `read_line` gives, mostly without making that. Raises RecordError with the reason."""
    row = read_row(text) if len(text) <= MAX_LINE_BYTES else None
    return row if row is not None else to_row(read_line(text))


def read_lines(path: Path, report: ReadReport) -> Iterator[Record]:
    """The records of a file, one after the other; what is refused goes into the report.

    Blank lines and comments (#) are skipped. Raises RecordError if the file cannot be read at all.
    """
    return _read(path, report, read_line)


def read_rows(path: Path, report: ReadReport) -> Iterator[Row]:
    """The rows of a file's records, as `read_lines` has them, in half the time."""
    return _read(path, report, row_of_line)


def _read(path: Path, report: ReadReport, read: Callable[[str], T]) -> Iterator[T]:
    try:
        with path.open("rb", buffering=1 << 20) as file:
            for number, raw in enumerate(_lines(file), start=1):
                line = raw.strip()
                if not line or line.startswith(b"#"):
                    continue
                report.read += 1
                try:
                    yield read(line.decode("utf-8"))
                except RecordError as error:
                    report.refused.append(LineError(number, str(error)))
                except UnicodeDecodeError:
                    report.refused.append(LineError(number, "not UTF-8 text"))
    except OSError as error:
        raise RecordError(f"cannot read the log: {error.strerror}", where=str(path)) from None


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one that is too long its beginning, which is too long as well."""
    while line := file.readline(MAX_LINE_BYTES + 2):
        yield line
        while len(line) == MAX_LINE_BYTES + 2 and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE_BYTES + 2)


def write_lines(path: Path, records: Iterable[Record], *, head: str = "") -> int:
    """Write records to a file, which is replaced only when all are written; gives their number.

    head    a comment for the first line
    Raises  RecordError if the folder cannot be written to or the disk is full.
    """
    count = 0
    with replaced(path, "the log", make_folder=True) as file:
        if head:
            file.write(f"# {head}\n")
        for record in records:
            file.write(record.line + "\n")
            count += 1
    return count


class JsonlReader(WinnerSource):
    """Look-ups in one JSON-lines file, which is read on the first one. Lines that are no record are in `report`."""

    def __init__(self, path: Path, origin: str = "", by_family: bool = False):
        self.path, self.by_family = path, by_family
        self.origin = origin or f"log {path}"
        self.report = ReadReport(str(path))

    @cached_property
    def _by_workload(self) -> dict[str, list[Record]]:
        winners: dict[str, list[Record]] = {}
        defaults: dict[str, list[Record]] = defaultdict(list)
        for record in read_lines(self.path, self.report):
            self.report.added += 1
            if record.is_winner:
                winners.setdefault(record.workload.key, []).append(record)
            if record.is_default:
                defaults[record.workload.key].append(record)
        return {key: with_defaults(found, partial(defaults.__getitem__, key)) for key, found in winners.items()}

    def winners_of(self, task: Task) -> Sequence[Record]:
        """The task's winners of all devices and thread counts."""
        return self._by_workload.get(task.key, ())

    def winners_of_op(self, task: Task, op: str) -> Iterator[Record]:
        """The winners of all workloads of an operator."""
        return (record for found in self._by_workload.values() for record in found if record.workload.op == op)

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`. Raises RecordError if the file cannot be read."""
        return choose(self.winners_of(task), task, self.origin, valid=valid, by_family=self.by_family)
