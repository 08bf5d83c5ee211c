"""TVM's helpers of tests under their names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autosched import testing

FILE = """
from autosched import testing

shape, dtype = testing.parameters((4, "float32"), (8, "int8"), ids=["wide", "narrow"])
named = testing.parameter(by_dict={"small": 1, "large": 100})
seen = []


def test_rows(shape, dtype):
    seen.append((shape, dtype))
    assert (shape, dtype) in ((4, "float32"), (8, "int8"))


def test_one_column(dtype):
    assert dtype in ("float32", "int8")


def test_names(named, request):
    assert request.node.name == {1: "test_names[small]", 100: "test_names[large]"}[named]


calls = []


@testing.fixture(cache_return_value=True)
def data(shape):
    calls.append(shape)
    return [shape]


def test_cached(data):
    data.append(0)
    assert len(data) == 2


def test_cached_again(data):
    assert len(data) == 1 and len(calls) == len(set(calls))
"""


def run(folder: Path, text: str, conftest: str = "") -> tuple[int, str]:
    """Pytest's exit code and output for a file of tests."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def test_parameters_come_in_rows(tmp_path: Path) -> None:
    code, output = run(tmp_path, FILE, 'pytest_plugins = ["autosched.testing.plugin"]')
    assert code == 0 and "10 passed" in output, output


def test_without_the_plugin_they_say_so(tmp_path: Path) -> None:
    code, output = run(
        tmp_path, "from autosched import testing\na, b = testing.parameters((1, 2))\ndef test(a): pass\n"
    )
    assert code == 1 and "autosched.testing.plugin" in output


def test_rows_of_one_length() -> None:
    with pytest.raises(ValueError, match="rows"):
        testing.parameters((1, 2), (3,))
