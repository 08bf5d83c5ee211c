"""`autosched warm` and `autosched cache`: kernels compiled ahead, and moved to another cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import autosched
from autosched.cli import main, warm
from autosched.cli.warm import STANDARD, standard_models
from autosched.codegen import counters
from benchmarks.light import load_light
from tests.cli.models import dense_file


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "-q", "-f", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_kernels_compiled_ahead_are_found_by_builds_here_and_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, packed = dense_file(tmp_path / "m.onnx"), str(tmp_path / "kernels.zip")
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "here"))
    (row,) = answer(capsys, "warm", str(model))
    assert row["compiled"] > 0 and row["build_s"] > 0
    assert answer(capsys, "warm", str(model))[0]["compiled"] == 0
    shown = answer(capsys, "cache", "show")
    written = answer(capsys, "cache", "pack", packed)
    assert written["entries"] == shown["entries"] >= row["compiled"] and shown["size_bytes"] > 0

    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "there"))
    assert answer(capsys, "cache", "unpack", packed, "--sha256", written["sha256"])["new"] == written["entries"]
    before = counters.COMPILES.value
    autosched.build(model)
    assert counters.COMPILES.value == before


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "here"))
    (tmp_path / "bad.zip").write_bytes(b"?")
    assert main(["cache", "unpack", str(tmp_path / "bad.zip")]) == 2
    assert "holds machine code" in (text := capsys.readouterr().err) and "--trust" in text
    assert main(["cache", "unpack", str(tmp_path / "bad.zip"), "--trust"]) == 2
    assert "no packed kernel cache" in capsys.readouterr().err
    assert main(["warm", str(tmp_path / "missing.onnx")]) != 0
    assert "missing.onnx" in capsys.readouterr().err


def test_the_standard_networks_come_with_onnx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(standard_models()) == len(STANDARD) and all(file.stat().st_size > 1000 for file in standard_models())
    assert main(["warm"]) == 2
    assert "--standard" in capsys.readouterr().err
    monkeypatch.setattr(warm.importlib.util, "find_spec", lambda name: None)
    assert main(["warm", "--standard"]) == 2
    assert "has none here" in capsys.readouterr().err


@pytest.mark.slow
def test_a_standard_network_warms_the_one_with_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOSCHED_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setattr(warm, "STANDARD", ("squeezenet",))
    (row,) = answer(capsys, "warm", "--standard")
    assert row["compiled"] > 10
    before = counters.COMPILES.value
    autosched.build(load_light("squeezenet"))
    assert counters.COMPILES.value == before


def test_the_help_says_what_unpacking_means(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "unpack", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "FILE holds machine code" in text and "signs it with your own secret" in text
