"""Owners of leases: a process that has died is known as gone, everybody else is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autosched.records import open_store
from autosched.records.leases import is_gone, new_owner
from autosched.space import Config
from autosched.testing.tasks import matmul_task


def test_who_is_gone() -> None:
    assert not is_gone(new_owner()) and new_owner() != new_owner()
    code = "from autosched.records.leases import new_owner; print(new_owner())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert is_gone(other) and len(other) <= 64
    for unknown in ("", "abc", "abc-def-1", f"{other}x", other.replace(other.split("-")[1], "0" * 12)):
        assert not is_gone(unknown)


@pytest.mark.parametrize("place", ["r.db", "logs"])
def test_the_lease_of_a_dead_process_is_granted(tmp_path: Path, place: str) -> None:
    where, task, config = tmp_path / place, matmul_task(), Config("matmul", {"rows": 1})
    if place == "logs":
        where.mkdir()
    code = (
        "import sys, os; from autosched.records import open_store; from autosched.space import Config\n"
        "from autosched.testing.tasks import matmul_task\n"
        "got = open_store(sys.argv[1]).claim(matmul_task(), [Config('matmul', {'rows': 1})], 1000)\n"
        "assert len(got) == 1; os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, str(where)], check=True)
    with open_store(where) as first, open_store(where) as second:
        assert first.claim(task, [config], 1000) == [config], "its owner is no more"
        assert second.claim(task, [config], 1000) == [], "this one's owner lives"
