"""Functions of one's own on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from autosched.cli.own import arguments_of, own_function
from autosched.cli.tune_models import project_models
from autosched.errors import UsageError
from autosched.records import open_store
from autosched.records.record import make_record
from autosched.space import Config
from autosched.task import Measurement, Status, Trial
from tests.cli.models import refuse
from tests.driver.programs import TUNED_HERE
from tests.own import kernels
from tests.own.test_function import win

SCALE = "tests.own.kernels:scale"


def test_a_function_is_told_from_other_objects() -> None:
    assert own_function(Path(SCALE)) is kernels.scale
    assert own_function(Path("tests.own.kernels:doubled")) is None
    assert own_function(Path("model.onnx")) is None
    with pytest.raises(UsageError, match="--inputs is for functions"):
        own_function(Path("model.onnx"), Path("x.npz"))
    with pytest.raises(UsageError, match="--on"):
        own_function(Path(SCALE), None, "--on")


def test_arguments_from_a_file_or_the_example(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.arange(4.0), a=2.5)
    x, a = arguments_of(kernels.scale, tmp_path / "in.npz")
    assert (x == np.arange(4.0)).all() and a == 2.5 and isinstance(a, float)
    assert arguments_of(kernels.scale, None)[0].size == 1000
    np.savez(tmp_path / "other.npz", y=np.arange(4.0))
    with pytest.raises(UsageError, match="it takes x, a"):
        arguments_of(kernels.scale, tmp_path / "other.npz")


def test_kernels_of_a_project_stand_behind_its_models(tmp_path: Path) -> None:
    (tmp_path / "autosched.toml").write_text(f'[tune]\nmodels = ["m.onnx"]\nkernels = ["{SCALE}"]\n')
    assert project_models(tmp_path) == [(tmp_path / "m.onnx", None), (Path(SCALE), None)]
    (tmp_path / "autosched.toml").write_text('[tune]\nkernels = ["scale.py"]\n')
    with pytest.raises(UsageError, match="a kernel is"):
        project_models(tmp_path)


def test_the_list_shows_the_one_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", SCALE, "--list", "-f", "json", "--db", str(tmp_path / "a.db")]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["configs"] == 3 and row["record"] == "no record" and row["name"] == "tests.own.kernels:scale 1000 scalar"


def test_tune_list_explain_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(tmp_path / "own.db")
    np.savez(tmp_path / "in.npz", x=np.arange(1000.0), a=2.0)
    assert main(["tune", SCALE, "--inputs", str(tmp_path / "in.npz"), "--db", database, "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["n_trials"] == 3 and row["config"].startswith("own/tests.own.kernels:scale: block=")
    assert main(["logs", "explain", SCALE, "--db", database, "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (used,) = [r for r in found if r["verdict"] == "used"]
    assert used["trust"] in TUNED_HERE
    assert main(["logs", "best", "--db", database, "-f", "json"]) == 0
    assert "own/tests.own.kernels:scale" in capsys.readouterr().out
    assert main(["logs", "export", str(tmp_path / "out.jsonl"), "--db", database]) == 0
    assert main(["logs", "import", str(tmp_path / "out.jsonl"), "--db", str(tmp_path / "again.db")]) == 0
    kernels.scale.forget()
    assert main(["tune", SCALE, "--db", str(tmp_path / "again.db"), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_trials"] == 0, "nothing is measured twice"


def test_bench_has_the_default_beside_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, quick = str(tmp_path / "own.db"), ["--runs", "12", "-f", "json"]
    assert main(["bench", SCALE, "--db", database, *quick]) == 0
    captured = capsys.readouterr()
    assert [row["name"] for row in json.loads(captured.out)["rows"]] == ["scale default"]
    assert f"nothing tuned to compare with (no record); autosched tune {SCALE}" in captured.err
    task = kernels.scale.task_for(kernels.scale.example_arguments(), 1)
    winner = Trial(Config(kernels.scale.space.name, {"block": 256}), Measurement(Status.OK, (1e-6,), "a test"))
    with open_store(database) as store:
        store.add([make_record(task, winner, is_winner=True, versions={"template": kernels.scale.version})])
    assert main(["bench", SCALE, "--db", database, *quick]) == 0
    captured = capsys.readouterr()
    default, tuned = json.loads(captured.out)["rows"]
    assert (default["speed_up"], tuned["name"]) == (1.0, "scale tuned") and tuned["n_runs"] >= 12
    assert tuned["config"].endswith("block=256") and "scale tuned" in captured.err
    np.savez(tmp_path / "in.npz", x=np.arange(77.0), a=2.0)
    assert main(["bench", SCALE, "--db", database, "--inputs", str(tmp_path / "in.npz"), *quick]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([SCALE, "--sweep", "threads=1,2"], "--sweep is for models"),
        ([SCALE, "--profile"], "--profile is for models"),
        ([SCALE, "tests.own.kernels:doubled"], "tests.own.kernels:doubled is no function of autosched.autotune"),
        (["tests.own.kernels:fill"], "has no example arguments"),
    ],
)
def test_what_bench_refuses(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(capsys, ["bench", *words], said)


@pytest.mark.parametrize("words", [["logs", "lock", SCALE], ["run", SCALE], ["tune", SCALE, "--shapes", "x:1..4"]])
def test_where_a_model_is_wanted(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refuse(capsys, words, f"{SCALE} is a function of autosched.autotune, not a model")


@pytest.mark.parametrize("more", [[], ["--list"]])
def test_shapes_are_for_models(more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    refuse(capsys, ["tune", SCALE, "--shapes", "x:4", *more], "--shapes is for models; a function's arguments are")


def test_the_report_shows_the_code_of_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database, page = tmp_path / "own.db", tmp_path / "own.html"
    monkeypatch.setenv("AUTOSCHED_DB", str(database))
    win(kernels.scale, kernels.scale.example_arguments(), block=256)
    assert main(["logs", "report", "--model", "tests.own.kernels:scale", "-o", str(page), "--no-roofline"]) == 0
    text = page.read_text(encoding="utf-8")
    for part in ("Winner: own/tests.own.kernels:scale: block=256", "Winner: assembly", "Default: assembly", "retq"):
        assert part in text
