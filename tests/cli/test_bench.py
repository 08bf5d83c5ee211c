"""`autosched bench` on small artifacts: forms, files, the gate, the profile."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from autosched.cli import main
from autosched.target.threads import ThreadLimits
from tests.runtime.kernels import chain


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("bench")
    for name, nodes in (("short", 2), ("long", 200)):
        chain(16, nodes, constant=True).save(folder / f"{name}.asx")
    return str(folder / "short.asx"), str(folder / "long.asx")


QUICK = ("--runs", "60", "--warmup", "10ms", "--threads", "1")


def test_verdict_and_json(models: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *models, *QUICK, "-f", "json", "--percentiles", "50,99.9"]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    short, long = document["rows"]
    assert (short["name"], short["threads"]) == ("short.asx", 1)
    assert short["n_runs"] >= 60 <= long["n_runs"]  # each round is one of all programs
    assert short["min_s"] <= short["median_s"] <= short["p99.9_s"]
    assert 0 < long["speed_up"] < 1 == short["speed_up"]
    assert "short.asx" in document["verdicts"][0] and "long.asx" in document["verdicts"][0]
    assert document["verdicts"][0] in shown.err


def test_csv_and_markdown(models: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", models[0], *QUICK, "-f", "csv"]) == 0
    (row,) = csv.DictReader(capsys.readouterr().out.splitlines())
    assert float(row["median_s"]) > 0
    assert main(["bench", models[0], *QUICK, "-f", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("| what | threads |")
    assert lines[4].startswith("| short.asx | 1 |")


@pytest.mark.alone
def test_files_and_the_gate(models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, table, markdown = tmp_path / "old.json", tmp_path / "t.csv", tmp_path / "t.md"
    files = ["--export-json", str(old), "--export-csv", str(table), "--export-markdown", str(markdown)]
    assert main(["bench", models[0], *QUICK, *files]) == 0
    assert table.read_text().startswith("name,threads")
    assert "| short.asx |" in markdown.read_text()
    document = json.loads(old.read_text())
    for factor, code in ((1e-3, 1), (1e3, 0)):
        row = document["rows"][0] | {"interval_s": 0.0}
        row["median_s"] *= factor
        changed = tmp_path / "changed.json"
        changed.write_text(json.dumps(document | {"rows": [row]}))
        arguments = ["bench", models[0], *QUICK, "--baseline", str(changed)]
        assert main([*arguments, "--fail-if", "+5%"]) == code
        assert main(arguments) == 0
    assert "slower than the baseline by more than 5 %" in capsys.readouterr().err


def test_profile_with_trace(models: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, table = tmp_path / "trace.json", tmp_path / "kernels.csv"
    arguments = ["bench", models[0], "--profile", "--time", "100ms", "--threads", "1"]
    assert main([*arguments, "--trace", str(trace), "--export-csv", str(table)]) == 0
    shown = capsys.readouterr()
    assert "of peak" in shown.out
    assert "end to end" in shown.err
    assert len([e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]) == 3
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {row["kernel"] for row in rows} == {"double", "add"}
    assert main([*arguments, "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["gbytes_per_s"] > 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--fail-if", "+5%"], "--baseline"),
        (["--trace", "t.json"], "--profile"),
        (["--with", "onnxruntime"], "onnx file"),
        (["--sweep", "batch=1,2"], "batch sizes"),
        (["--profile", "--sweep", "threads=1,2"], "--sweep"),
        (["--baseline", "none.json"], "cannot read"),
        (["--percentiles", "101"], "percentiles"),
    ],
)
def test_wrong_use(models: tuple[str, str], more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", models[0], *more]) == 2
    assert message in capsys.readouterr().err


def test_a_sweep_over_threads(models: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--runs", "12", "--warmup", "10ms"]
    assert main(["bench", models[0], *quick, "--sweep", "threads=1,1", "-f", "json"]) == 0
    assert [row["threads"] for row in json.loads(capsys.readouterr().out)["rows"]] == [1, 1]


def test_throughput_is_timed_beside_other_instances(
    models: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("autosched.driver.options.thread_limits", lambda: ThreadLimits(3, None, None, None))
    quick = ["--runs", "20", "--warmup", "10ms", "-f", "json"]
    assert main(["bench", models[1], *quick, "--as", "throughput"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["threads"], row["instances"]) == (1, 3) and row["runs_per_s"] == pytest.approx(3 / row["median_s"])
    assert main(["bench", models[0], *quick, "--as", "throughput", "--threads", "2"]) == 2
    assert "instances of one thread" in capsys.readouterr().err


def test_a_runtime_that_is_not_installed_is_said_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model: it is not read")
    assert main(["bench", str(path), "--with", "openvino"]) == 2
    assert "openvino is not installed; pip install openvino, or leave it out of --with" in capsys.readouterr().err
