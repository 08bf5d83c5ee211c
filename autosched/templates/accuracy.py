"""How accurate a function has to be: an attribute that the build sets and templates read."""

from __future__ import annotations

from autosched.tir import PrimFunc

ACCURACY = "autosched.accuracy"  # the attribute's name; "strict" is the only value that means something
STRICT = "strict"


def is_strict(func: PrimFunc) -> bool:
    """Whether algorithms that lose more than direct evaluation does are left out."""
    return bool(func.attrs.get(ACCURACY) == STRICT)


def with_strict(func: PrimFunc) -> PrimFunc:
    """The function with the wish for strict accuracy."""
    return func.with_attr(ACCURACY, STRICT)
