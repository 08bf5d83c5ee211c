"""A killed process leaves a folder that the next one removes; living ones, others' and links are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autosched.records.scratch import LOCK, Scratch, clear_abandoned

CHILD = """
import sys, time
from autosched.records.scratch import Scratch
scratch = Scratch("measure")
(scratch.folder / "kernel.o").write_bytes(b"x" * 1000)
print(scratch.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def start_child() -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def test_what_a_killed_process_leaves_is_removed_by_the_next(place: Path) -> None:
    child, folder = start_child()
    try:
        assert folder.parent == place and clear_abandoned() == [] and (folder / "kernel.o").exists()
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    assert folder.exists()
    with Scratch("index") as mine:
        assert mine.is_dir() and not folder.exists()
    assert list(place.iterdir()) == []


def test_a_process_that_ends_by_itself_leaves_nothing(place: Path) -> None:
    child, folder = start_child()
    child.communicate("")
    assert child.returncode == 0 and not folder.exists()


def test_what_is_not_ours_is_left_alone(place: Path) -> None:
    (place / "autosched-measure-none").mkdir()  # no lock: nobody knows whose it is
    target = place / "precious"
    target.mkdir()
    (target / LOCK).touch()
    os.symlink(target, place / "autosched-measure-link")
    other = place / "other-measure-x"
    other.mkdir()
    (other / LOCK).touch()
    locked = place / "autosched-index-x"
    locked.mkdir()
    os.symlink(target / LOCK, locked / LOCK)
    assert clear_abandoned() == []
    assert sorted(p.name for p in place.iterdir()) == [
        "autosched-index-x", "autosched-measure-link", "autosched-measure-none", "other-measure-x", "precious",
    ]  # fmt: skip


def test_a_start_removes_a_bounded_number(place: Path) -> None:
    for i in range(5):
        (place / f"autosched-worker-{i}").mkdir()
        (place / f"autosched-worker-{i}" / LOCK).touch()
    assert len(clear_abandoned(most=3)) == 3 and len(list(place.iterdir())) == 2
