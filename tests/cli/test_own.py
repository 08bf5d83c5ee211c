"""Functions of one's own on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from autosched.cli.own import arguments_of, own_function
from autosched.cli.project import project_models
from autosched.errors import UsageError
from tests.own import kernels

SCALE = "tests.own.kernels:scale"


def test_a_function_is_told_from_other_objects() -> None:
    assert own_function(Path(SCALE)) is kernels.scale
    assert own_function(Path("tests.own.kernels:doubled")) is None
    assert own_function(Path("model.onnx")) is None
    with pytest.raises(UsageError, match="--inputs is for functions"):
        own_function(Path("model.onnx"), Path("x.npz"))
    with pytest.raises(UsageError, match="--on"):
        own_function(Path(SCALE), None, "tcp://host:1")


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


@pytest.mark.alone
def test_tune_list_explain_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = str(tmp_path / "own.db")
    np.savez(tmp_path / "in.npz", x=np.arange(1000.0), a=2.0)
    assert main(["tune", SCALE, "--inputs", str(tmp_path / "in.npz"), "--db", database, "-f", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["n_trials"] == 3 and row["config"].startswith("own/tests.own.kernels:scale: block=")
    assert main(["logs", "explain", SCALE, "--db", database, "-f", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [r["trust"] for r in found if r["verdict"] == "used"] == ["verified here"]
    assert main(["logs", "best", "--db", database, "-f", "json"]) == 0
    assert "own/tests.own.kernels:scale" in capsys.readouterr().out
    assert main(["logs", "export", str(tmp_path / "out.jsonl"), "--db", database]) == 0
    assert main(["logs", "import", str(tmp_path / "out.jsonl"), "--db", str(tmp_path / "again.db")]) == 0
    kernels.scale.forget()
    assert main(["tune", SCALE, "--db", str(tmp_path / "again.db"), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_trials"] == 0, "nothing is measured twice"
