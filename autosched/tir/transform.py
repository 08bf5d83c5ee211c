"""TVM's decorator of passes over PrimFuncs, and its passes by name, which lie with the code generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.ir.transform import Pass, PassDecorator, function_kind
from autosched.lazy_names import hook
from autosched.tir.function import PrimFunc


def prim_func_pass(
    pass_func: object = None, opt_level: int | None = None, name: str | None = None,
    required: Sequence[str] | None = None, traceable: bool | None = None,
) -> PassDecorator:  # fmt: skip
    """A function `(func, mod, ctx) -> func`, or a class with `transform_function`, becomes a pass over PrimFuncs."""
    return function_kind(PrimFunc, "transform_function", pass_func, opt_level, name, required)


def __getattr__(name: str) -> Callable[..., Pass]:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made: Callable[..., Pass] = getattr(hook("lowering passes"), name)
    return made


def __dir__() -> list[str]:
    return sorted({*globals(), *hook("lowering passes").NAMES})
