"""Small models on disk, and what every refused command line has in common."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autosched.cli import main
from tests.frontend.onnx_models import make, node

WEIGHT = np.random.default_rng(0).standard_normal((16, 8)).astype("float32") * np.float32(0.2)


def dense_file(path: Path, batch: int | str = 4, op: str = "Relu") -> Path:
    """A model y = relu(x · w) of x [batch, 16]."""
    nodes = [node("MatMul", "x w", "h"), node(op, "h", "y")]
    path.write_bytes(make(nodes, {"x": (batch, 16)}, ["y"], {"w": WEIGHT}).SerializeToString())
    return path


def refuse(capsys: pytest.CaptureFixture[str], words: list[str], *parts: str, code: int = 2) -> str:
    """Run a command line that must be refused in one or two lines that hold `parts`; gives these lines."""
    before = capsys.readouterr()
    assert main(words) == code, f"{words}: {before.err}"
    captured = capsys.readouterr()
    assert not captured.out
    assert captured.err.startswith("autosched: error: ")
    assert 1 <= captured.err.count("\n") <= 2, captured.err
    assert "Traceback" not in captured.err
    for part in parts:
        assert part in captured.err
    return captured.err
