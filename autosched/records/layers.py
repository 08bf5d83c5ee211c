"""Opening stores, and readers one above the other: explicit, project, user, shipped."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from autosched.errors import RecordError
from autosched.records.found import Found, RecordReader, Validator, miss
from autosched.records.jsonl import JsonlReader
from autosched.records.places import Place, default_places, is_url
from autosched.records.shipped import ShippedReader
from autosched.task import Task

if TYPE_CHECKING:
    from autosched.records.sql import SqlStore


logger = logging.getLogger("autosched.records")
Source: TypeAlias = "str | Path | RecordReader"  # a database's path or URL, a JSON-lines file, or a reader


def open_store(where: str | Path | Place, *, write: bool = True, busy_s: float = 10.0, origin: str = "") -> SqlStore:
    """Open a tuning database, by path or URL; a file that does not exist is made when writing.

    A folder, a path that ends with a slash, and a new file on a network disk are a folder of JSON lines, where each
    writer has a file of its own.

    busy_s  how long to wait for another process that writes
    Raises  RecordError, naming the file and what to do: locked, read-only, damaged, another program's, another schema
            version, no such file.
    """
    from autosched.records.sql import SqlStore  # SQLAlchemy takes 0.2 s to load

    if isinstance(where, Place):
        origin = origin or where.origin
        where = where.where
    if not is_url(where) and is_folder(where, write=write):
        from autosched.records.folder import FolderStore

        return FolderStore(Path(where), write=write, origin=origin)
    return SqlStore(where, write=write, busy_s=busy_s, origin=origin)


def is_folder(where: str | Path, *, write: bool) -> bool:
    """Whether a place is a folder of logs, or is to be one; says so in the log where a network disk is the reason."""
    path = Path(where)
    if os.path.isdir(path) or str(where).endswith(os.sep):
        return True
    if not write or not (kind := network_disk(path.parent)):
        return False
    if path.exists():
        logger.warning(
            "%s is on a network disk (%s), where SQLite is not safe; use a new folder: --db DIR/", where, kind
        )
        return False
    logger.warning(
        "%s is on a network disk (%s): it becomes a folder in which each writer has its own file", where, kind
    )
    return True


def open_reader(source: Source | Place, origin: str = "") -> RecordReader:
    """A reader of a database (path or URL), of a JSON-lines file (`.jsonl`, `.json`, `.log`), or the reader itself.

    Raises  RecordError for a file that is missing or cannot be used.
    """
    if isinstance(source, Place):
        origin = origin or source.origin
        source = source.where
    if not isinstance(source, str | Path):
        return source
    path = Path(source)
    if not is_url(source) and path.suffix in (".jsonl", ".json", ".log"):
        if os.path.isdir(path):
            return open_store(source, write=False, origin=origin)
        if not os.path.isfile(path):
            raise RecordError("there is no such log", where=str(path))
        return JsonlReader(path, origin)
    return open_store(source, write=False, origin=origin)


class Forgiving:
    """A reader of a place that was not named for this build: what is wrong is logged, and it knows nothing."""

    def __init__(self, place: Place):
        self.origin = place.origin
        self._reader: RecordReader | None = None
        self._problem = ""
        try:
            self._reader = open_reader(place)
        except RecordError as error:
            self._ignore(error)

    def _ignore(self, error: RecordError) -> None:
        self._reader, self._problem = None, f"ignored: {error.line}"
        logger.warning("%s: %s", self.origin, self._problem)

    @property
    def readers(self) -> tuple[RecordReader, ...]:
        """The reader, while nothing is wrong with it."""
        return () if self._reader is None else (self._reader,)

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        if self._reader is not None:
            try:
                return self._reader.best(task, valid)
            except RecordError as error:
                self._ignore(error)
        return miss(self.origin, self._problem)


class LayeredReader:
    """Readers in order: the first one that has a usable configuration answers; misses keep all their reasons."""

    def __init__(self, readers: Sequence[RecordReader]):
        self.readers = tuple(readers)

    def best(self, task: Task, valid: Validator | None = None) -> Found:
        """See `RecordReader`."""
        reasons: list[str] = []
        for reader in self.readers:
            found = reader.best(task, valid)
            if found:
                return found
            if found.reason and found.reason != "no record":
                reasons.append(f"{found.origin}: {found.reason}" if found.origin else found.reason)
        return miss("", "; ".join(reasons) or "no record")


def _is_there(where: str) -> bool:
    """Whether there is anything to look up: a server, a file that is not empty, a folder with logs."""
    if is_url(where):
        return True
    if os.path.isdir(where):
        return any(Path(where).glob("*.jsonl"))
    return os.path.isfile(where) and os.path.getsize(where) > 0


def default_reader(explicit: Source | Sequence[Source] | None = None, *, start: Path | None = None) -> LayeredReader:
    """The readers of a build: what was given, then AUTOSCHED_DB, the project's, the user's, then what is shipped.

    explicit  must exist; the other databases are used where they exist, and ignored with a warning where they cannot be
    start     folder that the search for `autosched.toml` starts from; the current one if None
    Raises    RecordError for an explicit source, or a project file, that cannot be used.
    """
    readers: list[RecordReader] = []
    if explicit is not None:
        given = explicit if isinstance(explicit, Sequence) and not isinstance(explicit, str) else [explicit]
        readers += [open_reader(source) for source in given]
    for place in default_places(start):
        if _is_there(place.where):
            readers.append(Forgiving(place))
    return LayeredReader([*readers, ShippedReader()])


MOUNTS = Path("/proc/self/mounts")
NETWORK_KINDS = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ocfs2", "gfs2"),
    *("ceph", "lustre", "gpfs", "beegfs", "panfs", "orangefs", "glusterfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs", "fuse.cephfs"),
}


def network_disk(path: Path, mounts: Path = MOUNTS) -> str:
    """The kind of network disk that a path is on ("nfs4"), "" for a disk of this machine's own or where nobody says."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
        full = path.resolve()
    except (OSError, RuntimeError):
        return ""
    kinds: dict[Path, str] = {}
    for line in lines:
        fields = line.split()
        if len(fields) >= 3:
            kinds[Path(_unescaped(fields[1]))] = fields[2]  # what is mounted later hides what was there
    nearest = next((kinds[folder] for folder in (full, *full.parents) if folder in kinds), "")
    return nearest if nearest in NETWORK_KINDS else ""


def _unescaped(text: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, sign)
    return text
