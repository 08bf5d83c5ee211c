"""Ufuncs of `numba.vectorize` and `numba.guvectorize`: how each was made, so that it can be made with other knobs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autosched.errors import UsageError

UFUNC_KNOBS: Mapping[str, bool] = {"fastmath": False, "boundscheck": False}
_KINDS = ("DUFunc", "GUFunc")


@dataclass(frozen=True)
class UfuncForm:
    """What the decorator was given beside the function and its options.

    layout    of `guvectorize`, such as "(n),()->(n)"; "": it is one of `vectorize`
    types     Numba's types of each loop that was asked for; none: loops are compiled for what a call brings
    identity  of a reduction;  writable  of `guvectorize`: which inputs it writes
    """

    layout: str
    types: tuple[object, ...]
    identity: object
    writable: tuple[object, ...]

    @staticmethod
    def of(func: Any) -> UfuncForm | None:
        """The form of a function that Numba made; None for any other."""
        kind = type(func).__name__
        if kind not in _KINDS:
            return None
        if kind == "DUFunc":
            loops = [result.signature for result in func._dispatcher.overloads.values()] if func._frozen else []
            return UfuncForm("", tuple(loop.return_type(*loop.args) for loop in loops), func.identity, ())
        made = func.gufunc_builder
        return UfuncForm(made.signature, tuple(made._sigs), func._identity, tuple(made.writable_args))

    def signature(self, func: Callable[..., object], knobs: set[str]) -> inspect.Signature:
        """The parameters of the ufunc: outputs may be left out where Numba makes them."""
        whole = inspect.signature(func)
        parameters = list(whole.parameters.values())
        inputs = [p for p in parameters if p.name not in knobs]
        rest = [p for p in parameters if p.name in knobs]
        if not self.layout:
            name = "out" if "out" not in whole.parameters else "out_"
            inputs.append(inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None))
        elif self.types:
            n_in = self.layout.partition("->")[0].count("(")
            inputs[n_in:] = [p.replace(default=None) for p in inputs[n_in:]]
        return whole.replace(parameters=[*inputs, *rest])

    def make(self, func: Callable[..., object], options: Mapping[str, object]) -> Ufunc:
        """The ufunc of a function without knobs."""
        import numba

        given = dict(options)
        if self.identity is not None:
            given["identity"] = self.identity
        if not self.layout:
            return Ufunc(numba.vectorize(list(self.types), **given)(func))
        if self.writable:
            given["writable_args"] = self.writable
        arguments = (list(self.types), self.layout) if self.types else (self.layout,)
        return Ufunc(numba.guvectorize(*arguments, **given)(func))


class Ufunc:
    """Numba's ufunc as the tuner calls it: outputs that are None were not given."""

    def __init__(self, inner: Any):
        self.inner = inner

    def __call__(self, *values: object) -> object:
        if values[-1] is None:
            values = tuple(value for value in values if value is not None)
        return self.inner(*values)

    def compile(self, values: tuple[object, ...]) -> None:
        """Compile the loop for arguments of these types, as Numba names them; an error is Numba's."""
        from numba import types

        if self.inner._frozen:
            return
        kinds = [kind for kind in values if not isinstance(kind, types.NoneType)]
        if type(self.inner).__name__ == "GUFunc":
            self.inner.add(self.inner._get_function_type(*kinds))
        else:
            scalars = tuple(kind.dtype if isinstance(kind, types.Array) else kind for kind in kinds)
            self.inner._compile_for_argtys(scalars[: self.inner.nin])


def unwrap_ufunc(func: Any) -> tuple[Callable[..., object], dict[str, object]]:
    """(the Python function, the options that it was compiled with)."""
    if type(func).__name__ == "DUFunc":
        inner, options = func._dispatcher.py_func, func.targetoptions
    else:
        inner, options = func.gufunc_builder.py_func, func.gufunc_builder.targetoptions
    return inner, {name: value for name, value in options.items() if value is not None and name != "nopython"}


def refuse_plain_ufunc(func: Any) -> None:
    """Raises UsageError for a ufunc of which nothing but its loops is left, as `target="parallel"` makes it."""
    if type(func).__module__ == "numpy" and type(func).__name__ == "ufunc":
        hint = 'leave target="parallel" out'
        raise UsageError("a ufunc that is compiled already cannot be tuned", where=func.__name__, hint=hint)
