"""The table of converters: ONNX operator name -> function of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from autosched.errors import InvalidValueError

if TYPE_CHECKING:
    from autosched.frontend.onnx.node import Node

Converter: TypeAlias = "Callable[[Node], Any]"
C = TypeVar("C", bound=Converter)
CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[C], C]:
    """Register the converter of one or several operators.

    It takes a Node and returns an expression, or a tuple of them for several outputs.
    """

    def register(function: C) -> C:
        for name in names:
            if name in CONVERTERS:
                raise InvalidValueError(f"there is a converter for {name} already")
            CONVERTERS[name] = function
        return function

    return register
