"""The dialect of the loop level: `from autosched.script import tir as T`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.script.decorate import function_decorator
from autosched.script.dialect import Inert, inert_name

DIALECT = "T"


def prim_func(
    func: Callable[..., Any] | None = None,
    private: bool = False,
    check_well_formed: bool = True,
    s_tir: bool = False,
) -> Any:
    """Make a PrimFunc of a Python function's text. Raises ScriptError showing the line with a caret.

    private  without a `global_symbol`;  s_tir  accepted as TVM's newer spelling has it
    """
    return function_decorator(func, check_well_formed)


def __getattr__(name: str) -> Inert:
    return inert_name(DIALECT, name)
