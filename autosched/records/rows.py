"""Records as rows of the table `records`."""

from __future__ import annotations

from typing import NamedTuple

from autosched.records.record import Record, device_text


class Row(NamedTuple):
    """A record as it is stored: the columns of `records` in the table's order, and the record's line behind them.

    workload, device  their JSON texts, which are rows of other tables: `columns` puts their numbers there
    line              is stored in no column; its hash is the uid
    """

    uid: str
    workload: str
    device: str
    threads: int
    template: str
    config: str
    status: str
    median_s: float | None
    baseline_s: float | None
    is_default: bool
    is_winner: bool
    time: float
    host: str
    session: str
    details: str
    line: str

    def columns(self, workload_id: int, device_id: int) -> tuple[object, ...]:
        """What is bound to an INSERT of all columns but `id`."""
        return (self[0], workload_id, device_id, *self[3:-1])


def to_row(record: Record) -> Row:
    """The row of a record."""
    m = record.measurement
    return Row(
        uid=record.uid,
        workload=record.workload.key,
        device=device_text(record.device),
        threads=record.threads,
        template=record.config.template,
        config=record.config.key,
        status=str(m.status),
        median_s=m.median_s if m.is_ok else None,
        baseline_s=record.baseline_s if record.is_winner else None,
        is_default=record.is_default,
        is_winner=record.is_winner,
        time=record.time,
        host=record.host,
        session=record.session,
        details=record.details,
        line=record.line,
    )
