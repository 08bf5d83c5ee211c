"""The kernel cache as one file, for another folder, user or machine.

A file is a ZIP archive: `cache.json` says what wrote it, and each other member is an entry under the SHA-256 of its
key: the SHA-256 of that name and the payload, and the payload. It holds no secret and no signature. Entries are
machine code that later runs unasked, so nothing but `unpack`, for a file that the user names, signs them with the
user's own secret.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from autosched.errors import ArtifactError, AutoschedError, UsageError
from autosched.runtime.cache import KernelCache
from autosched.trust import why_untrusted
from autosched.version import __version__

ABOUT = "cache.json"
FORMAT = 2  # since 2 an entry begins with a hash
_NAME = re.compile(r"[0-9a-f]{64}")
_HASH_BYTES = 32
_TIME = (1980, 1, 1, 0, 0, 0)  # equal entries give an equal file


@dataclass(frozen=True, slots=True)
class Packed:
    """What was written or read: entries, those of them that were new in the cache, their bytes, the file's hash."""

    n_entries: int
    n_new: int
    size_bytes: int
    sha256: str


def pack(cache: KernelCache, path: Path) -> Packed:
    """Write the entries of a cache that its own secret vouches for. Raises ArtifactError where it cannot be written."""
    n_entries = size = 0
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            about = {"format": FORMAT, "autosched": __version__}
            archive.writestr(zipfile.ZipInfo(ABOUT, _TIME), json.dumps(about))
            for name in cache.names():
                payload = cache.read(name)
                if payload is not None:
                    member = zipfile.ZipInfo(name, _TIME)
                    member.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(member, _hash(name, payload) + payload)
                    n_entries, size = n_entries + 1, size + len(payload)
        return Packed(n_entries, n_entries, size, hashlib.sha256(path.read_bytes()).hexdigest())
    except OSError as error:
        raise ArtifactError(f"'{path}' cannot be written: {error.strerror or error}") from error


def unpack(cache: KernelCache, path: Path, sha256: str | None) -> Packed:
    """Put the entries of a file into a cache, signed with its secret; entries that it has already stay.

    sha256  of the file, as `pack` gave it; None takes any file: the caller trusts whoever packed this one
    Raises  ArtifactError for a file that is damaged, that is another one, or that others can change; UsageError for a
            cache that cannot be written, or is too small.
    """
    if cache.folder is None or not cache.writable:
        raise UsageError("the kernel cache has no folder that can be written to", hint="set AUTOSCHED_CACHE_DIR")
    if problem := why_untrusted(path):
        raise ArtifactError(f"'{path}' is not used: {problem}", hint="copy it where nobody else can change it")
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            if sha256 is not None and found != sha256.lower():
                raise ArtifactError(f"'{path}' has the SHA-256 {found}, not {sha256}")
            with zipfile.ZipFile(file) as archive:
                entries = _entries(archive, path)
                size = sum(entry.file_size for entry in entries)
                if size > cache.limit_bytes:
                    raise UsageError(
                        f"'{path}' has {size >> 20} MB, and the kernel cache keeps {cache.limit_bytes >> 20}",
                        hint="raise AUTOSCHED_CACHE_LIMIT_MB",
                    )
                n_new = sum(_take(cache, archive, entry) for entry in entries)
    except AutoschedError:
        raise
    except OSError as error:
        raise ArtifactError(f"'{path}' cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
        raise ArtifactError(f"'{path}' is damaged, or no packed kernel cache: {error}") from error
    return Packed(len(entries), n_new, size, found)


def _entries(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """The members that are entries. Raises ArtifactError, ValueError for an archive of another kind."""
    members = {member.filename: member for member in archive.infolist()}
    about = members.pop(ABOUT, None)
    if about is None or about.file_size > 4096:
        raise ArtifactError(f"'{path}' is no packed kernel cache", hint="`autosched cache pack` writes them")
    known = json.loads(archive.read(about))
    if not isinstance(known, dict) or not isinstance(version := known.get("format"), int):
        raise ValueError(f"{ABOUT} names no format")
    if version != FORMAT:
        raise ArtifactError(f"'{path}' has the format {version}, this version reads {FORMAT}")
    if strange := next((name for name in members if not _NAME.fullmatch(name)), None):
        raise ArtifactError(f"'{path}' holds '{strange[:40]}', which is no entry")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members.values()):
        raise ValueError("an entry is compressed in another way than by DEFLATE")
    return list(members.values())


def _hash(name: str, payload: bytes) -> bytes:
    """What shows that a payload is the one that was packed under a name: another one would be run in its place."""
    return hashlib.sha256(name.encode() + payload).digest()


def _take(cache: KernelCache, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bool:
    """Store an entry; whether it is new. Raises ValueError for one of another size, UsageError for a full disk."""
    if cache.read(entry.filename) is not None:
        return False
    with archive.open(entry) as file:
        payload = file.read(entry.file_size + 1)
    if len(payload) != entry.file_size:
        raise ValueError(f"entry {entry.filename[:12]} has another size than it says")
    found, payload = payload[:_HASH_BYTES], payload[_HASH_BYTES:]
    if found != _hash(entry.filename, payload):
        raise ValueError(f"entry {entry.filename[:12]} is not what was packed under this name")
    if problem := cache.write(entry.filename, payload):
        raise UsageError(f"the kernel cache {cache.folder} {problem}")
    return True
