"""`autosched build -vv`: the steps of a build with their times, by the files that docs/architecture.md names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import autosched
from autosched.cli import main
from tests.cli.models import dense_file


def test_the_steps_are_shown_in_order_and_their_files_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = dense_file(tmp_path / "m.onnx")
    assert main(["build", str(model), "-o", str(tmp_path / "m.asx"), "--no-db", "--threads", "1", "-vv"]) == 0
    steps = re.findall(r"autosched\.steps: +([\d.]+) ms +(\S+)", capsys.readouterr().err)
    files = [file for _, file in steps]
    assert files[0] == "driver/model_files.py" and files[-1] == "runtime/artifact.py"
    order = ["relax/transform", "driver/build/choose.py", "templates/kernel.py", "driver/build/schedules.py"]
    assert [file for file in dict.fromkeys(files) if file in order] == order
    package = Path(autosched.__file__).parent
    assert all((package / file).exists() for file in files)
    assert main(["build", str(model), "-o", str(tmp_path / "m.asx"), "--no-db", "--threads", "1"]) == 0
    assert "autosched.steps" not in capsys.readouterr().err
