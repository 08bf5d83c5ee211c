"""Records as one table for spreadsheets and data frames: a line for each, with stable column names."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path

from autosched.records.files import replaced
from autosched.records.record import Record

COLUMNS = (
    "uid", "time", "session", "op", "workload", "device", "threads", "cache", "template", "knobs", "status", "median_s",
    "n_times", "interval", "is_default", "is_winner", "error",
)  # fmt: skip


def write_csv(path: Path, records: Iterable[Record]) -> int:
    """Write records to a CSV file, which is replaced only when all are written; gives their number.

    Times are in seconds; the workload and the knobs are JSON text. What has no value is empty.
    Raises  RecordError if the file cannot be written.
    """
    written = 0
    with replaced(path, "the table") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for record in records:
            writer.writerow(_row(record))
            written += 1
    return written


def _row(record: Record) -> tuple[object, ...]:
    measured, how = record.measurement, record.measurement.how
    return (
        record.uid,
        record.time,
        record.session,
        record.workload.op,
        record.workload.key,
        record.device.name,
        record.threads,
        how.get("cache", ""),
        record.config.template,
        json.dumps(dict(record.config.knobs)),
        str(measured.status),
        measured.median_s if measured.is_ok else "",
        len(measured.times_s),
        how.get("interval", ""),
        record.is_default,
        record.is_winner,
        measured.error,
    )
