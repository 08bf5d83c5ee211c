"""The build writes into each node over how many threads it may be split."""

from __future__ import annotations

import autosched
from autosched.frontend.onnx import from_onnx
from autosched.records import FallbackContext
from autosched.runtime import Executable
from benchmarks.models import get_model


def test_large_layers_are_split_and_small_ones_are_not(tmp_path) -> None:
    large = autosched.build(from_onnx(get_model("mlp", 128)), target="cpu", records=FallbackContext(), threads=2)
    small = autosched.build(from_onnx(get_model("mlp", 1)), target="cpu", records=FallbackContext(), threads=2)
    first, last = (node.threads for node in large.graph.nodes)
    assert first > last >= 1
    assert first > 8  # 128 x 784 x 256
    assert {node.threads for node in small.graph.nodes if "matmul" not in node.kernel} <= {1}
    assert small.graph.nodes[-1].threads == 1  # 1 x 256 x 10
    large.save(tmp_path / "m.asx")
    assert [node.threads for node in Executable.load(tmp_path / "m.asx").graph.nodes] == [first, last]
