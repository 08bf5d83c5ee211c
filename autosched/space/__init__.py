"""Search spaces: knobs, constraints, configurations, their TOML files and their numeric form.

What needs NumPy is imported when it is used: records hold configurations, and look-ups in them need no more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autosched.space.config import Config as Config
from autosched.space.config import KnobValue as KnobValue

if TYPE_CHECKING:
    from autosched.space.check import check_space_file as check_space_file
    from autosched.space.config_space import ConfigSpace as ConfigSpace
    from autosched.space.constraints import Constraint as Constraint
    from autosched.space.constraints import constraint as constraint
    from autosched.space.expression import Expression as Expression
    from autosched.space.expression import parse_expression as parse_expression
    from autosched.space.knob import Knob as Knob
    from autosched.space.knob import boolean as boolean
    from autosched.space.knob import choice as choice
    from autosched.space.knob import int_range as int_range
    from autosched.space.knob import split as split
    from autosched.space.location import use_spaces as use_spaces
    from autosched.space.toml import find_space as find_space
    from autosched.space.toml import list_spaces as list_spaces
    from autosched.space.toml import load_space as load_space
    from autosched.space.union_space import UnionSpace as UnionSpace
    from autosched.space.union_space import union as union

_NAMES = {
    "check": ("check_space_file",),
    "config_space": ("ConfigSpace",),
    "constraints": ("Constraint", "constraint"),
    "expression": ("Expression", "parse_expression"),
    "knob": ("Knob", "boolean", "choice", "int_range", "split"),
    "location": ("use_spaces",),
    "toml": ("find_space", "list_spaces", "load_space"),
    "union_space": ("UnionSpace", "union"),
}
_WHERE = {name: f"autosched.space.{module}" for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
