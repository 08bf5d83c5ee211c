"""Locks that a forked child finds free: the threads that held them are not there."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class HasLocks(Protocol):
    """Something with locks of its own."""

    def renew_locks(self) -> None:
        """Make all of them anew: nobody holds them."""


_owners: weakref.WeakSet[HasLocks] = weakref.WeakSet()
_change = threading.Lock()


def renew_after_fork(owner: HasLocks) -> None:
    """Let an object make its locks anew in each forked child, for as long as it lives."""
    with _change:
        _owners.add(owner)


def _in_child() -> None:
    _change.release()
    for owner in list(_owners):
        owner.renew_locks()


# Nobody is within `add` while the process is copied, so that the child finds the set whole.
os.register_at_fork(before=_change.acquire, after_in_parent=_change.release, after_in_child=_in_child)
