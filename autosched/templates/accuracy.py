"""How accurate a build has to be: an attribute of its PrimFuncs, which spaces, templates and look-ups read."""

from __future__ import annotations

from autosched.ir import IRModule
from autosched.tir import PrimFunc

ACCURACY = "autosched.accuracy"  # the attribute's name; "strict" is the only value that means something
STRICT = "strict"


def is_strict(func: PrimFunc) -> bool:
    """Whether algorithms that lose more than direct evaluation does are left out."""
    return bool(func.attrs.get(ACCURACY) == STRICT)


def with_strict(func: PrimFunc) -> PrimFunc:
    """The function with the wish for strict accuracy."""
    return func.with_attr(ACCURACY, STRICT)


ACCURACIES = ("fast", STRICT)


def with_accuracy(module: IRModule, accuracy: str) -> IRModule:
    """The module whose PrimFuncs say how accurate they have to be, so that spaces and look-ups see it."""
    if accuracy != STRICT:
        return module
    functions = {gv: with_strict(f) if isinstance(f, PrimFunc) else f for gv, f in module.functions_items()}
    return module.with_functions(functions)
