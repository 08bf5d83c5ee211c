"""Python functions by name: TVM's registry of global functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    from autosched.runtime.array import NDArray


def _matmul(a: object, b: object, c: NDArray, transa: object = False, transb: object = False, *_: object) -> None:
    x, y = (np.asarray(t.numpy() if hasattr(t, "numpy") else t) for t in (a, b))
    x = np.swapaxes(x, -1, -2) if transa else x
    y = np.swapaxes(y, -1, -2) if transb else y
    c.copyfrom(np.matmul(x, y).astype(str(c.dtype), copy=False))


def _sort(data: NDArray, out: NDArray, *_: object) -> None:
    out.copyfrom(np.sort(data.numpy(), axis=-1))


def _argsort(data: NDArray, out: NDArray, *_: object) -> None:
    out.copyfrom(np.argsort(data.numpy(), axis=-1, kind="stable").astype(str(out.dtype)))


def _text(text: str, values: tuple[object, ...], between: str) -> str:
    """A format with its values; without one the values themselves."""
    shown = [str(v.numpy() if hasattr(v, "numpy") else v) for v in values]
    return text.format(*shown) if text else between.join(shown)


def _print(text: str, *values: object) -> None:
    print(_text(text, values, " "))


def _assert(condition: object, text: str, *values: object) -> None:
    if not (condition.numpy() if hasattr(condition, "numpy") else condition):
        raise AssertionError(_text(text, values, ", ") or "Assertion Failed")


def _nonzero(data: NDArray) -> NDArray:
    return _array(np.stack(np.nonzero(np.atleast_1d(data.numpy()))).astype("int64"))


def _unique(
    data: NDArray, index: int, inverse: int, counts: int, axis: int | None = None
) -> NDArray | tuple[NDArray, ...]:
    find: Callable[..., Any] = np.unique  # its overloads want literal truths
    found = find(data.numpy(), bool(index), bool(inverse), bool(counts), axis)
    if not isinstance(found, tuple):
        return _array(found)
    return tuple(_array(v if i == 0 else v.reshape(-1).astype("int64")) for i, v in enumerate(found))


def _dynamic_strided_slice(data: NDArray, *bounds: NDArray) -> NDArray:
    starts, ends, steps = (b.numpy().tolist() for b in bounds)
    return _array(np.ascontiguousarray(data.numpy()[tuple(map(slice, starts, ends, steps))]))


def _copy_into(target: NDArray, values: NDArray) -> NDArray:
    target.copyfrom(values)
    return target


def _array(values: np.ndarray) -> NDArray:
    from autosched.runtime.ndarray import array  # which needs this module

    return array(values)


PackedFunc: TypeAlias = Callable[..., Any]  # what is called by name, with any arguments
BUILT_IN: dict[str, PackedFunc] = {
    **{f"tvm.contrib.{name}.matmul": _matmul for name in ("cblas", "mkl", "dnnl", "cublas")},
    **{f"tvm.contrib.{name}.batch_matmul": _matmul for name in ("cblas", "mkl", "cublas")},
    "relax.run.print": _print, "relax.run.assert_op": _assert,
    "relax.run.copy_into": _copy_into, "relax.run.nonzero": _nonzero, "relax.run.unique": _unique,
    "relax.run.dynamic_strided_slice": _dynamic_strided_slice,
    "relax.run.shape_to_tensor": lambda shape: _array(np.asarray(tuple(shape), "int64")),
    "relax.run.tensor_to_shape": lambda data: tuple(data.numpy().tolist()),
    "tvm.contrib.sort.sort": _sort, "tvm.contrib.sort.argsort": _argsort,
}  # fmt: skip


_functions: dict[str, PackedFunc] = {}
F = TypeVar("F", bound=Callable[..., object])


@overload
def register_func(func_name: str, f: F, override: bool = False) -> F: ...
@overload
def register_func(func_name: F, f: None = None, override: bool = False) -> F: ...
@overload
def register_func(func_name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...


def register_func(func_name: str | F, f: F | None = None, override: bool = False) -> F | Callable[[F], F]:
    """Register a function: `register_func("name", f)`, or as a decorator with or without a name.

    Raises InvalidValueError where the name is taken and `override` is False.
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name)
    if not isinstance(func_name, str):
        raise InvalidTypeError(f"a function's name is a text, not {type(func_name).__name__}")

    def register(function: F) -> F:
        if not callable(function):
            raise InvalidTypeError(f"'{func_name}' is a {type(function).__name__}, no function")
        if func_name in _functions and not override:
            raise InvalidValueError(f"Global PackedFunc {func_name} is already registered", hint="use override=True")
        _functions[func_name] = function
        return function

    return register if f is None else register(f)


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """A registered function. Raises InvalidValueError if there is none of that name, unless that is allowed."""
    if name in _functions:
        return _functions[name]
    if name in BUILT_IN:
        return BUILT_IN[name]
    if allow_missing:
        return None
    raise InvalidValueError(f"Cannot find global function {name}")


def remove_global_func(name: str) -> None:
    """Forget a function."""
    _functions.pop(name, None)


def list_global_func_names() -> list[str]:
    """The names of all registered functions."""
    return sorted(_functions)
