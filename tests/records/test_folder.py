"""The record store in a folder, where each writer has its own file."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import RecordStore, default_reader, open_store
from autosched.records.folder import FolderStore
from autosched.records.layers import network_disk
from autosched.testing.records import RecordStoreSuite
from autosched.testing.tasks import matmul_task, record, trial
from tests.records.writers import start_writer


class TestFolderStore(RecordStoreSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "shared"

    def store(self) -> RecordStore:
        return open_store(f"{self.folder}/")

    def another(self, store: RecordStore) -> RecordStore:
        return open_store(self.folder)


@pytest.mark.slow
def test_eight_processes_write_and_some_are_killed(tmp_path: Path) -> None:
    writers = [start_writer(f"{tmp_path}/shared/", f"run{i}", 200 if i % 2 else 8) for i in range(8)]
    said = {}
    for i, writer in enumerate(writers):
        if i % 2:
            assert writer.stdout is not None and writer.stdout.readline()
            time.sleep(0.01 * i)
            writer.send_signal(signal.SIGKILL)
            said[i] = len(writer.stdout.read().split()) + 1
            writer.communicate(timeout=60)
        else:
            _, errors = writer.communicate(timeout=60)
            assert writer.returncode == 0, errors
            said[i] = 8
    with open_store(tmp_path / "shared") as store:
        found = [r.session for r in store.records()]
        for i, batches in said.items():
            assert batches * 3 <= found.count(f"run{i}") <= (batches + 1) * 3
    assert len(list((tmp_path / "shared").glob("*.jsonl"))) == 8


def test_a_line_cut_in_half_is_skipped_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_store(f"{tmp_path}/d/") as store:
        store.add([record(1), record(2)])
    (file,) = (tmp_path / "d").glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    with open_store(tmp_path / "d") as store:
        assert [r.config["rows"] for r in store.records()] == [1]
        assert [e.reason for e in store.check()] == [f"{file.name}: its last line was cut in half"]
        assert store.add([record(3)]) == 1  # to a file of its own: the damaged one is left as it is
        assert file.read_bytes() == whole[:-40]
        file.write_bytes(whole)  # it was only slow
        assert store.count() == 3 and store.check() == []
    (tmp_path / "d" / "hand.jsonl").write_text("{}\nno json\n\n# a comment\n")
    with open_store(tmp_path / "d") as store:
        assert store.count() == 3 and [e.line for e in store.check()] == [1, 2]
    assert "hand.jsonl: no schema version" in caplog.text


def test_a_build_looks_it_up_and_the_commands_take_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "d"
    with open_store(f"{folder}/") as store:
        store.add([record(1, default=True), record(2), record(4, winner=True)])
    found = default_reader(folder).best(matmul_task())
    assert found.config == record(4).config and found.origin == f"folder {folder}"
    for command in (["list"], ["best"], ["stats"], ["show"], ["verify"], ["explain", "matmul"]):
        assert main(["logs", *command, "--db", str(folder), "-f", "json"]) == 0, command
    capsys.readouterr()
    assert main(["logs", "merge", str(folder), "--db", str(tmp_path / "r.db")]) == 0
    assert main(["logs", "diff", str(folder), str(tmp_path / "r.db")]) == 0
    assert main(["logs", "export", str(tmp_path / "x.jsonl"), "--db", str(folder)]) == 0
    (file,) = folder.glob("*.jsonl")
    assert (tmp_path / "x.jsonl").read_text() == file.read_text()
    assert main(["logs", "prune", "--keep", "0", "--db", str(folder)]) == 2
    assert main(["logs", "upgrade", "--db", str(folder)]) == 2
    assert "needs no upgrade" in capsys.readouterr().err


def test_reading_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no tuning logs"):
        open_store(tmp_path, write=False)
    with open_store(f"{tmp_path}/d/") as store:
        store.add([record(1)])
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with open_store(tmp_path / "d", write=False) as store:
        assert store.count() == 1
        for write in (lambda: store.add([record(2)]), lambda: store.claim(matmul_task(), [trial(1).config], 1.0)):
            with pytest.raises(RecordError, match="reading only"):
                write()
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    with open_store(f"{tmp_path}/d/") as store:
        store.add([record(1)])
        real = os.write

        def full(file: int, data: bytes) -> int:
            if len(data) > 100:
                return real(file, data[:100])
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(RecordError, match="disk is full"):
                store.add([record(2)])
        assert store.check() == [] and store.count() == 1
        assert store.add([record(2)]) == 1
    with open_store(tmp_path / "d") as store:
        assert store.count() == 2 and store.check() == []


def test_network_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    shared = tmp_path / "home dir" / "me"
    shared.mkdir(parents=True)
    mounts = tmp_path / "mounts"
    escaped = str(shared.parent).replace(" ", "\\040")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/home {escaped} nfs4 rw 0 0\nbroken\n")
    assert network_disk(shared, mounts) == "nfs4" and network_disk(tmp_path, mounts) == ""
    assert network_disk(shared, tmp_path / "none") == ""
    monkeypatch.setattr("autosched.records.layers.network_disk", lambda path: network_disk(path, mounts))
    with open_store(shared / "autosched.db") as store:
        assert isinstance(store, FolderStore) and store.add([record(4, winner=True)]) == 1
    assert "network disk (nfs4): it becomes a folder" in caplog.text
    assert default_reader(shared / "autosched.db").best(matmul_task())
    monkeypatch.setenv("AUTOSCHED_DB", str(shared / "autosched.db"))
    assert default_reader().best(matmul_task()).config == record(4).config
    with open_store(tmp_path / "local.db") as store:
        assert not isinstance(store, FolderStore)


def test_leases_that_are_no_leases(tmp_path: Path) -> None:
    with open_store(f"{tmp_path}/d/") as one, open_store(f"{tmp_path}/d/") as two:
        assert one.claim(matmul_task(), [trial(1).config], 60.0)
        (lease,) = (p for p in (tmp_path / "d" / ".leases").iterdir())
        assert json.loads(lease.read_text())["owner"] == one.owner
        for text in ("", "[]", '{"owner": 3}', "\x00"):
            lease.write_text(text)
            assert two.claim(matmul_task(), [trial(1).config], 60.0) == [trial(1).config]
