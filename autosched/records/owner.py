"""Names of those who hold leases: a lease whose process has died on this machine counts no more."""

from __future__ import annotations

import os
import uuid

from autosched.records.record import host_id


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
