"""Records of GPUs beside records of CPUs: in a database, in lines, in look-ups."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched.errors import RecordError
from autosched.records import ReadReport, Trust, choose, open_store, read_lines, write_lines
from autosched.records.query import RecordFilter
from autosched.records.record import from_document, read_fingerprint
from autosched.records.where import parse_where
from autosched.target import Target
from autosched.task import Task
from autosched.testing.tasks import matmul_task, record

H200 = Target("nvidia/nvidia-h200")
CPU = record(1, winner=True)
GPU = dataclasses.replace(record(2, winner=True), device=H200.fingerprint())
TASK: Task = dataclasses.replace(matmul_task(), target=H200)


def test_both_kinds_in_one_database(tmp_path: Path) -> None:
    with open_store(tmp_path / "both.db") as store:
        store.add([CPU, GPU])
        assert list(store.records()) == [CPU, GPU] and store.check() == []
        for words, found in (
            ("target=cpu", [CPU]),
            ("target=cuda", [GPU]),
            ("target=sm_90", [GPU]),
            ("target!=gpu", [CPU]),
        ):
            assert list(store.records(RecordFilter(where=parse_where(words)))) == found


def test_both_kinds_in_lines(tmp_path: Path) -> None:
    path = tmp_path / "both.jsonl"
    write_lines(path, [CPU, GPU])
    assert list(read_lines(path, ReadReport(""))) == [CPU, GPU]
    assert from_document(GPU.to_document()) == GPU


def test_a_gpu_never_gets_a_cpus_winner() -> None:
    found = choose([CPU], TASK, "here", by_family=True)
    assert not found and "another device only" in found.reason


def test_a_gpu_of_the_same_kind_is_near() -> None:
    assert choose([GPU], TASK, "here").trust in (Trust.HERE, Trust.SAME_DEVICE)
    h100 = dataclasses.replace(TASK, target=Target("nvidia/nvidia-h100"))
    found = choose([GPU], h100, "here")
    assert found.trust is Trust.ELSEWHERE and "same architecture" in found.reason
    a100 = dataclasses.replace(TASK, target=Target("nvidia/nvidia-a100"))
    assert not choose([GPU], a100, "here", by_family=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "abacus"}, "unknown kind"),
        ({"kind": 3}, "unknown kind"),
        ({"sm_count": "132"}, "'sm_count' is missing or not int"),
        ({"sm_count": -1}, "negative"),
        ({"arch": None}, "'arch' is missing or not str"),
        ({"kind": "cpu"}, "'vendor' is missing"),
    ],
)
def test_devices_that_are_none(change: dict[str, object], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        read_fingerprint(H200.fingerprint().to_document() | change)
