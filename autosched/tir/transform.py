"""TVM's decorator of passes over PrimFuncs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.ir.transform import function_kind
from autosched.tir.function import PrimFunc


def prim_func_pass(
    pass_func: Any = None, opt_level: int | None = None, name: str | None = None,
    required: Sequence[str] | None = None, traceable: bool | None = None,
) -> Any:  # fmt: skip
    """A function `(func, mod, ctx) -> func`, or a class with `transform_function`, becomes a pass over PrimFuncs."""
    return function_kind(PrimFunc, "transform_function", pass_func, opt_level, name, required)
