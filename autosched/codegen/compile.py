"""`compile_func` and `compile_funcs`: kernels from scheduled PrimFuncs, through the cache on disk."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

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


class Outcome(Protocol):
    """What a `Compilation` gives: a compiled kernel, or one with more that was found on the way."""

    @property
    def from_cache(self) -> bool: ...

    def with_name(self, name: str) -> Self:
        """The same as the kernel of another name, whose `code_name` is the same."""


R = TypeVar("R", bound=Outcome)
R_co = TypeVar("R_co", bound=Outcome, covariant=True)


class Asked(Protocol[R_co]):
    """What a `Compilation` is asked for; helpers are sent it as a pickle."""

    @property
    def name(self) -> str: ...

    @property
    def kin(self) -> Hashable:
        """Equal for what shares most of its code."""

    def key(self, target: Target) -> str:
        """Its key in the cache."""

    def load(self, key: str) -> R_co | None:
        """What the cache has of it."""

    def make(self, target: Target, key: str) -> R_co:
        """Compile it, and keep it in the cache. Raises what `compile_func` does."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One kernel to compile: arguments of `compile_func`."""

    func: PrimFunc
    name: str
    trace: str = ""
    config: str = ""

    @property
    def kin(self) -> Hashable:
        """Kernels of one configuration and first arguments of one shape share most of their code."""
        return self.config, tuple(tuple(map(const_int, buffer.shape)) for buffer in self.func.buffers[:2])

    def key(self, target: Target) -> str:
        return cache.kernel_key(self.func, target, self.name, self.trace, self.config)

    def load(self, key: str) -> CompiledKernel | None:
        return cache.load(key)

    def make(self, target: Target, key: str | None) -> CompiledKernel:
        """Compile it; keep it in the cache under the key, if there is one. Raises what `compile_func` does."""
        with patient_collector(), cache.keeping(key is not None):
            compiled = codegen_backend(target.backend).compile_uncached(
                self.func, target, self.name, self.trace, self.config
            )
        counters.COMPILES.add(not compiled.from_cache)
        if key is not None:
            cache.store(key, compiled.kernel)
        return compiled


def compile_func(
    func: PrimFunc, target: Target | str = "cpu", *, name: str = "main", trace: str = "", config: str = "",
    use_cache: bool = True,
) -> CompiledKernel:  # fmt: skip
    """Compile a scheduled PrimFunc by the target's back end.

    name    of the kernel; `trace` and `config` (JSON texts) travel with it and are shown in its source
    Raises  CodegenError for what no code exists for, TargetError for a target without a code generator.
    """
    target = Target(target) if isinstance(target, str) else target
    request = Request(func, name, trace, config)
    key = request.key(target) if use_cache else None
    if key is not None and (found := request.load(key)) is not None:
        counters.CACHE_HITS.add()
        return found.with_name(name)
    return request.make(target, key)


class Compilation(Generic[R]):
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
        self._keys: dict[int, tuple[Asked[R], str]] = {}  # by the id of a request, which is kept
        self._found: dict[str, R] = {}
        self._asked: set[str] = set()
        text = target.to_json()
        self._work: SharedWork[str, tuple[Asked[R], str], R] = SharedWork(
            lambda item: item[0].make(target, item[1]),
            lambda item: (item[0], text, item[1]),
            counters.FINISHED.add,
            lambda item: item[0].kin,
        )

    def __enter__(self) -> Compilation[R]:
        return self

    def __exit__(self, *error: object) -> None:
        self._work.close()

    def add(self, request: Asked[R]) -> str:
        """A kernel more, unless it was added before; its key."""
        if id(request) in self._keys:
            return self._keys[id(request)][1]
        key = request.key(self.target)
        self._keys[id(request)] = (request, key)
        if key in self._asked:
            return key
        if key not in self._found and (found := request.load(key)) is not None:
            self._found[key] = found
        if key in self._found:
            counters.CACHE_HITS.add()
            return key
        counters.ASKED.add()
        self._asked.add(key)
        self._work.add(key, (request, key))
        if self._work.helpers < min(self._helpers, len(self._asked) - WORTH_A_POOL):
            self._work.start_helper()
        return key

    def finish(self, requests: Sequence[Asked[R]]) -> list[R]:
        """The kernels of these requests, in their order. Raises what `compile_func` does, for the first that fails."""
        keys = [self.add(r) for r in requests]
        before = counters.COMPILES.value
        results = self._work.finish()
        fresh = sum(not isinstance(r, Exception) and not r.from_cache for r in results.values())
        counters.COMPILES.add(fresh - (counters.COMPILES.value - before))  # what others have compiled
        kernels = []
        for key, request in zip(keys, requests, strict=True):
            found = self._found[key] if key in self._found else results[key]
            if isinstance(found, Exception):
                raise found
            kernels.append(found.with_name(request.name))
        return kernels


def compile_funcs(
    requests: Sequence[Request], target: Target | str = "cpu", jobs: int | None = None
) -> list[CompiledKernel]:
    """Compile many kernels, in order of the requests; in `jobs` processes where that pays.

    jobs    None: as many as this process may use; 1: in this process
    Raises  what `compile_func` raises, for the first request that fails.
    """
    with Compilation[CompiledKernel](target, jobs) as compilation:
        return compilation.finish(requests)
