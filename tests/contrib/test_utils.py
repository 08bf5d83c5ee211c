"""Temporary folders."""

from __future__ import annotations

from pathlib import Path

from autosched.contrib import utils


def test_a_folder_comes_and_goes(tmp_path: Path) -> None:
    folder = utils.tempdir()
    Path(folder.relpath("x.txt")).write_text("x")
    assert folder.listdir() == ["x.txt"] and Path(folder / "x.txt").is_file()
    folder.remove()
    assert not Path(folder.temp_dir).exists()
    own = utils.tempdir(str(tmp_path / "own"))
    own.remove()
    assert (tmp_path / "own").is_dir()
