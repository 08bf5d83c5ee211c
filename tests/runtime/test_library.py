"""`load`, which builds an artifact's kernels again where its machine code does not run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import autosched
from autosched.errors import ArtifactError, InvalidValueError
from autosched.runtime import Contents, Executable, NeedsRebuildError, library
from tests.runtime.kernels import ROW, chain


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "small.asx"
    chain(2, 1).save(path)
    return path


def test_load_gives_what_was_saved(artifact: Path) -> None:
    executable = autosched.load(artifact)
    assert isinstance(executable, Executable)
    x = np.ones((2, ROW), np.float32)
    np.testing.assert_array_equal(executable(x).numpy(), 2 * x)


def test_load_refuses_what_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="does not exist"):
        autosched.load(tmp_path / "none.asx")
    (tmp_path / "text.asx").write_text("hello")
    with pytest.raises(ArtifactError, match="text.asx"):
        autosched.load(tmp_path / "text.asx")


def test_load_says_that_it_builds_again_and_does(
    artifact: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    contents = library.load_contents(artifact)

    def refuse(path: Path, **_: object) -> Contents:
        raise NeedsRebuildError("it needs avx512f", "features", contents, ("avx512f",))

    monkeypatch.setattr(library, "load_contents", refuse)
    monkeypatch.setattr("autosched.driver.rebuild.rebuild", lambda given: ("built again", given))
    with caplog.at_level(logging.WARNING, logger="autosched"):
        assert autosched.load(artifact) == ("built again", contents)
    assert "it needs avx512f; its kernels are built again" in caplog.text


def test_constants_may_be_left_in_the_file(tmp_path: Path) -> None:
    executable = chain(3, 2, constant=True)
    executable.save(tmp_path / "model.asx")
    x = np.ones((3, 64), np.float32)
    for mapped in (False, True):
        loaded = autosched.load(tmp_path / "model.asx", mapped=mapped)
        np.testing.assert_array_equal(loaded(x).numpy(), executable(x).numpy())
