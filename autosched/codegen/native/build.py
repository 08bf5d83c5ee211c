"""Compiles the native loop once for a machine architecture and keeps the object code in the kernel cache."""

from __future__ import annotations

import functools
import hashlib
from importlib.metadata import version
from pathlib import Path

from autosched.codegen import pool
from autosched.runtime import native_abi
from autosched.runtime.cache import kernel_cache
from autosched.runtime.loader import check_object
from autosched.runtime.native_abi import NATIVE_ABI_VERSION, RUN_SYMBOL, WORKER_SYMBOL
from autosched.target import Target, architecture_of

_OLDEST = {"x86_64": "x86-64", "aarch64": "generic"}  # CPU of each architecture


@functools.cache
def native_object(triple: str = "") -> bytes:
    """Give the object code of `run_graph` and `worker`, from the cache where it has them.

    triple  LLVM's name of the system that it is for; "" for this machine's

    It is made for the oldest CPU of the architecture, so one object serves all of them: nothing in it computes.
    """
    cache, key = kernel_cache(), _cache_key(triple)
    found = cache.get(key)
    if found is None:
        found = compile_native(triple)
        cache.put(key, found)
    return found


def native_for(target: Target) -> bytes:
    """The native loop's object code for a target whose kernels it calls; empty for one that has a driver of its own."""
    if not target.is_cpu:
        return b""
    return native_object("" if target.is_native else target.triple)


def start_helper_of_first_build(module: str = "") -> None:
    """Where no cache has the loop, start a process that will compile kernels for this one, and imports `module` for it.

    A machine without it has most likely compiled nothing yet, so that there will be kernels to compile.
    """
    cache = kernel_cache()
    if cache.folder is not None and cache.writable and cache.get(_cache_key()) is None:
        pool.start_spare(module)


@functools.cache
def _cache_key(triple: str = "") -> str:
    """What decides what code comes out."""
    front_end = Path(__file__).parents[1] / "cpu" / "front_end.py"
    sources = (*Path(__file__).parent.glob("*.py"), Path(native_abi.__file__), front_end)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()
    return f"native {NATIVE_ABI_VERSION} {version('llvmlite')} {triple or _triple()} {digest}"


def compile_native(triple: str = "") -> bytes:
    """Compile the native loop and check what the object needs from outside."""
    from llvmlite import ir

    from autosched.codegen.cpu.front_end import Compiler, Intrinsic, Signature
    from autosched.codegen.cpu.machine import Machine, optimise
    from autosched.codegen.cpu.types import I64
    from autosched.codegen.native import loop

    triple = triple or _triple()
    module = ir.Module("native")
    module.triple = triple
    callees = {name: x for name, x in vars(loop).items() if isinstance(x, Intrinsic)}
    numbers = {name: x for name, x in (*vars(native_abi).items(), *vars(loop).items()) if isinstance(x, int)}
    compiler = Compiler(Path(loop.__file__).read_text("utf-8"), module, callees, numbers)
    compiler.compile("run_graph", Signature(RUN_SYMBOL, (I64,) * 6, I64))
    compiler.compile("worker", Signature(WORKER_SYMBOL, (I64,), I64))
    machine = Machine(triple, _OLDEST[architecture_of(triple.split("-")[0])], "")
    code: bytes = machine.llvm.emit_object(optimise([str(module)], machine))
    check_object(code, "native loop")
    return code


def _triple() -> str:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return str(llvm.get_process_triple())
