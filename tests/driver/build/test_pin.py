"""Configurations that the caller of `build` names."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.errors import UntrustedError, UsageError
from tests.cli.models import dense_file


def test_a_kernel_has_the_knobs_that_are_named(tmp_path: Path) -> None:
    path = dense_file(tmp_path / "m.onnx")
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    free = autosched.build(path)
    pinned = autosched.build(path, pin={"matmul": "rows=2 vectors=1"})
    (kernel,) = pinned.kernels.values()
    knobs = json.loads(kernel.config)["knobs"]
    assert knobs["rows"] == 2 and knobs["vectors"] == 1
    np.testing.assert_allclose(pinned(x).numpy(), free(x).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("pin", "said"),
    [
        ({"conv9d": "rows=2"}, "no kernel's workload holds 'conv9d'"),
        ({"matmul": "columns=2"}, "no knob 'columns'"),
        ({"matmul": "rows=1000000"}, "cannot be used"),
    ],
)
def test_a_pin_that_cannot_be_used_is_refused(tmp_path: Path, pin: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        autosched.build(dense_file(tmp_path / "m.onnx"), pin=pin)


def test_strict_refuses_what_nobody_has_verified(tmp_path: Path) -> None:
    with pytest.raises(UntrustedError, match="pinned"):
        autosched.build(dense_file(tmp_path / "m.onnx"), pin={"matmul": "rows=2"}, strict=True)
