"""`autosched logs watch` beside a tuning: it waits for the database, shows what is new, and goes on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.records import open_store
from autosched.testing.tasks import matmul_task, record

WATCH = ("logs", "watch", "--every", "50ms", "--for", "60s")


def test_it_follows_a_tuning_in_another_process(tmp_path: Path) -> None:
    database, pipe = tmp_path / "r.db", subprocess.PIPE
    command = [sys.executable, "-m", "autosched", *WATCH, "--db", str(database)]
    watcher = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert watcher.stdout is not None and watcher.stderr is not None
    try:
        assert watcher.stderr.readline() == f"waiting for {database}\n"
        with open_store(database) as store:
            store.add([record(1, default=True)])
            assert "trials 1, failed 0" in until(watcher, "matmul 128x784")
            store.add([record(2), record(4)])
            line = until(watcher, "trials 3")
            assert "default ms 1.00, best ms 0.250" in line and "state searching" in line
            store.add([record(8, task=matmul_task(m=64))])
            until(watcher, "matmul 64x784")
            store.add([record(4, winner=True)])
            assert "state winner named" in until(watcher, "trials 4")
    finally:
        watcher.terminate()
        watcher.communicate()
    assert watcher.returncode == 0, "to stop watching is no failure"


def until(watcher: subprocess.Popen[str], words: str) -> str:
    """The next line with these words."""
    assert watcher.stdout is not None
    for line in watcher.stdout:
        if words in line:
            return line
    raise AssertionError(f"no line with {words}")


def test_a_database_that_never_comes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["logs", "watch", "--every", "20ms", "--for", "60ms", "--db", str(tmp_path / "r.db")]
    assert main(words) == 0
    assert "waiting for" in capsys.readouterr().err
    assert main([*words, "--once"]) == 2
    assert "autosched: error: " in capsys.readouterr().err


def test_the_table_is_a_page_on_loopback(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with open_store(database) as store:
        store.add([record(1, default=True), record(2)])
    command = [sys.executable, "-m", "autosched", "logs", "watch", "--web", "--for", "30s", "--every", "0.2s"]
    watcher = subprocess.Popen([*command, "--db", str(database)], stderr=subprocess.PIPE, text=True)
    try:
        assert watcher.stderr is not None
        found = re.search(r"at (http://127\.0\.0\.1:\d+/);", watcher.stderr.readline())
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=10) as page:
            assert "connect-src 'self'" in page.read().decode()
        with urllib.request.urlopen(f"{found[1]}state", timeout=10) as answer:
            state = json.load(answer)
        assert [column["title"] for column in state["columns"][:2]] == [
            "kernel",
            "workload",
        ] and "2 trials of 1 task" in state["text"]
        assert state["rows"][0][-1] == "searching (single trials)"
        with open_store(database) as store:
            store.add([record(4, winner=True)])
        with urllib.request.urlopen(f"{found[1]}state", timeout=10) as answer:
            assert json.load(answer)["rows"][0][-1] == "winner named"
        for path, host in (("state", "evil.example:80"), ("other", "127.0.0.1:1")):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(urllib.request.Request(f"{found[1]}{path}", headers={"Host": host}), timeout=10)
    finally:
        watcher.terminate()
        watcher.communicate(timeout=30)


def test_the_page_ends_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "a.db") as store:
        store.add([record(1)])
    assert main(["logs", "watch", "--web", "--for", "0.3s", "--every", "0.1s", "--db", str(tmp_path / "a.db")]) == 0
    assert "watching" in capsys.readouterr().err
    assert main(["logs", "watch", "--web", "--once", "--db", str(tmp_path / "a.db")]) == 2
