"""Weights that an importer kept as parameters."""

from __future__ import annotations

import numpy as np

from autosched.errors import InvalidTypeError
from autosched.ir.module import IRModule
from autosched.relax.expr import Function


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[np.ndarray]]]:
    """The module without `params` attributes, and the arrays by function name (only functions that had them)."""
    if not isinstance(mod, IRModule):
        raise InvalidTypeError(f"detach_params takes an IRModule, got {type(mod).__name__}")
    found: dict[str, list[np.ndarray]] = {}
    functions = {}
    for gv, function in mod.functions.items():
        if isinstance(function, Function) and "params" in function.attrs:
            found[gv.name] = list(function.attrs["params"])
            function = function.without_attr("params")
        functions[gv] = function
    return mod.with_functions(functions), found
