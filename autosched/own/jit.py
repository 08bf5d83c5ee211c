"""Numba's options as far as they are knobs, and what a configuration says of each part of a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autosched.errors import UsageError
from autosched.own.ufunc import UfuncForm, refuse_plain_ufunc, unwrap_ufunc
from autosched.tuner.measure.base import THREAD_KNOBS

JIT_KNOBS: Mapping[str, bool | str] = {
    "fastmath": False,
    "parallel": False,
    "boundscheck": False,
    "error_model": "python",
}
_REFUSED = {
    "CFunc": "functions of numba.cfunc cannot be tuned: use numba.njit",
    "StencilFunc": "stencils cannot be tuned: call them from a function with numba.njit",
}


@dataclass(frozen=True)
class Parts:
    """A configuration's knobs, divided.

    constants  values of the function's own parameters
    options    of Numba's compilation, those of the decorator included
    threads    that a call uses at most; None: as many as there may be
    """

    constants: Mapping[str, object]
    options: Mapping[str, object]
    threads: int | None


def is_cuda(func: object) -> bool:
    """Whether a function was made a CUDA kernel by Numba."""
    return "cuda" in type(func).__module__.split(".")


def unwrap(func: Any) -> tuple[Callable[..., object], dict[str, object]]:
    """(the Python function, the options that it was jitted with) of a function, jitted or not.

    Raises UsageError for what cannot be tuned.
    """
    kind = type(func).__name__
    refuse_plain_ufunc(func)
    if UfuncForm.of(func) is not None:
        return unwrap_ufunc(func)
    if kind in _REFUSED:
        raise UsageError(_REFUSED[kind], where=getattr(func, "__name__", kind))
    if is_cuda(func) and not hasattr(func, "py_func"):
        raise UsageError(f"a {kind} of numba.cuda cannot be tuned", hint="decorate a function of numba.cuda.jit")
    inner = getattr(func, "py_func", func)
    if not hasattr(inner, "__code__"):
        raise UsageError(f"a {kind} cannot be tuned", hint="decorate a Python function or one of numba.njit")
    if inner.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        hint = "tune a function that fills an array, or the one that uses the generator"
        raise UsageError("a generator cannot be tuned: it works after the call", where=inner.__name__, hint=hint)
    options = dict(getattr(func, "targetoptions", {}))
    options.pop("nopython", None)
    options.pop("cache", None)
    return inner, {name: value for name, value in options.items() if value is not None}


def divide(knobs: Mapping[str, Any], parameters: Iterable[str], options: Mapping[str, object]) -> Parts:
    """Say what each knob of a configuration is: a parameter, one of Numba's options, or the number of threads."""
    constants, changed, threads = {}, dict(options), None
    for name, value in knobs.items():
        if name in parameters:
            constants[name] = value
        elif name in THREAD_KNOBS:
            threads = int(value)
        else:
            changed[name] = set(value.split(",")) if name == "fastmath" and isinstance(value, str) else value
    return Parts(constants, changed, threads)
