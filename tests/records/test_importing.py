"""Other tuners' logs: read, kept, shown, never used; refused lines by number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.errors import RecordError
from autosched.records import ReadReport, open_store
from autosched.records.importing import read_log
from autosched.records.jsonl import read_line
from autosched.target import Target
from autosched.task import Status, Task

LINE = {
    "input": [
        "llvm -keys=cpu -mcpu=skylake-avx512",
        "conv2d_NCHWc.x86",
        [
            ["TENSOR", [1, 3, 224, 224], "float32"],
            ["TENSOR", [64, 3, 7, 7], "float32"],
            [2, 2],
            [3, 3, 3, 3],
            "float32",
        ],
        {},
    ],
    "config": {
        "index": 7,
        "code_hash": None,
        "entity": [
            ["tile_ic", "sp", [-1, 3]],
            ["unroll_kw", "ot", True],
            ["order", "re", [1, 0]],
            ["ann", "an", ["vec", "none"]],
        ],
    },
    "result": [[0.0021, 0.0023, 0.0022], 0, 3.5, 1600000000.25],
    "version": 0.2,
    "tvm_version": "0.9.0",
}


def test_an_autotvm_line_keeps_its_facts_and_itself() -> None:
    record = read_line(json.dumps(LINE))
    assert record.workload.op == "conv2d_NCHWc.x86" and record.workload.shapes == ((1, 3, 224, 224), (64, 3, 7, 7))
    assert record.workload.attrs["arg2"] == (2, 2) and record.workload.attrs["arg4"] == "float32"
    knobs = {"tile_ic": (-1, 3), "unroll_kw": True, "order": (1, 0), "ann": "vec,none"}
    assert dict(record.config.knobs) == knobs
    assert record.measurement.times_s == (0.0021, 0.0023, 0.0022) and record.time == 1600000000.25
    assert json.loads(record.measurement.how["line"]) == LINE
    assert record.device.model_name.startswith("llvm") and not record.is_winner
    again = read_line(record.line)
    assert again.line == record.line and again.device != Target("cpu").fingerprint()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 0.1}, "version 0.1"),
        ({"result": [[1.0], 99, 1.0, 1.0]}, "error number"),
        ({"result": [["x"], 0, 1.0, 1.0]}, "costs"),
        ({"result": [[-1.0], 0, 1.0, 1.0]}, "positive"),
        ({"result": []}, "no line"),
        ({"input": ["llvm", "t", [["TENSOR", [-1], "float32"]], {}]}, "size"),
        ({"input": [3, "t", [], {}]}, "text was expected"),
        ({"config": {"entity": [["a", "zz", 1]]}}, "entity"),
        ({"config": {"entity": [["a", "sp", ["x"]]]}}, "whole number"),
        ({"config": None}, "no line"),
    ],
)
def test_other_lines_of_that_form_are_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(RecordError, match=reason):
        read_line(json.dumps({**LINE, **change}))


def test_a_failure_of_autotvm_has_no_time() -> None:
    record = read_line(json.dumps({**LINE, "result": [[1e9], 7, 10.0, 1.0]}))
    assert record.measurement.status is Status.TIMEOUT and record.measurement.times_s == ()


CACHE = {
    "device_name": "NVIDIA A100",
    "kernel_name": "gemm",
    "problem_size": [4096, 4096],
    "tune_params_keys": ["block_size_x", "use_padding", "ratio"],
    "tune_params": {"block_size_x": [16, 32], "use_padding": [0, 1], "ratio": [0.5]},
    "cache": {
        "16,0,0.5": {
            "block_size_x": 16,
            "use_padding": 0,
            "ratio": 0.5,
            "time": 2.5,
            "times": [2.4, 2.5, 2.6],
            "timestamp": "2024-01-02T03:04:05+00:00",
        },
        "32,0,0.5": {
            "block_size_x": 32,
            "use_padding": 0,
            "ratio": 0.5,
            "time": "CompilationFailedConfig",
            "times": [],
        },
        "32,1,0.5": {"block_size_x": 32, "time": 1.0},
    },
}


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "of a run that goes on"])
def test_kernel_tuners_cache(closed: bool, tmp_path: Path) -> None:
    path, text = tmp_path / "gemm_cache.json", json.dumps(CACHE)
    path.write_text(text if closed else text[:-2] + ",\n")
    report = ReadReport(str(path))
    good, failed = read_log(path, report)
    assert good.measurement.times_s == (2.4e-3, 2.5e-3, 2.6e-3) and good.time == 1704164645.0
    assert dict(good.config.knobs) == {"block_size_x": 16, "use_padding": 0, "ratio": "0.5"}
    assert good.device.model_name == "NVIDIA A100" and good.workload.attrs["problem_size"] == (4096, 4096)
    assert failed.measurement.status is Status.BUILD_ERROR
    assert report.read == 3 and [(e.line, "use_padding" in e.reason) for e in report.refused] == [(3, True)]


@pytest.mark.parametrize("text", ["{", "[]", '"device_name" "kernel_name"', '{"device_name": 3, "kernel_name": "x"}'])
def test_a_cache_that_is_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text if "kernel_name" in text else text + '"device_name": "kernel_name"')
    report = ReadReport(str(path))
    with open_store(tmp_path / "r.db") as store:
        try:
            assert list(read_log(path, report)) == [] and report.refused
        except RecordError as error:
            assert str(path) in str(error)
        assert store.count() == 0


def test_the_command_adds_both_and_no_build_uses_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, cache, path = tmp_path / "tvm.log", tmp_path / "kt.json", tmp_path / "r.db"
    log.write_text(f"# a comment\n{json.dumps(LINE)}\n{json.dumps({**LINE, 'version': 0.1})}\n")
    cache.write_text(json.dumps(CACHE))
    assert main(["logs", "import", str(log), str(cache), "--db", str(path)]) == 1
    text = capsys.readouterr().err
    assert "2 lines read, 1 added" in text and "1 refused: line 3" in text and "3 lines read, 2 added" in text
    assert main(["logs", "show", "--db", str(path)]) == 0
    assert "autotvm conv2d_NCHWc.x86" in capsys.readouterr().out
    with open_store(path) as store:
        assert store.check() == []
        for record in store.records():
            assert not store.best(Task(record.workload, Target("cpu")))


def test_a_database_is_no_log(tmp_path: Path) -> None:
    open_store(tmp_path / "r.db").close()
    with pytest.raises(RecordError, match="logs merge"):
        list(read_log(tmp_path / "r.db", ReadReport("")))
