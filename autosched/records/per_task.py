"""Records as files of other tuners, which know one kernel on one device each: a folder with a file for each task."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.json_types import JsonObject
from autosched.records.files import replaced
from autosched.records.record import Record
from autosched.task import Status

if TYPE_CHECKING:
    pass

TaskOf = tuple[str, str, int]
ToDocument = Callable[[Sequence[Record]], JsonObject]


def write_per_task(folder: Path, records: Iterable[Record], to_document: ToDocument) -> dict[Path, int]:
    """Write `<operator>-<digits>.json` for each workload, device and number of threads; gives the records of each.

    Of several records of a configuration the fastest is written; a lost trial says nothing and is left out. Equal
    records give equal files. Raises RecordError if a file cannot be written; it is then as it was.
    """
    tasks: dict[TaskOf, dict[str, Record]] = {}
    for record in records:
        if record.measurement.status is Status.LOST:
            continue
        found = tasks.setdefault((record.workload.key, record.device.key, record.threads), {})
        old = found.get(record.config.key)
        if old is None or _rank(record) < _rank(old):
            found[record.config.key] = record
    written: dict[Path, int] = {}
    for task, best in tasks.items():
        one = next(iter(best.values()))
        digits = hashlib.sha256(repr(task).encode()).hexdigest()[:10]
        path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', one.workload.op)[:40]}-{digits}.json"
        with replaced(path, "the file", make_folder=True) as file:
            json.dump(to_document([best[key] for key in sorted(best)]), file, indent=1)
        written[path] = len(best)
    return written


def _rank(record: Record) -> tuple[bool, float]:
    measured = record.measurement
    return not measured.is_ok, measured.median_s if measured.is_ok else 0.0
