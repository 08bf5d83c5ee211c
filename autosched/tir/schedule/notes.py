"""Annotations of loops and blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autosched.errors import InvalidTypeError, ScheduleError
from autosched.ir.node import FrozenDict
from autosched.tir.axis import Range
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.schedule.tree import Tree


def annotate(tree: Tree, place: str | Var, key: str, value: object) -> Tree:
    """Add an annotation to a block (by name) or loop (by variable); a second value of one key replaces the first.

    Raises InvalidTypeError (a TypeError) for a value that neither script nor trace can hold.
    """
    if not _can_be_written(value):
        raise InvalidTypeError(
            f"annotate: the value of '{key}' is a {type(value).__name__}, expected a text, a number, an expression, "
            "or lists and dictionaries of them"
        )
    return _with_notes(tree, place, {**_notes(tree, place), key: value})


def _can_be_written(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _can_be_written(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_can_be_written, value))
    is_array = hasattr(value, "__dlpack__")
    return value is None or is_array or isinstance(value, str | int | float | np.number | np.bool_ | PrimExpr | Range)


def unannotate(tree: Tree, place: str | Var, key: str) -> Tree:
    """Take an annotation away. Raises ScheduleError where there is none of that key."""
    notes = dict(_notes(tree, place))
    if key not in notes:
        raise ScheduleError(f"unannotate: there is no annotation '{key}'", hint=f"there are {sorted(notes)}")
    del notes[key]
    return _with_notes(tree, place, notes)


def _notes(tree: Tree, place: str | Var) -> dict[str, object]:
    return dict(tree.block(place).annotations if isinstance(place, str) else tree.loops[place].annotations)


def _with_notes(tree: Tree, place: str | Var, notes: Mapping[str, object]) -> Tree:
    if isinstance(place, Var):
        loop = tree.loops[place]
        return tree.replace(loop, replace(loop, annotations=FrozenDict(notes)))
    realize = tree.realizes[place]
    new = replace(realize, block=replace(realize.block, annotations=FrozenDict(notes)))
    return tree.with_root(new) if realize is tree.root else tree.replace(realize, new)
