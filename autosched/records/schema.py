"""The tables of the tuning database (SQLAlchemy). Imported only where one is opened: SQLAlchemy is slow to load.

Plain tables, no mapped classes: nothing here needs the object-relational half of SQLAlchemy, which takes as long again.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text, text

DATABASE_VERSION = 4
WORD = String(64).with_variant(Text(), "postgresql")  # SQLite enforces no length, PostgreSQL does
METADATA = MetaData()


def _column(name: str, kind: Any, *more: Any, nullable: bool = False, **options: Any) -> Column[Any]:
    return Column(name, kind, *more, nullable=nullable, **options)


# Facts about the database itself: its schema version and who made it
META = Table(
    "autosched_meta",
    METADATA,
    _column("name", String(64), primary_key=True),
    _column("value", Text),
)

# Workloads, each named by its canonical key
WORKLOADS = Table(
    "workloads",
    METADATA,
    _column("id", Integer, primary_key=True),
    _column("key", Text, unique=True),
    _column("op", WORD, index=True),
)

# Fingerprints of devices; `kind` is "cpu" or "cuda", the fields of `document` are those of the kind
DEVICES = Table(
    "devices",
    METADATA,
    _column("id", Integer, primary_key=True),
    _column("key", Text, unique=True),
    _column("family", WORD),
    _column("document", Text),
    _column("kind", WORD, server_default="cpu"),
)

# Records; the columns are what queries need, `details` (JSON) holds the rest
RECORDS = Table(
    "records",
    METADATA,
    _column("id", Integer, primary_key=True),
    _column("uid", String(32), unique=True),
    _column("workload_id", Integer, ForeignKey("workloads.id")),
    _column("device_id", Integer, ForeignKey("devices.id")),
    _column("threads", Integer),
    _column("template", WORD),
    _column("config", Text),
    _column("status", String(32)),
    _column("median_s", Float, nullable=True),
    _column("baseline_s", Float, nullable=True),  # the default's time in the comparison that a winner won
    _column("is_default", Boolean),
    _column("is_winner", Boolean),
    _column("time", Float),
    _column("host", WORD),
    _column("session", WORD),
    _column("details", Text),  # times_s, checked_against, error, how, versions
)

# Configurations that a tuner measures until a point in time, or has until then to do so: `task` and `config` are
# hashes of the workload, device and threads, and of the configuration; `until` is in seconds since 1970
LEASES = Table(
    "leases",
    METADATA,
    _column("task", String(32), primary_key=True),
    _column("config", String(32), primary_key=True),
    _column("owner", WORD),
    _column("until", Float),
)

# All that a summary of a task needs is in the index, so that a million records are summed up without being read.
Index(
    "records_by_task",
    *(RECORDS.c[name] for name in ["workload_id", "device_id", "threads", "time", "status", "is_default", "median_s"]),
)
Index("records_by_time", RECORDS.c.time)
Index("records_by_session", RECORDS.c.session, RECORDS.c.time)
WINNERS = Index("winners_by_workload", RECORDS.c.workload_id, sqlite_where=text("is_winner"))


def complete_for(dialect: str) -> None:
    """Say what only one kind of database needs to know; naming it loads SQLAlchemy's part for that kind."""
    if dialect == "postgresql":
        WINNERS.dialect_options[dialect]["where"] = text("is_winner")
