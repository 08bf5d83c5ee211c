"""Which CPU a worker of the thread pool is pinned to, also where several processes run models side by side.

AUTOSCHED_AFFINITY says the policy:

    auto      each worker has a CPU that no other process's worker of this user has; where there is none left it floats
    off       workers run wherever the system puts them
    0,2,4-7   the first worker has the first of these CPUs, and so on; those beyond the list float

A CPU is claimed by a lock on a file in the user's folder for temporary files, which ends with the process.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Set
from pathlib import Path

from autosched.env import AUTOSCHED_AFFINITY
from autosched.errors import InvalidValueError
from autosched.trust import why_untrusted

ALLOWED = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset[int]()
MASK_BYTES = 128  # of the C library's cpu_set_t


class Claims:
    """The CPUs that this process has for workers, so that others keep out of them.

    folder  of the lock files; None: the user's for temporary files
    """

    def __init__(self, folder: Path | None = None):
        self._folder = folder
        self._files: list[int] = []

    def choose(self, worker: int, caller: Set[int], here: int) -> int | None:
        """The CPU for a worker, numbered from 1, which is claimed with it; None: it may run anywhere.

        caller  the affinity of the thread that starts the pool
        here    the CPU that this thread is on
        Raises  InvalidValueError for a list with a CPU that this process may not run on.
        """
        match AUTOSCHED_AFFINITY.get():
            case "off":
                return None
            case "auto":
                return self._first_free(worker, candidates(ALLOWED, caller, here))
            case cpus:
                if lacking := sorted({int(cpu) for cpu in cpus} - ALLOWED):
                    raise InvalidValueError(
                        f"AUTOSCHED_AFFINITY names CPU {lacking[0]}, and this process may run on "
                        f"{', '.join(map(str, sorted(ALLOWED)))}"
                    )
                return int(cpus[worker - 1]) if worker <= len(cpus) else None

    def _first_free(self, worker: int, cpus: list[int]) -> int | None:
        folder = self._open_folder()
        if folder is None:  # nobody can tell what others have
            return cpus[worker - 1] if worker <= len(cpus) else None
        parent = os.getppid()
        # A parent mostly waits for what its children compute: its CPUs come next, each for one of its children.
        for suffix in ("", f".below-{parent}"):
            for cpu in cpus:
                if (not suffix or _holder(folder / str(cpu)) == parent) and self._claim(folder / f"{cpu}{suffix}"):
                    return cpu
        return None

    def _claim(self, path: Path) -> bool:
        import fcntl

        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        except OSError:
            os.close(file)
            return False
        self._files.append(file)
        return True

    def _open_folder(self) -> Path | None:
        if os.name != "posix":
            return None
        folder = self._folder or Path(tempfile.gettempdir()) / f"autosched-{os.getuid()}" / "cpus"
        try:
            folder.parent.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return None
        return None if why_untrusted(folder) else folder

    def release(self) -> None:
        """Give all CPUs back; in a forked child, forget those of its parent, which keeps them."""
        for file in self._files:
            with contextlib.suppress(OSError):
                os.close(file)
        self._files = []


def candidates(allowed: Set[int], caller: Set[int], here: int) -> list[int]:
    """The CPUs for workers, the best first.

    allowed  what this process was given
    caller   the affinity of the thread that starts the pool; where it was narrowed, workers keep out of it if they can
    here     the CPU that this thread is on, which no worker gets
    """
    free = sorted(allowed - caller) if caller < allowed else []
    rest = sorted(cpu for cpu in allowed if cpu != here and cpu not in free)
    return [cpu for cpu in free + rest if cpu < 8 * MASK_BYTES]


def _holder(path: Path) -> int:
    """The process that wrote its number into a lock file last; 0 where that cannot be read."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
