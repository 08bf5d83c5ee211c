import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from autosched.env import child_environment
from autosched.runtime import cache as cache_module
from autosched.runtime.cache import KernelCache, kernel_cache
from tests.other_user import give_to_another


def _only_file(cache):
    ((path, _, _),) = cache.entries()
    return path


def test_put_and_get(tmp_path):
    cache = KernelCache(tmp_path)
    assert cache.get("a") is None
    cache.put("a", b"first")
    cache.put("b", b"")
    assert (cache.get("a"), cache.get("b")) == (b"first", b"")
    assert KernelCache(tmp_path).get("a") == b"first"
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:-1] + b"?"])
def test_a_damaged_entry_is_a_miss_and_goes(tmp_path, damage):
    cache = KernelCache(tmp_path)
    cache.put("a", b"payload")
    path = _only_file(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get("a") is None
    assert not path.exists()
    cache.put("a", b"payload")
    assert cache.get("a") == b"payload"


def test_the_least_recently_used_entries_go_first(tmp_path):
    cache = KernelCache(tmp_path, limit_bytes=10_000)
    for index in range(9):
        cache.put(f"key{index}", bytes(1000))
        path = cache._path(cache_module._name(f"key{index}"))
        os.utime(path, (time.time() - 100_000 + index,) * 2)
    assert cache.get("key0") == bytes(1000)  # a read renews an old entry
    cache.put("last", bytes(1000))
    assert cache.size_bytes() <= 10_000
    assert cache.get("key0") is not None
    assert cache.get("last") is not None
    assert cache.get("key1") is None


def test_abandoned_temporary_files_go(tmp_path):
    cache = KernelCache(tmp_path)
    cache.put("a", b"x")
    old, new = (_only_file(cache).parent / name for name in (".old.tmp", ".new.tmp"))
    old.write_bytes(b"")
    new.write_bytes(b"")
    os.utime(old, (0, 0))
    cache.prune()
    assert (old.exists(), new.exists()) == (False, True)


def test_clear(tmp_path):
    cache = KernelCache(tmp_path)
    cache.put("a", b"x")
    cache.clear()
    assert cache.get("a") is None
    assert cache.size_bytes() == 0


def test_memory_alone():
    cache = KernelCache(None)
    cache.put("a", b"x")
    assert cache.get("a") == b"x"
    assert cache.entries() == []


def test_a_folder_that_fails_later_is_no_error(tmp_path):
    cache = KernelCache(tmp_path / "file")
    (tmp_path / "file").write_text("in the way")
    cache.put("a", b"x")
    assert cache.get("a") == b"x"


def test_what_cannot_be_written_can_be_read(tmp_path):
    KernelCache(tmp_path).put("a", b"x")
    cache = KernelCache(tmp_path, writable=False)
    cache.put("b", b"y")
    assert (cache.get("a"), cache.get("b")) == (b"x", b"y")
    assert KernelCache(tmp_path).get("b") is None


def test_the_folder_asked_for_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "deep" / "er"))
    monkeypatch.setenv("AUTOSCHED_CACHE_LIMIT_MB", "3")
    cache = kernel_cache()
    assert (cache.folder, cache.writable, cache.limit_bytes) == (tmp_path / "deep" / "er", True, 3 << 20)
    monkeypatch.setenv("AUTOSCHED_CACHE_LIMIT_MB", "0")
    assert kernel_cache().folder is None


def test_an_impossible_folder_means_memory(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "file" / "below"))
    cache = kernel_cache()
    assert (cache.folder, cache.writable) == (None, False)


def test_without_a_home_the_temporary_folder_serves(tmp_path, monkeypatch):
    monkeypatch.delenv("AUTOSCHED_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    cache_module._open_cache.cache_clear()
    cache = kernel_cache()
    cache_module._open_cache.cache_clear()
    assert cache.folder == tmp_path / "temporary" / f"autosched-{os.getuid()}" / "kernels"
    assert cache.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o770])
@pytest.mark.parametrize("place", ["cache", "."])
def test_a_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch, mode, place):
    (tmp_path / "cache").mkdir()
    (tmp_path / place).chmod(mode)
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "cache"))
    assert kernel_cache().folder is None


def test_a_prepared_folder_for_temporary_files_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.delenv("AUTOSCHED_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    tmp_path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    prepared = tmp_path / f"autosched-{os.getuid()}"
    prepared.mkdir()
    (prepared / "kernels").mkdir()
    give_to_another(prepared, monkeypatch)
    cache_module._open_cache.cache_clear()
    folder = kernel_cache().folder
    cache_module._open_cache.cache_clear()
    assert folder is None


def test_folders_are_made_for_the_user_alone_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        KernelCache(tmp_path / "one" / "two").put("a", b"x")
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "one").rglob("*")]
    assert len(made) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in made)
    assert KernelCache(tmp_path / "one" / "two").get("a") == b"x"


@pytest.mark.parametrize("place", ["", "subfolder", "entry"])
@pytest.mark.parametrize("change", ["mode", "owner"])
def test_what_others_can_write_later_is_seen_at_each_reading(tmp_path, monkeypatch, place, change, caplog):
    folder = tmp_path / "cache"
    cache = KernelCache(folder)
    cache.put("a", b"x")
    entry = _only_file(cache)
    assert cache.get("a") == b"x"
    changed = {"": folder, "subfolder": entry.parent, "entry": entry}[place]
    if change == "mode":
        changed.chmod(0o770)
    else:
        give_to_another(changed, monkeypatch)
    assert cache.get("a") is None
    assert "is not used" in caplog.text
    cache.put("a", b"y")
    assert cache.get("a") == b"y"


def test_an_entry_belongs_to_its_key(tmp_path):
    cache = KernelCache(tmp_path)
    cache.put("harmless", b"x")
    cache.put("other", b"y")
    cache._path(cache_module._name("harmless")).write_bytes(cache._path(cache_module._name("other")).read_bytes())
    assert cache.get("harmless") is None
    assert cache.get("other") == b"y"


def test_an_entry_made_without_the_users_secret_is_a_miss(tmp_path):
    stranger, cache = KernelCache(tmp_path / "stranger"), KernelCache(tmp_path / "own")
    stranger.put("a", b"evil")
    cache.put("a", b"x")
    cache._path(cache_module._name("a")).write_bytes(stranger._path(cache_module._name("a")).read_bytes())
    assert cache.get("a") is None


def test_a_secret_that_others_could_read_is_made_anew(tmp_path):
    cache = KernelCache(tmp_path)
    cache.put("a", b"x")
    secret = tmp_path / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    secret.chmod(0o640)
    assert cache.get("a") is None
    cache.put("a", b"x")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert cache.get("a") == b"x"


_WRITER = """
import sys
from pathlib import Path
from autosched.runtime.cache import KernelCache
cache = KernelCache(Path(sys.argv[1]), limit_bytes=200_000)
for turn in range(60):
    for index in range(20):
        key = f"key{index}"
        found = cache.get(key)
        assert found in (None, key.encode() * 1000), "half an entry was read"
        cache.put(key, key.encode() * 1000)
"""


def test_processes_do_not_hurt_each_other(tmp_path):
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    environment = child_environment({"PYTHONPATH": str(Path(__file__).parents[2])})
    writers = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert KernelCache(tmp_path).get("key3") == b"key3" * 1000


def test_what_cannot_be_kept_is_said_once(tmp_path, caplog):
    (tmp_path / "file").touch()
    for cache, reason in (
        (KernelCache(tmp_path / "file" / "cache"), "cannot be written (Not a directory)"),
        (KernelCache(tmp_path, writable=False), "is read-only"),
        (KernelCache(None), "has no folder that can be written to"),
    ):
        caplog.clear()
        cache.put("a", b"first")
        cache.put("b", b"second")
        assert (cache.get("a"), cache.get("b")) == (b"first", b"second")
        assert [reason in record.message for record in caplog.records] == [True]
    caplog.clear()
    KernelCache(None, limit_bytes=0).put("a", b"first")  # the user wants none
    assert not caplog.records
