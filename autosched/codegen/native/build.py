"""Compiles the native loop once for a machine architecture and keeps the object code in the kernel cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from autosched.codegen import pool
from autosched.env import NUMBA_DISABLE_JIT
from autosched.errors import UsageError
from autosched.runtime import native_abi
from autosched.runtime.cache import kernel_cache
from autosched.runtime.cpu.machine import target_machine
from autosched.runtime.loader import check_object
from autosched.runtime.native_abi import NATIVE_ABI_VERSION, RUN_SYMBOL, WORKER_SYMBOL
from autosched.target import Target, architecture_of

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_OLDEST = {"x86_64": "x86-64", "aarch64": "generic"}  # CPU of each architecture


def check_numba() -> None:
    """See that Numba may compile. Raises UsageError where NUMBA_DISABLE_JIT forbids it."""
    if NUMBA_DISABLE_JIT.get():
        raise UsageError(
            "NUMBA_DISABLE_JIT is set, so that Numba compiles nothing and no kernel can be built", hint="unset it"
        )


@functools.cache
def native_object(triple: str = "") -> bytes:
    """Give the object code of `run_graph` and `worker`, from the cache where it has them.

    triple  LLVM's name of the system that it is for; "" for this machine's

    It is made for the oldest CPU of the architecture, so one object serves all of them: nothing in it computes.
    """
    cache, key = kernel_cache(), _cache_key(triple)
    found = cache.get(key)
    if found is None:
        found = (None if triple else _ordered()) or compile_native(triple)
        cache.put(key, found)
    return found


def native_for(target: Target) -> bytes:
    """The native loop's object code for a target whose kernels it calls; empty for one that has a driver of its own."""
    if not target.is_cpu:
        return b""
    return native_object("" if target.is_native else target.triple)


def order_native_object() -> None:
    """Where no cache has it, let another process begin with it, which compiles kernels for this one afterwards.

    A machine without it has most likely compiled nothing yet, so that there will be kernels to compile too.
    """
    cache = kernel_cache()
    if cache.folder is not None and cache.writable and cache.get(_cache_key()) is None:
        pool.start_spare(pool.NATIVE_LOOP)


def _ordered() -> bytes | None:
    """What another process compiles, if one does."""
    helper = pool.take_spare()
    if helper is None:
        return None
    with contextlib.closing(helper), contextlib.suppress(OSError, EOFError):
        answers = helper.answers()
        if answers and isinstance(answers[0], bytes):
            return answers[0]
    return None


@functools.cache
def _cache_key(triple: str = "") -> str:
    """What decides what code comes out; found without importing Numba, which takes a second."""
    files = (*sorted(Path(__file__).parent.glob("*.py")), Path(native_abi.__file__))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return f"native {NATIVE_ABI_VERSION} {version('numba')} {version('llvmlite')} {triple or _triple()} {digest}"


def compile_native(triple: str = "") -> bytes:
    """Compile the native loop with Numba and check what the object needs from outside."""
    check_numba()
    from numba import types

    from autosched.codegen.native import loop

    triple = triple or _triple()
    architecture = architecture_of(triple.split("-")[0])
    machine = target_machine(triple, _OLDEST[architecture], "", 2)
    module = _compile(loop.run_graph, types.int64(*[types.int64] * 6), RUN_SYMBOL, architecture)
    module.link_in(_compile(loop.worker, types.int64(types.int64), WORKER_SYMBOL, architecture))
    module.triple, module.data_layout = triple, str(machine.target_data)
    code: bytes = machine.emit_object(module)
    check_object(code, "native loop")
    return code


def _compile(function: Callable[..., object], signature: object, symbol: str, architecture: str) -> llvm.ModuleRef:
    """Compile a function as a C callback and give its optimised LLVM module, in which only `symbol` is visible."""
    import llvmlite.binding as llvm
    from numba import cfunc

    from autosched.codegen.native.intrinsics import pause_for

    callback = cfunc(signature, nopython=True, error_model="numpy")(function)
    module = llvm.parse_assembly(pause_for(architecture, callback.inspect_llvm()))
    for index, value in enumerate((*module.functions, *module.global_variables)):
        if value.name == callback.native_name:
            value.name = symbol
        elif not value.is_declaration:
            value.name = f"{symbol}_{index}"  # Numba's names count compilations, and equal input gives equal bytes
            value.linkage = "internal"
    return module


def _triple() -> str:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return str(llvm.get_process_triple())
