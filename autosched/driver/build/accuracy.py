"""How accurate a build has to be: an attribute of its PrimFuncs, which spaces and look-ups read."""

from __future__ import annotations

from autosched.ir import IRModule
from autosched.templates.accuracy import STRICT, with_strict
from autosched.tir import PrimFunc

ACCURACIES = ("fast", STRICT)


def with_accuracy(module: IRModule, accuracy: str) -> IRModule:
    """The module whose PrimFuncs say how accurate they have to be, so that spaces and look-ups see it."""
    if accuracy != STRICT:
        return module
    functions = {gv: with_strict(f) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()}
    return module.with_functions(functions)
