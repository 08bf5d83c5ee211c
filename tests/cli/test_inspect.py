"""`autosched inspect`: what a model is made of, and the code of its kernels."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from autosched.cli import main
from autosched.target import host_cpu
from tests.cli.models import dense_file, refuse
from tests.frontend.onnx_models import make, node

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def artifact(tmp_path: Path, capsys: Capture) -> Path:
    path = tmp_path / "m.asx"
    assert main(["build", str(dense_file(tmp_path / "m.onnx")), "-o", str(path), "--threads", "1", "-q"]) == 0
    capsys.readouterr()
    return path


def inspected(capsys: Capture, *words: str) -> str:
    assert main(["inspect", *words, "-q"]) == 0
    return capsys.readouterr().out


def test_inputs_memory_and_kernels_with_the_nodes_of_the_model(artifact: Path, capsys: Capture) -> None:
    text = inspected(capsys, str(artifact))
    assert "input   x: float32[4, 16]" in text
    assert "output  y: float32[4, 8]" in text
    found: Any = json.loads(inspected(capsys, str(artifact), "-f", "json"))
    (kernel,) = found["kernels"]
    assert found["weights_bytes"] >= 16 * 8 * 4
    assert (kernel["template"], kernel["calls"]) == ("matmul", 1)
    assert len(kernel["computes"]) == 2  # MatMul and Relu


def test_the_variants_of_an_artifact_for_several_cpus(tmp_path: Path, capsys: Capture) -> None:
    path, cpus = tmp_path / "m.asx", ["x86-64-v2", "neoverse-n1"]
    model = dense_file(tmp_path / "m.onnx")
    assert main(["build", str(model), "--mcpu", ",".join(cpus), "-o", str(path), "--threads", "1", "-q"]) == 0
    capsys.readouterr()
    here = "neoverse-n1" if host_cpu().architecture == "aarch64" else "x86-64-v2"
    text = inspected(capsys, str(path))
    assert f"of      x86-64-v2, neoverse-n1: {here} is what this machine runs" in text
    assert f"-mcpu={here}" in text and "{" not in text
    found: Any = json.loads(inspected(capsys, str(path), "-f", "json"))
    assert (found["variant"], found["variants"]) == (here, cpus)


def test_the_code_of_a_kernel_in_each_form(artifact: Path, capsys: Capture) -> None:
    (kernel,) = json.loads(inspected(capsys, str(artifact), "-f", "json"))["kernels"]
    words = [str(artifact), "--kernel", kernel["kernel"]]
    assert "matmul" in inspected(capsys, *words)
    assert "def " in inspected(capsys, *words, "--source")
    assert "@T.prim_func" in inspected(capsys, *words, "--schedule")
    assert "define " in inspected(capsys, *words, "--llvm")
    assert ".text" in inspected(capsys, *words, "--asm")
    refuse(capsys, ["inspect", *words, "--ptx"], "has no ptx", "it has source, schedule, llvm, asm")
    refuse(capsys, ["inspect", str(artifact), "--asm"], "--asm is of one kernel")
    refuse(capsys, ["inspect", str(artifact), "--kernel", "nothing"], "no kernel 'nothing'", kernel["kernel"])


def test_times_are_of_all_kernels_where_the_code_may_run(artifact: Path, capsys: Capture) -> None:
    def kernel(*words: str) -> dict[str, Any]:
        (found,) = json.loads(inspected(capsys, str(artifact), "--threads", "1", "-f", "json", *words))["kernels"]
        return dict(found)

    for words in ((), ("--time",)):
        assert kernel(*words)["seconds"] > 0 and kernel(*words)["share"] == pytest.approx(1)
    assert "share" not in kernel("--no-time")
    artifact.chmod(0o666)  # anybody may have changed it: what only looks at it does not run it
    assert "share" not in kernel()
    assert kernel("--time")["share"] == pytest.approx(1)


def test_the_drawing_has_a_box_for_each_call_and_joins_the_parts_of_a_concatenation(
    tmp_path: Path, capsys: Capture
) -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Softmax", "a", "b", axis=1),
        node("Softmax", "a", "c", axis=0),
        node("Concat", "b c", "d", axis=0),
        node("Softmax", "d", "y", axis=1),
    ]
    path, svg = tmp_path / "<m>.onnx", tmp_path / "m.svg"
    path.write_bytes(make(nodes, {"x": (4, 16)}, ["y"], {}).SerializeToString())
    found = json.loads(inspected(capsys, str(path), "--graph", str(svg), "--threads", "1", "-f", "json"))
    root = ElementTree.parse(svg).getroot()
    name = "{http://www.w3.org/2000/svg}"
    boxes, edges = root.findall(f"{name}g"), root.findall(f"{name}path")
    assert len(boxes) == found["calls"] + 2
    assert root.findtext(f"{name}title") == "<m>.onnx"
    starts = {edge.attrib["d"].split("C")[0] for edge in edges}
    assert len(starts) == len(boxes) - 1  # every box but the last is read by something
    page = tmp_path / "m.html"
    inspected(capsys, str(path), "--graph", str(page), "--threads", "1")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>") and svg.read_text(encoding="utf-8") in text
    assert "<title>&lt;m&gt;.onnx</title></head>" in text
