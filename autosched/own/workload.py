"""What a call of an own function is filed under: dtypes and shapes, or buckets of the arguments that were named."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import UsageError
from autosched.task import Workload

if TYPE_CHECKING:
    from autosched.json_types import Json


def op_name(func: Callable[..., object]) -> str:
    """The operator's and template's name: "own/module:function"; a script counts as the module that it would be."""
    module = func.__module__ or "__main__"
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        is_script = file is not None and not file.startswith("<")
        module = spec.name if spec is not None else Path(str(file)).stem if is_script else module
    return f"own/{module}:{func.__qualname__.replace('<locals>.', '')}"


def describe(op: str, named: Mapping[str, object], key: Sequence[str] | None) -> Workload:
    """The workload of a call.

    named  the arguments by name
    key    names of the arguments whose values, or shapes, decide, each in its bucket; None: all shapes as they are
    """
    leaves = [leaf for value in named.values() for leaf in _leaves(value)]
    dtypes = tuple(dtype_of(leaf) for leaf in leaves)
    if key is None:
        return Workload(op, dtypes, tuple(np.shape(leaf) if _is_array(leaf) else () for leaf in leaves))
    shapes: list[tuple[int, ...]] = []
    attrs: dict[str, Any] = {"key": tuple(key), "ndims": tuple(np.ndim(x) if _is_array(x) else 0 for x in leaves)}
    for name in key:
        value = bucket_of(named[name])
        if isinstance(value, tuple):
            shapes.append(value)
        else:
            attrs[name] = value
    return Workload(op, dtypes, tuple(shapes), attrs)


def values_of(workload: Workload, names: Sequence[str]) -> tuple[object, ...] | None:
    """Arguments whose workload it is, zeros and ones; None where it does not say enough.

    names  of the function's parameters
    """
    ranks = [len(shape) for shape in workload.shapes]
    shapes = dict(zip(names, workload.shapes, strict=False))
    values: dict[str, object] = {}
    if "key" in workload.attrs:
        attrs: Mapping[str, Json] = workload.attrs
        key, ranks, left = tuple(attrs["key"]), list(attrs["ndims"]), iter(workload.shapes)
        values = {name: attrs[name] for name in key if name in attrs}
        shapes = {name: next(left, ()) for name in key if name not in values}
    if len(ranks) != len(names) or len(workload.dtypes) != len(names):
        return None  # parts of tuples
    for name, dtype, rank in zip(names, workload.dtypes, ranks, strict=True):
        try:
            kind = np.dtype(dtype)
        except TypeError:
            return None
        if rank:
            values[name] = np.broadcast_to(np.zeros((), kind), shapes.get(name, (1,) * rank)).copy()
        elif name not in values:
            number = shapes.get(name, ())
            values[name] = kind.type(number[0] if number else 1)
    return tuple(values[name] for name in names)


def bucket_of(value: Any) -> Any:
    """The bucket of a value: the power of two that it does not exceed; an array's sizes, each in its bucket.

    A tuple holds sizes; texts and booleans are their own buckets, and so are numbers below 0, rounded away from it.
    """
    if _is_array(value):
        return tuple(bucket(size) for size in np.shape(value))
    if isinstance(value, bool | np.bool_ | str) or value is None:
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, int | np.integer):
        number = int(value)
        return (bucket(number),) if number >= 0 else -bucket(-number)
    if isinstance(value, float | np.floating):
        size = abs(float(value))
        return (
            float(value)
            if size == 0 or not math.isfinite(size)
            else math.copysign(2.0 ** math.ceil(math.log2(size)), value)
        )
    raise UsageError(f"a {type(value).__name__} cannot be part of the key", hint="name numbers, texts and arrays")


def bucket(size: int) -> int:
    """The least power of two that is not below a size; 0 for 0."""
    return 1 << (size - 1).bit_length() if size > 0 else 0


def dtype_of(value: Any) -> str:
    """The type of an argument in words: an array's dtype, a scalar's as Numba sees it."""
    if _is_array(value) or isinstance(value, np.generic):
        return str(value.dtype)
    names = {bool: "bool", int: "int64", float: "float64", complex: "complex128", type(None): "none"}
    return names.get(type(value), type(value).__name__)


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)
