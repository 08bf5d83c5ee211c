"""Puts object code into memory and finds the addresses of its functions, without a compiler."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from autosched.errors import ArtifactError
from autosched.runtime.cpu.kernel import CpuKernel, as_cpu
from autosched.runtime.elf import UNDEFINED, ElfObject, Symbols, read_object, read_symbols
from autosched.runtime.kernel import Kernel
from autosched.runtime.link import Image, link
from autosched.target import host_cpu

_MATH = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
    *("erfc", "exp", "exp2", "expm1", "fabs", "floor", "fma", "fmax", "fmin", "fmod", "hypot", "ldexp", "log", "log10"),
    *("log1p", "log2", "nearbyint", "pow", "rint", "round", "roundeven", "sin", "sincos", "sinh", "sqrt", "tan"),
    *("tanh", "tgamma", "lgamma", "trunc", "frexp", "modf"),
)
# What an object may expect from its surroundings: the C library's memory and float functions; own functions allocate.
# Anything of Python or Numba would load and then crash in a process without them.
ALLOWED_SYMBOLS: frozenset[str] = frozenset(
    {"memcpy", "memset", "memmove", "malloc", "free", "_GLOBAL_OFFSET_TABLE_", *_MATH, *(f"{name}f" for name in _MATH)}
)


@dataclass(slots=True)
class _Loaded:
    """One object in memory."""

    image: Image
    users: int = 0


_lock = threading.Lock()
# Code must stay mapped while any pointer to it may be called, so what is loaded stays until its last user, who loaded
# it, has unloaded it. Equal object code, known by its SHA-256, is loaded once.
_loaded: dict[bytes, _Loaded] = {}
_dropped: deque[bytes] = deque()  # keys of objects that have lost a user each
# A child is forked while nobody loads: the lock would stay held in it.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def check_object(object_code: bytes, name: str) -> Symbols:
    """Refuse object code that needs more than the C library's memory and float functions; gives its symbols.

    Raises ArtifactError naming the kernel and the symbols, also where the bytes are no object code.
    """
    symbols = read_symbols(object_code)
    forbidden = symbols.undefined - ALLOWED_SYMBOLS
    if forbidden:
        raise ArtifactError(
            f"object code of kernel '{name}' needs symbols that not every process has: {', '.join(sorted(forbidden))}",
            hint="kernels may call only memcpy, memset, memmove, malloc, free and the float functions of libm",
        )
    return symbols


def _check_runs_here(object_code: bytes, name: str) -> ElfObject:
    """Refuse what `check_object` refuses, and code for another architecture, which would end the process."""
    check_object(object_code, name)
    symbols = read_object(object_code)
    if symbols.architecture != (here := host_cpu().architecture):
        raise ArtifactError(
            f"object code of kernel '{name}' is for {symbols.architecture}, and this machine is {here}",
            hint=f"save it and run it on a machine of {symbols.architecture}, or build it for this one",
        )
    return symbols


def load_objects(kernels: Iterable[Kernel]) -> dict[str, int]:
    """Load the object code of kernels and give the address of each phase's function by its symbol.

    Raises ArtifactError if an object needs forbidden symbols, lacks one of its phases, or was compiled for
    instruction sets that this machine lacks, which would end the process.
    """
    with_code = [kernel for kernel in map(as_cpu, kernels) if kernel.phases]
    for kernel in with_code:
        _check_features(kernel)
    tables = load_object_code((kernel.name, kernel.object_code) for kernel in with_code)
    addresses: dict[str, int] = {}
    for kernel, table in zip(with_code, tables, strict=True):
        for phase in kernel.phases:
            if phase.symbol not in table:
                raise ArtifactError(f"object code of kernel '{kernel.name}' defines no function '{phase.symbol}'")
            if addresses.setdefault(phase.symbol, table[phase.symbol]) != table[phase.symbol]:
                raise ArtifactError(f"'{phase.symbol}' of kernel '{kernel.name}' is the name of other code too")
    return addresses


def _check_features(kernel: CpuKernel) -> None:
    if missing := sorted(host_cpu().lacks(kernel.features)):
        raise ArtifactError(
            f"kernel '{kernel.name}' was compiled for a CPU with {', '.join(missing)}, which this machine lacks",
            hint="build it for this machine, or run it on one that has them",
        )


def load_object_code(objects: Iterable[tuple[str, bytes]]) -> list[dict[str, int]]:
    """Load ELF objects, given with a name for messages; gives the addresses of each one's functions.

    Raises ArtifactError if an object needs forbidden symbols or is damaged.
    """
    objects = list(objects)
    keys = [hashlib.sha256(code).digest() for _, code in objects]
    with _lock:
        new = {key: entry for key, entry in zip(keys, objects, strict=True) if key not in _loaded}
        _loaded.update({key: _link(name, code) for key, (name, code) in new.items()})
        for key in keys:
            _loaded[key].users += 1
        tables = [dict(_loaded[key].image.address_of) for key in keys]
        _unload_dropped()
        return tables


def unload_objects(kernels: Iterable[Kernel]) -> None:
    """Give back the memory (some 90 KiB) of each kernel whose every loading was followed by an unloading.

    Their functions may not be called any more. For processes that load thousands of kernels, such as a tuner's.
    """
    _dropped.extend(hashlib.sha256(kernel.code).digest() for kernel in kernels)
    with _lock:
        _unload_dropped()


def unload_with(owner: object, kernels: Iterable[Kernel]) -> None:
    """Unload kernels that `load_objects` loaded once `owner`, which alone calls their functions, is gone."""
    keys = [hashlib.sha256(kernel.code).digest() for kernel in map(as_cpu, kernels) if kernel.phases]
    weakref.finalize(owner, _drop, keys).atexit = False


def _drop(keys: Iterable[bytes]) -> None:
    """Unload from a finalizer, which may run anywhere, in the middle of a loading too: then the next one does it."""
    _dropped.extend(keys)
    if _lock.acquire(blocking=False):
        try:
            _unload_dropped()
        finally:
            _lock.release()


def _unload_dropped() -> None:
    """Count the users that are gone; the memory is given back with the last one."""
    while _dropped:
        key = _dropped.popleft()
        found = _loaded.get(key)
        if found is not None:
            found.users -= 1
            if found.users <= 0:
                del _loaded[key]


def _link(name: str, code: bytes) -> _Loaded:
    """Map an object that this process can run into memory. Raises ArtifactError."""
    found = _check_runs_here(code, name)
    needed = sorted({s.name for s in found.symbols if s.section == UNDEFINED and s.name and not s.name.startswith("_")})
    return _Loaded(link(found, {name: _library_function(name) for name in needed}))


def _library_function(name: str) -> int:
    """Where a function of the C library is. Raises ArtifactError if there is none of the name."""
    for library in _libraries():
        with contextlib.suppress(AttributeError):
            if address := ctypes.cast(library[name], ctypes.c_void_p).value:
                return address
    raise ArtifactError(f"this machine's C library lacks '{name}', which a kernel needs")


@functools.cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """The libraries with what kernels may call: what the process has, then libm, which not each Python has loaded."""
    found = [ctypes.CDLL(None)]
    with contextlib.suppress(OSError):
        found.append(ctypes.CDLL("libm.so.6"))
    return tuple(found)
