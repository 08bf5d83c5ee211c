"""Local runner: checks and times built candidates in one worker process, with a warm spare for when it dies."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from autosched.errors import AutoschedError
from autosched.runtime.kernel import Kernel
from autosched.task import Measurement, Status, Task
from autosched.tuner.measure.base import THREAD_KNOBS, Built, MeasureOptions
from autosched.tuner.measure.companions import Companions
from autosched.tuner.measure.make_reference import FuncReferences
from autosched.tuner.measure.memory import choose_memory_limit
from autosched.tuner.measure.nursery import Nursery
from autosched.tuner.measure.process import Job, Numbering
from autosched.tuner.measure.reference import References, Stored
from autosched.tuner.measure.run_role import COMPARISONS, NATIVE, Entry, Interleave, Run
from autosched.tuner.measure.worker import Reply, Setup
from autosched.tuner.measure.worker_pool import WorkerPool

_ASKED_SHARE = 3  # a reference that the worker makes takes several runs
_STORED = 16  # references whose files are kept at the same time, whatever their size
_MOST_STORED, _MOST_STORED_BYTES = 1000, 512 << 20  # … and of smaller ones: a tuning comes back to its tasks


class LocalRunner:
    """Runs kernels on this machine.

    native      gives the object code of the native loop; called when the first kernel is run
    comparisons  gives the kernel that compares results on a device; None: nothing does
    folder      an existing folder for the files of references, which workers map
    references  how candidates are run and checked; None: as kernels of PrimFuncs
    limits_memory  not for GPUs, whose driver reserves more addresses than the machine has memory
    nursery     what the worker is a fork of; None: it is a new process
    """

    def __init__(
        self,
        options: MeasureOptions,
        native: Callable[[], bytes],
        folder: Path,
        *,
        references: References | None = None,
        limits_memory: bool = True,
        nursery: Nursery | None = None,
        comparisons: Callable[[], Kernel | None] = lambda: None,
    ):
        self._options, self._folder, self._references = options, folder, references or FuncReferences()
        memory = choose_memory_limit(options.memory_limit_bytes) if limits_memory else None
        self._setup = Setup(self._references.role, {}, memory, os.getpid(), str(folder))
        spare = self._references.spare
        self._pool = WorkerPool(self._setup, 1, options.run_timeout_s, Status.TIMEOUT, spare=spare, nursery=nursery)
        self._companions = Companions(self._setup, options, folder)
        self._native_loop, self._comparisons = functools.cache(native), functools.cache(comparisons)
        self._funcs = Numbering("func")
        self._stored: dict[str, Stored] = {}
        self._keys: dict[str, str] = {}
        self._n_stored = 0
        self.reference_s = 0.0  # what making and storing the last reference took

    @property
    def pool(self) -> WorkerPool:
        """The worker and its spare."""
        return self._pool

    def wait_ready(self) -> None:
        """Wait until kernels can be run, the native loop included. Raises AutoschedError if a worker cannot start."""
        self._native_loop()
        if (comparisons := self._comparisons()) is not None:
            self._pool.teach({COMPARISONS: comparisons})
        self._pool.wait_ready()

    def prepare(self, task: Task, seed: int | None = None) -> str:
        """Make a task's reference if it is not there; gives its key.

        Raises AutoschedError if its files cannot be written.
        """
        seed = self._options.seed if seed is None else seed
        name = f"{self._funcs.key(task.func)}_{seed}"
        if name in self._keys and self._keys[name] in self._stored:
            key = self._keys[name]
            self._stored[key] = self._stored.pop(key)  # the last one used is the last to go
            return key
        while self._is_full():
            self._stored.pop(next(iter(self._stored))).remove()
        self._n_stored += 1
        key = self._keys[name] = f"{name}_{self._n_stored}"  # never given again: workers remember what it stands for
        start = time.perf_counter()
        try:
            self._stored[key] = self._references.store(task.func, seed, self._folder, key, self._ask)
        except OSError as error:
            raise AutoschedError(
                f"the inputs and reference of {task.title} cannot be written to {self._folder}: {error}",
                hint="make room there, or set TMPDIR to another folder",
            ) from error
        self.reference_s = time.perf_counter() - start
        return key

    def _is_full(self) -> bool:
        """Whether the references in files are as many, or as large, as may be."""
        if len(self._stored) < _STORED:
            return False
        size = sum(path.stat().st_size for path in self._folder.iterdir() if path.is_file())
        return len(self._stored) >= _MOST_STORED or size >= _MOST_STORED_BYTES

    def run(
        self, built: Sequence[Built], best_s: float | None = None, *, is_checked: bool = False
    ) -> Iterator[Measurement]:
        """Check and time candidates in order; each good time counts as the best so far for those after it.

        is_checked  the first of them has just been found right by `check`, on the inputs of the options' seed
        """
        for one in built:
            found, is_checked = self._measure(one, best_s, is_checked), False
            if found.is_ok and (best_s is None or found.median_s < best_s):
                best_s = found.median_s
            yield found

    def check(self, built: Built, seed: int) -> Measurement | None:
        """Check a candidate on inputs of another seed; gives the failure, or None where the result is right."""
        reply = self._do(Run(self._entry(built), self._key(built, seed), self._options, is_timed=False), built, seed)
        return None if reply.status is Status.OK else _failure(reply, self._options, self._references.checked_against)

    def interleave(self, built: Sequence[Built], rounds: int) -> list[list[float]] | Measurement:
        """Time candidates in turn; gives per candidate the seconds of each round, or the failure of all."""
        key = self._key(built[0], None)
        message = Interleave(tuple(map(self._entry, built)), key, self._options, rounds)
        reply = self._do(message, built[0], None, len(built))
        if reply.status is not Status.OK:
            return _failure(reply, self._options, self._references.checked_against)
        times: list[list[float]] = reply.value
        return times

    def close(self) -> None:
        """End the workers and remove the files."""
        self._companions.close()
        self._pool.close()
        for stored in self._stored.values():
            stored.remove()
        self._stored.clear()

    def _measure(self, built: Built, best_s: float | None, is_checked: bool) -> Measurement:
        entry, key = self._entry(built), self._key(built, None)
        message = Run(entry, key, self._options, best_s, is_checked=is_checked)
        reply = self._do(message, built, None)
        if reply.status is not Status.OK:
            return _failure(reply, self._options, self._references.checked_against)
        found: Measurement = reply.value
        known = {name: list(values) for name, values in built.features.items()}
        return dataclasses.replace(found, how={**found.how, "build_s": round(built.build_s, 4), **known})

    @property
    def references(self) -> References:
        """How candidates are run and checked."""
        return self._references

    def _ask(self, message: object, needs: Mapping[str, object]) -> Reply:
        ((_, reply),) = self._pool.run([Job(message, needs, share=_ASKED_SHARE)])
        return reply

    def _do(self, message: Run | Interleave, built: Built, seed: int | None, share: int = 1) -> Reply:
        key = self._key(built, seed)
        needs: dict[str, object] = {NATIVE: self._native_loop(), key: self._stored[key]}
        if (comparisons := self._comparisons()) is not None:
            needs[COMPARISONS] = comparisons
        is_timed = isinstance(message, Interleave) or message.is_timed
        if is_timed and self._companions.are_new_to(key):  # nobody else runs a kernel that may crash or hang
            check = Run(self._entry(built), key, self._options, is_timed=False)
            ((_, reply),) = self._pool.run([Job(check, needs, share)])
            if reply.status is not Status.OK:
                return reply
        with self._companions.beside(self._entry(built), key, needs) if is_timed else contextlib.nullcontext():
            ((_, reply),) = self._pool.run([Job(message, needs, share)])
        return reply

    def _key(self, built: Built, seed: int | None) -> str:
        return self.prepare(built.candidate.task, seed)

    def _entry(self, built: Built) -> Entry:
        return Entry(built.kernel, built.packs, threads_of(built, self._options))


def threads_of(built: Built, options: MeasureOptions) -> int:
    """Give the threads that a candidate runs on: its knob `threads` or `num_threads`, at most the options'."""
    knobs = built.candidate.config.knobs
    knob = next((knobs[name] for name in THREAD_KNOBS if name in knobs), options.threads)
    return max(1, min(int(knob), options.threads))


def _failure(reply: Reply, options: MeasureOptions, checked_against: str) -> Measurement:
    was_checked = reply.status in (Status.WRONG_RESULT, Status.NON_FINITE)
    how = {"threads": options.threads, "cache": options.cache}
    return Measurement(reply.status, checked_against=checked_against if was_checked else "", error=reply.error, how=how)
