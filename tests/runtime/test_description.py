"""What notebooks show of a built model."""

from __future__ import annotations

from pathlib import Path

import autosched
from tests.cli.models import dense_file


def test_a_model_and_its_kernels_as_html(tmp_path: Path) -> None:
    executable = autosched.build(str(dense_file(tmp_path / "m.onnx")), threads=1)
    assert isinstance(executable, autosched.Executable)
    (name,) = executable.kernels
    text = executable._repr_html_()
    assert f"<td>{name}</td>" in text and "<td>4 × 16</td>" in text and "MiB" in text
    shown = executable.kernels[name]._repr_html_()
    assert shown.startswith("<pre>") and "def " in shown and "<class" not in shown
