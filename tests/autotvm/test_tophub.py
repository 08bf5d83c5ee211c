"""TopHub's packages: from the user's folder, never a failure."""

from __future__ import annotations

import io
import urllib.error
from pathlib import Path
from typing import Any

import pytest

from autosched.autotvm import tophub
from autosched.autotvm.task.dispatcher import ApplyHistoryBest, EmptyContext, FallbackContext
from autosched.records import DispatchContext

LINE = (
    '{"input": ["llvm -keys=cpu -model=%s", "dense", [["TENSOR", [1, 4], "float32"]], {}], "config": {"index": 1, '
    '"code_hash": null, "entity": [["k", "ot", 3]]}, "result": [[0.001], 0, 1.0, 1.0], "version": 0.2, '
    '"tvm_version": "0.9.0"}\n'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TOPHUB_LOCATION", raising=False)
    monkeypatch.setattr(tophub, "package_folder", lambda: tmp_path)
    monkeypatch.setattr(tophub, "_unavailable", set())
    return tmp_path


def test_a_package_that_is_there_is_used(folder: Path) -> None:
    (folder / "llvm_v0.04.log").write_text(LINE % "one" + LINE % "two" + LINE % "two")
    with tophub.context("llvm") as context:
        assert isinstance(context, ApplyHistoryBest) and DispatchContext.current is context
        assert len(context.best_by_model) == 2
    assert isinstance(DispatchContext.current, FallbackContext)
    assert len(tophub.load_reference_log("llvm", "one", "dense")) == 1
    assert len(tophub.load_reference_log("llvm", "absent", "dense")) == 2
    assert tophub.load_reference_log("llvm", "one", "conv2d") == []


def test_nothing_is_asked_of_the_network_by_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str, **_: Any) -> None:
        pytest.fail(f"{url} was asked")

    monkeypatch.setattr(tophub.urllib.request, "urlopen", fail)
    with tophub.context(["llvm", "nvptx"]):
        assert tophub.check_backend("llvm") is None
    assert tophub.load_reference_log("llvm", "one", "dense") == []
    monkeypatch.setenv("TOPHUB_LOCATION", str(folder))
    assert tophub.check_backend("llvm") is None


def test_an_answer_too_large_for_a_log_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tophub, "_LARGEST_BYTES", 1000)
    monkeypatch.setattr(tophub.urllib.request, "urlopen", lambda url, **_: io.BytesIO(bytes(1001)))
    with pytest.raises(OSError, match="gives more than"):
        tophub.download_package("llvm_v0.04.log")
    assert not list(folder.iterdir())


def test_a_failed_download_is_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def fail(url: str, **_: Any) -> None:
        asked.append(url)
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("TOPHUB_LOCATION", tophub.AUTOTVM_TOPHUB_DEFAULT_LOC)
    monkeypatch.setattr(tophub.urllib.request, "urlopen", fail)
    for _ in range(2):
        with tophub.context(["nvptx"]):
            pass
    assert len(asked) == 1 and asked[0].endswith("/cuda_v0.10.log")
    assert "Failed to download" in caplog.text


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPHUB_LOCATION", "NONE")
    context = tophub.context("llvm")
    assert isinstance(context, EmptyContext)
    with context as entered:
        assert entered is None and isinstance(DispatchContext.current, FallbackContext)
