"""Leases: tuners that share a database share its work, as each measures only what the database has granted it."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from autosched.records.clauses import JOINED, D, R, W, insert_into
from autosched.records.record import host_id
from autosched.records.schema import LEASES
from autosched.space import Config
from autosched.task import Status, Task

if TYPE_CHECKING:
    from autosched.json_types import JsonObject


def new_owner() -> str:
    """A name that nobody else has, and that tells the machine and the process."""
    return f"{uuid.uuid4().hex}-{host_id()}-{os.getpid()}"


def is_gone(owner: str) -> bool:
    """Whether an owner was a process of this machine that is no more; False where that cannot be known."""
    _, _, place = owner.partition("-")
    host, _, pid = place.rpartition("-")
    if host != host_id() or not (pid.isascii() and pid.isdigit()):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


L = LEASES


def claim(connection: Connection, task: Task, configs: Sequence[Config], lease_s: float, owner: str) -> list[Config]:
    """Lease what is neither leased nor measured; in a transaction that only one process is in.

    returns  the configurations granted, in the order given; a lease that the owner holds already is prolonged
    """
    now, name = _now(connection), task_name(task)
    wanted = {config_name(config): config for config in configs}
    measured = _measured(connection, task, list(wanted.values()))
    rows: list[JsonObject] = [
        {"task": name, "config": number, "owner": owner, "until": now + lease_s}
        for number, config in wanted.items()
        if config.key not in measured
    ]
    if not rows:
        return []
    connection.execute(L.delete().where(L.c.until <= now))
    owners = connection.execute(sa.select(L.c.owner).where(L.c.task == name, L.c.owner != owner).distinct()).scalars()
    if gone := [other for other in owners.all() if is_gone(other)]:
        connection.execute(L.delete().where(L.c.owner.in_(gone)))
    insert = insert_into(connection.dialect.name, L)
    prolong = insert.on_conflict_do_update(
        index_elements=[L.c.task, L.c.config], set_={"until": now + lease_s}, where=L.c.owner == owner
    )
    connection.execute(prolong, rows)
    held = connection.execute(sa.select(L.c.config).where(L.c.task == name, L.c.owner == owner, L.c.until > now))
    granted = set(held.scalars())
    return [wanted[row["config"]] for row in rows if row["config"] in granted]


def release(connection: Connection, task: Task | None, owner: str) -> None:
    """Give an owner's leases back, of one task or of all."""
    of_task = () if task is None else (L.c.task == task_name(task),)
    connection.execute(L.delete().where(L.c.owner == owner, *of_task))


def task_name(task: Task) -> str:
    """32 hexadecimal digits of the workload, the device and the threads: what a measurement is good for."""
    return _digits(f"{task.key}\n{task.target.fingerprint().key}\n{task.threads}")


def config_name(config: Config) -> str:
    """32 hexadecimal digits of a configuration."""
    return _digits(config.key)


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _measured(connection: Connection, task: Task, configs: Sequence[Config]) -> set[str]:
    """Keys of the configurations that have a record which says something about them."""
    here = (W.c.key == task.key, D.c.document == task.target.fingerprint().to_json(), R.c.threads == task.threads)
    query = sa.select(R.c.config).select_from(JOINED).where(*here, R.c.status != str(Status.LOST))
    found: set[str] = set()
    for start in range(0, len(configs), 500):
        keys = [config.key for config in configs[start : start + 500]]
        found |= set(connection.execute(query.where(R.c.config.in_(keys))).scalars())
    return found


def _now(connection: Connection) -> float:
    """Seconds since 1970 by the one clock that all tuners of a database share: the server's, or this machine's."""
    if connection.dialect.name == "postgresql":
        return float(connection.scalar(sa.select(sa.extract("epoch", sa.func.clock_timestamp()))) or 0.0)
    return time.time()
