"""`bench`: programs side by side, interleaved, so that a change of the machine's speed meets all of them alike."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autosched.driver.build import build
from autosched.driver.models import load_model
from autosched.driver.programs import Program, autosched_program, peer_program
from autosched.errors import UsageError
from autosched.faces import load
from autosched.runtime import Executable
from autosched.runtime.artifact import is_artifact
from autosched.target import Target
from autosched.target.threads import choose_threads

SLICE_S = 0.02  # how long one program runs before the next has its turn
WARM_UP_S = 0.3


@dataclass(frozen=True)
class Timing:
    """The times of one program's runs, in seconds."""

    program: Program
    times_s: np.ndarray

    @property
    def median_s(self) -> float:
        return float(np.median(self.times_s))

    @property
    def interval_s(self) -> float:
        """Half the width of the median's 95 % interval (McGill, Tukey, Larsen 1978: 1.57 IQR / sqrt n)."""
        low, high = np.percentile(self.times_s, [25, 75])
        return float(1.57 * (high - low) / math.sqrt(len(self.times_s)))


@dataclass(frozen=True)
class BenchReport:
    """A row for each program and number of threads; verdicts on the first against each other one."""

    rows: tuple[Mapping[str, Any], ...]
    verdicts: tuple[str, ...]
    environment: str


def measure(programs: Sequence[Program], time_s: float, seed: int = 0) -> list[Timing]:
    """Run programs in turns of about SLICE_S, in random order, until each has had `time_s`."""
    for program in programs:
        _repeat(program, WARM_UP_S)
    times: list[list[float]] = [[] for _ in programs]
    rng = random.Random(seed)
    order = list(range(len(programs)))
    end = time.perf_counter() + time_s * len(programs)
    while time.perf_counter() < end or min(map(len, times)) < 5:
        rng.shuffle(order)
        for i in order:
            times[i] += _repeat(programs[i], SLICE_S)
    return [Timing(p, np.array(t)) for p, t in zip(programs, times, strict=True)]


def _repeat(program: Program, duration_s: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + duration_s
    while True:
        start = time.perf_counter()
        program.run()
        stop = time.perf_counter()
        times.append(stop - start)
        if stop >= end:
            return times


def verdict(a: Timing, b: Timing) -> str:
    """Which of two is faster, and how sure that is."""
    ratio = b.median_s / a.median_s
    relative = math.hypot(a.interval_s / a.median_s, b.interval_s / b.median_s)
    first, second = a.program.name, b.program.name
    if abs(math.log(ratio)) <= relative:
        return f"{first} and {second}: no difference found at ± {100 * relative:.1f} %"
    if ratio < 1:
        first, second, ratio = second, first, 1 / ratio
    return f"{first} is {ratio:.2f} ± {ratio * relative:.2f} times faster than {second}"


def bench(
    models: Sequence[str | Path | Executable],
    *,
    target: Any = None,
    records: Any = None,
    threads: Sequence[int | None] = (None,),
    others: Sequence[str] = (),
    time_s: float = 5.0,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> BenchReport:
    """Measure models (artifacts, .onnx files, executables), and each .onnx file in other runtimes as well.

    threads  numbers of threads to repeat everything for; None: as many as there are
    time_s   measuring time for each row
    Raises   UsageError for what cannot be measured.
    """
    if time_s <= 0:
        raise UsageError(f"a measuring time of {time_s} s")
    executables = [_open(model, target, records, shapes) for model in models]
    rows: list[Mapping[str, Any]] = []
    verdicts: list[str] = []
    for count in threads:
        n_threads = choose_threads(count)
        programs = [autosched_program(name, executable, n_threads) for name, executable in executables]
        onnx_files = [Path(m) for m in models if isinstance(m, str | Path) and Path(m).suffix == ".onnx"]
        if others and not onnx_files:
            raise UsageError("--with needs an .onnx file among the models")
        programs += [peer_program(name, path, n_threads, shapes) for path in onnx_files for name in others]
        timings = measure(programs, time_s)
        rows += [_row(t, timings[0]) for t in timings]
        verdicts += [verdict(timings[0], t) for t in timings[1:]]
    return BenchReport(tuple(rows), tuple(verdicts), _environment(target))


def _open(
    model: str | Path | Executable, target: Any, records: Any, shapes: Mapping[str, tuple[int, ...]] | None
) -> tuple[str, Executable]:
    if isinstance(model, Executable):
        return "executable", model
    path = Path(model)
    if not is_artifact(path):
        return path.name, build(load_model(path, shapes), target=target, records=records)
    loaded = load(path)
    if not isinstance(loaded, Executable):
        raise UsageError(f"{path} holds functions and no model")
    return path.name, loaded


def _row(timing: Timing, first: Timing) -> dict[str, Any]:
    p90, p99 = np.percentile(timing.times_s, [90, 99])
    return {
        "name": timing.program.name,
        "threads": timing.program.threads,
        "median_s": timing.median_s,
        "p90_s": float(p90),
        "p99_s": float(p99),
        "min_s": float(timing.times_s.min()),
        "interval_s": timing.interval_s,
        "n_runs": len(timing.times_s),
        "speed_up": first.median_s / timing.median_s,
    }


def _environment(target: Any) -> str:
    fingerprint = Target(target or "cpu").fingerprint()
    return f"{fingerprint.model_name}, {fingerprint.cores} cores, {fingerprint.vector_bits}-bit vectors"
