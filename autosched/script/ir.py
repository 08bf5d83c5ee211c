"""The dialect of modules: `from autosched.script import ir as I`."""

from __future__ import annotations

import inspect

from autosched.ir.module import GlobalVar as GlobalVar
from autosched.script.decorate import read_object, visible_names
from autosched.script.dialect import Inert, inert_name
from autosched.script.parser.module import ModuleOrFunction

DIALECT = "I"


def ir_module(cls: type | None = None, *, check_well_formed: bool = True) -> ModuleOrFunction:
    """Make an IRModule of a class whose functions are under `@T.prim_func` and `@R.function`. Raises ScriptError."""
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    names = visible_names(caller)

    def decorate(c: type) -> ModuleOrFunction:
        return read_object(c, names, check_well_formed, caller)

    return decorate if cls is None else decorate(cls)


def __getattr__(name: str) -> Inert:
    return inert_name(DIALECT, name)
