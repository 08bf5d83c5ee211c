"""What a worker of a cluster does: builds, and runs on its device. Called by dask in the worker's process.

Candidates are compiled and run in worker processes of their own, as they are without a cluster: one that crashes or
hangs costs itself alone. While one is timed, nothing is compiled on this machine.
"""

from __future__ import annotations

import atexit
import contextlib
import pickle
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from autosched.records.record import host_id
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.task import Measurement, Task
from autosched.tuner.measure.base import Built, Candidate, Compared, Failed, MeasureOptions
from autosched.tuner.measure.builder import LocalBuilder
from autosched.tuner.measure.local import LocalMeasurer

if TYPE_CHECKING:
    from autosched.task.trial import ConfigLike
    from autosched.tuner.measure.base import Packs

_MOST_STATIONS = 2  # set-ups (target, options) that are kept ready at the same time


@dataclass(frozen=True, slots=True)
class Setup:
    """How a tuning measures; equal for all its candidates.

    target    as JSON, complete
    compiler  "module:class" of what builds a candidate
    """

    target: str
    options: MeasureOptions
    compiler: str


@dataclass(frozen=True, slots=True)
class Code:
    """A built candidate on its way from one worker to another."""

    kernel: Kernel
    packs: Packs
    build_s: float
    features: Mapping[str, tuple[float, ...]]


def build(setup: Setup, task: bytes, config: ConfigLike) -> Code | Measurement:
    """Compile a candidate; a Measurement tells how that failed."""
    candidate = Candidate(_read_task(task), config)
    with _station(setup) as station, station.building() as builder:
        (outcome,) = builder.build([candidate])
    if isinstance(outcome, Failed):
        return outcome.measurement
    return Code(outcome.kernel, outcome.packs, outcome.build_s, outcome.features)


def run(setup: Setup, task: bytes, config: ConfigLike, code: Code | Measurement, best_s: float | None) -> Measurement:
    """Check and time a built candidate on this worker's device."""
    if isinstance(code, Measurement):
        return code
    built = Built(Candidate(_read_task(task), config), code.kernel, code.packs, code.build_s, code.features)
    with _station(setup) as station, station.timing() as measurer:
        found = measurer.time(built, best_s)
    return _from_here(found)


def compare(
    setup: Setup, task: bytes, configs: Sequence[ConfigLike], rounds: int, extra_seeds: int
) -> tuple[Compared, ...]:
    """Measure configurations in turn against the first one, all on this worker's device."""
    with _station(setup) as station, station.timing() as measurer:
        found = measurer.compare(_read_task(task), configs, rounds=rounds, extra_seeds=extra_seeds)
    return tuple(replace(one, measurement=_from_here(one.measurement)) for one in found)


def _from_here(measurement: Measurement) -> Measurement:
    """The measurement with a note of the machine that made it, which is not the tuner's."""
    return replace(measurement, how={**measurement.how, "host": host_id()})


@lru_cache(maxsize=64)
def _read_task(data: bytes) -> Task:
    """The task of a pickle: the same object for the same bytes, as builders and references are kept by it."""
    task = pickle.loads(data)
    assert isinstance(task, Task), "tuners send tasks"
    return task


class Gate:
    """Either many build, or one times; who wants to time goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._building = self._waiting = 0
        self._timing = False

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Build."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timing and not self._waiting)
            self._building += 1
        try:
            yield
        finally:
            with self._changed:
                self._building -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Time."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._timing and not self._building)
            self._waiting -= 1
            self._timing = True
        try:
            yield
        finally:
            with self._changed:
                self._timing = False
                self._changed.notify_all()


GATE = Gate()  # of this process: whatever is timed, nothing else is


class Station:
    """Builders, and a measurer for this machine's device. The first builder is the measurer's own."""

    def __init__(self, setup: Setup):
        self._setup = setup
        self._options = replace(setup.options, builders=1)
        self._target = Target(setup.target)
        self._idle: queue.SimpleQueue[LocalBuilder] = queue.SimpleQueue()
        self._more: list[LocalBuilder] = []
        self._measurer: LocalMeasurer | None = None
        self._lock = threading.Lock()
        self.users = 0  # jobs that are at it; changed under _STATIONS_LOCK

    @contextlib.contextmanager
    def building(self) -> Iterator[LocalBuilder]:
        """A builder for the time of one candidate; dask lets no more in than this worker has builders."""
        builder = self._take()
        try:
            with GATE.shared():
                builder.pool.refresh()
                yield builder
        finally:
            self._idle.put(builder)

    @contextlib.contextmanager
    def timing(self) -> Iterator[LocalMeasurer]:
        """The measurer, while nothing else of ours runs here."""
        measurer = self._open()
        with GATE.alone():
            yield measurer

    def close(self) -> None:
        """End all processes."""
        for part in (*self._more, self._measurer):
            if part is not None:
                part.close()

    def _open(self) -> LocalMeasurer:
        with self._lock:
            if self._measurer is None:
                self._measurer = LocalMeasurer(self._target, self._options, compiler=self._setup.compiler)
                self._idle.put(self._measurer.builder)
            return self._measurer

    def _take(self) -> LocalBuilder:
        self._open()
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        made = LocalBuilder(self._target, self._options, compiler=self._setup.compiler)
        self._more.append(made)
        made.pool.wait_ready()
        return made


_STATIONS: dict[Setup, Station] = {}
_STATIONS_LOCK = threading.Lock()


@contextlib.contextmanager
def _station(setup: Setup) -> Iterator[Station]:
    """The station of a set-up for the time of one job; the oldest that nobody uses are closed for a new one."""
    with _STATIONS_LOCK:
        station = _STATIONS.pop(setup, None) or Station(setup)
        idle = [other for other, found in _STATIONS.items() if not found.users]
        for other in idle[: max(0, len(_STATIONS) + 1 - _MOST_STATIONS)]:
            _STATIONS.pop(other).close()
        _STATIONS[setup] = station  # the last is the one that was used last
        station.users += 1
    try:
        yield station
    finally:
        with _STATIONS_LOCK:
            station.users -= 1


def close_all() -> None:
    """End the processes of all set-ups; also done at exit."""
    with _STATIONS_LOCK:
        for station in _STATIONS.values():
            station.close()
        _STATIONS.clear()


atexit.register(close_all)
