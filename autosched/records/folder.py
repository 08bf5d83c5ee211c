"""The record store in a folder that many machines share: each writer appends to a JSON-lines file of its own.

No file has two writers and nothing is ever rewritten, so no locks are needed, which network disks do not keep. What
the files hold together is read into a private index, and again from where each one has grown.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from sqlalchemy.engine import Connection

from autosched.errors import RecordError
from autosched.records.choose import choose
from autosched.records.clauses import R
from autosched.records.file_leases import FileLeases
from autosched.records.found import Found, Validator, with_defaults
from autosched.records.jsonl import MAX_LINE_BYTES, LineError, read_line, row_of_line
from autosched.records.query import RecordFilter
from autosched.records.record import Record, host_id
from autosched.records.rows import Row
from autosched.records.scratch import Scratch
from autosched.records.sql import IMPORT_BATCH, SqlStore
from autosched.space import Config
from autosched.task import Task

logger = logging.getLogger("autosched.records")
WINNER = b'"is_winner":true'
T = TypeVar("T")


class FolderStore(SqlStore):
    """Records in the JSON-lines files of a folder.

    write   False opens for reading only
    Raises  RecordError if the folder cannot be used, or there is nothing to read.
    """

    def __init__(self, folder: Path, *, write: bool = True, origin: str = ""):
        _check_folder(folder, write)
        self._scratch = Scratch("index")
        super().__init__(self._scratch.folder / "index.db", origin=origin or f"folder {folder}")
        self.folder, self.where, self.write = folder, str(folder), write
        self.refused: list[LineError] = []
        self._tails, self._winner_tails = Tails(folder), Tails(folder)
        self._winners_by_key: dict[str, dict[str, Record]] = {}
        self._leases = FileLeases(folder / ".leases", self.owner)
        self._file: Path | None = None

    def close(self) -> None:
        """Let the index go; also done when the process ends."""
        super().close()
        self._scratch.remove()

    # ---- writing

    def _add(self, rows: Sequence[Row]) -> int:
        """Append the records that are new to this writer's own file, all or none; gives how many those are.

        Raises  RecordError if the folder cannot be written to or the disk is full.
        """
        self._check_write()
        if not rows:
            return 0
        self._refresh()
        found = {row.uid: row for row in rows}
        with super()._reading() as connection:
            known = _known(connection, list(found))
        new = [row for uid, row in found.items() if uid not in known]
        if new:
            self._append("".join(f"{row.line}\n" for row in new).encode())
            self._store(new)
        return len(new)

    def _append(self, data: bytes) -> None:
        """Put bytes at the end of the own file; what a full disk has let through of them is taken back."""
        if self._file is None or f"-{os.getpid()}-" not in self._file.name:  # not a forked parent's
            self._file = self.folder / f"{host_id()}-{os.getpid()}-{self.owner[:8]}.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                _write_whole(file, data)
                self._tails.skip(self._file, os.fstat(file).st_size, data.count(b"\n"))
            finally:
                os.close(file)
        except OSError as error:
            cause = "the disk is full" if error.errno in (28, 122) else f"cannot write to the folder: {error.strerror}"
            raise RecordError(cause, where=str(self._file), hint="what was recorded before is kept") from None

    def claim(self, task: Task, configs: Sequence[Config], lease_s: float) -> list[Config]:
        """See `RecordStore`; the clocks of all machines should agree. Raises RecordError."""
        self._check_write()
        measured = {record.config.key for record in self.trials(task) if record.measurement.status != "lost"}
        granted = self._leases.claim(task, [c for c in configs if c.key not in measured], lease_s)
        late = {record.config.key for record in self.trials(task) if record.measurement.status != "lost"}
        return [config for config in granted if config.key not in late]

    def release(self, task: Task | None = None) -> None:
        """See `RecordStore`."""
        self._leases.release(task)

    def delete(self, uids: Sequence[str]) -> NoReturn:
        """Refuse: other writers' files are theirs. Raises RecordError."""
        hint = "bring them into a database with `autosched logs merge`, and prune that"
        raise RecordError("records of a shared folder cannot be deleted", where=self.where, hint=hint)

    def vacuum(self) -> None:
        """Do nothing: there is no space to give back."""

    # ---- reading

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`. Reads winners only, which is quick in a folder of any size."""
        return choose(self.winners_of(task), task, self.origin, valid=valid)

    def winners_of(self, task: Task) -> Sequence[Record]:
        """The task's winners of all devices and thread counts, in the order they were measured."""
        self._read_winners()
        winners = sorted(self._winners_by_key.get(task.key, {}).values(), key=lambda record: record.time)
        return with_defaults(winners, lambda: self.records(RecordFilter(workload=task.key)))

    def winners_of_op(self, task: Task, op: str) -> Iterator[Record]:
        """The winners of all workloads of an operator."""
        self._read_winners()
        winners = (r for found in self._winners_by_key.values() for r in found.values() if r.workload.op == op)
        yield from with_defaults(winners, lambda: self.records(RecordFilter(op=op)))

    def _read_winners(self) -> None:
        for _, _, line in self._winner_tails.new_lines():
            if WINNER in line.replace(b" ", b""):
                record = _read(line, read_line)
                if isinstance(record, Record) and record.is_winner:
                    self._winners_by_key.setdefault(record.workload.key, {})[record.uid] = record

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._refresh()
        with super()._reading() as connection:
            yield connection

    def _refresh(self) -> None:
        """Read what has been appended to any file since the last time."""
        before, batch = len(self.refused), list[Row]()
        for path, number, line in self._tails.new_lines():
            row = _read(line, row_of_line)
            if isinstance(row, Row):
                batch.append(row)
            elif row:
                self.refused.append(LineError(number, f"{path.name}: {row}"))
            if len(batch) >= IMPORT_BATCH:
                self._store(batch)
                batch = []
        if batch:
            self._store(batch)
        for error in self.refused[before:][:3]:
            logger.warning("%s: line %d of %s", self.where, error.line, error.reason)

    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(path.stat().st_size for path in self.folder.glob("*.jsonl"))

    def check(self) -> list[LineError]:
        """Lines that are no record, and those that a kill has cut in half; empty where all is well."""
        with self._reading():
            cut = [LineError(0, f"{path.name}: its last line was cut in half") for path in self._tails.cut()]
        return [*self.refused, *cut, *super().check()]


def _read(line: bytes, read: Callable[[str], T]) -> T | str:
    """What a line holds, or why it is no record; "" for a blank line and a comment."""
    text = line.strip()
    if not text or text.startswith(b"#"):
        return ""
    try:
        return read(text.decode("utf-8"))
    except (RecordError, UnicodeDecodeError) as error:
        return str(error)


def _known(connection: Connection, uids: Sequence[str]) -> set[str]:
    import sqlalchemy as sa

    known: set[str] = set()
    for start in range(0, len(uids), 500):
        part = uids[start : start + 500]
        known |= set(connection.execute(sa.select(R.c.uid).where(R.c.uid.in_(part))).scalars())
    return known


def _write_whole(file: int, data: bytes) -> None:
    """Append all bytes or none, as far as the disk obeys. Raises OSError."""
    before, done = os.fstat(file).st_size, 0
    try:
        while done < len(data):
            done += os.write(file, data[done:])
        os.fsync(file)
    except OSError:
        os.ftruncate(file, before)
        raise


def _check_folder(folder: Path, write: bool) -> None:
    where = str(folder)
    if folder.exists() and not folder.is_dir():
        raise RecordError("not a folder", where=where, hint="leave the slash at the end out, or choose another --db")
    try:
        if write:
            folder.mkdir(parents=True, exist_ok=True)
            if not any(folder.glob("*.jsonl")) and any(not p.name.startswith(".") for p in folder.iterdir()):
                hint = "give a new folder, an empty one, or a file such as tuned.db"
                raise RecordError("the folder holds other files than tuning logs", where=where, hint=hint)
        elif not any(folder.glob("*.jsonl")):
            hint = "make some with `autosched tune --db`"
            raise RecordError("there are no tuning logs in this folder", where=where, hint=hint)
    except OSError as error:
        raise RecordError(f"cannot use the folder: {error.strerror}", where=where) from None


class Tails:
    """How far each `*.jsonl` file of a folder has been read."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._read: dict[Path, tuple[int, int]] = {}  # bytes and lines

    def new_lines(self) -> Iterator[tuple[Path, int, bytes]]:
        """File, number from 1 and text of each line that was completed since the last time.

        Raises  RecordError for a file that cannot be read.
        """
        for path in sorted(self.folder.glob("*.jsonl")):
            try:
                yield from self._of_file(path)
            except FileNotFoundError:
                continue  # tidied away meanwhile
            except OSError as error:
                raise RecordError(f"cannot read the log: {error.strerror}", where=str(path)) from None

    def _of_file(self, path: Path) -> Iterator[tuple[Path, int, bytes]]:
        offset, number = self._read.get(path, (0, 0))
        size = path.stat().st_size
        if size < offset:  # somebody has replaced it
            offset = number = 0
        if size == offset:
            return
        with path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
                    return  # its writer is about to complete it, or was killed
                offset, number = offset + len(line), number + 1
                self._read[path] = (offset, number)
                yield path, number, line

    def skip(self, path: Path, offset: int, n_lines: int) -> None:
        """Take lines that this process has appended itself as read."""
        self._read[path] = (offset, self._read.get(path, (0, 0))[1] + n_lines)

    def cut(self) -> list[Path]:
        """Files whose last line is not complete."""
        return [path for path, (offset, _) in self._read.items() if path.exists() and path.stat().st_size > offset] + [
            path for path in sorted(self.folder.glob("*.jsonl")) if path not in self._read and path.stat().st_size
        ]
