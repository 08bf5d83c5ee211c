"""`compile_func` and `compile_funcs`: kernels from scheduled PrimFuncs, through the cache on disk."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.codegen import cache, counters
from autosched.codegen.backends import codegen_backend
from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.pool import map_in_processes
from autosched.target import Target
from autosched.target.threads import choose_threads
from autosched.tir.function import PrimFunc

# Objects before a collection, and collections of each generation before one of the next. With Python's own numbers the
# collector takes a sixth of a build (27.7 s of ResNet-50 against 23.7 s with these; 35 MB more at the peak of 700 MB).
PATIENT = (100_000, 20, 50)

_lock = threading.Lock()
_users = 0
_usual = gc.get_threshold()


@contextlib.contextmanager
def patient_collector() -> Iterator[None]:
    """Let the collector wait meanwhile, in all threads; one that is switched off, or more patient, stays as it is."""
    global _users, _usual
    with _lock:
        if _users == 0:
            _usual = gc.get_threshold()
            if 0 < _usual[0] < PATIENT[0]:
                gc.set_threshold(*PATIENT)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                gc.set_threshold(*_usual)


WORTH_A_POOL = 4  # fewer kernels compile faster in this process than a new one starts


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One kernel to compile: arguments of `compile_func`."""

    func: PrimFunc
    name: str
    trace: str = ""
    config: str = ""


def compile_func(
    func: PrimFunc, target: Target | str = "cpu", *, name: str = "main", trace: str = "", config: str = "",
    use_cache: bool = True,
) -> CompiledKernel:  # fmt: skip
    """Compile a scheduled PrimFunc by the target's back end.

    name    of the kernel; `trace` and `config` (JSON texts) travel with it and are shown in its source
    Raises  CodegenError for what no code exists for, TargetError for a target without a code generator.
    """
    target = Target(target) if isinstance(target, str) else target
    key = cache.kernel_key(func, target, name, trace, config)
    found = cache.load(key) if use_cache else None
    if found is not None:
        counters.CACHE_HITS.add()
        return found.with_name(name)
    return compile_missing(Request(func, name, trace, config), target, key if use_cache else None)


def compile_missing(request: Request, target: Target, key: str | None) -> CompiledKernel:
    """Compile what the cache lacks; keep it there under the key, if there is one. Raises what `compile_func` does."""
    with patient_collector():
        compiled = codegen_backend(target.backend).compile_uncached(
            request.func, target, request.name, request.trace, request.config
        )
    counters.COMPILES.add()
    if key is not None:
        cache.store(key, compiled)
    return compiled


def compile_funcs(
    requests: Sequence[Request], target: Target | str = "cpu", jobs: int | None = None
) -> list[CompiledKernel]:
    """Compile many kernels, in order of the requests; in `jobs` processes where that pays.

    jobs    None: as many as this process may use; 1: in this process
    Raises  what `compile_func` raises, for the first request that fails.
    """
    target = Target(target) if isinstance(target, str) else target
    keys = [cache.kernel_key(r.func, target, r.name, r.trace, r.config) for r in requests]
    results = {key: found for key in dict.fromkeys(keys) if (found := cache.load(key)) is not None}
    for _ in range(sum(key in results for key in keys)):
        counters.CACHE_HITS.add()
    missing = {key: r for key, r in zip(keys, requests, strict=True) if key not in results}
    counters.ASKED.add(len(missing))
    workers = min(jobs or choose_threads(), len(missing))
    if workers > 1 and len(missing) > WORTH_A_POOL:
        results |= _compile_in_pool(missing, target, workers)
    else:
        for key, r in missing.items():
            results[key] = compile_missing(r, target, key)
            counters.FINISHED.add()
    return [results[key].with_name(r.name) for key, r in zip(keys, requests, strict=True)]


def _compile_in_pool(missing: dict[str, Request], target: Target, workers: int) -> dict[str, CompiledKernel]:
    compiled: dict[str, CompiledKernel] = {}
    text = target.to_json()
    before = counters.COMPILES.value
    results = map_in_processes(
        {key: (request, key) for key, request in missing.items()},
        lambda item: compile_missing(item[0], target, item[1]),
        lambda item: (item[0], text, item[1]),
        workers - 1,
        counters.FINISHED.add,
    )
    for key in missing:
        found = results[key]
        if isinstance(found, Exception):
            raise found
        compiled[key] = found
    here = counters.COMPILES.value - before
    counters.COMPILES.add(sum(not c.from_cache for c in compiled.values()) - here)
    return compiled
