"""Compiled kernels on disk, by the content of what they were made from."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from autosched.codegen.backends import GENERATOR, codegen_backend
from autosched.codegen.compiled import CompiledKernel, code_name
from autosched.errors import AutoschedError
from autosched.ir.structural import function_texts
from autosched.runtime.cache import kernel_cache
from autosched.runtime.kernel import Kernel
from autosched.target import KINDS, Target
from autosched.tir.function import PrimFunc

_IMPORT = re.compile(rb"\n *(?:from|import) autosched(?:\.| import )(\w+)")


@functools.cache
def toolchain(backend: str, package: str = "codegen") -> str:
    """What decides what code comes out: versions, and the text of a package and of all that it is built on.

    Read once a process, in about 10 ms: a proof mended in `tir` makes old kernels misses as a new emitter does. Of the
    sub-packages of other back ends only those count that this one is made of.
    """
    maker, digest = codegen_backend(backend), hashlib.sha256()
    others = {kind.backend for kind in KINDS.values()} - {"", *maker.SOURCES}
    for path, text in sorted(sources_below(package).items()):
        if not path.startswith(tuple(os.path.join("codegen", other, "") for other in others)):
            digest.update(text)
    return f"{GENERATOR} {digest.hexdigest()} {maker.toolchain()}"


def sources_below(package: str) -> dict[str, bytes]:
    """The text of each file of one of our packages and of all that it imports, directly or through others."""
    root = Path(__file__).parents[1]
    found: dict[str, bytes] = {}
    seen, todo = {package}, [package]
    while todo:
        name = todo.pop()
        for path in _python_files(root / name):
            with open(path, "rb") as file:
                text = file.read()
            found[os.path.relpath(path, root)] = text
            new = {match.decode() for match in _IMPORT.findall(b"\n" + text)} - seen
            seen |= new
            todo += new
    return found


def _python_files(module: Path) -> list[str]:
    if not module.is_dir():
        return [f"{module}.py"]
    return [os.path.join(at, name) for at, _, names in os.walk(module) for name in names if name.endswith(".py")]


def kernel_key(func: PrimFunc, target: Target, name: str, trace: str, config: str) -> str:
    """A key that is equal exactly for equal code: names of buffers and loops count, since they are in the source.

    Of the kernel's name that counts which its functions have: see `code_name`.
    """
    backend = target.backend
    facts = codegen_backend(backend).target_facts(target)
    parts = (*function_texts(func), target.to_json(), facts, code_name(name), trace, config, toolchain(backend))
    return "kernel " + hashlib.sha256("\x1f".join(parts).encode()).hexdigest()


_keeps: ContextVar[bool] = ContextVar("keeps", default=False)


@contextlib.contextmanager
def keeping(wanted: bool) -> Iterator[None]:
    """Whether what is compiled meanwhile is for the cache: a tuning's losers are not."""
    before = _keeps.set(wanted)
    try:
        yield
    finally:
        _keeps.reset(before)


def keeps() -> bool:
    """Whether the parts of what is being compiled go to the cache."""
    return _keeps.get()


def load(key: str) -> CompiledKernel | None:
    """The kernel stored under a key; None where there is none that can be read."""
    data = kernel_cache().get(key)
    if data is None:
        return None
    try:
        head_size = int.from_bytes(data[:8], "little")
        entry = json.loads(zlib.decompress(data[8 : 8 + head_size]))
        kernel = Kernel.from_manifest(entry["kernel"], data[8 + head_size :])
        if hashlib.sha256(kernel.code).hexdigest() != entry["kernel"]["object_sha256"]:
            return None
        return codegen_backend(kernel.backend).cached(kernel)
    except (AutoschedError, ValueError, KeyError, TypeError, OverflowError, RecursionError, zlib.error):
        return None


def store(key: str, kernel: Kernel) -> None:
    """Keep a kernel under a key."""
    entry = {"kernel": kernel.to_manifest()}
    head = zlib.compress(json.dumps(entry, sort_keys=True).encode(), 1)
    kernel_cache().put(key, len(head).to_bytes(8, "little") + head + kernel.code)
