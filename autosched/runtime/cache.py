"""The kernel cache: bytes by key, on disk, shared by processes, never larger than its limit.

An entry is machine code that runs in this process, so only what nobody but the user and root can write is used: every
folder from the root down is looked at each time (`trust.why_untrusted`), and an entry is a file named by the SHA-256 of
its key that holds the payload and an HMAC of key and payload, made with a secret that only the user can read. What was
damaged, half written, put there by another or stored under another key is a miss. Files appear by an atomic rename: two
processes that store the same entry do not hurt each other. Where nothing can be written, entries live in this
process's memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import stat
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from autosched.env import AUTOSCHED_CACHE_DIR, AUTOSCHED_CACHE_LIMIT_MB
from autosched.trust import why_untrusted

_log = logging.getLogger("autosched.runtime")

_MAGIC = b"autosched cache entry 2\n"
_HEADER_BYTES = len(_MAGIC) + 32
_SECRET_NAME = "secret"
_SECRET_BYTES = 32
_SUFFIX = ".bin"
_TOUCH_AFTER_S = 3600.0  # a read entry's age is renewed this seldom, so that reading costs no write
_ABANDONED_AFTER_S = 3600.0  # temporary files of killed processes


@dataclass(slots=True)
class KernelCache:
    """Entries below one folder, or in memory alone.

    folder       None: memory alone
    writable     False: entries are read from the folder and new ones kept in memory
    limit_bytes  the entries that were not used for longest go when the folder grows beyond it; 0: no disk cache
    """

    folder: Path | None
    writable: bool = True
    limit_bytes: int = 1 << 30
    _memory: dict[str, bytes] = field(default_factory=dict, repr=False)
    _warned: bool = field(default=False, repr=False)
    _known_bytes: int = field(default=-1, repr=False)  # size at the last count plus what was put since; -1: not counted

    def get(self, key: str) -> bytes | None:
        """Give the payload stored under a key; None if there is none that can be trusted."""
        if key in self._memory or self.folder is None:
            return self._memory.get(key)
        return self.read(_name(key))

    def read(self, name: str) -> bytes | None:
        """Give the payload in the folder whose key has this SHA-256; see `get`."""
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if problem := why_untrusted(path):
            self._warn_of_others(problem)
            return None
        secret = self.secret()
        payload = data[_HEADER_BYTES:]
        if secret is None or not hmac.compare_digest(data[:_HEADER_BYTES], _header(secret, name, payload)):
            _log.warning("kernel cache entry %s is damaged or was made by another user and is not used", path)
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        self._touch(path)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Store a payload; a folder that has become full or read-only is no error."""
        if self.folder is None or not self.writable:
            self._memory[key] = payload
            if self.limit_bytes:
                self._warn(f"{self.folder} is read-only" if self.folder else "has no folder that can be written to")
            return
        if problem := self.write(_name(key), payload):
            self._memory[key] = payload
            self._warn(f"{self.folder} {problem}")

    def write(self, name: str, payload: bytes) -> str:
        """Store a payload in the folder under the SHA-256 of its key; gives why it could not be, else ""."""
        path = self._path(name)
        try:
            _make_private_folder(path.parent)
            problem = why_untrusted(path.parent)
            secret = None if problem else self.secret()
            if secret is None:
                return f"is not used: {problem or 'its secret cannot be trusted'}"
            _write_atomically(path, _header(secret, name, payload) + payload)
        except OSError as error:
            return f"cannot be written ({error.strerror or error})"
        self._count(len(payload) + _HEADER_BYTES)
        return ""

    def names(self) -> list[str]:
        """The SHA-256 of the key of each stored file, in order."""
        return sorted(path.parent.name + path.name.removesuffix(_SUFFIX) for path, _, _ in self.entries())

    def secret(self) -> bytes | None:
        """The user's secret, made where there is none; None where others may know or have written it."""
        if self.folder is None:
            return None
        path = self.folder / _SECRET_NAME
        try:
            found = _read_secret(path)
            if found is None and self.writable and not why_untrusted(self.folder):
                _make_secret(path)
                found = _read_secret(path)
        except OSError:
            return None
        return found

    def _warn_of_others(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("the kernel cache %s is not used: %s", self.folder, problem)

    def _warn(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("compiled kernels are not kept for the next time: the kernel cache %s", problem)

    def entries(self) -> list[tuple[Path, int, float]]:
        """List the stored files with their sizes in bytes and the times of their last use."""
        if self.folder is None or why_untrusted(self.folder):
            return []
        found = []
        for path in self.folder.glob(f"??/*{_SUFFIX}"):
            with contextlib.suppress(OSError):  # another process may remove it meanwhile
                status = path.stat()
                found.append((path, status.st_size, status.st_mtime))
        return found

    def size_bytes(self) -> int:
        """Sum the sizes of the stored files."""
        return sum(size for _, size, _ in self.entries()) + sum(map(len, self._memory.values()))

    def prune(self) -> int:
        """Remove the entries that were not used for longest until a tenth of the limit is free; gives bytes freed."""
        entries = sorted(self.entries(), key=lambda entry: entry[2])
        total, freed = sum(size for _, size, _ in entries), 0
        if total > self.limit_bytes:
            for path, size, _ in entries:
                if total - freed <= self.limit_bytes * 9 // 10:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                    freed += size
        self._remove_abandoned()
        self._known_bytes = total - freed
        return freed

    def clear(self) -> None:
        """Remove all entries."""
        self._memory.clear()
        for path, _, _ in self.entries():
            with contextlib.suppress(OSError):
                path.unlink()
        self._known_bytes = -1

    def _path(self, name: str) -> Path:
        assert self.folder is not None, "entries in memory have no path"
        return self.folder / name[:2] / f"{name[2:]}{_SUFFIX}"

    def _touch(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            if self.writable and time.time() - path.stat().st_mtime > _TOUCH_AFTER_S:
                os.utime(path)

    def _count(self, added_bytes: int) -> None:
        if self._known_bytes < 0:
            self._known_bytes = self.size_bytes()
        else:
            self._known_bytes += added_bytes
        if self._known_bytes > self.limit_bytes:
            self.prune()

    def _remove_abandoned(self) -> None:
        assert self.folder is not None, "only a folder is pruned"
        for path in self.folder.glob("??/.*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S:
                    path.unlink()


def _write_atomically(path: Path, data: bytes, replace: bool = True) -> None:
    """Let a file that only this user can read and write appear whole; without `replace` only where there is none."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        if replace:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
            os.unlink(temporary)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def kernel_cache() -> KernelCache:
    """Give this process's cache for the folder and limit that the environment asks for."""
    return _open_cache(AUTOSCHED_CACHE_DIR.get(), AUTOSCHED_CACHE_LIMIT_MB.get())


@functools.cache
def _open_cache(wanted: str, limit_mb: int) -> KernelCache:
    if limit_mb == 0:
        return KernelCache(None, False, 0)
    read_only: Path | None = None
    for folder in _candidates(wanted):
        if _make_private(folder):
            return KernelCache(folder, True, limit_mb << 20)
        if read_only is None and folder.is_dir() and _is_trusted(folder):
            read_only = folder
    return KernelCache(read_only, False, limit_mb << 20)


def _candidates(wanted: str) -> list[Path]:
    """List the folders to try: the one asked for alone, else the user's and a private one for temporary files."""
    if wanted:
        return [Path(wanted).expanduser().absolute()]
    import platformdirs

    user = Path(platformdirs.user_cache_dir("autosched", appauthor=False)) / "kernels"
    owner = os.getuid() if hasattr(os, "getuid") else 0
    temporary = Path(tempfile.gettempdir()) / f"autosched-{owner}" / "kernels"
    return [folder for folder in (user, temporary) if folder.is_absolute()]  # "~/…" stays where no home is known


def _make_private(folder: Path) -> bool:
    """Make a folder that only we can write and see that a file can be written there."""
    try:
        _make_private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return False
    return _is_trusted(folder)


def _make_private_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, all for this user alone whatever the umask. Raises OSError."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(mode=0o700, exist_ok=True)


def _is_trusted(folder: Path) -> bool:
    """Tell whether nobody else may put files there: an entry is machine code that we run."""
    if problem := why_untrusted(folder):
        _log.warning("kernel cache folder %s is not used: %s", folder, problem)
    return not problem


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _header(secret: bytes, name: str, payload: bytes) -> bytes:
    """What stands before a payload: it proves that a holder of the secret stored it, under the key of this name."""
    return _MAGIC + hmac.digest(secret, bytes.fromhex(name) + payload, "sha256")


def _make_secret(path: Path) -> None:
    """Make a secret; of several processes that find none the first one's stays. Raises OSError."""
    replace = os.path.lexists(path)  # what stands there is none that can be trusted
    secret = os.urandom(_SECRET_BYTES)
    try:
        _write_atomically(path, secret, replace)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        _write_atomically(path, secret)


def _read_secret(path: Path) -> bytes | None:
    """The secret in a file that this user alone can read and write; None in any other file. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if hasattr(os, "getuid") and (
            not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0) or status.st_mode & 0o077
        ):
            return None
        data = file.read(_SECRET_BYTES + 1)
    return data if len(data) == _SECRET_BYTES else None
