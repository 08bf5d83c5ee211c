"""The runner's side of measuring: loads kernels, checks them, times them, compares them. It never imports Numba."""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autosched.errors import DeviceError
from autosched.runtime.pool import ThreadPool, open_pool
from autosched.target.host import host_cpu
from autosched.task import Measurement, Status
from autosched.tuner.measure.base import MeasureOptions
from autosched.tuner.measure.reference import CHECKED_AGAINST as CHECKED_AGAINST
from autosched.tuner.measure.sampling import (
    LEAST_ROUNDS,
    calls_per_repeat,
    ratio_of_rounds,
    sample,
    take_turns,
    time_calls,
)
from autosched.tuner.measure.workbench import ColdMemory, Workbench

if TYPE_CHECKING:
    from autosched.runtime.kernel import Kernel
    from autosched.tuner.measure.base import Packs

NATIVE, COMPARISONS = "native", "comparisons"  # what a runner learns beside references
_BEHIND = 1.1  # a kernel that surely takes so many times the first one's time is compared no further
_ENOUGH = 12  # rounds after which a comparison ends where nothing can beat the first kernel any more, and …
_PRECISE, _PRECISE_ROUNDS = 0.0075, 20  # … after which it ends where all ratios are known so well
_INTERLEAVE_S = 2.0  # kernels that are compared share so much time, after LEAST_ROUNDS rounds
_COLD_CACHES = 1.5  # the rotating copies together are so many times the last cache
_LOOKS_S = 5e-3  # how often a companion looks whether it is to go on
_FILLS_CACHES_S = 0.01  # a call that takes longer than this needs no other one before it to fill the caches


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel to run, with what turns natural arguments into its own."""

    kernel: Kernel
    packs: Packs
    threads: int


@dataclass(frozen=True, slots=True)
class Run:
    """A message: check a kernel against the reference of a key and, where wanted, time it. The reply: a Measurement,
    without times the text of what it was checked against alone.

    is_checked  the message before this one was for the same kernel, and found it right
    """

    entry: Entry
    reference: str
    options: MeasureOptions
    best_s: float | None = None
    is_timed: bool = True
    is_checked: bool = False


@dataclass(frozen=True, slots=True)
class Interleave:
    """A message: time several kernels in turn, `rounds` times. The reply: per kernel the seconds of each round."""

    entries: tuple[Entry, ...]
    reference: str
    options: MeasureOptions
    rounds: int
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Loop:
    """A message: call a kernel again and again while a file exists, and say by another one that it has begun."""

    entry: Entry
    reference: str
    options: MeasureOptions
    flag: str


class Loaded(Protocol):
    """A candidate that is ready to be called; each of its calls uses the next of its sets of arguments."""

    @property
    def sets(self) -> Sequence[object]: ...

    def run(self, number: int = 1) -> float | None:
        """Call it so often; gives the seconds where not everything that this takes is to be counted."""
        ...


class Bench(Protocol):
    """The arguments and expected results of one task; its candidates are laid on it."""

    @property
    def checked_against(self) -> str: ...

    def load(self, kernel: Any, packs: Packs, pool: Any, threads: int, *, cold_bytes: int = 0) -> Any:
        """Make a candidate ready."""
        ...

    def make_fresh(self, loaded: Any) -> None:
        """Bring arguments into the state before the first run: nothing of an earlier candidate is left in them."""
        ...

    def check(self, loaded: Any, packs: Packs, options: MeasureOptions) -> None:
        """Compare the results of one run after `make_fresh`. Raises CandidateError."""
        ...

    def recheck(self, loaded: Any, packs: Packs, options: MeasureOptions) -> None:
        """Compare the results after many runs. Raises CandidateError."""
        ...


class RunRole:
    """Serves Run and Interleave; another kind of candidate brings a Bench of its own by `open_bench`."""

    failure = Status.RUN_ERROR

    def __init__(self) -> None:
        self._native: ThreadPool | None = None
        self._comparisons: Any = None
        self._references: dict[str, Any] = {}
        self._bench: tuple[str, Bench] | None = None
        self._cold = ColdMemory()
        self._checked: Any = None  # what the last message has loaded and found right

    def open_bench(self, reference: Any, backend: str = "cpu") -> Bench:
        """Lay out what a stored reference holds, for kernels of a back end."""
        if backend == "cpu":
            return Workbench(reference.load(), self._cold)
        from autosched.tuner.measure.device import DeviceBench

        return DeviceBench(reference.load(), comparisons=self._comparisons)

    def is_spoilt_by(self, error: BaseException) -> bool:
        """Whether the process cannot go on after what a candidate did: it ends after its reply."""
        from autosched.tuner.measure.device import spoils_the_device

        return spoils_the_device(error)

    def learn(self, key: str, value: object) -> None:
        """Keep where a task's reference is; under the key NATIVE the native loop's object code, which a device has
        none of, and under COMPARISONS the kernel that compares there."""
        if isinstance(value, bytes):
            self._native = open_pool(value) if value else None
        elif key == COMPARISONS:
            self._comparisons = value
            _begin_with_device()
        else:
            self._references[key] = value

    @property
    def pool(self) -> ThreadPool | None:
        """The threads that candidates run on."""
        return self._native

    def do(self, message: Any) -> object:
        """Serve one message."""
        if isinstance(message, Run):
            return self._run(message)
        self._checked = None
        match message:
            case Loop():
                self._loop(message)
                return None
        return self._interleave(message)

    def _apart(self) -> contextlib.AbstractContextManager[None]:
        """Keeps the threads of candidates, while these are timed, on CPUs of their own."""
        return contextlib.nullcontext() if self.pool is None else self.pool.threads_apart()

    def _workbench(self, key: str, kernel: Kernel) -> Bench:
        if self._bench is None or self._bench[0] != key:
            self._bench = self._checked = None  # before the next one takes its memory
            self._bench = key, self.open_bench(self._references[key], getattr(kernel, "backend", "cpu"))
        return self._bench[1]

    def _load(self, bench: Bench, entry: Entry, options: MeasureOptions) -> Any:
        cold_bytes = rotated_bytes(options)
        return bench.load(entry.kernel, entry.packs, self.pool, entry.threads, cold_bytes=cold_bytes)

    def _run(self, job: Run) -> Measurement | str:
        bench, entry = self._workbench(job.reference, job.entry.kernel), job.entry
        loaded, self._checked = self._checked if job.is_checked else None, None
        if loaded is None:
            loaded = self._load(bench, entry, job.options)
            bench.make_fresh(loaded)
            loaded.run()
            bench.check(loaded, entry.packs, job.options)
        if not job.is_timed:
            self._checked = loaded
            return bench.checked_against
        throttled = throttle_count()
        with self._apart():
            found = sample(loaded.run, job.options, job.best_s)
        clock = clock_facts(throttled)
        bench.recheck(loaded, entry.packs, job.options)  # what works once may fail the next time: races, leftovers
        how = {
            **job.options.facts(entry.threads),
            "copies": len(loaded.sets),
            "number": found.number,
            "interval": round(found.interval, 5),
            **clock,
        }
        if found.was_cut:
            how["cut"] = True
        return Measurement(Status.OK, found.times_s, bench.checked_against, how=how)

    def _loop(self, job: Loop) -> None:
        loaded = self._load(self._workbench(job.reference, job.entry.kernel), job.entry, job.options)
        loaded.run()
        number = calls_per_repeat(loaded.run, _LOOKS_S)
        Path(f"{job.flag}.{os.getpid()}").touch()
        while os.path.exists(job.flag):
            loaded.run(number)

    def _interleave(self, job: Interleave) -> list[list[float]]:
        bench = self._workbench(job.reference, job.entries[0].kernel)
        loaded = [self._load(bench, entry, job.options) for entry in job.entries]
        with self._apart():
            return interleave(loaded, job.options, job.rounds, random.Random(job.seed))


def _begin_with_device() -> None:
    """Open the device before the first candidate comes; whether it can be used that one finds out."""
    from autosched.runtime.cuda.devices import driver_of

    with contextlib.suppress(DeviceError):
        driver_of(0).free_bytes()


def rotated_bytes(options: MeasureOptions) -> int:
    """Give how many bytes of weights rotate: more than the last cache holds, or as many as the model has."""
    if options.cache == "warm":
        return 0
    beyond = math.ceil(_COLD_CACHES * host_cpu().cache.l3_bytes)
    return beyond if options.weight_bytes is None else min(beyond, options.weight_bytes)


def interleave(
    kernels: Sequence[Loaded], options: MeasureOptions, rounds: int, rng: random.Random
) -> list[list[float]]:
    """Time kernels in turn, in a new random order each round; gives per kernel the seconds per call of each round.

    Each makes one call before its clock starts, which brings its data back into the caches that the others used.
    There are `rounds` of them, fewer of a kernel that is surely behind the first, and of all where they take longer
    than 2 s, where surely none is faster than the first, and where their ratios to that are known well.
    """
    start = time.perf_counter()
    numbers = [calls_per_repeat(kernel.run, options.round_s) for kernel in kernels]
    times: list[list[float]] = [[] for _ in kernels]

    behind: set[int] = set()

    def turn(i: int) -> None:
        if i in behind:
            return
        if not times[i] or times[i][-1] < _FILLS_CACHES_S:
            kernels[i].run(1)
        times[i].append(time_calls(kernels[i].run, numbers[i]) / numbers[i])

    def is_done() -> bool:
        if (n := len(times[0])) < LEAST_ROUNDS:
            return n >= rounds
        others = set(range(1, len(times)))
        bounds = {i: ratio_of_rounds(times[i], times[0])[1:] for i in others - behind}
        behind.update(i for i, (low, _) in bounds.items() if low > _BEHIND)
        near = [bounds[i] for i in others - behind]
        none_wins = not near or (n >= _ENOUGH and all(low >= 1 for low, _ in near))
        is_precise = n >= _PRECISE_ROUNDS and all(high - low <= 2 * _PRECISE for low, high in near)
        is_decided = none_wins or is_precise if others else n >= _ENOUGH
        return n >= rounds or is_decided or time.perf_counter() - start > _INTERLEAVE_S

    take_turns(len(kernels), turn, is_done, rng)
    return times


ROOT = Path("/sys/devices/system/cpu")  # virtual machines mostly show no clock there


def clock_khz(root: Path = ROOT) -> int | None:
    """The fastest clock of the CPUs that this process may use, in kHz; None where nobody tells."""
    return max(_numbers(root, "cpufreq/scaling_cur_freq"), default=None)


def throttle_count(root: Path = ROOT) -> int | None:
    """How often these CPUs have been slowed down for heat since the system has started; None where nobody tells."""
    found = _numbers(root, "thermal_throttle/core_throttle_count")
    return sum(found) if found else None


def clock_facts(before: int | None, root: Path = ROOT) -> dict[str, int]:
    """Fields for a measurement's `how`: "clock_mhz" now, and "throttled", how often since `before` was counted."""
    facts: dict[str, int] = {}
    if (khz := clock_khz(root)) is not None:
        facts["clock_mhz"] = round(khz / 1000)
    if before is not None and (now := throttle_count(root)) is not None and now > before:
        facts["throttled"] = now - before
    return facts


def _numbers(root: Path, name: str) -> list[int]:
    found = []
    for cpu in _own_cpus():
        try:
            found.append(int((root / f"cpu{cpu}" / name).read_text()))
        except (OSError, ValueError):
            continue
    return found


def _own_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
