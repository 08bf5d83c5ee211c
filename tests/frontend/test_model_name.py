"""Objects by module and by file; files come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from autosched.driver.model_files import load_object
from autosched.errors import UsageError
from autosched.frontend.model_name import is_object_name, object_name


def test_a_file_below_the_working_folder_names_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "kernels_of_mine.py").write_text("def f(): return 7\n")
    monkeypatch.chdir(tmp_path)
    for name in ("below/kernels_of_mine.py:f", str(tmp_path / "below" / "kernels_of_mine.py:f")):
        assert object_name(name) == "below.kernels_of_mine:f"
        assert is_object_name(name)
        assert load_object(name)() == 7
    with pytest.raises(UsageError, match="has no 'g'"):
        load_object("below/kernels_of_mine.py:g")


def test_other_texts_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("a/missing.py:f", "model.onnx", "C:/model.onnx", "a.py"):
        assert object_name(text) == text
        assert not is_object_name(text)
    assert is_object_name("package.module:f")
    (tmp_path / "m:f").touch()
    assert not is_object_name("m:f")
