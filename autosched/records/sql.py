"""The record store in a SQL database. Every call is one transaction: a kill loses at most the batch in flight."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from autosched.errors import RecordError
from autosched.records import leases
from autosched.records.choose import choose
from autosched.records.clauses import JOINED, D, R, W, clauses_of, insert_into
from autosched.records.engine import check_schema, clear_errors, connect_file, connect_server, release, remove_stub
from autosched.records.found import Found, Validator, WinnerSource, miss, with_defaults
from autosched.records.importing import read_log_rows
from autosched.records.jsonl import LineError, ReadReport, read_rows, write_lines
from autosched.records.leases import new_owner
from autosched.records.places import file_of, shown
from autosched.records.query import COMPARED, Coded, RecordFilter, TaskKey, TaskSummary, TrialColumns, Won
from autosched.records.record import KERNEL, Record, gain_of, read_fingerprint, read_workload
from autosched.records.rows import Row, to_row
from autosched.records.stored import stored_record
from autosched.space import Config
from autosched.target import Fingerprint
from autosched.task import Status, Task

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Table

    from autosched.json_types import Json, JsonObject

_NAMES = [column.name for column in R.c if column.name != "id"]
DEFAULT = 1000  # added to the number of a status where the trial was of the default
BATCH = 5000  # records that are read in one go
IMPORT_BATCH = 20_000  # records that are committed together: uids are all over their index, which is written each time


class SqlStore(WinnerSource):
    """Records in a SQLite file (or another database by URL).

    write   False opens for reading only: nothing is created and no byte changes
    busy_s  how long to wait for another process that writes
    Raises  RecordError, naming the file and what to do, if it cannot be opened or is no tuning database.
    """

    def __init__(self, where: str | Path, *, write: bool = True, busy_s: float = 10.0, origin: str = ""):
        self.path = file_of(where)
        self.where, self.write = shown(str(self.path or where)), write
        self.origin = origin or f"database {self.where}"
        self.owner = new_owner()  # whose leases are ours
        is_new = write and self.path is not None and not self.path.exists()
        try:
            with clear_errors(self.where):
                self.engine: Engine = (
                    connect_server(str(where), write=write, busy_s=busy_s)
                    if self.path is None
                    else connect_file(self.path, write=write, busy_s=busy_s)
                )
            self._release = weakref.finalize(self, release, self.engine, self.path, not write)
            check_schema(self.engine, self.where, write=write)
        except RecordError:
            if hasattr(self, "_release"):
                self._release()
            if is_new and self.path is not None:
                remove_stub(self.path)
            raise

    def close(self) -> None:
        """Let the file go; also done when the process ends."""
        self._release()

    def __enter__(self) -> SqlStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- writing

    def add(self, records: Sequence[Record]) -> int:
        """Store the records in one transaction, all or none; gives how many were not there before.

        Raises  RecordError if the database is locked, read-only, damaged or the disk is full.
        """
        return self._add([to_row(record) for record in records])

    def _add(self, rows: Sequence[Row]) -> int:
        """See `add`."""
        self._check_write()
        return self._store(rows) if rows else 0

    def _store(self, rows: Sequence[Row]) -> int:
        """Insert what is not there yet; gives how many rows that were."""
        ops = {text: {"op": read_workload(text).op} for text in {row.workload for row in rows}}
        with self._writing() as connection:
            workloads = self._ids(connection, W, ops)
            devices = self._device_ids(connection, {row.device for row in rows})
            return self._insert_rows(connection, [r.columns(workloads[r.workload], devices[r.device]) for r in rows])

    def _device_ids(self, connection: Connection, texts: set[str]) -> dict[str, int]:
        """The number of each device by its JSON text.

        Keys are made for people: fingerprints from elsewhere may differ in a space or a dash alone, and have one key.
        The second one gets a key with a hash.
        """
        found: dict[str, int] = {}
        for is_hashed in (False, True):
            columns: dict[str, JsonObject] = {}
            if not (missing := sorted(texts - found.keys())):
                break
            for text in missing:
                device = read_fingerprint(json.loads(text))
                mark = f"#{hashlib.sha256(text.encode()).hexdigest()[:16]}" if is_hashed else ""
                row = {"family": device.family, "document": text, "kind": device.kind}
                columns.setdefault(device.key + mark, row)
            numbers = self._ids(connection, D, columns).values()
            stored = sa.select(D.c.document, D.c.id).where(D.c.id.in_(numbers))
            found |= {text: number for text, number in connection.execute(stored).all() if text in texts}
        return found

    def _insert_rows(self, connection: Connection, rows: list[tuple[object, ...]]) -> int:
        if connection.dialect.name == "postgresql":  # its driver counts nothing when it inserts many
            named = [dict(zip(_NAMES, row, strict=True)) for row in rows]
            insert = self._insert(R).on_conflict_do_nothing()
            return len(connection.execute(insert.returning(R.c.id), named).all())
        # The driver's own way: three times as fast.
        return int(connection.exec_driver_sql(self._insert_text, rows).rowcount)

    @cached_property
    def _insert_text(self) -> str:
        """The statement that inserts a row, as the driver takes it: a tuning stores its trials one by one."""
        insert = self._insert(R).on_conflict_do_nothing().values({name: sa.bindparam(name) for name in _NAMES})
        return str(insert.compile(dialect=self.engine.dialect))

    def claim(self, task: Task, configs: Sequence[Config], lease_s: float) -> list[Config]:
        """See `RecordStore`. Raises RecordError if the database cannot be written to."""
        self._check_write()
        with self._writing() as connection:
            return leases.claim(connection, task, configs, lease_s, self.owner)

    def release(self, task: Task | None = None) -> None:
        """See `RecordStore`. Raises RecordError if the database cannot be written to."""
        self._check_write()
        with self._writing() as connection:
            leases.release(connection, task, self.owner)

    def _check_write(self) -> None:
        if not self.write:
            raise RecordError("it was opened for reading only", where=self.where)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that only one process is in, committed at the end. Raises RecordError."""
        with clear_errors(self.where):
            connection = self.engine.connect().execution_options(autosched_write=True)
            with connection, connection.begin():
                yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection to read from. Raises RecordError."""
        with clear_errors(self.where), self.engine.connect() as connection:
            yield connection

    def _insert(self, table: Table) -> Any:
        return insert_into(self.engine.dialect.name, table)

    def _ids(self, connection: Connection, table: Table, wanted: dict[str, JsonObject]) -> dict[str, int]:
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
        found = choose(self.winners_of(task), task, self.origin, valid=valid)
        if found or found.reason != "no record":
            return found
        count = self._count(W.c.key == task.key)
        return miss(self.origin, f"{count} trials, none of them named the winner") if count else found

    def winners_of(self, task: Task) -> Sequence[Record]:
        """The task's winners of all devices and thread counts, in the order they were named."""
        is_own = W.c.key == task.key
        winners = self._select(is_own, R.c.is_winner.is_(True))
        return with_defaults(winners, lambda: self._select(is_own, R.c.is_default.is_(True)))

    def winners_of_op(self, task: Task, op: str) -> Iterator[Record]:
        """The winners of all workloads of an operator."""
        winners = self._select(W.c.op == op, R.c.is_winner.is_(True))
        yield from with_defaults(winners, lambda: self._select(W.c.op == op, R.c.is_default.is_(True)))

    def trials(self, task: Task) -> Iterator[Record]:
        """All records of the task on this device and with its threads, in the order they were measured.

        Raises  RecordError if the database cannot be read.
        """
        here = task.target.fingerprint().to_json()
        yield from self._select(W.c.key == task.key, D.c.document == here, R.c.threads == task.threads)

    def records(self, query: RecordFilter | None = None) -> Iterator[Record]:
        """The records that a filter selects (all without one), in the order they were measured."""
        query = query or RecordFilter()
        return self._select(*clauses_of(query), limit=query.limit)

    def count(self) -> int:
        """How many records there are."""
        return self._count()

    def tasks(self, query: RecordFilter | None = None) -> list[TaskSummary]:
        """One line per workload, device and threads: trials, failures, best and default time, the winner.

        query  counts only the records that it selects; the winner is the task's own whatever it says
        Winners' comparisons with the default are no trials.
        """
        clauses = clauses_of(query or RecordFilter())
        failed = R.c.status.not_in([str(Status.OK), str(Status.LOST)])
        group = (R.c.workload_id, R.c.device_id, R.c.threads)
        sums = (
            sa.func.count(),
            sa.func.sum(sa.case((failed, 1), else_=0)),
            sa.func.min(R.c.median_s),
            sa.func.min(sa.case((R.c.is_default.is_(True), R.c.median_s))),
            sa.func.max(R.c.time),
        )
        source = JOINED if clauses else R  # R alone is answered from its index
        with self._reading() as connection:
            rows = connection.execute(
                sa.select(*group, *sums).select_from(source).where(*clauses).group_by(*group)
            ).all()
            compared = Counter(place for place, _ in self._comparisons(connection, clauses))
            keys, devices = self._keys(connection)
        winners = self.winners()
        with self._decoding():
            summaries = []
            for workload_id, device_id, threads, n, n_failed, best_s, first_s, last in rows:
                key, device = keys[workload_id], devices[device_id]
                winner = winners.get((key, device, threads))
                if winner is not None:  # a single trial is not confirmed, and one of many is lucky
                    first_s, best_s = winner.default_s or first_s, winner.measurement.median_s
                n_trials = n - compared[workload_id, device_id, threads]
                summaries.append(TaskSummary(key, device, threads, n_trials, n_failed, best_s, first_s, last, winner))
            summaries.sort(key=lambda task: (task.workload, task.device.key, task.threads))
        return summaries

    @staticmethod
    def _comparisons(
        connection: Connection, clauses: Sequence[ColumnElement[bool]]
    ) -> list[tuple[tuple[int, int, int], float]]:
        """(task's ids and threads, time) of each winner's comparison with the default; an index has them apart."""
        columns = (R.c.workload_id, R.c.device_id, R.c.threads, R.c.time)
        query = sa.select(*columns).select_from(JOINED if clauses else R).where(R.c.is_winner.is_(True))
        found = connection.execute(query.where(R.c.baseline_s.is_not(None), *clauses)).all()
        return [((workload, device, threads), time) for workload, device, threads, time in found]

    def winners(self, query: RecordFilter | None = None) -> dict[tuple[str, Fingerprint, int], Record]:
        """The winner named last of each workload, device and number of threads."""
        query = replace(query or RecordFilter(), winners_only=True)
        return {(r.workload.key, r.device, r.threads): r for r in self.records(query)}

    def wins(self, query: RecordFilter | None = None) -> dict[tuple[str, Fingerprint, int], Won]:
        """What the comparison of each of the `winners` has said, without their evidence: quick where there are many."""
        columns = (R.c.workload_id, R.c.device_id, R.c.threads, R.c.is_default, R.c.baseline_s, R.c.median_s)
        clauses = clauses_of(query or RecordFilter())
        winners = sa.select(*columns).select_from(JOINED if clauses else R).where(R.c.is_winner.is_(True), *clauses)
        with self._reading() as connection, connection.begin():
            keys, devices = self._keys(connection)
            rows = connection.execute(winners.order_by(R.c.time, R.c.id)).all()
        with self._decoding():
            found = {
                (keys[workload], devices[device], threads): Won(
                    median_s if is_default else baseline_s, median_s, gain_of(is_default, baseline_s, median_s)
                )
                for workload, device, threads, is_default, baseline_s, median_s in rows
            }
        return found

    def kernel_names(self, query: RecordFilter | None = None) -> dict[tuple[str, Fingerprint, int], str]:
        """What the model that each task was tuned for last calls its kernel; older records have no name."""
        columns = (R.c.workload_id, R.c.device_id, R.c.threads, R.c.details)
        is_named = sa.or_(R.c.is_default.is_(True), R.c.is_winner.is_(True))  # one of them at least, and few
        clauses = clauses_of(query or RecordFilter())
        source = JOINED if clauses else R
        with self._reading() as connection, connection.begin():
            keys, devices = self._keys(connection)
            rows = connection.execute(
                sa.select(*columns).select_from(source).where(is_named, *clauses).order_by(R.c.time, R.c.id)
            ).all()
        with self._decoding():
            named = (
                (keys[w], devices[d], threads, json.loads(text)["how"].get(KERNEL)) for w, d, threads, text in rows
            )
            return {(key, device, threads): name for key, device, threads, name in named if isinstance(name, str)}

    def _keys(self, connection: Connection) -> tuple[dict[int, str], dict[int, Fingerprint]]:
        """Workload keys and devices by their numbers."""
        keys = {number: key for number, key in connection.execute(sa.select(W.c.id, W.c.key))}
        devices = connection.execute(sa.select(D.c.id, D.c.document)).all()
        try:
            return keys, {number: read_fingerprint(json.loads(text)) for number, text in devices}
        except (ValueError, TypeError, RecursionError, RecordError) as error:
            raise self._damage(f"a device: {error}") from None

    def trial_table(self, query: RecordFilter | None = None) -> tuple[list[TaskKey], TrialColumns]:
        """The records of each task without their evidence, for statistics over many.

        returns  tasks, and columns (arrays) by task, then time: the task's index in that list, time, status (as
                 `Coded`; COMPARED for a winner's comparison, which is no trial), is_default, median_s (NaN where there
                 is none); no columns where there are no records
        """
        import numpy as np

        clauses = clauses_of(query or RecordFilter())
        source = JOINED if clauses else R  # R alone is answered from its index
        group = (R.c.workload_id, R.c.device_id, R.c.threads)
        sizes = sa.select(*group, sa.func.count()).select_from(source).where(*clauses).group_by(*group).order_by(*group)
        names = [str(status) for status in Status]
        code = sa.case({name: i for i, name in enumerate(names)}, value=R.c.status, else_=len(names))
        kind = sa.case((R.c.is_default.is_(True), DEFAULT), else_=0) + code
        columns = (R.c.time, sa.func.coalesce(R.c.median_s, -1.0), kind)
        trials = sa.select(*columns).select_from(source).where(*clauses).order_by(*group, R.c.time)
        with self._reading() as connection, connection.begin():
            keys, devices = self._keys(connection)
            groups = connection.execute(sizes).all()
            compared = self._comparisons(connection, clauses)
            cursor: Any = connection.execute(trials).cursor  # the driver's own rows: a million of them matter
            try:
                values = np.fromiter(chain.from_iterable(cursor), dtype=np.float64).reshape(-1, len(columns))
            except (ValueError, TypeError):
                raise self._damage("a time that is no number") from None
        if not len(values):
            return [], ()
        with self._decoding():
            tasks = [TaskKey(keys[workload], devices[device], threads) for workload, device, threads, _ in groups]
        ends = np.cumsum([n for *_, n in groups])
        number = {(workload, device, threads): i for i, (workload, device, threads, _) in enumerate(groups)}
        others: list[int] = []  # rows of comparisons: in their task, the last of their time
        for place, time in compared:
            if (i := number.get(place)) is None:  # named meanwhile
                continue
            begin = ends[i - 1] if i else 0
            others.append(begin + int(np.searchsorted(values[begin : ends[i], 0], time, side="right")) - 1)
        index = np.repeat(np.arange(len(tasks)), [n for *_, n in groups])
        times, medians, kinds = np.ascontiguousarray(values.T)
        defaults, codes = np.divmod(kinds.astype(np.int64), DEFAULT)
        medians[medians < 0] = np.nan
        medians[others], codes[others] = np.nan, len(names) + 1
        return tasks, (index, times, Coded((*names, "unknown", COMPARED), codes), defaults > 0, medians)

    def last_session(self) -> tuple[str, float, float] | None:
        """The session that was written to last, with the times of its first and last record; None without records."""
        latest = sa.select(R.c.session).order_by(R.c.time.desc()).limit(1).scalar_subquery()
        query = sa.select(R.c.session, sa.func.min(R.c.time), sa.func.max(R.c.time)).where(R.c.session == latest)
        with self._reading() as connection:
            row = connection.execute(query.group_by(R.c.session)).first()
        return None if row is None else (row[0], row[1], row[2])

    def _count(self, *clauses: Any) -> int:
        with self._reading() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(JOINED).where(*clauses)) or 0)

    def _select(self, *clauses: object, limit: int | None = None) -> Iterator[Record]:
        """Records by time. Raises RecordError for one that cannot be read or is not what was stored."""
        for row in self._rows(*clauses, limit=limit):
            yield self._record(row)

    def _rows(self, *clauses: Any, limit: int | None = None) -> Iterator[Any]:
        """Rows of records by time, a chunk at a time, so that a long reader blocks no writer."""
        columns = (W.c.key, D.c.document, *(c for c in R.c if c.name not in ("workload_id", "device_id")))
        after: tuple[float, int] | None = None
        left = limit
        while left is None or left > 0:
            n = BATCH if left is None else min(BATCH, left)
            later = () if after is None else (sa.tuple_(R.c.time, R.c.id) > sa.tuple_(*map(sa.literal, after)),)
            query = sa.select(*columns).select_from(JOINED).where(*clauses, *later).order_by(R.c.time, R.c.id).limit(n)
            with self._reading() as connection:
                rows = connection.execute(query).all()
            yield from rows
            if len(rows) < n:
                return
            after = (rows[-1].time, rows[-1].id)
            left = None if left is None else left - n

    def _record(self, row: Json) -> Record:
        try:
            record = stored_record(row, row[0], row[1])
        except (ValueError, TypeError, RecursionError, RecordError) as error:
            raise self._damaged(row, str(error)) from None
        if record.uid != row.uid:  # SQLite has no checksums: a flipped bit in a row shows here alone
            raise self._damaged(row, "its content is not what was stored")
        return record

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Around what turns columns into objects: raises RecordError where they hold what was never stored."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise self._damage(f"its tables do not belong together: {error!r:.80}") from None

    def _damaged(self, row: Json, reason: str) -> RecordError:
        return self._damage(f"record {row.id} cannot be read: {reason}")

    def _damage(self, what: str) -> RecordError:
        hint = "restore a copy, or choose another one with --db"
        return RecordError(f"the database is damaged: {what}", where=self.where, hint=hint)

    # ---- exchange

    def export_jsonl(self, path: Path, query: RecordFilter | None = None) -> int:
        """Write the selected records as JSON lines and give their number. Raises RecordError."""
        return write_lines(path, self.records(query))

    def import_jsonl(self, path: Path) -> ReadReport:
        """Add the records of a JSON-lines file; refused lines are in the report, known ones are not added again."""
        report = ReadReport(str(path))
        self._import(read_rows(path, report), report)
        return report

    def import_log(self, path: Path) -> ReadReport:
        """Add the records of a log of any kind that `read_log` knows; refused lines are in the report.

        Raises  RecordError if the file cannot be read at all.
        """
        report = ReadReport(str(path))
        self._import(read_log_rows(path, report), report)
        return report

    def merge(self, other: SqlStore) -> int:
        """Add all records of another database, their evidence unchanged; gives how many were not here before."""
        report = ReadReport(other.where)
        self._import(map(to_row, other.records()), report)
        return report.added

    def delete(self, uids: Sequence[str]) -> int:
        """Delete records for good, in one transaction; gives how many there were."""
        self._check_write()
        with self._writing() as connection:
            parts = (uids[start : start + 500] for start in range(0, len(uids), 500))
            return sum(connection.execute(R.delete().where(R.c.uid.in_(part))).rowcount for part in parts)

    def vacuum(self) -> None:
        """Give the space of deleted records back to the disk. Raises RecordError."""
        if self.path is not None:
            with clear_errors(self.where), closing(self.engine.raw_connection()) as connection:
                connection.cursor().execute("VACUUM")
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def size_bytes(self) -> int | None:
        """The size of a SQLite database, what is still in its log included; None for a server's."""
        if self.path is None:
            return None
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def _import(self, rows: Iterable[Row], report: ReadReport) -> None:
        stream = iter(rows)
        while batch := list(islice(stream, IMPORT_BATCH)):
            report.added += self._add(batch)

    def check(self) -> list[LineError]:
        """What SQLite's own integrity check and reading every record find wrong; empty where all is well."""
        found: list[LineError] = []
        if self.engine.dialect.name == "sqlite":
            with self._reading() as connection:
                answers = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
            found += [LineError(0, text) for text in answers if text != "ok"]
        try:
            for row in self._rows():
                try:
                    self._record(row)
                except RecordError as error:
                    found.append(LineError(row.id, error.message))
        except RecordError as error:  # a page that cannot be read
            found.append(LineError(0, error.message))
        return found
