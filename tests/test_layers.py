"""Imports point one way: from the roof to the floor, as docs/architecture.md shows it."""

from __future__ import annotations

import ast
import fnmatch
import re
import tomllib
from pathlib import Path

import pytest

from tests.layers import Import, cycles, find_imports, imports_between, judge, modules, package_of, read_rows

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "autosched"
ROWS = read_rows((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


def test_the_table_was_read() -> None:
    assert len(ROWS) > 20
    assert ROWS["autosched.cli"] < ROWS["autosched.driver"] < ROWS["autosched.tir"] < ROWS["autosched.runtime"]


def test_no_import_points_up() -> None:
    wrong = [
        text
        for module, is_package, source in modules(PACKAGE)
        for found in find_imports(source, module, is_package=is_package)
        if (text := judge(found, ROWS))
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_of_a_package_do_not_import_each_other_in_circles() -> None:
    assert cycles(imports_between(PACKAGE)) == []


def test_a_circle_is_seen() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": set()}) == []


def test_the_files_that_the_page_names_are_there() -> None:
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    assert [name for name in named if not (PACKAGE / name).is_file() and not (ROOT / name).is_file()] == []


def test_every_package_is_in_the_table() -> None:
    packages = {package_of(module) for module, _, _ in modules(PACKAGE)} - {"autosched"}
    assert packages <= ROWS.keys()


@pytest.mark.parametrize(
    ("importer", "source", "direction"),
    [
        ("autosched.tir.schedule.split", "from autosched.driver import build", "up"),
        ("autosched.tir.schedule.split", "def f():\n    import autosched.codegen.emit", "up"),
        ("autosched.tir.schedule.split", "from autosched import te", "up"),
        ("autosched.tir.schedule.split", "from ...driver import build", "up"),
        ("autosched.tir.schedule.split", "from autosched.space import Config", "sideways"),
        ("autosched.runtime.loader", "import importlib\nimportlib.import_module('autosched.codegen')", "up"),
        ("autosched.relax.pipeline", "sys.modules.get('autosched.meta_schedule.database')", "up"),
        ("autosched.ir.module", "resolve('autosched.relay.expr:call')", "up"),
        ("autosched.te.tensor", "resolve(f'autosched.topi:{operator}')", "up"),
        ("autosched.runtime.loader", "if TYPE_CHECKING:\n    from autosched.ir import IRModule", "up"),
    ],
)
def test_a_bad_arrow_is_refused(importer: str, source: str, direction: str) -> None:
    (found,) = find_imports(source, importer, is_package=False)
    text = judge(found, ROWS)
    assert text is not None
    assert f"an arrow {direction}" in text


@pytest.mark.parametrize(
    "source",
    [
        "from autosched.errors import ScheduleError",
        "from ..stmt import For",
        "import numpy",
        "from autosched import ir",
        "resolve('autosched.errors:ScheduleError')",
        "func.attrs.get('autosched.config')",
    ],
)
def test_a_good_arrow_passes(source: str) -> None:
    for found in find_imports(source, "autosched.tir.schedule.split", is_package=False):
        assert judge(found, ROWS) is None


def test_relative_imports_in_a_package_start_at_itself() -> None:
    (found,) = find_imports("from .stmt import For", "autosched.tir", is_package=True)
    assert found.imported == "autosched.tir.stmt"


def test_an_unknown_package_is_refused() -> None:
    text = judge(Import("autosched.attic.box", "autosched.tir", 1), ROWS)
    assert text is not None
    assert "autosched.attic is in no row" in text


def _reads_environment(source: str) -> list[int]:
    """Find the lines that use os.environ, os.getenv or their relatives under any spelling of `os`."""
    names = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    if not any(name in source for name in names):
        return []  # parsing every module takes two seconds
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr in names)
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and names & {alias.name for alias in node.names})
    ]


def test_only_env_reads_the_environment() -> None:
    wrong = [
        f"{module}:{line}"
        for module, _, source in modules(PACKAGE)
        if module != "autosched.env"
        for line in _reads_environment(source)
    ]
    assert not wrong, f"use autosched.env instead: {wrong}"


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['X']", "from os import getenv", "import os as o\no.getenv('X')"]
)
def test_reading_the_environment_is_seen(source: str) -> None:
    assert _reads_environment(source)


def test_every_folder_of_modules_is_a_package() -> None:
    """A folder without __init__.py would be left out of the wheel."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert all((folder / "__init__.py").is_file() for folder in folders), sorted(
        str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").is_file()
    )


def test_no_folder_of_tests_is_passed_over() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    folders = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    patterns = options["norecursedirs"]
    assert [name for name in folders if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []
