"""Rows of the table `records` as records again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from autosched.records.canonical import read_canonical
from autosched.records.record import DUMP, SCHEMA_VERSION, Record, from_document

if TYPE_CHECKING:
    from autosched.json_types import Json

DETAILS = ('{"times_s":', ',"checked_against":', ',"error":', ',"how":', ',"versions":')


def stored_record(row: Json, workload: str, device: str) -> Record:
    """The record of a row, whose workload and device are in other tables.

    Raises  RecordError, ValueError, TypeError, RecursionError for a row that holds none.
    """
    line = _line(row, workload, device)
    if line is not None and (record := read_canonical(line)) is not None:
        return record
    document = {
        **json.loads(row.details),
        "workload": json.loads(workload),
        "device": json.loads(device),
        "config": json.loads(row.config),
        **{name: getattr(row, name) for name in ("status", "threads", "time", "host", "session")},
        "is_default": bool(row.is_default),
        "is_winner": bool(row.is_winner),
        "schema": SCHEMA_VERSION,
    }
    return from_document(document)


def _line(row: Json, workload: str, device: str) -> str | None:
    """What the record's line must be if its row is as `to_row` makes them: most are, and are then read quickly."""
    details, position = row.details, 0
    parts = []
    for mark in DETAILS:
        end = details.find(mark, position)
        if end < 0:
            return None
        parts.append(details[position:end])
        position = end + len(mark)
    _, times, checked, error, how = parts
    flags = [("false", "true")[bool(flag)] for flag in (row.is_default, row.is_winner)]
    words = [DUMP(word) for word in (row.host, row.session, row.status)]
    words += [repr(n) if type(n) in (int, float) else DUMP(n) for n in (row.threads, row.time)]  # as quick as text
    return (
        f'{{"checked_against":{checked},"config":{row.config},"device":{device},"error":{error},"host":{words[0]},'
        f'"how":{how},"is_default":{flags[0]},"is_winner":{flags[1]},"schema":{SCHEMA_VERSION},"session":{words[1]},'
        f'"status":{words[2]},"threads":{words[3]},"time":{words[4]},"times_s":{times},'
        f'"versions":{details[position:-1]},"workload":{workload}}}'
    )
