"""Compiled kernels on disk, by the content of what they were made from."""

from __future__ import annotations

import functools
import hashlib
import json
import zlib
from importlib.metadata import version
from pathlib import Path

from autosched.codegen.cpu.compiled import CompiledKernel
from autosched.codegen.generator import GENERATOR
from autosched.errors import AutoschedError
from autosched.ir.structural import structural_key
from autosched.runtime.cache import kernel_cache
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.tir.function import PrimFunc


@functools.cache
def toolchain() -> str:
    """What decides what code comes out: versions, and the text of the passes and emitters themselves."""
    folder = Path(__file__).parent
    sources = sorted(path for room in ("cpu", "lower") for path in (folder / room).glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return f"{GENERATOR} {digest} numba {version('numba')} llvmlite {version('llvmlite')}"


def kernel_key(func: PrimFunc, target: Target, name: str, trace: str, config: str) -> str:
    """A key that is equal exactly for equal input: names of buffers and loops count, since they are in the source."""
    names = _names(func)
    features = ",".join(sorted(target.features))
    parts = (structural_key(func), names, target.to_json(), target.mcpu, features, name, trace, config, toolchain())
    return "kernel " + hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


def _names(func: PrimFunc) -> str:
    from autosched.ir.node import walk

    found = dict.fromkeys(n.name for n in walk(func) if getattr(type(n), "is_variable", False))
    return ",".join(found)


def load(key: str) -> CompiledKernel | None:
    """The kernel stored under a key; None where there is none that can be read."""
    data = kernel_cache().get(key)
    if data is None:
        return None
    try:
        head_size = int.from_bytes(data[:8], "little")
        entry = json.loads(zlib.decompress(data[8 : 8 + head_size]))
        kernel = Kernel.from_manifest(entry["kernel"], data[8 + head_size :])
        if hashlib.sha256(kernel.object_code).hexdigest() != entry["kernel"]["object_sha256"]:
            return None
        return CompiledKernel(kernel, from_cache=True)
    except (AutoschedError, ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error):
        return None


def store(key: str, compiled: CompiledKernel) -> None:
    """Keep a kernel under a key."""
    entry = {"kernel": compiled.kernel.to_manifest()}
    head = zlib.compress(json.dumps(entry, sort_keys=True).encode(), 1)
    kernel_cache().put(key, len(head).to_bytes(8, "little") + head + compiled.kernel.object_code)
