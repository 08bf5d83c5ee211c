"""The operators by name: `op.registry` fills the table, expressions ask it for the types of their results."""

from __future__ import annotations

from typing import Any

from autosched.errors import InvalidValueError
from autosched.extensions import load_extensions

OPERATORS: dict[str, Any] = {}  # short name ("nn.conv2d") -> OpDef of `op.registry`


def get_op(name: str) -> Any:
    """The operator called "add" or "relax.add". Raises ValueError for an unknown name."""
    short = name.removeprefix("relax.")
    if short not in OPERATORS:
        load_extensions()
    if short not in OPERATORS:
        raise InvalidValueError(f"no operator '{name}'")
    return OPERATORS[short]
