"""What the report says: thinning, the whole model's curve, reasons of failures, the roofline."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from autosched.records import Record, RecordFilter, make_record, open_store
from autosched.records.report import Peak, document, make_document
from autosched.records.report.columns import trial_columns
from autosched.records.report.roofline import workload_bytes, workload_flops
from autosched.space import Config
from autosched.task import Measurement, Status, Task, Trial, Workload
from autosched.testing.tasks import matmul_task, record


def at(time: float, found: Record) -> Record:
    return dataclasses.replace(found, time=time)


def test_the_document_thins_and_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_ROWS", 40)
    with open_store(tmp_path / "r.db") as store:
        store.add([at(float(i), record(i)) for i in range(1, 200)])
        (task,) = make_document(store)["tasks"]
    trials = task["trials"]
    assert len(trials["n"]) == 40 and trials["n"][0] == 199 and trials["ms"][0] == pytest.approx(1 / 199, rel=1e-3)
    assert task["steps"][0] == [1, 1.0, 0.0] and task["steps"][-1][0] == 199 and task["n"] == 199


def test_columns_keep_kinds_of_values_apart() -> None:
    task, fine = matmul_task(), Measurement(Status.OK, (1e-3,))
    knobs = ({"a": 1, "b": True}, {"a": True, "b": (1, 2)}, {"a": 1})
    records = [make_record(task, Trial(Config("matmul", k), fine)) for k in knobs]  # type: ignore[arg-type]
    found = trial_columns(list(enumerate(records, start=1)), lambda time: 0.0)
    template, a, b = found["knobs"]
    assert found["n"] is None and template == {"name": "template", "values": ["matmul"]}
    assert a == {"name": "a", "values": [1, "true"], "codes": "010"}
    assert [b["values"][int(code)] for code in b["codes"]] == ["true", "[1, 2]", None]
    many = [make_record(task, Trial(Config("matmul", {"a": i}), fine)) for i in range(40)]
    columns = trial_columns([(7, many[0]), *enumerate(many[1:], start=8)], lambda time: 0.0)
    assert columns["knobs"][1]["codes"] == list(range(40)) and columns["n"][:2] == [7, 8]


def test_the_model_gets_faster_as_trials_go_by(tmp_path: Path) -> None:
    first, second, other = matmul_task(), matmul_task(m=64), matmul_task(m=32)
    times = ((1.0, first, 1), (2.0, first, 2), (3.0, second, 1), (4.0, other, 1), (5.0, second, 4), (6.0, second, 2))
    with open_store(tmp_path / "r.db") as store:
        store.add([at(time, record(rows, task=task)) for time, task, rows in times])
        found = make_document(store, weights={first.key: 1, second.key: 3})
    assert found["progress"] == [[3, 3.5, 2.0], [4, 1.25, 4.0], [5, 1.25, 5.0]] and found["weighted"]
    assert [task["weight"] for task in found["tasks"]] == [3, 1]
    assert found["tasks"][0]["share"] == pytest.approx(0.75 / 1.25)


def test_failures_are_told_with_their_reason(tmp_path: Path) -> None:
    def failure(rows: int, text: str) -> Record:
        trial = Trial(Config("matmul", {"rows": rows}), Measurement(Status.CRASH, error=text))
        return make_record(matmul_task(), trial)

    with open_store(tmp_path / "r.db") as store:
        store.add([failure(1, "Traceback\nsegfault"), failure(2, "other\nsegfault"), failure(3, "x" * 900), record(4)])
        (task,) = make_document(store)["tasks"]
    assert task["reasons"] == [["crash", "segfault", 2], ["crash", "x" * 160, 1]] and task["failures"] == {"crash": 3}


def test_the_roofline_is_shown_where_work_and_peaks_are_known(tmp_path: Path) -> None:
    sizes = Workload("matmul", ("float32",) * 3, ((64, 32), (32, 16), (64, 16)), {"sizes": (64, 16, 32)})
    task, plain = Task(sizes, matmul_task().target, threads=2), matmul_task()
    device = task.target.fingerprint()
    machines = {(device, 2): Peak(device.model_name, 2, 1e9, (("L1", 1 << 10, 1e9), ("memory", 1 << 30, 1e8)))}
    with open_store(tmp_path / "r.db") as store:
        store.add([record(1, task=task), record(1, task=plain)])
        with_peaks = {t["name"]: t["roofline"] for t in make_document(store, machines=machines)["tasks"]}
        without = make_document(store, RecordFilter(op="matmul"))
    size_bytes = 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert workload_bytes(sizes) == size_bytes and workload_flops(sizes) == 2 * 64 * 16 * 32
    found = with_peaks[str(sizes)]
    assert found["bytes"] == size_bytes and found["gflops"] == pytest.approx(2 * 64 * 16 * 32 / 1e-3 / 1e9, rel=1e-3)
    assert found["bound"] == "memory" and found["share"] == pytest.approx(size_bytes / 1e8 / 1e-3, rel=1e-3)
    assert with_peaks[str(plain.workload)] is None, "nothing says how much arithmetic it is"
    assert all(t["roofline"] is None for t in without["tasks"]) and without["peaks"] == []


def test_odd_workloads_have_no_work() -> None:
    assert workload_flops(Workload("x", ("float32",), ((2,),), {"sizes": (2, 0)})) is None
    assert workload_flops(Workload("x", ("float32",), ((2,),), {"sizes": "many"})) is None
    assert workload_bytes(Workload("x", ("string",), ((2,),))) is None
    assert workload_bytes(Workload("x", ("bool", "float16"), ((2,), ()))) == 4
