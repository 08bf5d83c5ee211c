"""`compile_func` and `compile_funcs`: kernels from scheduled PrimFuncs, through the cache on disk."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from autosched.codegen import cache, counters
from autosched.codegen.backends import codegen_backend
from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.pool import SharedWork
from autosched.target import Target
from autosched.target.threads import choose_threads
from autosched.tir.expr import const_int
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


class Compilation:
    """Kernels that are compiled together, in several processes where that pays; they begin while kernels are added.

    with Compilation(target) as compilation:
        compilation.add(request)
        …
        kernels = compilation.finish(requests)

    jobs  processes, this one included; None: as many as this process may use
    """

    def __init__(self, target: Target | str = "cpu", jobs: int | None = None):
        self.target = target = Target(target) if isinstance(target, str) else target
        self._helpers = (jobs or choose_threads()) - 1
        self._keys: dict[int, tuple[Request, str]] = {}  # by the id of a request's function, which is kept
        self._found: dict[str, CompiledKernel] = {}
        self._asked: set[str] = set()
        text = target.to_json()
        self._work: SharedWork[str, tuple[Request, str], CompiledKernel] = SharedWork(
            lambda item: compile_missing(item[0], target, item[1]),
            lambda item: (item[0], text, item[1]),
            counters.FINISHED.add,
            lambda item: _kin(item[0]),
        )

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *error: object) -> None:
        self._work.close()

    def add(self, request: Request) -> str:
        """A kernel more, unless it was added before; its key."""
        r = request
        known, key = self._keys.get(id(r.func), (None, ""))
        if known is not None and (known.name, known.trace, known.config) == (r.name, r.trace, r.config):
            return key
        key = cache.kernel_key(r.func, self.target, r.name, r.trace, r.config)
        self._keys[id(r.func)] = (r, key)
        if key in self._asked:
            return key
        if key not in self._found and (found := cache.load(key)) is not None:
            self._found[key] = found
        if key in self._found:
            counters.CACHE_HITS.add()
            return key
        counters.ASKED.add()
        self._asked.add(key)
        self._work.add(key, (r, key))
        if self._work.helpers < min(self._helpers, len(self._asked) - WORTH_A_POOL):
            self._work.start_helper()
        return key

    def finish(self, requests: Sequence[Request]) -> list[CompiledKernel]:
        """The kernels of these requests, in their order. Raises what `compile_func` does, for the first that fails."""
        keys = [self.add(r) for r in requests]
        before = counters.COMPILES.value
        results = self._work.finish()
        fresh = sum(isinstance(r, CompiledKernel) and not r.from_cache for r in results.values())
        counters.COMPILES.add(fresh - (counters.COMPILES.value - before))  # what others have compiled
        kernels = []
        for key, request in zip(keys, requests, strict=True):
            found = self._found[key] if key in self._found else results[key]
            if isinstance(found, Exception):
                raise found
            kernels.append(found.with_name(request.name))
        return kernels


def _kin(request: Request) -> Hashable:
    """Equal for kernels that share most of their code: of one configuration and first arguments of one shape."""
    return request.config, tuple(tuple(map(const_int, buffer.shape)) for buffer in request.func.buffers[:2])


def compile_funcs(
    requests: Sequence[Request], target: Target | str = "cpu", jobs: int | None = None
) -> list[CompiledKernel]:
    """Compile many kernels, in order of the requests; in `jobs` processes where that pays.

    jobs    None: as many as this process may use; 1: in this process
    Raises  what `compile_func` raises, for the first request that fails.
    """
    with Compilation(target, jobs) as compilation:
        return compilation.finish(requests)
