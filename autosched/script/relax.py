"""The dialect of the graph level: `from autosched.script import relax as R`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.script.decorate import function_decorator
from autosched.script.dialect import Inert, inert_name

DIALECT = "R"


def function(
    func: Callable[..., Any] | None = None,
    *,
    pure: bool = True,
    private: bool = False,
    check_well_formed: bool = True,
) -> Any:
    """Make a relax Function of a Python function's text. Raises ScriptError showing the line with a caret."""
    return function_decorator(func, check_well_formed)


def __getattr__(name: str) -> Inert:
    return inert_name(DIALECT, name)
