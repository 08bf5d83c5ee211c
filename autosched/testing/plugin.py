"""Pytest's part of `testing.parameters`: `pytest_plugins = ["autosched.testing.plugin"]` in conftest.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give the fixtures of one call of `parameters` the values of one row together."""
    groups: dict[int, list[tuple[str, Any]]] = {}
    for name, definitions in metafunc._arg2fixturedefs.items():
        function = definitions[-1].func
        if hasattr(function, "row_group"):
            groups.setdefault(id(function.row_group), []).append((name, function))
    for columns in groups.values():
        names = [name for name, _ in columns]
        rows = list(zip(*(function.row_values for _, function in columns), strict=True))
        metafunc.parametrize(
            names if len(names) > 1 else names[0], rows if len(names) > 1 else [row[0] for row in rows],
            indirect=True, ids=columns[0][1].row_ids,
        )  # fmt: skip
