"""The functions that have been registered by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

PackedFunc: TypeAlias = Callable[..., Any]  # what is called by name, with any arguments
FUNCTIONS: dict[str, PackedFunc] = {}
