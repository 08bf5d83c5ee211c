"""What was built for the sizes that a symbolic function was called with: each once, the most recent ones kept."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from autosched.env import AUTOSCHED_SYMBOLIC_SIZES
from autosched.runtime.locks import renew_after_fork

T = TypeVar("T")


class BuiltSizes(Generic[T]):
    """Values by sizes. At most AUTOSCHED_SYMBOLIC_SIZES are kept; the one that was used longest ago goes first.

    Threads that ask for the same sizes at once build them once; other sizes are given and built meanwhile.
    """

    def __init__(self) -> None:
        self._built: OrderedDict[Hashable, T] = OrderedDict()
        self.renew_locks()
        renew_after_fork(self)

    def renew_locks(self) -> None:
        """In a forked child nobody builds."""
        self._lock = threading.Lock()
        self._building: dict[Hashable, threading.Lock] = {}

    def get(self, sizes: Hashable, build: Callable[[], T]) -> T:
        """What was built for these sizes, or is now. Raises what `build` raises, to each who asked."""
        with self._lock:
            if sizes in self._built:
                self._built.move_to_end(sizes)
                return self._built[sizes]
            turn = self._building.setdefault(sizes, threading.Lock())
        with turn:
            with self._lock:
                if sizes in self._built:
                    return self._built[sizes]
            try:
                made = build()
            except BaseException:
                with self._lock:
                    self._building.pop(sizes, None)
                raise
            with self._lock:
                self._built[sizes] = made
                self._building.pop(sizes, None)
                while len(self._built) > AUTOSCHED_SYMBOLIC_SIZES.get():
                    self._built.popitem(last=False)
            return made

    def __len__(self) -> int:
        return len(self._built)
