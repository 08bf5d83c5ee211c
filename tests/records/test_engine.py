"""What stays on the disk after a database is closed, or could not be made."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

from autosched.records import open_store
from autosched.testing.tasks import record

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_nothing_is_left_beside_a_closed_database(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with open_store(path) as store:
        store.add([record(1)])
    assert names(tmp_path) == ["r.db"]
    with open_store(path, write=False) as store:
        assert store.count() == 1
    assert names(tmp_path) == ["r.db"]


def test_a_reader_leaves_a_writers_log_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    with open_store(path) as writer:
        writer.add([record(1)])
        with open_store(path, write=False) as reader:
            assert reader.count() == 1
        writer.add([record(2)])
        assert writer.count() == 2 and "r.db-wal" in names(tmp_path)
    assert names(tmp_path) == ["r.db"]


def test_a_process_that_forgets_to_close_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    open_store(path).close()
    code = """
        import sys
        from autosched.records import open_store
        store = open_store(sys.argv[1], write=False)
        print(store.count())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), str(path)], check=True, cwd=ROOT, timeout=60)
    assert names(tmp_path) == ["r.db"]


def test_a_full_disk_leaves_no_empty_database(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from autosched.errors import RecordError
        from autosched.records import open_store
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            open_store(sys.argv[1])
        except RecordError as error:
            print(error)
    """
    path = tmp_path / "r.db"
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert "disk" in done.stdout, done.stderr
    assert names(tmp_path) == []
