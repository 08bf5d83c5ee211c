"""A call's arguments on their way to a worker: arrays as blocks of memory in files, laid out as the caller has them.

Views of one array stay views of one block, so that arguments that overlap do so in the worker too; strides, alignment
and write protection are kept. Nothing of the caller's memory is ever written to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autosched.errors import UsageError
from autosched.own.transfer import pack_value

ALIGNED = 64


@dataclass(frozen=True, slots=True)
class View:
    """An array as a place in a block."""

    block: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    is_writeable: bool

    def of(self, blocks: list[np.ndarray]) -> np.ndarray:
        """The array in these blocks."""
        array = np.ndarray(self.shape, self.dtype, blocks[self.block].data, self.offset, self.strides)
        array.flags.writeable = self.is_writeable
        return array


@dataclass(frozen=True, slots=True)
class StoredArguments:
    """Arguments in files.

    values  the arguments by position, arrays as `View`s, pickled
    names   what each is called
    blocks  files of bytes; each block begins `shifts` bytes behind an address that is a multiple of 64
    """

    values: bytes
    names: tuple[str, ...]
    blocks: tuple[Path, ...]
    shifts: tuple[int, ...]

    def remove(self) -> None:
        """Delete the files."""
        for path in self.blocks:
            path.unlink(missing_ok=True)


def store_arguments(named: Mapping[str, object], folder: Path, key: str) -> StoredArguments:
    """Write arguments into files of a folder.

    Raises UsageError for an argument that cannot be sent to a worker, OSError if the disk is full.
    """
    for name, value in named.items():
        _check(name, value)
    arrays = list({id(a): a for value in named.values() for a in arrays_in(value)}.values())
    spans = merge_spans([span_of(array) for array in arrays])
    views = {id(array): view_of(array, spans) for array in arrays}
    values = tuple(replace_arrays(value, lambda a: views[id(a)]) for value in named.values())
    paths = []
    for number, (low, high) in enumerate(spans):
        path = folder / f"{key}_block{number}.npy"
        memory = (ctypes.c_ubyte * (high - low)).from_address(low)
        np.save(path, np.ctypeslib.as_array(memory), allow_pickle=False)
        paths.append(path)
    shifts = tuple(low % ALIGNED for low, _ in spans)
    return StoredArguments(pack_value(values), tuple(named), tuple(paths), shifts)


def arrays_in(value: object) -> Iterator[np.ndarray]:
    """The arrays of an argument: itself, or those in a tuple."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from arrays_in(part)


def replace_arrays(value: object, change: Callable[[Any], object]) -> Any:
    """An argument with its arrays, or the views that stand for them, changed."""
    if isinstance(value, np.ndarray | View):
        return change(value)
    if isinstance(value, tuple):
        parts = [replace_arrays(part, change) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _check(name: str, value: object) -> None:
    if isinstance(value, tuple):
        for part in value:
            _check(name, part)
        return
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            raise UsageError(f"argument '{name}' holds Python objects", hint="give an array of numbers")
        return
    if isinstance(value, bool | int | float | complex | str | np.generic) or value is None:
        return
    hint = "tuning takes arrays, numbers, texts, None and tuples of those"
    raise UsageError(f"argument '{name}' is a {type(value).__name__}", hint=hint)


def span_of(array: np.ndarray) -> tuple[int, int]:
    """The addresses from the first byte to behind the last; a byte for an array without elements."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), max(int(high), int(low) + 1) if array.size else int(low) + 1


def merge_spans(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans, overlapping ones united."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low < merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


def view_of(array: np.ndarray, spans: list[tuple[int, int]]) -> View:
    low, _ = span_of(array)
    number = next(i for i, (first, behind) in enumerate(spans) if first <= low < behind)
    address = int(array.__array_interface__["data"][0])
    return View(
        number, address - spans[number][0], array.shape, array.strides, array.dtype, bool(array.flags.writeable)
    )
