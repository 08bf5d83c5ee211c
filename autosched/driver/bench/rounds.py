"""Measures programs in rounds, in which each has its turn: a change of clock speed meets all alike. And a verdict."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autosched.driver.bench.programs import Program
from autosched.tuner.measure.sampling import LEAST_ROUNDS, median_interval, ratio_of_rounds, take_turns

SLICE_S = 0.02  # how long one program runs before the next has its turn
WARM_UP_S = 0.3
# Threads of other runtimes go on spinning after their work and would take a core from the next program: ONNX Runtime's
# for 55 to 65 ms, OpenMP's for 10 to 200 ms.
SETTLE_S, LONGEST_SETTLE_S = 0.012, 0.4  # the system counts the CPU time of running threads at ticks of up to 10 ms
SETTLED = 0.2  # of a core, used by this process while this thread sleeps
DRIFT_LIMIT, OUTLIER_LIMIT = 0.03, 0.05


@dataclass(frozen=True, eq=False)
class Timing:
    """The times of one program's runs, in seconds, round by round.

    cpu_s  CPU time of a run, on average, on all threads of this process
    """

    program: Program
    rounds: tuple[np.ndarray, ...]
    cpu_s: float = math.nan

    @property
    def times_s(self) -> np.ndarray:
        """All runs in the order in which they were made."""
        return np.concatenate(self.rounds)

    @property
    def round_medians_s(self) -> np.ndarray:
        """Each round's median: what is compared with the same round of another program."""
        return np.array([np.median(times) for times in self.rounds])

    @property
    def median_s(self) -> float:
        return float(np.median(self.times_s))

    @property
    def interval_s(self) -> float:
        """Half the width of the 95 % interval of the rounds' median."""
        low, high = median_interval(self.round_medians_s)
        return (high - low) / 2

    @property
    def drift(self) -> float:
        """By which share the last third of the rounds is slower than the first."""
        medians = self.round_medians_s
        third = max(len(medians) // 3, 1)
        return float(np.median(medians[-third:]) / np.median(medians[:third])) - 1

    @property
    def outliers(self) -> float:
        """The share of runs more than three quartile distances above the upper quartile (Tukey's "far out")."""
        low, high = np.percentile(self.times_s, [25, 75])
        return float(np.mean(self.times_s > high + 3 * (high - low) + 0.01 * high))


def measure(
    programs: Sequence[Program],
    time_s: float,
    *,
    runs: int | None = None,
    warmup_s: float | None = None,
    seed: int = 0,
) -> list[Timing]:
    """Run programs in turns of about SLICE_S, in random order, until each has had `time_s`, or `runs` runs.

    warmup_s  how long each runs before; None: WARM_UP_S, longer while it still gets faster
    """
    for program in programs:
        _warm_up(program, warmup_s)
    found: list[list[np.ndarray]] = [[] for _ in programs]
    cpu, spent = [0.0] * len(programs), [0.0] * len(programs)
    counts = [0] * len(programs)

    def is_done() -> bool:
        if runs is not None:
            return all(count >= runs for count in counts)
        return len(found[0]) >= LEAST_ROUNDS and all(s >= time_s for s in spent)

    def turn(i: int) -> None:
        _settle(programs)
        most = None if runs is None else max(1, min(runs - counts[i], -(-runs // LEAST_ROUNDS)))
        begin, cpu_begin = time.perf_counter(), time.process_time()
        with running(programs[i].others):
            times = repeat(programs[i], SLICE_S, most)
        cpu[i] += math.nan if programs[i].times is not None else time.process_time() - cpu_begin
        spent[i] += time.perf_counter() - begin
        counts[i] += len(times)
        found[i].append(times)

    take_turns(len(programs), turn, is_done, random.Random(seed))
    return [Timing(p, tuple(r), c / n / p.n_instances) for p, r, c, n in zip(programs, found, cpu, counts, strict=True)]


def repeat(program: Program, duration_s: float, most: int | None = None) -> np.ndarray:
    """The times of runs for about so long, at least one; a short program runs once before, untimed."""
    if program.times is not None:
        (first,) = program.times(1)
        number = max(1, int(duration_s / first))
        return np.array(program.times(number if most is None else min(number, most)))
    times: list[float] = []
    begin = time.perf_counter()
    program.run()
    now = time.perf_counter()
    if now - begin > duration_s / 4:
        times.append(now - begin)
    end = begin + duration_s
    while now < end or not times:
        if most is not None and len(times) >= most:
            break
        start = time.perf_counter()
        program.run()
        now = time.perf_counter()
        times.append(now - start)
    return np.array(times)


def _warm_up(program: Program, duration_s: float | None) -> None:
    """Run until the time is over; without one, go on while a slice is still 2 % faster than the one before."""
    end = time.perf_counter() + (WARM_UP_S if duration_s is None else duration_s)
    limit = end + (0.0 if duration_s is not None else 5 * WARM_UP_S)
    last = math.inf
    while True:
        median, now = float(np.median(repeat(program, SLICE_S))), time.perf_counter()
        if now >= limit or (now >= end and median > 0.98 * last):
            return
        last = median


def _settle(programs: Sequence[Program]) -> None:
    """Wait until the threads of the program before sleep, where some may not: until they use no CPU time."""
    if len(programs) < 2 or all(program.threads == 1 or program.sleeps for program in programs):
        return
    now = begin = time.perf_counter()
    while now - begin < LONGEST_SETTLE_S:
        last, cpu = now, time.process_time()
        time.sleep(SETTLE_S)
        now = time.perf_counter()
        if time.process_time() - cpu < SETTLED * (now - last):
            return


@contextlib.contextmanager
def running(others: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Let functions run again and again, each in a thread of its own, from the first line of the block to the last.

    They keep no other thread from running where they spend their time outside of Python, as models do.
    Raises  what one of them has raised.
    """
    ended, begun = threading.Event(), threading.Semaphore(0)
    failures: list[BaseException] = []

    def loop(run: Callable[[], object]) -> None:
        try:
            run()
            begun.release()
            while not ended.is_set():
                run()
        except BaseException as error:  # it belongs to the thread that waits
            failures.append(error)
            begun.release()

    threads = [threading.Thread(target=loop, args=(run,), daemon=True) for run in others]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            begun.acquire()
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


@dataclass(frozen=True)
class Comparison:
    """How many times longer `second` takes than `first`: the median over rounds and its 95 % interval."""

    first: str
    second: str
    ratio: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out "equally fast"."""
        return not self.low <= 1 <= self.high

    @property
    def text(self) -> str:
        """The verdict in words."""
        half = (self.high - self.low) / 2
        if not self.is_clear:
            return f"{self.first} and {self.second}: no difference found at ± {100 * half:.1f} %"
        if self.ratio >= 1:
            return f"{self.first} is {_with_interval(self.ratio, half)} times faster than {self.second}"
        half = (1 / self.low - 1 / self.high) / 2
        return f"{self.second} is {_with_interval(1 / self.ratio, half)} times faster than {self.first}"


def _with_interval(value: float, half: float) -> str:
    digits = 2 if half >= 0.005 else 3
    return f"{value:.{digits}f} ± {half:.{digits}f}"


def compare(first: Timing, second: Timing) -> Comparison:
    """Compare two programs of one `measure` round by round: what slowed both down cancels out."""
    ratio, low, high = ratio_of_rounds(second.round_medians_s.tolist(), first.round_medians_s.tolist())
    return Comparison(first.program.name, second.program.name, ratio, low, high)
