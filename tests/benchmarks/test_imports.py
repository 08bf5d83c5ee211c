"""Every benchmark finds what it imports."""

import importlib
import pkgutil

import pytest

import benchmarks

NAMES = [m.name for m in pkgutil.iter_modules(benchmarks.__path__, "benchmarks.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_where_a_benchmark_looks_for_them(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("autosched", "benchmarks"):
            raise
        pytest.skip(f"{error.name} is not installed")
