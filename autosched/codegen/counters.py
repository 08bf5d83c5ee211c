"""How much this process has compiled: tests and reports ask that running compiles nothing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counter:
    """A number that threads may raise at once."""

    name: str
    value: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, n: int = 1) -> None:
        with self._lock:
            self.value += n


COMPILES = Counter("kernels compiled")
CACHE_HITS = Counter("kernels from the cache")
ASKED = Counter("kernels that a build has to compile")
FINISHED = Counter("of these, compiled by now")
