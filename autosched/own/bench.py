"""The runner's side of tuning an own function: candidates on copies of the caller's arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosched.own.compare import compare_arrays, compare_values
from autosched.own.compiler import OwnKernel
from autosched.own.expected import Expected, freeze
from autosched.own.memory import ArgumentSet, Memory
from autosched.own.metric import Metrics
from autosched.own.transfer import SentFunction
from autosched.target.host import host_cpu
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError, MeasureOptions

if TYPE_CHECKING:
    from autosched.json_types import JsonObject
    from autosched.tuner.measure.base import Packs

_MOST_SETS = 256


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far results may be from what is expected.

    shares   per array the error allowed as a share of its largest value;  share  of what is returned
    allowed  error that is allowed whatever the values are; None: hardly any
    """

    shares: tuple[float, ...]
    share: float
    allowed: float | None = None


class LoadedOwn:
    """A compiled configuration with its arguments (see `tuner.measure.run_role.Loaded`)."""

    def __init__(self, call: Callable[..., object], sets: Sequence[ArgumentSet], expected: Expected, threads: int):
        self.call, self.sets, self.threads = call, sets, threads
        self._start = expected.start
        self._reset = [number for number, is_reset in enumerate(expected.is_reset) if is_reset]
        self.returned: object = None

    def run(self, number: int = 1) -> float | None:
        """Call it so often. What changes its own arguments gets fresh ones each time, which is not counted."""
        _use_threads(self.threads)
        call, values = self.call, self.sets[0].values
        if not self._reset:
            for _ in range(number - 1):
                call(*values)
            self.returned = call(*values)
            return None
        counted, left = 0.0, number
        while left > 0:
            sets = self.sets[:left]
            for one in sets:
                one.fill(self._start, self._reset)
            arguments = [one.values for one in sets]
            begin = time.perf_counter()
            for values in arguments:
                self.returned = call(*values)
            counted += time.perf_counter() - begin
            left -= len(sets)
        return counted


class OwnBench:
    """See `tuner.measure.run_role.Bench`."""

    def __init__(
        self, sent: SentFunction, memory: Memory, expected: Expected, tolerance: Tolerance, checked_against: str
    ):
        self.sent, self.memory, self.expected, self.tolerance = sent, memory, expected, tolerance
        self.checked_against = checked_against
        self._sets = [memory.first]
        self.metrics = Metrics()
        self._left: object = None  # what the run after the last timed one has returned

    def load(self, kernel: OwnKernel, packs: Packs, pool: object, threads: int, *, cold_bytes: int = 0) -> LoadedOwn:
        """Load a configuration's machine code; what it resets gets several copies, so that short calls can be timed."""
        self._make_sets()
        return LoadedOwn(kernel.open(self.sent), self._sets, self.expected, threads)

    def make_fresh(self, loaded: LoadedOwn) -> None:
        """Every set begins as the caller's arguments do, poisoned where only results are written."""
        for one in self._sets:
            one.fill(self.expected.start)

    def recheck(self, loaded: LoadedOwn, packs: Packs, options: MeasureOptions) -> None:
        """Compare once more, after a run on fresh arguments: what works once may fail the next time."""
        self.make_fresh(loaded)
        loaded.run()
        self.check(loaded, packs, options)
        self._left = loaded.returned

    def facts(self, kernel: OwnKernel, time_s: float) -> JsonObject:
        """What metrics may read: time, result, arguments as the last run has left them, knobs."""
        arguments = dict(zip(self.sent.arguments, self.memory.first.values, strict=False))
        return {**kernel.config.knobs, **arguments, "time_s": time_s, "result": self._left}

    def check(self, loaded: LoadedOwn, packs: Packs, options: MeasureOptions) -> None:
        """Compare what one run has left. Raises CandidateError (WRONG_RESULT or NON_FINITE)."""
        memory, found, tolerance = self.memory, self.memory.first, self.tolerance
        if not all([one.guards_hold() for one in self._sets]):
            raise CandidateError(Status.WRONG_RESULT, "wrote beside its arguments")
        self._check_rest()
        for i, expected in enumerate(self.expected.arrays):
            if expected is None:
                continue
            verdict = compare_arrays(
                memory.labels[i], found.arrays[i], expected, tolerance.shares[i], tolerance.allowed
            )
            if verdict.status is not Status.OK:
                raise CandidateError(verdict.status, verdict.text)
        wanted = self.expected.returned
        verdict = compare_values("the result", freeze(loaded.returned), wanted, tolerance.share, tolerance.allowed)
        if verdict.status is not Status.OK:
            raise CandidateError(verdict.status, verdict.text)

    def _check_rest(self) -> None:
        """Nothing but the arrays that the default writes may have changed. Raises CandidateError."""
        memory = self.memory
        for number in range(len(memory.contents)):
            rest = memory.first.bytes[number].copy()
            start = self.expected.start[number]
            blocks, before = [rest] * (number + 1), [start] * (number + 1)
            for view, expected in zip(memory.views, self.expected.arrays, strict=True):
                if view.block == number and expected is not None:
                    view.of(blocks)[...] = view.of(before)
            if not np.array_equal(rest, start):
                raise CandidateError(Status.WRONG_RESULT, f"changed {self._name_changed(number, rest, start)}")

    def _name_changed(self, number: int, rest: np.ndarray, start: np.ndarray) -> str:
        """Which argument has changed bytes that the default does not write."""
        blocks, before = [rest] * (number + 1), [start] * (number + 1)
        for view, label in zip(self.memory.views, self.memory.labels, strict=True):
            if view.block == number and view.of(blocks).tobytes() != view.of(before).tobytes():
                return f"its input '{label}'"
        return "memory between the elements of its arguments"

    def _make_sets(self) -> None:
        """Copies of what is reset, as many as fit half of the second cache."""
        reset = [number for number, is_reset in enumerate(self.expected.is_reset) if is_reset]
        if not reset or len(self._sets) > 1:
            return
        size = sum(len(self.memory.contents[number]) for number in reset)
        first = self.memory.first.blocks
        for _ in range(min(_MOST_SETS, host_cpu().cache.l2_bytes // 2 // max(size, 64)) - 1):
            blocks = [self.memory.new_block(n) if n in reset else first[n] for n in range(len(first))]
            self._sets.append(ArgumentSet(self.memory, blocks))


def _use_threads(threads: int) -> None:
    """Let parallel loops use so many threads."""
    import numba

    numba.set_num_threads(max(1, min(threads, numba.config.NUMBA_NUM_THREADS)))
