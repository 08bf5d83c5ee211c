"""Temporary folders that outlive no process for long: who makes one removes those whose owners were killed.

The owner holds a lock on a file in its folder, which the system lets go with the process, however that ends. A process
of another container on the same machine is seen alive that way, where its number would say nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

PREFIX = "autosched-"
KINDS = ("measure", "index", "worker")
LOCK = ".owner"
MOST_REMOVED = 20  # at one start, so that a start never takes long


class Scratch:
    """A temporary folder of this process, removed at the end, at exit, or by the next one that makes a folder.

    kind    one of KINDS, the first part of its name
    Raises  OSError if there is no place for temporary files.
    """

    def __init__(self, kind: str):
        assert kind in KINDS, kind
        with suppress(OSError):
            clear_abandoned()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-"))
        lock = os.open(self.folder / f"{LOCK}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.remove = weakref.finalize(self, _remove, self.folder, lock)
        with suppress(OSError):  # a disk without locks: the folder stays without an owner, and is left alone
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(self.folder / f"{LOCK}.new", self.folder / LOCK)  # with its name it is locked

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.remove()


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        os.close(lock)


def clear_abandoned(most: int = MOST_REMOVED) -> list[Path]:
    """Remove this user's folders whose owners are dead, so many at most; gives those that were removed."""
    removed: list[Path] = []
    for folder in _candidates(Path(tempfile.gettempdir())):
        if len(removed) >= most:
            break
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
            removed.append(folder)
    return removed


def _candidates(place: Path) -> Iterator[Path]:
    """Folders with our names that are this user's own: no links, nothing of others."""
    with os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith(tuple(f"{PREFIX}{kind}-" for kind in KINDS)):
                continue
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                    yield Path(entry.path)


def _is_abandoned(folder: Path) -> bool:
    """Whether nobody holds the folder's lock; False where it has none, or where that cannot be known."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with closing(os.fdopen(lock, "rb")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True
