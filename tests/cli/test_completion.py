"""What a shell completes: commands, flags, and the values of flags that are names."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from autosched.cli import main
from autosched.cli.app import app
from tests.cli.models import dense_file


def completed(*words: str) -> list[str]:
    """What is offered for the last word."""
    shell = ShellComplete(app, {}, "autosched", "_AUTOSCHED_COMPLETE")
    return [item.value for item in shell.get_completions([*words[:-1]], words[-1])]


def test_commands_and_flags() -> None:
    assert completed("tu") == ["tune"]
    assert completed("logs", "st") == ["stats"]
    assert completed("tune", "--st") == ["--strategy"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("tune --strategy", "gp"),
        ("tune --cache", "cold"),
        ("build --mcpu", "x86-64-v4"),
        ("build --like", "neoverse-n1"),
        ("bench --with", "onnxruntime"),
        ("logs list --status", "timeout"),
        ("logs best --template", "matmul"),
    ],
)
def test_values_that_are_names(words: str, name: str) -> None:
    assert name in completed(*words.split(), name[:2])
    assert all(value.startswith(name[:2]) for value in completed(*words.split(), name[:2]))


def test_lists_go_on_behind_a_comma() -> None:
    assert completed("bench", "--with", "onnxruntime,openv") == ["onnxruntime,openvino"]
    assert "onnxruntime,onnxruntime" not in completed("bench", "--with", "onnxruntime,")


def test_kernels_of_an_artifact(tmp_path: Path) -> None:
    dense_file(tmp_path / "model.onnx")
    artifact = str(tmp_path / "model.asx")
    assert main(["build", str(tmp_path / "model.onnx"), "-o", artifact, "-q"]) == 0
    assert any("matmul" in name or "dense" in name for name in completed("inspect", artifact, "--kernel", ""))
    assert completed("inspect", str(tmp_path / "none.asx"), "--kernel", "") == []
