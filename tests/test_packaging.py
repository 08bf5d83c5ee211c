"""What the packaging files promise agrees with the code."""

from __future__ import annotations

import ast
import configparser
import re
import sys
from pathlib import Path

import autosched
from tests.layers import modules

ROOT = Path(__file__).parents[1]


def read_setup() -> configparser.ConfigParser:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    return setup


def requirement_names(text: str) -> set[str]:
    return {re.split(r"[<>=\[; ]", line)[0].lower() for line in text.split("\n") if line and not line.startswith("#")}


def imported_packages() -> set[str]:
    """Top-level packages that any module of autosched imports, also inside functions."""
    found: set[str] = set()
    for _, _, source in modules(ROOT / "autosched"):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"autosched"}


def test_every_import_is_a_dependency_or_an_extra() -> None:
    options = read_setup()["options"]
    extras = read_setup()["options.extras_require"]
    declared = requirement_names(options["install_requires"]) | {"onnx", "torch", "onnxruntime", "openvino"}
    declared |= requirement_names(extras["cluster"]) | requirement_names(extras["plot"])
    declared |= requirement_names(extras["cuda"])
    declared |= {"pytest"}  # whoever uses TVM's fixtures of `autosched.testing` has it
    assert {"onnx", "torch"} <= set(extras)
    # what is called otherwise, and what a dependency cannot be without
    brought_by = {"sklearn": "scikit-learn", "scipy": "scikit-learn", "threadpoolctl": "scikit-learn"}
    brought_by |= {"pygments": "rich", "google": "onnx", "dask": "distributed", "cuda": "cuda-core"}
    missing = {brought_by.get(name, name) for name in imported_packages()} - declared
    assert not missing, f"imported but in no requirement: {missing}"


def test_every_dependency_has_an_upper_bound() -> None:
    for line in read_setup()["options"]["install_requires"].split("\n"):
        if line and line != "llvmlite":  # Numba pins it
            assert "<" in line, line


def test_version_is_what_the_package_says() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", autosched.__version__)
    assert read_setup()["metadata"]["version"] == "attr: autosched.version.__version__"
    assert f"## {autosched.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
