"""Files of other tuners: what is written is what they read, and comes back through our own import."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.records import Record, open_store
from autosched.records.importing import read_log
from autosched.records.jsonl import ReadReport
from autosched.records.kernel_tuner import to_cache
from autosched.records.per_task import write_per_task
from autosched.records.t4 import to_t4
from autosched.space import Config
from autosched.task import Status
from autosched.testing.tasks import matmul_task, record, trial


def failed(rows: int, status: Status) -> Record:
    return dataclasses.replace(record(rows), measurement=trial(rows, status=status).measurement)


RECORDS = [
    record(1, default=True),
    record(4, winner=True),
    dataclasses.replace(record(4), time=5.0),  # once more, as slow
    failed(5, Status.CRASH),
    failed(6, Status.BUILD_TIMEOUT),
    failed(7, Status.LOST),
    record(2, task=matmul_task(3)),
]


def knobs_and_outcomes(records: list[Record]) -> dict[int, tuple[Status, float | None]]:
    return {
        int(r.config["rows"]): (r.measurement.status, r.measurement.median_s if r.measurement.is_ok else None)
        for r in records
    }


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_it_comes_back(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "r.db") as store:
        store.add(RECORDS)
    words = ["logs", "export", str(tmp_path / "out"), "--to", form, "--db", str(tmp_path / "r.db"), "-f", "json"]
    assert main(words) == 0
    written = {Path(row["file"]): row["n_records"] for row in json.loads(capsys.readouterr().out)}
    assert sorted(written.values()) == [1, 4] and set(written) == set((tmp_path / "out").iterdir())
    before = {path: path.read_bytes() for path in written}
    assert main(words) == 0 and before == {path: path.read_bytes() for path in written}
    capsys.readouterr()
    large = max(written, key=lambda path: written[path])
    report = ReadReport(str(large))
    found = knobs_and_outcomes(list(read_log(large, report)))
    assert not report.refused and report.read == 4
    ok = {rows: (Status.OK, pytest.approx(time_s)) for rows, (_, time_s) in knobs_and_outcomes(RECORDS[:2]).items()}
    assert found == {**ok, 5: (Status.RUN_ERROR, None), 6: (Status.BUILD_ERROR, None)}
    (tmp_path / "file").touch()
    assert main(["logs", "export", str(tmp_path / "file"), "--to", form, "--db", str(tmp_path / "r.db")]) == 2
    assert "it is no folder" in capsys.readouterr().err


def test_the_fastest_of_a_configuration_is_written(tmp_path: Path) -> None:
    slow = dataclasses.replace(record(4), measurement=trial(4, time_s=7.0).measurement)
    (path,) = write_per_task(tmp_path, [slow, record(4), failed(4, Status.CRASH)], to_cache)
    (entry,) = json.loads(path.read_text())["cache"].values()
    assert entry["time"] == pytest.approx(1e3 * record(4).measurement.median_s)


def test_a_cache_has_what_kernel_tuner_and_its_dashboard_read() -> None:
    other = dataclasses.replace(record(1), config=Config("blocked", {"tile": (8, 16), "pad": True}))
    document = to_cache([record(4), other, failed(6, Status.INVALID)])
    assert document["tune_params_keys"] == ["template_name", "rows", "tile", "pad"]
    assert document["tune_params"]["tile"] == ["", "8x16"] and document["tune_params"]["rows"] == [4, 6, ""]
    assert set(document["cache"]) == {"matmul,4,,", "blocked,,8x16,True", "matmul,6,,"}
    for key, entry in document["cache"].items():
        assert key == ",".join(str(entry[name]) for name in document["tune_params_keys"])
        assert {"time", "times", "compile_time", "verification_time", "benchmark_time", "timestamp"} <= set(entry)
    assert document["cache"]["matmul,6,,"]["time"] == "InvalidConfig"
    assert {"device_name", "kernel_name", "problem_size", "objective", "schema_version"} <= set(document)


def test_a_t4_file_has_what_its_schema_asks_for() -> None:
    document = to_t4([record(4), failed(6, Status.WRONG_RESULT)])
    good, wrong = document["results"]
    assert document["schema_version"] == "1.0.0" and good["objectives"] == ["time"]
    assert good["invalidity"] == "correct" and good["correctness"] == 1 and good["configuration"]["rows"] == 4
    assert good["measurements"][0]["unit"] == "ms" and set(good["times"]) >= {"compilation", "runtimes", "validation"}
    assert wrong["invalidity"] == "correctness" and wrong["correctness"] == 0 and wrong["measurements"] == []


RESULT = {
    "timestamp": "2024-01-02T03:04:05+00:00",
    "configuration": {"block": 32, "ratio": 0.5},
    "invalidity": "correct",
    "measurements": [{"name": "time", "value": 250, "unit": "us"}],
    "objectives": ["time"],
}


def test_a_t4_file_of_another_tuner(tmp_path: Path) -> None:
    path = tmp_path / "gemm.json"
    bad = [
        {**RESULT, "objectives": ["energy"]},
        {**RESULT, "measurements": [{"name": "time", "value": 1, "unit": "parsec"}]},
        {**RESULT, "configuration": [1]},
        {**RESULT, "measurements": [{"name": "time", "value": -1, "unit": "ms"}]},
        {"configuration": {}},
        3,
    ]
    results = [RESULT, {**RESULT, "invalidity": "timeout"}, *bad]
    path.write_text(json.dumps({"schema_version": "1.0.0", "results": results}))
    report = ReadReport(str(path))
    good, slow = read_log(path, report)
    assert good.measurement.times_s == (pytest.approx(250e-6),) and good.time == 1704164645.0
    assert dict(good.config.knobs) == {"block": 32, "ratio": "0.5"} and good.workload.op == "gemm"
    assert slow.measurement.status is Status.TIMEOUT and not slow.is_winner
    assert report.read == 8 and [error.line for error in report.refused] == [3, 4, 5, 6, 7, 8]
