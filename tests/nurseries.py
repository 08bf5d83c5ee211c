"""One nursery for the tunings of a test process that would begin theirs alike.

Workers are forks of a nursery, and none lives on: those of one tuning see nothing of another's.
"""

from __future__ import annotations

import os
import sys
from typing import ClassVar

from autosched.env import child_environment
from autosched.tuner.measure.nursery import Nursery

OF_NO_WORKER = ("PYTEST_CURRENT_TEST", "AUTOSCHED_DB")  # variables that workers do not read


class SharedNursery(Nursery):
    """A nursery that stays for the next tuning; another one takes its place where that would begin it otherwise."""

    known: ClassVar[dict[str, SharedNursery]] = {}  # the last one by what it preloads

    def __init__(self, preload: str, start: object):
        super().__init__(preload)
        self.start, self.users = start, 0

    @classmethod
    def borrow(cls, preload: str) -> SharedNursery:
        """One with this preload that began in this folder, with this module path and environment."""
        environment = {name: v for name, v in child_environment().items() if name not in OF_NO_WORKER}
        start = os.getcwd(), tuple(sys.path), environment
        last = cls.known.get(preload)
        if last is None or last.start != start or last._process.poll() is not None:
            cls.known[preload] = cls(preload, start)
            if last is not None and not last.users:
                last.end()
        made = cls.known[preload]
        made.users += 1
        return made

    def close(self) -> None:
        """Its tuning needs it no more."""
        self.users -= 1
        if not self.users and self not in self.known.values():
            self.end()

    def end(self) -> None:
        """End the process."""
        super().close()

    @classmethod
    def end_all(cls) -> None:
        """End those that are left."""
        while cls.known:
            cls.known.popitem()[1].end()
