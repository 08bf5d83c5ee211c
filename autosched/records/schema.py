"""The tables of the tuning database (SQLAlchemy models). Imported only by `sql.py`: SQLAlchemy is slow to load."""

from __future__ import annotations

from sqlalchemy import Boolean, Float, ForeignKey, Index, Integer, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

DATABASE_VERSION = 3
WORD = String(64).with_variant(Text(), "postgresql")  # SQLite enforces no length, PostgreSQL does


class Base(DeclarativeBase):
    """Base of all tables."""


class Meta(Base):
    """Facts about the database itself: its schema version and who made it."""

    __tablename__ = "autosched_meta"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class WorkloadRow(Base):
    """A workload, named by its canonical key."""

    __tablename__ = "workloads"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    key: Mapped[str] = mapped_column(Text, unique=True)
    op: Mapped[str] = mapped_column(WORD, index=True)


class DeviceRow(Base):
    """A device's fingerprint."""

    __tablename__ = "devices"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    key: Mapped[str] = mapped_column(Text, unique=True)
    family: Mapped[str] = mapped_column(WORD)
    document: Mapped[str] = mapped_column(Text)


class RecordRow(Base):
    """A record; the columns are what queries need, `details` (JSON) holds the rest."""

    __tablename__ = "records"
    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    workload_id: Mapped[int] = mapped_column(ForeignKey("workloads.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    threads: Mapped[int] = mapped_column(Integer)
    template: Mapped[str] = mapped_column(WORD)
    config: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(32))
    median_s: Mapped[float | None] = mapped_column(Float)
    baseline_s: Mapped[float | None] = mapped_column(Float)  # the default's time in the comparison that a winner won
    is_default: Mapped[bool] = mapped_column(Boolean)
    is_winner: Mapped[bool] = mapped_column(Boolean)
    time: Mapped[float] = mapped_column(Float)
    host: Mapped[str] = mapped_column(WORD)
    session: Mapped[str] = mapped_column(WORD)
    details: Mapped[str] = mapped_column(Text)  # times_s, checked_against, error, how, versions


class LeaseRow(Base):
    """A configuration that a tuner measures until a point in time, or has until then to do so.

    task, config  hashes of the workload, device and threads, and of the configuration;  until  seconds since 1970
    """

    __tablename__ = "leases"
    task: Mapped[str] = mapped_column(String(32), primary_key=True)
    config: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(WORD)
    until: Mapped[float] = mapped_column(Float)


# All that a summary of a task needs is in the index, so that a million records are summed up without being read.
Index(
    "records_by_task",
    RecordRow.workload_id,
    RecordRow.device_id,
    RecordRow.threads,
    RecordRow.time,
    RecordRow.status,
    RecordRow.is_default,
    RecordRow.median_s,
)
Index("records_by_time", RecordRow.time)
Index("records_by_session", RecordRow.session, RecordRow.time)
Index(
    "winners_by_workload",
    RecordRow.workload_id,
    sqlite_where=text("is_winner"),
    postgresql_where=text("is_winner"),
)
