"""What `T.Buffer(…)` or `R.Tensor(…)` is when Python itself meets it, in an annotation: nothing but its own text.

The functions under `@T.prim_func` are never run. Their text is read, so the names in it need no meaning in Python.
"""

from __future__ import annotations

from typing import NoReturn

from autosched.errors import InvalidTypeError


class Inert:
    """A name of a dialect: it can be called, indexed and combined, and stays what it is."""

    def __init__(self, text: str):
        self._text = text

    def __call__(self, *args: object, **kwargs: object) -> Inert:
        return Inert(f"{self._text}(…)")

    def __getitem__(self, index: object) -> Inert:
        return Inert(f"{self._text}[…]")

    def __iter__(self) -> NoReturn:  # without it, Python would index for ever
        raise InvalidTypeError(f"{self._text} cannot be iterated", hint="it has a meaning under @T.prim_func only")

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert(f"{self._text}.{name}")

    def __repr__(self) -> str:
        return self._text

    def _combine(self, other: object) -> Inert:
        return Inert(f"{self._text} …")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __or__ = _combine


def inert_name(dialect: str, name: str) -> Inert:
    """A module's `__getattr__`. Raises AttributeError for Python's own names."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Inert(f"{dialect}.{name}")
