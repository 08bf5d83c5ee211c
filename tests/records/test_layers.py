import dataclasses
from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records import LayeredReader, ShippedReader, Trust, default_reader, open_reader, open_store, write_lines
from autosched.testing.tasks import matmul_task, record


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("AUTOSCHED_DB", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "autosched.toml").write_text("")
    return folder


def database(path: Path, rows: int) -> Path:
    with open_store(path) as store:
        store.add([record(rows, winner=True)])
    return path


def test_nearest_layer_answers(project: Path, tmp_path: Path) -> None:
    task = matmul_task()
    assert default_reader(start=project).best(task).reason == "no record"
    database(tmp_path / "data" / "autosched" / "autosched.db", 1)
    found = default_reader(start=project).best(task)
    assert found.config == record(1).config and found.origin.startswith("user database")
    database(project / "autosched.db", 2)
    assert default_reader(start=project).best(task).config == record(2).config
    given = database(tmp_path / "given.db", 4)
    assert default_reader(given, start=project).best(task).config == record(4).config
    assert default_reader([tmp_path / "given.db"], start=project).best(task).trust is Trust.HERE


def test_an_explicit_source_must_exist(project: Path, tmp_path: Path) -> None:
    for name in ("none.db", "none.jsonl"):
        with pytest.raises(RecordError, match="there is no"):
            default_reader(tmp_path / name, start=project)


def test_misses_keep_their_reasons(tmp_path: Path) -> None:
    readers = [open_reader(database(tmp_path / f"{i}.db", i)) for i in (1, 2)]
    found = LayeredReader(readers).best(matmul_task(), lambda config: f"rows={config['rows']} is no candidate")
    assert not found and "rows=1 is no" in found.reason and "rows=2 is no" in found.reason
    assert str(tmp_path / "2.db") in found.reason


def test_shipped_logs_match_by_family(tmp_path: Path) -> None:
    elsewhere = record(6, winner=True)
    elsewhere = dataclasses.replace(
        elsewhere, device=dataclasses.replace(elsewhere.device, model_name="Another CPU", l2_bytes=1)
    )
    write_lines(tmp_path / "x86-64-v3" / "matmul.jsonl", [elsewhere])
    reader = ShippedReader(tmp_path)
    found = reader.best(matmul_task())
    assert found.config == elsewhere.config and found.trust is Trust.ELSEWHERE
    assert found.origin == "shipped x86-64-v3"
    assert not reader.best(matmul_task(target="llvm -mcpu=x86-64-v4"))
    assert (
        open_reader(tmp_path / "x86-64-v3" / "matmul.jsonl").best(matmul_task()).reason.startswith("tuned on another")
    )
