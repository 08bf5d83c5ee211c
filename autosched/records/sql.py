"""The record store in a SQL database. Every call is one transaction: a kill loses at most the batch in flight."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine

from autosched.errors import RecordError
from autosched.records.choose import choose
from autosched.records.engine import check_schema, clear_errors, connect_file
from autosched.records.found import Found, Validator, miss
from autosched.records.jsonl import LineError, ReadReport, read_lines, write_lines
from autosched.records.query import RecordFilter, TaskSummary
from autosched.records.record import Record, from_document, read_fingerprint
from autosched.records.schema import DeviceRow, RecordRow, WorkloadRow
from autosched.task import Status, Task

R: Any = RecordRow.__table__
W: Any = WorkloadRow.__table__
D: Any = DeviceRow.__table__
JOINED = R.join(W, R.c.workload_id == W.c.id).join(D, R.c.device_id == D.c.id)
BATCH = 5000  # records of an import that are committed together


class SqlStore:
    """Records in a SQLite file (or another database by URL).

    write   False opens for reading only: nothing is created and no byte changes
    busy_s  how long to wait for another process that writes
    Raises  RecordError, naming the file and what to do, if it cannot be opened or is no tuning database.
    """

    def __init__(self, where: str | Path, *, write: bool = True, busy_s: float = 10.0, origin: str = ""):
        self.where, self.write = str(where), write
        self.origin = origin or f"database {self.where}"
        with clear_errors(self.where):
            self.engine: Engine = (
                sa.create_engine(self.where)
                if "://" in self.where
                else connect_file(Path(where), write=write, busy_s=busy_s)
            )
        check_schema(self.engine, self.where, write=write)

    def close(self) -> None:
        """Let the file go."""
        self.engine.dispose()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- writing

    def add(self, records: Sequence[Record]) -> int:
        """Store the records in one transaction, all or none; gives how many were not there before.

        Raises  RecordError if the database is locked, read-only, damaged or the disk is full.
        """
        if not records:
            return 0
        if not self.write:
            raise RecordError("the database was opened for reading only", where=self.where)
        with clear_errors(self.where):
            connection = self.engine.connect().execution_options(autosched_write=True)
            with connection, connection.begin():
                workloads = self._ids(connection, W, {r.workload.key: {"op": r.workload.op} for r in records})
                known = {d: d.key for d in {r.device for r in records}}
                columns = {key: {"family": d.family, "document": d.to_json()} for d, key in known.items()}
                devices = self._ids(connection, D, columns)
                rows = [_row(r, workloads[r.workload.key], devices[known[r.device]]) for r in records]
                return int(connection.execute(self._insert(R).on_conflict_do_nothing(), rows).rowcount)

    def _insert(self, table: Any) -> Any:
        return (postgresql if self.engine.dialect.name == "postgresql" else sqlite).insert(table)

    def _ids(self, connection: Connection, table: Any, wanted: dict[str, dict[str, Any]]) -> dict[str, int]:
        """The id of each key, those that are new inserted."""
        found: dict[str, int] = {}
        for attempt in range(2):
            keys = [key for key in wanted if key not in found]
            for start in range(0, len(keys), 500):
                part = keys[start : start + 500]
                query = sa.select(table.c.key, table.c.id).where(table.c.key.in_(part))
                found |= {key: number for key, number in connection.execute(query).all()}
            new = [{"key": key, **columns} for key, columns in wanted.items() if key not in found]
            if new and attempt == 0:
                connection.execute(self._insert(table).on_conflict_do_nothing(), new)
        return found

    # ---- reading

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`. Raises RecordError if the database cannot be read."""
        winners = self._select(W.c.key == task.key, R.c.is_winner.is_(True))
        found = choose(winners, task, self.origin, valid=valid)
        if found or found.reason != "no record":
            return found
        count = self._count(W.c.key == task.key)
        return miss(self.origin, f"{count} trials, none of them named the winner") if count else found

    def trials(self, task: Task) -> Iterator[Record]:
        """All records of the task on this device and with its threads, in the order they were measured.

        Raises  RecordError if the database cannot be read.
        """
        here = task.target.fingerprint().key
        yield from self._select(W.c.key == task.key, D.c.key == here, R.c.threads == task.threads)

    def records(self, query: RecordFilter | None = None) -> Iterator[Record]:
        """The records that a filter selects (all without one), in the order they were measured."""
        query = query or RecordFilter()
        clauses: list[Any] = []
        if query.op:
            clauses.append(W.c.op == query.op)
        if query.workload:
            clauses.append(W.c.key == query.workload)
        if query.template:
            clauses.append(R.c.template == query.template)
        if query.status is not None:
            clauses.append(R.c.status == str(query.status))
        if query.session:
            clauses.append(R.c.session == query.session)
        if query.since_s is not None:
            clauses.append(R.c.time >= query.since_s)
        if query.winners_only:
            clauses.append(R.c.is_winner.is_(True))
        if query.uid:
            clauses.append(R.c.uid.startswith(query.uid, autoescape=True))
        return self._select(*clauses, limit=query.limit)

    def count(self) -> int:
        """How many records there are."""
        return self._count()

    def tasks(self) -> list[TaskSummary]:
        """One line per workload, device and threads: trials, failures, best and default time, the winner."""
        failed = R.c.status.not_in([str(Status.OK), str(Status.LOST)])
        default_s = sa.func.min(sa.case((R.c.is_default.is_(True), R.c.median_s)))
        group = (W.c.key, D.c.document, R.c.threads)
        query = (
            sa.select(
                *group,
                sa.func.count(),
                sa.func.sum(sa.case((failed, 1), else_=0)),
                sa.func.min(R.c.median_s),
                default_s,
                sa.func.max(R.c.time),
                sa.func.max(sa.case((R.c.is_winner.is_(True), R.c.time))),
            )
            .select_from(JOINED)
            .group_by(*group)
            .order_by(W.c.key, D.c.document, R.c.threads)
        )
        with clear_errors(self.where), self.engine.connect() as connection:
            rows = connection.execute(query).all()
        winners = {
            (r.workload.key, r.device, r.threads, r.time): r for r in self.records(RecordFilter(winners_only=True))
        }
        summaries = []
        for key, device_text, threads, n, n_failed, best_s, first_s, last, won in rows:
            device = read_fingerprint(json.loads(device_text))
            winner = winners.get((key, device, threads, won))
            if winner is not None:  # what it was compared with, in turn, tells its gain best
                first_s = winner.baseline_s or first_s
            summaries.append(TaskSummary(key, device, threads, n, n_failed, best_s, first_s, last, winner))
        return summaries

    def _count(self, *clauses: Any) -> int:
        with clear_errors(self.where), self.engine.connect() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(JOINED).where(*clauses)) or 0)

    def _select(self, *clauses: Any, limit: int | None = None) -> Iterator[Record]:
        """Records by time, a chunk at a time, so that a long reader blocks no writer."""
        columns = (W.c.key, D.c.document, *(c for c in R.c if c.name not in ("workload_id", "device_id")))
        after: tuple[float, int] | None = None
        left = limit
        while left is None or left > 0:
            n = BATCH if left is None else min(BATCH, left)
            later = () if after is None else (sa.tuple_(R.c.time, R.c.id) > sa.tuple_(*map(sa.literal, after)),)
            query = sa.select(*columns).select_from(JOINED).where(*clauses, *later).order_by(R.c.time, R.c.id).limit(n)
            with clear_errors(self.where), self.engine.connect() as connection:
                rows = connection.execute(query).all()
            for row in rows:
                yield self._record(row)
            if len(rows) < n:
                return
            after = (rows[-1].time, rows[-1].id)
            left = None if left is None else left - n

    def _record(self, row: Any) -> Record:
        try:
            document = {
                **json.loads(row.details),
                "workload": json.loads(row[0]),
                "device": json.loads(row[1]),
                "config": json.loads(row.config),
                **{name: getattr(row, name) for name in ("status", "threads", "time", "host", "session")},
                "is_default": bool(row.is_default),
                "is_winner": bool(row.is_winner),
                "schema": 1,
            }
            record = from_document(document)
        except (ValueError, TypeError, RecursionError, RecordError) as error:
            raise self._damaged(row, str(error)) from None
        if record.uid != row.uid:  # SQLite has no checksums: a flipped bit in a row shows here alone
            raise self._damaged(row, "its content is not what was stored")
        return record

    def _damaged(self, row: Any, reason: str) -> RecordError:
        text = f"the database is damaged: record {row.id} cannot be read: {reason}"
        return RecordError(text, where=self.where, hint="restore a copy, or choose another one with --db")

    # ---- exchange

    def export_jsonl(self, path: Path, query: RecordFilter | None = None) -> int:
        """Write the selected records as JSON lines and give their number. Raises RecordError."""
        return write_lines(path, self.records(query))

    def import_jsonl(self, path: Path) -> ReadReport:
        """Add the records of a JSON-lines file; refused lines are in the report, known ones are not added again."""
        report = ReadReport(str(path))
        self._import(read_lines(path, report), report)
        return report

    def _import(self, records: Iterable[Record], report: ReadReport) -> None:
        stream = iter(records)
        while batch := list(islice(stream, BATCH)):
            report.added += self.add(batch)

    def check(self) -> list[LineError]:
        """What SQLite's own integrity check and reading every record find wrong; empty where all is well."""
        found: list[LineError] = []
        if self.engine.dialect.name == "sqlite":
            with clear_errors(self.where), self.engine.connect() as connection:
                answers = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
            found += [LineError(0, text) for text in answers if text != "ok"]
        for number, record in enumerate(self.records(), start=1):
            if record.uid == "":
                found.append(LineError(number, "no content"))
        return found


def _row(record: Record, workload_id: int, device_id: int) -> dict[str, Any]:
    m = record.measurement
    details = {
        "times_s": m.times_s,
        "checked_against": m.checked_against,
        "error": m.error,
        "how": dict(m.how),
        "versions": dict(record.versions),
    }
    return {
        "uid": record.uid,
        "workload_id": workload_id,
        "device_id": device_id,
        "threads": record.threads,
        "template": record.config.template,
        "config": record.config.key,
        "status": str(m.status),
        "median_s": m.median_s if m.is_ok else None,
        "is_default": record.is_default,
        "is_winner": record.is_winner,
        "time": record.time,
        "host": record.host,
        "session": record.session,
        "details": json.dumps(details, separators=(",", ":"), allow_nan=False),
    }
