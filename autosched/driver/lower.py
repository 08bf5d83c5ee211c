"""`lower`: what code generation sees of a function, for reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.codegen.lower import lower_func
from autosched.driver.models import as_module
from autosched.ir import IRModule
from autosched.tir import PrimFunc


def lower(what: Any, args: Sequence[Any] | None = None, name: str = "main") -> IRModule:
    """The functions without blocks: plain loops over allocated buffers; graph functions stay as they are.

    what    an IRModule, a schedule, a PrimFunc, or tensors
    args    for tensors: the order of the function's arguments
    Raises  TypeError for anything else.
    """
    module = as_module(what, args, name)
    return module.with_functions(
        {gv: lower_func(f) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()}
    )
