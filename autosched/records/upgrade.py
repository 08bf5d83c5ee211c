"""Bringing a database of an older schema version to this one's: on request only, and after a copy."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from autosched.errors import RecordError
from autosched.records.engine import clear_errors, connect_file, read_version, refuse_version
from autosched.records.schema import DATABASE_VERSION, META, METADATA, complete_for

if TYPE_CHECKING:
    from alembic.config import Config

FIRST_VERSION = 1


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What an upgrade has done; `copy` is where the database as it was lies, None where nothing had to be done."""

    where: str
    old_version: int
    new_version: int
    copy: str | None = None


def upgrade_database(where: str | Path) -> Upgraded:
    """Bring a database to this version's schema, in one transaction; a SQLite file is copied first.

    where   path or URL; of a URL there is no copy, its server has its own
    Raises  RecordError: no database, a newer one, damaged, locked, no space for the copy. It is then as it was.
    """
    is_url = "://" in str(where)
    path = Path(where)
    if path.is_dir():
        raise RecordError("a folder of JSON lines needs no upgrade: every line has its own version", where=str(where))
    if not is_url:
        connect_file(path, write=False, busy_s=10.0).dispose()  # refuses what is no database, and makes no new one
    with clear_errors(str(where)):
        engine = sa.create_engine(str(where)) if is_url else connect_file(path, write=True, busy_s=10.0)
    try:
        version = read_version(engine, str(where))
        if version == DATABASE_VERSION:
            return Upgraded(str(where), version, version)
        if not FIRST_VERSION <= version < DATABASE_VERSION:
            raise refuse_version(version, str(where))
        copy = None if is_url else _copy(path, version)
        _migrate(engine, version, str(where))
        return Upgraded(str(where), version, DATABASE_VERSION, copy)
    finally:
        engine.dispose()


def _copy(path: Path, version: int) -> str:
    """Copy the database as it is now, what is still in its log included. Raises RecordError."""
    target, number = path.with_name(f"{path.name}.v{version}"), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.v{version}.{number}")
    try:
        with clear_errors(str(target)), closing(sqlite3.connect(path)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
    except RecordError:
        target.unlink(missing_ok=True)
        raise
    return str(target)


def _migrate(engine: Engine, version: int, where: str) -> None:
    """Run the steps; the version that counts is the one in `autosched_meta`, Alembic's own table goes afterwards."""
    from alembic import command
    from alembic.util import CommandError

    config = _config()
    try:
        with clear_errors(where):
            connection = engine.connect().execution_options(autosched_write=True)
            with connection, connection.begin():
                config.attributes["connection"] = connection
                command.stamp(config, str(version))
                command.upgrade(config, str(DATABASE_VERSION))
                connection.exec_driver_sql("DROP TABLE alembic_version")
                row = META.update().where(META.c.name == "schema_version")
                connection.execute(row.values(value=str(DATABASE_VERSION)))
    except (CommandError, ValueError, TypeError, AttributeError) as error:  # a step met content that it cannot read
        raise RecordError(f"the database cannot be upgraded: {error}", where=where) from None


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def differences(connection: Connection) -> list[object]:
    """What Alembic finds different between a database's tables and `schema`; empty where they agree."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    complete_for(connection.dialect.name)
    return list(compare_metadata(MigrationContext.configure(connection), METADATA))
