"""Calls of tuned functions without any Python code in between, where objects are laid out as is expected here.

`call_loop` is compiled once and kept in the kernel cache. A method of Python is made of it for each tuned function.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from autosched.errors import AutoschedError
from autosched.own.call_abi import CELL, CLASS, DATA, DTYPE, EXTENTS, ITEMS, NDIM, SIZE
from autosched.runtime.cache import kernel_cache
from autosched.target import Target

MOST_KINDS = 8  # that are compared with, one after the other, the latest first; others are found by Python
_log = logging.getLogger("autosched.own")
_VARARGS, _KEYWORDS = 1, 2  # how C functions take their arguments


class _Method(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class NativeCall:
    """A tuned function's calls.

    usual      takes every call that is not of a known kind
    has_shape  of each argument whether an array's shape tells kinds apart, else its number of dimensions does
    blocks     a tuple that is empty outside of blocks that say which configurations are used
    """

    def __init__(
        self, name: str, usual: Callable[..., object], has_shape: Sequence[bool], blocks: ContextVar[tuple[Any, ...]]
    ):
        self._has_shape = tuple(has_shape)
        self._kinds: list[tuple[int, ...]] = []
        self._changing = threading.Lock()
        self._used: dict[int, object] = {}  # what the code knows by address alone
        known: dict[str, object] = {"usual": usual, "blocks": blocks}
        words = [id(known[n]) if n in known else _address(n) if n[0] == "P" else 0 for n in CELL]
        self._cell = np.array(words, np.int64)
        method = _Method(name.encode(), _entry(), _VARARGS | _KEYWORDS, None)
        # The state owns all that the code reads, for as long as anybody holds the method.
        state = (self._cell, self._used, usual, blocks, method)
        self.method: Callable[..., object] = _new_method()(ctypes.addressof(method), state, None)

    def put_first(self, call: Callable[..., object], values: Sequence[object]) -> None:
        """Let a compiled function take calls with arguments of these kinds."""
        if len(values) != len(self._has_shape):
            return
        words: list[int] = []
        for value, has_shape in zip(values, self._has_shape, strict=True):
            kind = type(value)
            self._used[id(kind)] = kind
            words.append(id(kind))
            if kind is np.ndarray:
                assert isinstance(value, np.ndarray), "its class says so"
                self._used[id(value.dtype)] = value.dtype
                extents = value.shape if has_shape else ()
                words += [id(value.dtype), value.ndim, len(extents), *extents]
            elif isinstance(value, np.ndarray):  # a subclass need not be laid out as one
                return
            else:
                words.append(0)
        self._used[id(call)] = call
        with self._changing:
            self._kinds = [(2 + len(words), id(call), *words), *self._kinds[: MOST_KINDS - 1]]
            self._write()

    def forget(self) -> None:
        """Let `usual` take all calls."""
        with self._changing:
            self._kinds = []
            self._write()

    def _write(self) -> None:
        words = [len(self._has_shape), len(self._kinds), *(word for kind in self._kinds for word in kind)]
        written = np.array(words, np.int64)
        self._cell[0] = written.ctypes.data if self._kinds else 0
        self._used[0] = written  # the one before was in use until now


def native_call(
    name: str, usual: Callable[..., object], has_shape: Sequence[bool], blocks: ContextVar[tuple[Any, ...]]
) -> NativeCall | None:
    """A tuned function's calls in machine code; None where this interpreter or machine does not allow it."""
    if not _is_laid_out_as_expected():
        return None
    try:
        return NativeCall(name, usual, has_shape, blocks)
    except (AutoschedError, OSError, AttributeError) as error:
        _log.debug("calls of %s go by Python: %s", name, error)
        return None


@functools.cache
def _is_laid_out_as_expected() -> bool:
    """Whether objects, tuples and arrays of this interpreter have their parts where `call_loop` reads them."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return False
    array = np.zeros((2, 3))
    items = (array, 1)

    def word(thing: object, at: int) -> int:
        return ctypes.c_int64.from_address(id(thing) + at).value

    is_object = word(array, CLASS) == id(np.ndarray) and word(items, CLASS) == id(tuple)
    is_tuple = word(items, SIZE) == 2 and word(items, ITEMS) == id(array)
    is_array = word(array, DATA) == array.ctypes.data and word(array, DTYPE) == id(array.dtype)
    if not (is_object and is_tuple and is_array and word(array, NDIM) & 0xFFFFFFFF == 2):
        return False
    return list((ctypes.c_int64 * 2).from_address(word(array, EXTENTS))) == [2, 3]


def _address(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


@functools.cache
def _new_method() -> Any:
    made = ctypes.pythonapi.PyCFunction_NewEx
    made.argtypes, made.restype = (ctypes.c_void_p, ctypes.py_object, ctypes.py_object), ctypes.py_object
    return made


@functools.cache
def _entry() -> int:
    """The address of `call_loop.call`. Raises AutoschedError for a machine whose code cannot be loaded."""
    from autosched.runtime.loader import load_object_code

    sources = [Path(__file__).with_name(name) for name in ("call_abi.py", "call_loop.py", "native_call.py")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    cache, key = kernel_cache(), f"own call {Target('cpu').to_json()} {version('llvmlite')} {ITEMS} {digest}"
    code = cache.get(key)
    if code is None:
        code = _compile()
        cache.put(key, code)
    (symbols,) = load_object_code([("calls of tuned functions", code)])
    return symbols[_SYMBOL]


_SYMBOL = "autosched_own_call"


def _compile() -> bytes:
    from llvmlite import ir

    from autosched.codegen.cpu.front_end import Compiler, Intrinsic, Signature
    from autosched.codegen.cpu.machine import Machine, optimise
    from autosched.codegen.cpu.types import I64
    from autosched.own import call_loop

    module, found = ir.Module("call"), vars(call_loop)
    callees = {name: x for name, x in found.items() if isinstance(x, Intrinsic)}
    numbers = {name: x for name, x in found.items() if isinstance(x, int)}
    compiler = Compiler(Path(call_loop.__file__).read_text("utf-8"), module, callees, numbers)
    compiler.compile("call", Signature(_SYMBOL, (I64, I64, I64), I64))
    machine = Machine.of(Target("cpu"))
    return bytes(machine.llvm.emit_object(optimise([str(module)], machine)))
