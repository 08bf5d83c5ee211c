"""Packages of best configurations to ship: one file of JSON lines for each target family and operator."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from autosched.errors import RecordError
from autosched.records.jsonl import ReadReport, read_lines, write_lines
from autosched.records.record import SCHEMA_VERSION, Record
from autosched.records.shipped import SAFE_NAME


def write_package(folder: Path, records: Iterable[Record]) -> Mapping[Path, int]:
    """Add winners to the packages of a folder: `<family>/<operator>.jsonl`; gives each file that was written its lines.

    records  others than winners are left out, and so is which machine measured: a package says of what kind it was
    What a file holds already stays, but of one workload, device and number of threads only the latest winner. Equal
    content gives equal bytes, whatever the order. Raises RecordError for a name that is no file's, a package that
    cannot be read, or a folder that cannot be written to.
    """
    files: dict[Path, list[Record]] = {}
    for record in records:
        if record.is_winner:
            files.setdefault(folder / _name(record), []).append(_shared(record))
    for path, found in files.items():
        known = read_package(path) if path.is_file() else []
        head = f"autosched tuning logs, schema {SCHEMA_VERSION}: {found[0].workload.op} on {found[0].device.family}"
        files[path] = latest([*known, *found])
        write_lines(path, files[path], head=head)
    return {path: len(found) for path, found in sorted(files.items())}


def _shared(record: Record) -> Record:
    """A record without its machine's name, which its session's name holds too."""
    return dataclasses.replace(record, host="", session=record.session.partition(".")[0])


def read_package(path: Path) -> Sequence[Record]:
    """The records of a package. Raises RecordError for one that is damaged: it is not written over."""
    report = ReadReport(str(path))
    found = list(read_lines(path, report))
    if report.refused:
        raise RecordError(f"the package is damaged: {report}", where=str(path), hint="restore it, or remove the file")
    return found


def latest(records: Iterable[Record]) -> list[Record]:
    """The latest winner of each workload, device and number of threads, in an order that only they decide."""

    def task(record: Record) -> tuple[str, str, int]:
        return record.workload.key, record.device.key, record.threads

    ordered = sorted(records, key=lambda record: (*task(record), record.time, record.uid))
    return [list(group)[-1] for _, group in itertools.groupby(ordered, key=task)]


def _name(record: Record) -> Path:
    family, op = record.device.family, record.workload.op
    if not (SAFE_NAME.fullmatch(family) and SAFE_NAME.fullmatch(op)) or ".." in (family, op):
        raise RecordError(f"no file can be called after operator '{op[:40]}' on '{family[:40]}'")
    return Path(family) / f"{op}.jsonl"
