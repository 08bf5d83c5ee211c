"""Packages to ship: written by family and operator, read by builds."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched import autotvm
from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import Trust, open_store
from autosched.records.package import latest, write_package
from autosched.records.shipped import ShippedReader
from autosched.testing.tasks import matmul_task, record

OLD, NEW = (dataclasses.replace(record(rows, winner=True), time=float(rows)) for rows in (2, 4))
WIDE = record(8, task=matmul_task(target="llvm -mcpu=x86-64-v4"), winner=True)


def elsewhere(one: object) -> object:
    """The record of another machine, of the same family."""
    device = dataclasses.replace(one.device, model_name="Another CPU", l2_bytes=2 * one.device.l2_bytes)  # type: ignore[attr-defined]
    return dataclasses.replace(one, device=device)  # type: ignore[type-var]


def test_a_file_for_each_family_and_operator(tmp_path: Path) -> None:
    files = write_package(tmp_path, [OLD, WIDE, record(1), NEW])
    assert files == {tmp_path / "x86-64-v3" / "matmul.jsonl": 1, tmp_path / "x86-64-v4" / "matmul.jsonl": 1}
    head, line = (tmp_path / "x86-64-v3" / "matmul.jsonl").read_text().splitlines()
    assert head == "# autosched tuning logs, schema 1: matmul on x86-64-v3"
    named = dataclasses.replace(NEW, session=f"run.{NEW.host}.12")
    write_package(tmp_path / "again", [named])
    (again,) = (tmp_path / "again").rglob("*.jsonl")
    assert NEW.host and NEW.host not in again.read_text()  # which machine it was is nobody's business
    assert line == dataclasses.replace(NEW, host="").line
    reader = ShippedReader(tmp_path)
    assert reader.best(matmul_task()).config == NEW.config
    assert reader.best(matmul_task(target="llvm -mcpu=x86-64-v4")).config == WIDE.config


def test_another_machine_of_the_family_uses_it(tmp_path: Path) -> None:
    write_package(tmp_path, [elsewhere(NEW)])  # type: ignore[list-item]
    found = ShippedReader(tmp_path).best(matmul_task())
    assert found.trust is Trust.ELSEWHERE and "same family x86-64-v3" in found.reason
    assert not ShippedReader(tmp_path).best(matmul_task(target="llvm -mcpu=x86-64-v4"))


def test_a_gpu_has_the_folder_of_its_architecture(tmp_path: Path) -> None:
    """Others of the architecture use what is there, by whatever name they are built for."""
    made = record(8, task=matmul_task(target="nvidia/nvidia-h200"), winner=True)
    files = write_package(tmp_path, [made, NEW])
    assert tmp_path / "sm_90" / "matmul.jsonl" in files
    reader = ShippedReader(tmp_path)
    same = reader.best(matmul_task(target="nvidia/nvidia-h200"))
    assert same.config == made.config and same.origin == "shipped sm_90"
    for target in ("nvidia/nvidia-h100", "cuda -arch=sm_90a", "cuda -arch=sm_90"):
        found = reader.best(matmul_task(target=target))
        assert found.config == made.config and found.trust is Trust.ELSEWHERE, target
    for target in ("cuda -arch=sm_80", "cuda -arch=sm_100a", "llvm -mcpu=x86-64-v4"):
        assert not reader.best(matmul_task(target=target)), target


def test_packages_grow_and_order_does_not_matter(tmp_path: Path) -> None:
    other = record(3, task=matmul_task(64), winner=True)
    write_package(tmp_path / "a", [OLD])
    write_package(tmp_path / "a", [other, NEW])
    write_package(tmp_path / "b", [NEW, other])
    write_package(tmp_path / "b", [OLD])
    a, b = ((tmp_path / name / "x86-64-v3" / "matmul.jsonl").read_bytes() for name in "ab")
    assert a == b and len(a.splitlines()) == 3
    assert latest([OLD, NEW]) == latest([NEW, OLD]) == [NEW]


def test_a_damaged_package_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x86-64-v3" / "matmul.jsonl"
    write_package(tmp_path, [OLD])
    path.write_bytes(path.read_bytes()[:-30])
    before = path.read_bytes()
    with pytest.raises(RecordError, match="the package is damaged: .*1 refused"):
        write_package(tmp_path, [NEW])
    assert path.read_bytes() == before


def test_names_that_are_no_files_are_refused(tmp_path: Path) -> None:
    for op in ("../../etc/passwd", "a/b", "..", ""):
        workload = dataclasses.replace(NEW.workload, op=op)
        with pytest.raises(RecordError, match="no file can be called"):
            write_package(tmp_path / "p", [dataclasses.replace(NEW, workload=workload)])
    assert list(tmp_path.iterdir()) == []


def test_the_command_and_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(tmp_path / "r.db") as store:
        store.add([OLD, NEW, record(1)])
    folder = tmp_path / "packages"
    assert main(["logs", "export", str(folder), "--package", "--db", str(tmp_path / "r.db")]) == 0
    assert "1 winner in " in capsys.readouterr().err
    assert main(["logs", "export", str(folder), "--to", "package", "--op", "none", "--db", str(tmp_path / "r.db")]) == 0
    assert "nothing written" in capsys.readouterr().err
    assert main(["logs", "export", str(tmp_path / "r.db"), "--package", "--db", str(tmp_path / "r.db")]) == 2
    monkeypatch.setenv("TOPHUB_LOCATION", str(folder))
    monkeypatch.setattr(autotvm.tophub, "check_backend", lambda name: None)
    monkeypatch.chdir(tmp_path)
    with autotvm.tophub.context("llvm") as context:
        assert context.best(matmul_task()).config == NEW.config
        monkeypatch.setenv("AUTOSCHED_TUNE", "off")
        assert not context.best(matmul_task())
