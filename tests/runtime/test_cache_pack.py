"""The kernel cache as one file: what is inside, what is refused, and that another user's secret signs it."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from autosched.errors import ArtifactError, UsageError
from autosched.runtime.cache import KernelCache
from autosched.runtime.cache_pack import ABOUT, FORMAT, pack, unpack


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    cache = KernelCache(tmp_path / "from")
    for key, payload in (("a", b"code of a"), ("b", bytes(5000))):
        cache.put(key, payload)
    assert pack(cache, tmp_path / "kernels.zip").n_entries == 2
    return tmp_path / "kernels.zip"


def test_entries_are_signed_anew_with_the_secret_of_the_cache_that_takes_them(packed: Path, tmp_path: Path) -> None:
    there = KernelCache(tmp_path / "to")
    result = unpack(there, packed, None)
    assert (result.n_entries, result.n_new, result.size_bytes) == (2, 2, 5009 + 2 * 32)
    fresh = KernelCache(tmp_path / "to")
    assert fresh.get("a") == b"code of a" and fresh.get("b") == bytes(5000) and fresh.get("c") is None
    secret = KernelCache(tmp_path / "from").secret()
    assert fresh.secret() != secret and secret is not None and secret not in packed.read_bytes()
    assert unpack(there, packed, None).n_new == 0


def test_entries_copied_without_unpacking_are_misses(packed: Path, tmp_path: Path) -> None:
    there = KernelCache(tmp_path / "to")
    there.put("z", b"")
    for name in KernelCache(tmp_path / "from").names():
        target = there._path(name)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        target.write_bytes(KernelCache(tmp_path / "from")._path(name).read_bytes())
    assert there.get("a") is None


def test_what_the_own_secret_does_not_vouch_for_is_not_packed(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "from")
    cache.put("a", b"good")
    cache.put("b", b"changed")
    ((path, *_),) = [e for e in cache.entries() if e[0].read_bytes().endswith(b"changed")]
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert pack(cache, tmp_path / "kernels.zip").n_entries == 1


def test_equal_entries_give_an_equal_file_and_its_hash_is_compared(packed: Path, tmp_path: Path) -> None:
    again = pack(KernelCache(tmp_path / "from"), tmp_path / "again.zip")
    assert packed.read_bytes() == (tmp_path / "again.zip").read_bytes()
    assert unpack(KernelCache(tmp_path / "to"), packed, again.sha256.upper()).n_new == 2
    with pytest.raises(ArtifactError, match="has the SHA-256"):
        unpack(KernelCache(tmp_path / "other"), packed, "0" * 64)
    assert KernelCache(tmp_path / "other").get("a") is None


def test_files_that_are_no_packed_caches_are_refused(packed: Path, tmp_path: Path) -> None:
    cache, bad = KernelCache(tmp_path / "to"), tmp_path / "bad.zip"
    bad.write_bytes(b"no archive")
    with pytest.raises(ArtifactError, match="is damaged, or no packed kernel cache"):
        unpack(cache, bad, None)
    bad.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(ArtifactError, match="is damaged"):
        unpack(cache, bad, None)
    with pytest.raises(ArtifactError, match="cannot be read"):
        unpack(cache, tmp_path / "missing.zip", None)
    for names, message in (([], "no packed kernel cache"), (["../../evil"], "which is no entry")):
        with zipfile.ZipFile(bad, "w") as archive:
            for name in names:
                archive.writestr(ABOUT, json.dumps({"format": FORMAT}))
                archive.writestr(name, b"x")
        with pytest.raises(ArtifactError, match=message):
            unpack(cache, bad, None)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr(ABOUT, json.dumps({"format": 9}))
    with pytest.raises(ArtifactError, match="has the format 9"):
        unpack(cache, bad, None)
    for about in ("[1]", '{"format": "1"}', "{}"):
        with zipfile.ZipFile(bad, "w") as archive:
            archive.writestr(ABOUT, about)
        with pytest.raises(ArtifactError, match="names no format"):
            unpack(cache, bad, None)
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr(zipfile.ZipInfo(ABOUT), json.dumps({"format": FORMAT}))
        archive.writestr("a" * 64, b"x")
    with pytest.raises(ArtifactError, match="DEFLATE"):
        unpack(cache, bad, None)
    assert not cache.entries()


def test_an_entry_under_the_name_of_another_is_refused(packed: Path, tmp_path: Path) -> None:
    """Its machine code would be called with the arguments of the other."""
    cache, bad = KernelCache(tmp_path / "to"), tmp_path / "bad.zip"
    with zipfile.ZipFile(packed) as old, zipfile.ZipFile(bad, "w") as new:
        names = [name for name in old.namelist() if name != ABOUT]
        assert len(names) > 1
        new.writestr(ABOUT, old.read(ABOUT))
        for name, other in zip(names, [*names[1:], names[0]], strict=True):
            new.writestr(name, old.read(other))
    with pytest.raises(ArtifactError, match="is not what was packed under this name"):
        unpack(cache, bad, None)
    assert not cache.entries()


def test_a_cache_that_is_too_small_or_read_only_refuses(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="AUTOSCHED_CACHE_LIMIT_MB"):
        unpack(KernelCache(tmp_path / "to", limit_bytes=4000), packed, None)
    for cache in (KernelCache(None), KernelCache(tmp_path / "from", writable=False)):
        with pytest.raises(UsageError, match="no folder that can be written to"):
            unpack(cache, packed, None)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="user numbers")
def test_a_file_that_others_can_change_is_refused(packed: Path, tmp_path: Path) -> None:
    packed.chmod(0o666)
    with pytest.raises(ArtifactError, match="can be written by others"):
        unpack(KernelCache(tmp_path / "to"), packed, None)
