"""Local builder: compiles candidates in worker processes.

The workers have imported Numba and compiled something before the first candidate, so that a candidate costs its own
compilation alone. A task's PrimFunc is sent to each worker once.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from autosched.errors import AutoschedError, ScheduleError, SpaceError
from autosched.runtime.kernel import Kernel
from autosched.target import Target, choose_threads
from autosched.task import ConfigLike, Measurement, Status
from autosched.tuner.measure.base import Built, Candidate, CandidateError, Failed, MeasureOptions
from autosched.tuner.measure.memory import choose_memory_limit
from autosched.tuner.measure.nursery import Nursery
from autosched.tuner.measure.process import Job, Numbering
from autosched.tuner.measure.worker import Setup
from autosched.tuner.measure.worker_pool import WorkerPool

if TYPE_CHECKING:
    from autosched.tuner.measure.base import Packs

log = logging.getLogger(__name__)
TEMPLATE_COMPILER = "autosched.tuner.measure.compiler:TemplateCompiler"
PRELOAD = f"{__name__}:preload"
# The native loop is compiled once and by no candidate: a busy machine that has just installed us needs longer for it.
_NATIVE_SHARE = 6
# A compilation makes 300,000 objects, and few that are not freed without being looked for.
_COLLECTED = (20_000, 20, 20)


def preload() -> None:
    """Do once what all builders for this machine's CPU begin with, which takes a quarter of a second of a core."""
    with contextlib.suppress(Exception):  # a builder that cannot start says why itself
        BuildRole(TEMPLATE_COMPILER, Target("cpu").to_json())


class Compiler(Protocol):
    """What turns a candidate into machine code; made without arguments, in the worker."""

    def warm_up(self, target: Target) -> None:
        """Do what makes the first compilation slow."""

    def compile(self, func: object, config: ConfigLike, target: Target) -> tuple[Kernel, Packs]:
        """Compile a task's natural-layout function as a configuration says; gives the kernel and its packs.

        Raises SpaceError or ScheduleError for a configuration that does not fit.
        """

    def keep(self) -> None:
        """Store the kernel that was compiled last for builds to come; all others leave nothing behind."""

    def native_loop(self) -> bytes:
        """Give the object code of the native loop, which the runner calls kernels with."""


@runtime_checkable
class Describes(Protocol):
    """A compiler that can say how what it compiled last uses the machine."""

    def describe(self, target: Target) -> Mapping[str, tuple[float, ...]]:
        """Give features of it by name, which are kept with its measurement."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A compiler that can say where the kernel cache would have what it compiled last."""

    @property
    def key(self) -> str:
        """Its key."""
        ...


@runtime_checkable
class Compares(Protocol):
    """A compiler that has a kernel by which results are compared on the device that they are on."""

    def comparisons(self, target: Target) -> Kernel:
        """Give it (see `codegen.cuda.comparisons`)."""
        ...


@dataclass(frozen=True, slots=True)
class _Build:
    """A message: compile the function learnt under a key; `is_kept`: builds to come may want the kernel."""

    func_key: str
    config: ConfigLike
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class _NativeLoop:
    """A message: give the object code of the native loop."""


@dataclass(frozen=True, slots=True)
class _Comparisons:
    """A message: give the kernel that compares results on the device."""


class BuildRole:
    """The worker's side."""

    failure = Status.BUILD_ERROR

    def __init__(self, compiler: str, target: str):
        module, _, name = compiler.partition(":")
        self._compiler: Compiler = getattr(importlib.import_module(module), name)()
        self._target = Target(target)
        self._funcs: dict[str, object] = {}
        self._compiler.warm_up(self._target)
        gc.collect()
        gc.freeze()  # what was imported stays, and need not be looked at again and again
        gc.set_threshold(*_COLLECTED)

    def learn(self, key: str, value: object) -> None:
        """Keep a function."""
        self._funcs[key] = value

    def do(self, message: _Build | _NativeLoop | _Comparisons) -> object:
        """Compile; gives (kernel, packs, processor seconds, features, key), or what else was asked for."""
        if isinstance(message, _NativeLoop):
            return self._compiler.native_loop()
        if isinstance(message, _Comparisons):
            return self._compiler.comparisons(self._target) if isinstance(self._compiler, Compares) else None
        start = time.process_time()
        try:
            kernel, packs = self._compiler.compile(self._funcs[message.func_key], message.config, self._target)
        except (SpaceError, ScheduleError) as error:
            raise CandidateError(Status.INVALID, f"{type(error).__name__}: {error.line}") from error
        if message.is_kept:
            self._compiler.keep()
        build_s = time.process_time() - start
        features = self._compiler.describe(self._target) if isinstance(self._compiler, Describes) else {}
        return kernel, packs, build_s, features, self._compiler.key if isinstance(self._compiler, Keyed) else ""


class LocalBuilder:
    """Builds candidates in processes of this machine.

    target    what to build for
    compiler  "module:class" of the Compiler, importable in a new process
    folder    temporary files that workers remove if this process dies without doing so
    late      workers that start with `pool.complete`, one at least being there before
    nursery   what the workers are forks of; None: they are new processes
    """

    def __init__(
        self,
        target: Target,
        options: MeasureOptions,
        *,
        compiler: str = TEMPLATE_COMPILER,
        folder: str = "",
        late: int = 0,
        nursery: Nursery | None = None,
    ):
        self._target = target
        role_options = {"compiler": compiler, "target": target.to_json()}
        memory = choose_memory_limit(options.memory_limit_bytes)
        role = f"{__name__}:{BuildRole.__name__}"
        self._setup = Setup(role, role_options, memory, os.getpid(), folder)
        size = options.builders or choose_threads()
        late = min(late, size - 1)
        # Numba takes two seconds of a core to import and warm up, which a tuning without crashes need not pay for.
        self._pool = WorkerPool(
            self._setup,
            size,
            options.build_timeout_s,
            Status.BUILD_TIMEOUT,
            spare="after a loss",
            late=late,
            nursery=nursery,
        )
        self._funcs = Numbering("func")
        self._ahead: dict[tuple[str, ConfigLike], Job] = {}  # what the pool was given ahead

    @property
    def size(self) -> int:
        """Candidates that are compiled at the same time."""
        return self._pool.size

    @property
    def pool(self) -> WorkerPool:
        """The workers."""
        return self._pool

    def native_loop(self) -> bytes:
        """Give the object code of the native loop, none for a device with a driver of its own.

        Raises AutoschedError if it cannot be built.
        """
        if not self._target.is_cpu:
            return b""
        ((_, reply),) = self._pool.run([Job(_NativeLoop(), share=_NATIVE_SHARE)])
        if reply.status is not Status.OK:
            lines = reply.error.strip().splitlines() or [str(reply.status)]
            # A traceback ends with the reason; that of a worker that was ended begins with it, and goes on with where.
            reason = lines[-1 if lines[0].startswith("Traceback") else 0]
            raise AutoschedError(f"the native loop cannot be built: {reason}")
        assert isinstance(reply.value, bytes), "the native loop is object code"
        return reply.value

    def comparisons(self) -> Kernel | None:
        """Give the kernel that compares results on the target's device; None where the host compares them."""
        if self._target.is_cpu:
            return None
        ((_, reply),) = self._pool.run([Job(_Comparisons())])
        if reply.status is not Status.OK:
            log.warning("results are compared on the host, since no kernel does it on the device: %s", reply.error)
        return reply.value if isinstance(reply.value, Kernel) else None

    def build(
        self,
        candidates: Sequence[Candidate],
        *,
        are_kept: bool = False,
        meanwhile: Callable[[], object] | None = None,
        ahead: Callable[[], Sequence[Candidate] | None] | None = None,
    ) -> Iterator[Built | Failed]:
        """Compile candidates on all workers; gives each outcome as soon as it is there.

        are_kept   whether their kernels go to the kernel cache: those of finalists do, losers leave nothing behind
        meanwhile  called when the first have begun, before they are waited for
        ahead      called when no candidate waits for a worker, until it does not give None: gives candidates that will
                   probably be built next
        """
        jobs = [self._job(candidate, are_kept) for candidate in candidates]
        self._ahead.clear()
        coming = None if ahead is None else lambda: self._jobs_ahead(ahead())
        for position, reply in self._pool.run(jobs, meanwhile, coming):
            candidate = candidates[position]
            if reply.status is Status.OK:
                yield Built(candidate, *reply.value)
            else:
                yield Failed(candidate, Measurement(reply.status, error=reply.error))

    def close(self) -> None:
        """End the workers."""
        self._pool.close()

    def _jobs_ahead(self, candidates: Sequence[Candidate] | None) -> Sequence[Job] | None:
        """The jobs of candidates that will probably be built next; None where nobody knows yet."""
        if candidates is None:
            return None
        jobs = [self._job(candidate, False) for candidate in candidates]
        keys = [(self._funcs.key(candidate.task.func), candidate.config) for candidate in candidates]
        self._ahead = dict(zip(keys, jobs, strict=True))
        return jobs

    def _job(self, candidate: Candidate, is_kept: bool) -> Job:
        """A candidate's job: the one that was given ahead, where there is one."""
        key = self._funcs.key(candidate.task.func)
        if not is_kept and self._ahead and (known := self._ahead.get((key, candidate.config))) is not None:
            return known
        return Job(_Build(key, candidate.config, is_kept), {key: candidate.task.func})
