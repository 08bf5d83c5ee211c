"""The stubs of the public packages say what the packages hold."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tests.stubs import exports, packages, path_of, stub


@pytest.mark.parametrize("package", list(packages()))
def test_the_stub_is_what_the_package_gives(package: str) -> None:
    assert path_of(package).is_file(), "run python -m tests.stubs"
    assert path_of(package).read_text(encoding="utf-8") == stub(package), "run python -m tests.stubs"


def test_each_name_of_the_main_package_s_stub_is_there() -> None:
    text = stub("autosched")
    assert text is not None
    package = importlib.import_module("autosched")
    names = [line.rpartition(" as ")[2].strip() for line in text.splitlines() if " as " in line]
    assert len(names) > 50
    assert [name for name in names if not {name, name.removeprefix("_")} & {*dir(package)}] == []


def test_all_names_of_two_modules(tmp_path: Path) -> None:
    file = tmp_path / "__init__.py"
    file.write_text("from autosched.tir.calls import *\nfrom autosched.tir.ptx import *\n")
    found = exports(file) or {}
    assert sorted(found.values()) == [("autosched.tir.calls", "*"), ("autosched.tir.ptx", "*")]
