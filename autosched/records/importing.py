"""Reading logs of every kind: which one a file is shows in its first bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from autosched.errors import RecordError
from autosched.records.engine import SQLITE_HEADER
from autosched.records.jsonl import ReadReport, read_lines, read_rows
from autosched.records.kernel_tuner import is_kernel_tuner, read_cache
from autosched.records.record import Record
from autosched.records.rows import Row, to_row
from autosched.records.t4 import is_t4, read_t4


def read_log(path: Path, report: ReadReport) -> Iterator[Record]:
    """The records of JSON lines (ours and AutoTVM's), of a cache file of Kernel Tuner's, or of a T4 result file.

    What is refused goes into the report. Raises RecordError if the file cannot be read at all.
    """
    return (_other_reader(path) or read_lines)(path, report)


def read_log_rows(path: Path, report: ReadReport) -> Iterator[Row]:
    """The rows of what `read_log` reads; of lines of ours they are made without their records."""
    other = _other_reader(path)
    return read_rows(path, report) if other is None else map(to_row, other(path, report))


def _other_reader(path: Path) -> Callable[[Path, ReadReport], Iterator[Record]] | None:
    """What reads a file of another tuner's; None for lines. Raises RecordError for what is no log."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        raise RecordError(f"cannot read the log: {error.strerror}", where=str(path)) from None
    if head.startswith(SQLITE_HEADER):
        raise RecordError("a database is no log", where=str(path), hint="add it with `autosched logs merge`")
    if is_kernel_tuner(head):
        return read_cache
    return read_t4 if is_t4(head) else None
