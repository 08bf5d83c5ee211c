"""The table of converters: PyTorch operator name -> function of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from autosched.errors import InvalidValueError

Converter = Callable[..., Any]
C = TypeVar("C", bound=Converter)
CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[C], C]:
    """Register the converter of one or several operators, named as in ATen without overload ("add", "_softmax").

    It takes an Emitter and the operator's arguments under PyTorch's names: tensors as expressions, everything else as
    Python values. It returns an expression, or a tuple of them for several outputs.
    """

    def register(function: C) -> C:
        for name in names:
            if name in CONVERTERS:
                raise InvalidValueError(f"there is a converter for {name} already")
            CONVERTERS[name] = function
        return function

    return register
