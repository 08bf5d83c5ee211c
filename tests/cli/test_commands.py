"""The main job on a small model: tune, build, run, bench, logs, doctor, in each form of output."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autosched.cli import main
from autosched.env import child_environment
from tests.cli.models import WEIGHT, dense_file
from tests.driver.programs import TUNED_HERE

pytestmark = pytest.mark.early

ROOT = Path(__file__).parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model, tuned into `tuned.db` and built into `m.asx`."""
    path = tmp_path_factory.mktemp("job")
    dense_file(path / "m.onnx")
    words = [
        "tune",
        str(path / "m.onnx"),
        "--trials",
        "4",
        "--seed",
        "1",
        "--threads",
        "1",
        "--db",
        str(path / "tuned.db"),
    ]
    assert main([*words, "-q", "-f", "json"]) == 0
    words = ["build", str(path / "m.onnx"), "-o", str(path / "m.asx"), "--db", str(path / "tuned.db"), "--threads", "1"]
    assert main([*words, "-q"]) == 0
    yield path


def document(capsys: Capture, *words: str) -> Any:
    """Run with -f json: what stands on stdout is one JSON document and nothing else."""
    capsys.readouterr()
    assert main([*words, "-f", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def records(capsys: Capture, *words: str) -> list[dict[str, str]]:
    """Run with -f csv: what stands on stdout is one table with a line of names."""
    capsys.readouterr()
    assert main([*words, "-f", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert all(len(row) == len(rows[0]) for row in rows)
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_list_names_the_tasks(folder: Path, capsys: Capture) -> None:
    words = ["tune", str(folder / "m.onnx"), "--list", "--db", str(folder / "tuned.db"), "--threads", "1"]
    (task,) = document(capsys, *words)
    known = {"index", "name", "weight", "templates", "configs", "record"}
    assert set(task) == known | {"share", "default_s", "roofline_s", "peak_share", "best_s", "expected_gain"}
    assert task["share"] == 1.0 and 0 < task["best_s"] <= task["default_s"] and task["expected_gain"] == 0
    assert task["peak_share"] == pytest.approx(task["roofline_s"] / task["best_s"])
    assert (task["index"], task["templates"]) == (0, ["matmul"]) and task["record"] in TUNED_HERE
    (row,) = records(capsys, *words)
    assert json.loads(row["templates"]) == ["matmul"]


def test_tune_resumes_and_reports(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ["tune", str(folder / "m.onnx"), "--trials", "2", "--tasks", "0", "--strategy", "random", "--threads", "1"]
    found = document(capsys, *words, "--db", str(tmp_path / "new.db"), "-q")
    assert (found["n_trials"], found["n_failed"], found["database"]) == (2, 0, str(tmp_path / "new.db"))
    for listing in ("list", "stats"):
        rows = document(capsys, "logs", listing, "--db", str(tmp_path / "new.db"))
        assert [row["n_trials"] for row in (rows if listing == "list" else rows["rows"])] == [2], listing
    (task,) = found["rows"]
    assert task["best_s"] <= task["default_s"]
    assert task["state"].startswith("done")
    capsys.readouterr()
    assert main([*words, "--db", str(tmp_path / "new.db"), "--budget", "20s"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].split()[:4] == ["task", "×", "share", "default"]
    assert "[0:" in captured.err and "trials" in captured.err  # plain lines, as this is no terminal
    assert "\x1b" not in captured.err
    assert f"saved to {tmp_path / 'new.db'}" in captured.err


def test_build_says_where_configurations_come_from(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    words = ["build", str(folder / "m.onnx"), "-o", str(tmp_path / "m.asx"), "--threads", "1"]
    assert main([*words, "--db", str(folder / "tuned.db")]) == 0
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.splitlines()[0].startswith("1 kernel: 1 from records")
    assert captured.err.splitlines()[-1] == f"written to {tmp_path / 'm.asx'}"
    assert main([*words, "--no-db", "-v"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0].split()[:2] == ["kernel", "template"]
    assert "template default" in captured.out
    assert "1 kernel: 1 default" in captured.err
    found = document(capsys, *words, "--no-db")
    assert found["artifact"] == str(tmp_path / "m.asx")
    assert found["kernels"][0]["trust"] == "default"
    (row,) = records(capsys, *words, "--db", str(folder / "tuned.db"), "--target", "cpu")
    assert row["trust"] in TUNED_HERE
    assert float(row["expected_s"]) > 0


def test_run_gives_what_numpy_gives(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    x = np.random.default_rng(3).standard_normal((4, 16)).astype(np.float32)
    expected = np.maximum(x @ WEIGHT, 0)
    np.savez(tmp_path / "in.npz", x=x)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "expected.npz", y=expected)
    for model in ("m.asx", "m.onnx"):
        for given in (["-i", str(tmp_path / "in.npz")], ["--input", f"x={tmp_path / 'x.npy'}"]):
            words = ["run", str(folder / model), *given, "-o", str(tmp_path / "out.npz")]
            assert main([*words, "--check", str(tmp_path / "expected.npz"), "--threads", "1"]) == 0
            captured = capsys.readouterr()
            assert not captured.out
            assert "1 output written to" in captured.err and "outputs agree with" in captured.err
            np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], expected, atol=1e-6)
    (row,) = document(capsys, "run", str(folder / "m.asx"), *given, "-o", str(tmp_path / "out.npz"))
    assert (row["output"], row["shape"], row["dtype"]) == ("y", [4, 8], "float32")
    assert row["max"] == pytest.approx(float(expected.max()))
    (row,) = records(capsys, "run", str(folder / "m.asx"), *given, "--print-top", "1")
    assert float(row["value"]) == pytest.approx(float(expected.max()))
    assert tuple(json.loads(row["index"])) == np.unravel_index(expected.argmax(), expected.shape)
    np.savez(tmp_path / "expected.npz", y=expected + 1)
    assert main(["run", str(folder / "m.asx"), *given, "--check", str(tmp_path / "expected.npz")]) == 4


def test_dynamic_shapes(tmp_path: Path, capsys: Capture) -> None:
    dense_file(tmp_path / "d.onnx", batch="batch")
    words = ["run", str(tmp_path / "d.onnx"), "--fill", "random", "--seed", "5"]
    for shapes in ("x:3x16", "x[3,16]"):
        (row,) = document(capsys, *words, "--shapes", shapes)
        assert row["shape"] == [3, 8]


def test_bench_compares(folder: Path, capsys: Capture) -> None:
    words = ["bench", str(folder / "m.asx"), str(folder / "m.onnx"), "--with", "onnxruntime", "--time", "20ms"]
    found = document(capsys, *words, "--sweep", "threads=1,2")
    assert [row["threads"] for row in found["rows"]] == [1, 1, 1, 2, 2, 2] or all(
        row["threads"] == 1 for row in found["rows"]
    )  # no more threads than the machine has
    assert len(found["verdicts"]) == 4
    assert all(0 < row["min_s"] <= row["median_s"] for row in found["rows"])
    assert main([*words, "--threads", "1"]) == 0
    captured = capsys.readouterr()
    assert "median ms" in captured.out
    assert "times faster than" in captured.err or "no difference found" in captured.err


def test_logs_move_between_databases(folder: Path, tmp_path: Path, capsys: Capture) -> None:
    database, log, other = str(folder / "tuned.db"), str(tmp_path / "best.jsonl"), str(tmp_path / "other.db")
    (listed,) = document(capsys, "logs", "list", "--db", database)
    assert listed["n_trials"] >= 4
    (best,) = records(capsys, "logs", "best", "--db", database)
    assert "rows" in json.loads(best["knobs"])
    assert float(best["gain"]) > 0
    shown = document(capsys, "logs", "show", "--db", database)
    assert len(shown) == listed["n_trials"] + 1, "trials, and the comparison of the winner with the default"
    exported = document(capsys, "logs", "export", log, "--winners", "--db", database)
    assert exported == [{"file": log, "n_records": 1}]
    imported = document(capsys, "logs", "import", log, "--db", other)
    assert imported == [{"file": log, "n_read": 1, "n_added": 1, "n_refused": 0}]
    words = ["build", str(folder / "m.onnx"), "-o", str(tmp_path / "m.asx"), "--threads", "1", "--db", other]
    assert document(capsys, *words)["kernels"][0]["trust"] in TUNED_HERE


@pytest.mark.parametrize("script", ["file", pytest.param("stdin", marks=pytest.mark.slow)])
def test_a_script_without_a_main_guard(folder: Path, tmp_path: Path, script: str) -> None:
    """Workers do not run the caller's script again, and none is left when it ends."""
    code = f"""
import autosched
mod = autosched.relax.frontend.onnx.from_onnx({str(folder / "m.onnx")!r})
report = autosched.tune(mod, records={str(tmp_path / "s.db")!r}, options=autosched.TuneOptions(trials=1, threads=1))
ex = autosched.build(mod, records={str(tmp_path / "s.db")!r}, threads=1)
print("trials", report.n_trials, report.n_failed, flush=True)
import contextlib, os
children = []
for task in os.listdir("/proc/self/task"):
    with contextlib.suppress(FileNotFoundError):  # a thread that has ended since
        children += open(f"/proc/self/task/{{task}}/children").read().split()
print("children", children)
"""
    (tmp_path / "script.py").write_text(code)
    words, given = ([str(tmp_path / "script.py")], "") if script == "file" else ([], code)
    environment = child_environment({"PYTHONPATH": str(ROOT)})
    done = subprocess.run(
        [sys.executable, *words], input=given, capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["trials 1 0", "children []"]
