"""The dialect of the loop level: `from autosched.script import tir as T`."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from autosched.script.decorate import function_decorator, visible_names
from autosched.script.dialect import inert_name
from autosched.script.parser.macro import Macro, read_macro
from autosched.script.parser.module import ModuleOrFunction
from autosched.tir.dtypes import DTYPES
from autosched.tir.expr import ExprLike, PrimExpr, SizeVar, Var, cast
from autosched.tir.ptx import FUNCTIONS

DIALECT = "T"


def prim_func(
    func: Callable[..., object] | None = None,
    private: bool = False,
    check_well_formed: bool = True,
    s_tir: bool = False,
) -> ModuleOrFunction:
    """Make a PrimFunc of a Python function's text. Raises ScriptError showing the line with a caret.

    private  without a `global_symbol`;  s_tir  accepted as TVM's newer spelling has it
    """
    return function_decorator(func, check_well_formed)


def macro(
    func: Callable[..., object] | None = None, *, hygienic: bool = True
) -> Macro | Callable[[Callable[..., object]], Macro]:
    """Statements with parameters, which a call in a PrimFunc stands for.

    hygienic  names inside mean what they mean where the macro is written, else where it is called
    """
    caller = inspect.currentframe()
    names = visible_names(caller.f_back if caller is not None else None)

    def decorate(f: Callable[..., object]) -> Macro:
        return read_macro(f, names, hygienic)

    return decorate if func is None else decorate(func)


inline = macro  # TVM's newer name


def _scalar(dtype: str) -> Callable[..., PrimExpr]:
    """`T.int64()` is a new variable, `T.int64(3)` a constant, `T.int64(x)` a conversion."""

    def make(expr: ExprLike | None = None, is_size_var: bool = False) -> PrimExpr:
        if expr is None:
            return SizeVar("v", dtype) if is_size_var else Var("v", dtype)
        return cast(dtype, expr)

    make.__name__ = dtype
    return make


def __getattr__(name: str) -> object:
    """A scalar type or a function of expressions, which means the same outside of scripts; other names are inert."""
    from autosched import tir

    if name.startswith("ptx_") and name not in FUNCTIONS:
        raise AttributeError(f"T has no {name}")
    if name in DTYPES:
        return _scalar(name)
    found = None if name.startswith("_") else getattr(tir, name, None)
    return found if inspect.isfunction(found) else inert_name(DIALECT, name)
