"""`RemoteMeasurer`: candidates are built on this machine, and checked and timed on remote devices of one kind."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from autosched.errors import AutoschedError, InvalidValueError, UsageError
from autosched.records.scratch import Scratch
from autosched.target import Target
from autosched.task import ConfigLike, Measurement, Task, Trial
from autosched.tuner.measure.base import Ahead, Built, Candidate, Compared, Failed, Foresight, MeasureOptions
from autosched.tuner.measure.builder import TEMPLATE_COMPILER, LocalBuilder
from autosched.tuner.measure.compare import build_finalists, check_on_seeds, check_winners, time_in_turn
from autosched.tuner.measure.make_reference import make_reference
from autosched.tuner.measure.process import Numbering
from autosched.tuner.measure.remote.runner import DeviceGone, OpenSession, Prepared, RemoteRunner

_MOST_PREPARED = 8
_ABSENT_S = 60.0  # so long a tuning waits for a device to come back
_LOOKS_S = 1.0  # how often it looks
R = TypeVar("R")


class RemoteMeasurer:
    """Builders in processes of this machine, and one runner a device; use it in a `with`, or call `close`.

    target    what to build for
    devices   per device what opens a session there; all are of one kind
    absent_s  so long it waits for a device where none is left
    Raises    UsageError for throughput, AutoschedError if no device can be reached or a builder cannot start.
    """

    def __init__(
        self,
        target: Target | str,
        options: MeasureOptions | None,
        devices: Sequence[OpenSession],
        *,
        compiler: str = TEMPLATE_COMPILER,
        absent_s: float = _ABSENT_S,
    ):
        self.target, self.options = Target(target), options or MeasureOptions()
        if self.options.companions is not None:
            raise UsageError("throughput is measured on this machine alone")
        self.foresight: Foresight | None = None
        self._scratch = Scratch("measure")
        self._builder: LocalBuilder | None = None
        self._devices = _Devices([], absent_s)
        self._references = _References(self.options.seed)
        try:
            folder = str(self._scratch.folder)
            self._builder = LocalBuilder(self.target, self.options, compiler=compiler, folder=folder)
            self._builder.pool.wait_ready()
            native = functools.cache(self._builder.native_loop if self.target.is_native else self._other_loop)
            native()
            runners = [RemoteRunner(open_session, self.options, native) for open_session in devices]
            self._devices = _Devices(runners, absent_s)
            # A device that is this machine takes turns with the builders; others measure beside them.
            self._is_here = any([runner.is_here for runner in runners])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> RemoteMeasurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _other_loop(self) -> bytes:
        """The native loop's object code for another architecture than this machine's."""
        from autosched.codegen.native import native_for

        return native_for(self.target)

    def close(self) -> None:
        """End builders and sessions; safe to call twice."""
        if self._builder is not None:
            self._builder.close()
        self._builder = None
        self._devices.close()
        self._scratch.remove()

    def measure(
        self,
        task: Task,
        configs: Sequence[ConfigLike],
        best_s: float | None = None,
        *,
        ahead: Ahead | None = None,
    ) -> Iterator[Trial]:
        """As `LocalMeasurer.measure`. A device that goes costs what it was measuring, which another one measures.

        Raises AutoschedError where no device is left, and none comes back in time.
        """
        builder, best = self._parts(), [best_s]
        outcomes = self._build(builder, [Candidate(task, config) for config in configs], ahead=ahead)
        with ThreadPoolExecutor(self._devices.count) if not self._is_here else contextlib.nullcontext() as threads:
            running: dict[Future[Measurement], ConfigLike] = {}
            try:
                for outcome in outcomes:
                    if isinstance(outcome, Failed):
                        yield Trial(outcome.candidate.config, outcome.measurement)
                    elif self.foresight is not None and self.foresight.is_hopeless(outcome, best[0]):
                        continue
                    elif threads is None:
                        yield Trial(outcome.candidate.config, self._one(outcome, best))
                    else:
                        running[threads.submit(self._one, outcome, best)] = outcome.candidate.config
                        yield from _ended(running, 0.0)
                while running:
                    yield from _ended(running, None)
            finally:
                for future in running:
                    future.cancel()

    def compare(
        self, task: Task, configs: Sequence[ConfigLike], *, rounds: int = 40, extra_seeds: int = 2
    ) -> tuple[Compared, ...]:
        """As `LocalMeasurer.compare`, all in turn on one device."""
        builder, devices = self._parts(), self._devices
        seed = self.options.seed

        def build(candidates: Sequence[Candidate]) -> Iterator[Built | Failed]:
            return self._build(builder, candidates, are_kept=True)

        def check(built: Built, on: int) -> Measurement | None:
            prepared = self._references.of(task, on)
            return devices.do(lambda runner: runner.check(built, prepared))

        def check_more(built: Built) -> Measurement | None:
            others = range(seed + 1, seed + extra_seeds + 1)
            return check_on_seeds(lambda other: check(built, other), others, lambda: self._references.last_s)

        results, good = build_finalists(task, configs, build, lambda built: check(built, seed))
        if positions := sorted(good):
            prepared, finalists = self._references.of(task), [good[i] for i in positions]

            def in_turn(runner: RemoteRunner) -> list[Compared]:
                with self._quiet():
                    return time_in_turn(
                        lambda some, n: runner.interleave(some, prepared, n), finalists, rounds, self.options
                    )

            found = check_winners(devices.do(in_turn), finalists, check_more, has_first=0 in good)
            results.update(zip(positions, found, strict=True))
        return tuple(results[i] for i in range(len(configs)))

    def rest(self) -> None:
        """Wait until nothing is built ahead any more; what was is forgotten."""
        self._parts().pool.rest()

    def count_builders(self) -> int:
        """How many candidates are compiled at the same time."""
        return self._parts().size

    def _parts(self) -> LocalBuilder:
        if self._builder is None:
            raise InvalidValueError("the measurer has been closed")
        return self._builder

    def _quiet(self) -> contextlib.AbstractContextManager[None]:
        """What holds while something is timed."""
        return self._parts().pool.paused() if self._is_here else contextlib.nullcontext()

    def _one(self, built: Built, best: list[float | None]) -> Measurement:
        """Check and time a candidate on some device; `best` is the task's best time so far."""
        prepared = self._references.of(built.candidate.task)

        def on(runner: RemoteRunner) -> Measurement:
            if (failure := runner.check(built, prepared)) is not None:
                return failure
            with self._quiet():
                return runner.time(built, prepared, best[0], is_checked=True)

        found = self._devices.do(on)
        if found.is_ok and (best[0] is None or found.median_s < best[0]):
            best[0] = found.median_s
        return found

    def _build(
        self,
        builder: LocalBuilder,
        candidates: Sequence[Candidate],
        *,
        are_kept: bool = False,
        ahead: Ahead | None = None,
    ) -> Iterator[Built | Failed]:
        """Build candidates; references are made meanwhile."""
        builder.pool.refresh()

        def prepare() -> None:
            for candidate in candidates[:1]:
                self._references.of(candidate.task)

        def coming() -> Sequence[Candidate] | None:
            if ahead is None or (plan := ahead()) is None:
                return None
            task, configs = plan
            if configs:
                self._references.of(task)
            return [Candidate(task, config) for config in configs]

        yield from builder.build(candidates, are_kept=are_kept, meanwhile=prepare, ahead=coming)


def _ended(running: dict[Future[Measurement], ConfigLike], within_s: float | None) -> Iterator[Trial]:
    """The trials that are there, or come within a time; they are taken out."""
    done, _ = wait(running, within_s, FIRST_COMPLETED)
    for future in done:
        yield Trial(running.pop(future), future.result())


class _References:
    """Inputs and float64 results of tasks, made once each; of several threads one at a time makes some."""

    def __init__(self, seed: int):
        self._seed, self._lock, self._funcs = seed, threading.Lock(), Numbering("func")
        self._found: dict[str, Prepared] = {}
        self._number = 0
        self.last_s = 0.0  # what making the last one took

    def of(self, task: Task, seed: int | None = None) -> Prepared:
        """A task's, of a seed or of the options'."""
        seed = self._seed if seed is None else seed
        with self._lock:
            name = f"{self._funcs.key(task.func)}_{seed}"
            if (known := self._found.pop(name, None)) is None:
                while len(self._found) >= _MOST_PREPARED:
                    del self._found[next(iter(self._found))]
                start = time.perf_counter()
                self._number += 1
                known = Prepared(f"{name}_{self._number}", make_reference(task.func, seed))
                self.last_s = time.perf_counter() - start
            self._found[name] = known  # the last one used is the last to go
            return known


class _Devices:
    """The runners of all devices: each serves one thread at a time, and one that is gone is looked after."""

    def __init__(self, runners: Sequence[RemoteRunner], absent_s: float):
        self._runners, self._idle, self._absent_s = runners, list(runners), absent_s
        self._changed = threading.Condition()
        self._gone: dict[int, float] = {}  # of those that are gone the time of the next look
        self._empty_since: float | None = None

    @property
    def count(self) -> int:
        """How many devices there are, gone ones included."""
        return len(self._runners)

    def close(self) -> None:
        """End all sessions."""
        for runner in self._runners:
            runner.close()

    def do(self, job: Callable[[RemoteRunner], R]) -> R:
        """What a job gives on some device; where that goes, on another one.

        Raises AutoschedError where none is left and none has come back in time.
        """
        while True:
            runner = self._take()
            try:
                found = job(runner)
            except DeviceGone as error:
                self._lose(runner, error)
            else:
                with self._changed:
                    self._gone.pop(id(runner), None)
                    self._empty_since = None
                return found
            finally:
                with self._changed:
                    self._idle.append(runner)
                    self._changed.notify()

    def _take(self) -> RemoteRunner:
        with self._changed:
            while True:
                now = time.monotonic()
                if free := [r for r in self._idle if self._gone.get(id(r), 0.0) <= now]:
                    runner = min(free, key=lambda r: id(r) in self._gone)
                    self._idle.remove(runner)
                    return runner
                self._changed.wait(_LOOKS_S / 4)

    def _lose(self, runner: RemoteRunner, error: DeviceGone) -> None:
        with self._changed:
            now = time.monotonic()
            self._gone[id(runner)] = now + _LOOKS_S
            if len(self._gone) < len(self._runners):
                self._empty_since = None
                return
            self._empty_since = self._empty_since or now
            if now - self._empty_since > self._absent_s:
                waited = f"waited {self._absent_s:g} s"
                raise AutoschedError(f"no remote device is left ({waited}): {error.message}", hint=error.hint)
