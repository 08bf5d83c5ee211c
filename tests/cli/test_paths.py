"""What may be read and written is known before anything slow begins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autosched.cli.paths import check_file, check_output
from autosched.errors import UsageError


def test_files_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    check_file(tmp_path / "a")
    with pytest.raises(UsageError, match="no file .*b"):
        check_file(tmp_path / "b")
    with pytest.raises(UsageError, match="is a folder"):
        check_file(tmp_path)
    with pytest.raises(UsageError, match="is no regular file"):
        check_file(Path(os.devnull))


def test_files_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_output(Path("new"))
    Path("old").touch()
    check_output(Path("old"), inputs=[Path("none"), tmp_path / "other"])
    for path, message in ((Path("none/new"), "there is no folder"), (Path(), "it is a folder")):
        with pytest.raises(UsageError, match=message):
            check_output(path)
    with pytest.raises(UsageError, match="no regular file"):
        check_output(Path(os.devnull))
    os.link("old", "linked")
    with pytest.raises(UsageError, match="cannot write old: it is an input of this command"):
        check_output(Path("old"), inputs=[tmp_path / "linked"])
