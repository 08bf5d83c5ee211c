"""The further benchmark models mean in ONNX what they mean in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched import relax
from autosched.frontend.onnx import from_onnx

torch = pytest.importorskip("torch")


def _case(label: str) -> Any:
    from benchmarks.more_models import CASES

    return next(case for case in CASES if case.label == label)


def test_labels_are_distinct() -> None:
    from benchmarks.more_models import CASES

    labels = [case.label for case in CASES]
    assert len(set(labels)) == len(labels) and "gpt 8x33" in labels and "alexnet" in labels


@pytest.mark.slow
@pytest.mark.parametrize("label", ["dlrm 128x13", "gru 1x32x64", "tcn 1x16x512", "decoder 1x1x512"])
def test_imported_models_compute_what_the_modules_do(label: str) -> None:
    from benchmarks.more_models import calibrated, export

    case = _case(label)
    torch.manual_seed(0)
    inputs = case.example()
    module = calibrated(case.make(), inputs)
    with torch.inference_mode():
        expected = module(*inputs)
    got = relax.evaluate(from_onnx(export(case)), [x.numpy() for x in inputs])
    for g, w in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, expected)), strict=True):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-3, atol=1e-4)
