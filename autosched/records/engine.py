"""Connections to a tuning database: opening it with clear refusals, transactions that survive a kill, error texts."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import Connection, Engine

from autosched.errors import RecordError
from autosched.records.places import shown
from autosched.records.schema import DATABASE_VERSION, META, METADATA, complete_for
from autosched.version import __version__

if TYPE_CHECKING:
    pass

SQLITE_HEADER = b"SQLite format 3\x00"

WRITER_LOCK = 0x6175746F7363  # "autosc": the advisory lock of who writes to a database on a server

# Part of a driver's message -> what it means and what to do
DAMAGED = ("malformed", "the database is damaged", "restore a copy, or choose another one with --db")
CAUSES = (
    ("locked", "the database is locked by another process", "wait until it has finished, or use another --db"),
    ("busy", "the database is locked by another process", "wait until it has finished, or use another --db"),
    ("readonly", "the database is read-only", "check its permissions, or write to another one with --db"),
    ("read-only", "the database is read-only", "check its permissions, or write to another one with --db"),
    DAMAGED,
    ("not a database", "the file is not a tuning database", "check the path, or choose another one with --db"),
    ("disk is full", "the disk is full", "free some space; what was recorded before is kept"),
    ("disk i/o error", "the disk refused to write or read", "check free space and permissions"),
    ("unable to open", "the database cannot be opened", "check that its folder exists and can be written to"),
    ("lock timeout", "the database is locked by another process", "wait until it has finished"),
    ("no space left", "the server's disk is full", "free some space there; what was recorded before is kept"),
    ("authentication failed", "the server refuses the user or the password", "check the URL, or ~/.pgpass"),
    ("connection refused", "the server does not answer", "check host and port, and that it runs"),
    ("connection timeout", "the server does not answer", "check host and port, and that it runs"),
    ("is the server running", "the server cannot be reached", "check the URL, and that the server runs"),
    ("connection is bad", "the server cannot be reached", "check the URL, and that the server runs"),
    ("connection failed", "the server cannot be reached", "check the URL, and that the server runs"),
    ("closed the connection", "the server has gone away", "check that it runs; what was committed is kept"),
    ("server closed", "the server has gone away", "check that it runs; what was committed is kept"),
    ("no such table", "the database lacks a table of a tuning database", "check the path, or choose another --db"),
)


@contextmanager
def clear_errors(where: str) -> Iterator[None]:
    """Turn the driver's errors into RecordErrors that name the file, the cause and what to do."""
    try:
        yield
    except (exc.SQLAlchemyError, sqlite3.Error) as error:
        text = str(getattr(error, "orig", None) or error)
        for part, cause, hint in CAUSES:
            if part in text.lower():
                raise RecordError(cause, where=where, hint=hint) from None
        raise RecordError(f"the database refused: {text}", where=where) from None
    except UnicodeDecodeError:  # SQLite quotes what it cannot read
        raise RecordError(DAMAGED[1], where=where, hint=DAMAGED[2]) from None


def connect_file(path: Path, *, write: bool, busy_s: float) -> Engine:
    """An engine for a SQLite file; a file that does not exist is created when writing.

    Raises  RecordError for a folder, a file of another kind, or nothing to read.
    """
    _check_file(path, write)
    if write:
        return _sqlite_engine(f"file:{quote(str(path))}?mode=rwc", busy_s, wal=True)
    engine = _sqlite_engine(f"file:{quote(str(path))}?mode=ro", busy_s, wal=False)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("select count(*) from sqlite_master").scalar()
        return engine
    except (exc.DBAPIError, UnicodeDecodeError) as error:
        if not _cannot_share(path, str(getattr(error, "orig", ""))):
            return engine  # the caller's first query reports it
        engine.dispose()  # a place where SQLite cannot put its -shm file: nobody writes there
        return _sqlite_engine(f"file:{quote(str(path))}?mode=ro&immutable=1", busy_s, wal=False)


def connect_server(url: str, *, write: bool, busy_s: float) -> Engine:
    """An engine for a PostgreSQL server. Raises RecordError for another kind, or where the driver is not installed."""
    kind, _, rest = url.partition("://")
    if kind.split("+")[0] not in ("postgresql", "postgres"):
        hint = "use a file's path, or postgresql+psycopg://user@host/database"
        raise RecordError(f"no databases of kind '{kind}'", where=shown(url), hint=hint)
    try:
        engine = sa.create_engine(
            url if "+" in kind else f"postgresql+psycopg://{rest}",
            pool_pre_ping=True,  # a server that was restarted meanwhile
            connect_args={"connect_timeout": max(1, round(busy_s))},
        )
    except (ImportError, exc.NoSuchModuleError):
        hint = "pip install autosched[postgres], and write postgresql+psycopg://"
        raise RecordError("the driver for PostgreSQL is not installed", where=shown(url), hint=hint) from None
    except (exc.ArgumentError, ValueError) as error:
        raise RecordError(f"a malformed URL: {error}", where=shown(url)) from None

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {round(busy_s * 1e3)}")
            if not write:
                cursor.execute("SET default_transaction_read_only = on")
        connection.commit()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # one writer at a time, as SQLite has it: no deadlocks, no doubles
        if connection.get_execution_options().get("autosched_write", False):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITER_LOCK})")

    return engine


def _cannot_share(path: Path, text: str) -> bool:
    """Whether SQLite fails because it cannot put its -shm file beside a database that holds all its content."""
    if "unable to open" in text or "readonly" in text:
        return True
    log = path.with_name(f"{path.name}-wal")
    return ("disk" in text) and not (log.exists() and log.stat().st_size)


def _check_file(path: Path, write: bool) -> None:
    where = str(path)
    try:
        if not path.exists():
            if not write:
                raise RecordError("there is no tuning database", where=where, hint="make one with `autosched tune`")
            path.parent.mkdir(parents=True, exist_ok=True)
            return
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as error:
        hint = "check permissions, or choose another place with --db"
        raise RecordError(f"cannot open the database: {error.strerror}", where=where, hint=hint) from None
    if not head and not write:
        raise RecordError("the database is empty", where=where, hint="make one with `autosched tune`")
    if head.lstrip().startswith(b"{"):
        hint = "read it with `autosched logs import`"
        raise RecordError("the file holds JSON lines, it is not a database", where=where, hint=hint)
    if head and head != SQLITE_HEADER:
        hint = "check the path, or choose another one with --db"
        raise RecordError("the file is not a tuning database", where=where, hint=hint)


def _sqlite_engine(uri: str, busy_s: float, wal: bool) -> Engine:
    engine = sa.create_engine(
        "sqlite://", creator=lambda: _sqlite_connection(uri, busy_s, wal), poolclass=sa.pool.QueuePool
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # a writer takes its lock at once: no deadlock of two upgrades
        immediate = connection.get_execution_options().get("autosched_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine


def _sqlite_connection(uri: str, busy_s: float, wal: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=busy_s, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys=ON")
    if wal:
        _switch_to_wal(connection, busy_s)
        connection.execute("PRAGMA synchronous=NORMAL")  # a commit survives any kill of the process
        connection.execute("PRAGMA cache_size=-32768")  # KiB at most: the index of uids is written to all over
        connection.execute("PRAGMA wal_autocheckpoint=4000")  # pages: an import writes the same ones again and again
    return connection


def _switch_to_wal(connection: sqlite3.Connection, busy_s: float) -> None:
    """Two processes that open a new database at once: SQLite does not wait here, so this does."""
    deadline = time.monotonic() + busy_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def check_schema(engine: Engine, where: str, *, write: bool) -> None:
    """Make the tables of a new database; refuse one of another program or schema version.

    Raises  RecordError.
    """
    with clear_errors(where):
        tables = set(sa.inspect(engine).get_table_names())
        if write and not tables:
            connection = engine.connect().execution_options(autosched_write=True)
            with connection, connection.begin():
                _create(connection)
        elif not tables:  # what a full disk left of a database that was being made
            raise RecordError("the database is empty", where=where, hint="make one with `autosched tune`")
        elif META.name not in tables:
            hint = "check the path, or choose another one with --db"
            raise RecordError("the database belongs to another program", where=where, hint=hint)
    version = read_version(engine, where)
    if version != DATABASE_VERSION:
        raise refuse_version(version, where)


def read_version(engine: Engine, where: str) -> int:
    """The schema version of a tuning database. Raises RecordError for one that has none."""
    with clear_errors(where), engine.connect() as connection:
        text = connection.scalar(sa.select(META.c.value).where(META.c.name == "schema_version"))
    if text is None or not (text.isascii() and text.isdigit()):
        raise RecordError("the database has no schema version", where=where, hint="choose another one with --db")
    return int(text[:9])


def refuse_version(version: int, where: str) -> RecordError:
    """The error for a database of another schema version, with the way out."""
    if version > DATABASE_VERSION:
        hint = "install a newer autosched, or choose another database with --db"
        return RecordError(
            f"the database has schema version {version}, this autosched knows {DATABASE_VERSION}",
            where=where,
            hint=hint,
        )
    text = f"the database has schema version {version}, this autosched needs {DATABASE_VERSION}"
    if version < 1:
        return RecordError(text, where=where, hint="choose another one with --db")
    return RecordError(text, where=where, hint=f"upgrade it, after a copy, with `autosched logs upgrade --db {where}`")


def release(engine: Engine, path: Path | None, left_over: bool) -> None:
    """Let a database go: no -wal and -shm stay beside it unless another process uses it or a kill has left content.

    left_over  whether this process may not have written: SQLite then leaves empty ones, which are removed here
    """
    engine.dispose()
    if path is None or not left_over:
        return
    log = path.with_name(f"{path.name}-wal")
    try:
        if log.stat().st_size == 0:  # nothing in it: the database's bytes do not change
            with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=0)) as connection:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except (OSError, sqlite3.Error, UnicodeDecodeError):
        return  # none there, or it is not ours to remove


def remove_stub(path: Path) -> None:
    """Remove what a full disk left of a database that was to be made: files without a byte."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        file = path.with_name(name)
        try:
            if file.stat().st_size == 0 or (name != path.name and not path.exists()):
                file.unlink()
        except OSError:
            continue


def _create(connection: Connection) -> None:
    complete_for(connection.dialect.name)
    METADATA.create_all(connection)
    if connection.execute(sa.select(META.c.value)).first() is None:  # another process may have been first
        connection.execute(
            META.insert(),
            [{"name": "schema_version", "value": str(DATABASE_VERSION)}, {"name": "made_by", "value": __version__}],
        )
