"""The functions that are registered from the start: those that operators call by name, and TVM's of other libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autosched.errors import InvalidValueError
from autosched.runtime.array import NDArray
from autosched.runtime.collected import Collected
from autosched.runtime.key_value_cache import AttentionKVCache
from autosched.runtime.ndarray import array
from autosched.runtime.registered import FUNCTIONS


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
    return array(np.stack(np.nonzero(np.atleast_1d(data.numpy()))).astype("int64"))


def _counts(data: NDArray) -> tuple[int, ...]:
    found = tuple(data.numpy().tolist())
    if min(found, default=0) < 0:
        raise InvalidValueError(f"{list(found)} of a call are no counts")
    return found


def _unique(
    data: NDArray, index: int, inverse: int, counts: int, axis: int | None = None
) -> NDArray | tuple[NDArray, ...]:
    find: Callable[..., Any] = np.unique  # its overloads want literal truths
    found = find(data.numpy(), bool(index), bool(inverse), bool(counts), axis)
    if not isinstance(found, tuple):
        return array(found)
    return tuple(array(v if i == 0 else v.reshape(-1).astype("int64")) for i, v in enumerate(found))


def _dynamic_strided_slice(data: NDArray, *bounds: NDArray) -> NDArray:
    starts, ends, steps = (b.numpy().tolist() for b in bounds)
    return array(np.ascontiguousarray(data.numpy()[tuple(map(slice, starts, ends, steps))]))


def _copy_into(target: NDArray, values: NDArray) -> NDArray:
    target.copyfrom(values)
    return target


def _debug_print(place: str, value: object) -> None:
    shown = value.numpy() if hasattr(value, "numpy") else value
    kind = f"shape {shown.shape}, {shown.dtype}" if isinstance(shown, np.ndarray) else type(shown).__name__
    print(f"{place}: {kind}\n{shown}")


def _invoke_debug(state: object, name: str, place: str, *values: object) -> object:
    known = FUNCTIONS.get(name) or BUILT_IN.get(name)
    if known is None:
        raise InvalidValueError(f"debug_func: no function '{name}' is registered")
    known(place, *values)
    return state


BUILT_IN: dict[str, Callable[..., Any]] = {
    **{f"tvm.contrib.{name}.matmul": _matmul for name in ("cblas", "mkl", "dnnl", "cublas")},
    **{f"tvm.contrib.{name}.batch_matmul": _matmul for name in ("cblas", "mkl", "cublas")},
    "relax.run.print": _print, "relax.run.assert_op": _assert,
    "relax.run.null_value": lambda: None, "vm.builtin.debug_print": _debug_print,
    "vm.builtin.invoke_debug_func": _invoke_debug,
    "vm.builtin.attention_kv_cache_create": AttentionKVCache,
    "vm.builtin.attention_kv_cache_append": AttentionKVCache.append,
    "vm.builtin.attention_kv_cache_view": AttentionKVCache.view,
    "relax.run.copy_into": _copy_into, "relax.run.nonzero": _nonzero, "relax.run.unique": _unique,
    "relax.run.dynamic_strided_slice": _dynamic_strided_slice,
    "relax.run.shape_to_tensor": lambda shape: array(np.asarray(tuple(shape), "int64")),
    "relax.run.counts": _counts, "relax.run.collection": Collected, "relax.run.collect": Collected.append,
    "relax.run.collected": Collected.stacked,
    "relax.run.tensor_to_shape": lambda data: tuple(data.numpy().tolist()),
    "tvm.contrib.sort.sort": _sort, "tvm.contrib.sort.argsort": _argsort,
}  # fmt: skip
