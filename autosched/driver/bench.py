"""`bench`: programs side by side, interleaved, so that a change of the machine's speed meets all of them alike."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autosched.driver.build import build
from autosched.driver.model_files import load_model
from autosched.driver.programs import Program, Shapes, autosched_program, known_ranges, peer_program, start
from autosched.driver.rounds import DRIFT_LIMIT, OUTLIER_LIMIT, Timing, measure
from autosched.driver.verdict import compare
from autosched.errors import UsageError
from autosched.faces import load
from autosched.runtime import Executable
from autosched.runtime.artifact import is_artifact
from autosched.target import Target
from autosched.target.threads import choose_threads, thread_limits

PERCENTILES = (50.0, 90.0, 99.0)
BUSY = 0.5  # the load that others put on each core, from which on it is worth a warning


@dataclass(frozen=True)
class BenchReport:
    """A row for each program, number of threads and batch; verdicts on the first against each other one; warnings."""

    rows: tuple[Mapping[str, Any], ...]
    verdicts: tuple[str, ...]
    environment: str
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values: what `--baseline` reads again."""
        return {
            "environment": self.environment,
            "rows": [dict(row) for row in self.rows],
            "verdicts": list(self.verdicts),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Opened:
    """A model to measure: its name, what makes it an executable, and the .onnx file for other runtimes."""

    name: str
    make: Callable[[], Executable]
    onnx_file: Path | None = None
    shapes: Shapes | None = None


def bench(
    models: Sequence[str | Path | Executable],
    *,
    target: Any = None,
    records: Any = None,
    threads: Sequence[int | None] = (None,),
    batches: Sequence[int | None] = (None,),
    others: Sequence[str] = (),
    time_s: float = 5.0,
    runs: int | None = None,
    warmup_s: float | None = None,
    percentiles: Sequence[float] = PERCENTILES,
    shapes: Shapes | None = None,
) -> BenchReport:
    """Measure models (artifacts, .onnx files, executables), and each .onnx file in other runtimes as well.

    threads      numbers of threads to repeat everything for; None: as many as there are
    batches      sizes for the first dimension of .onnx files' inputs, where it is dynamic; None: as the file says
    time_s       measuring time for each row; `runs` instead: so many runs
    warmup_s     how long each program runs before; None: until it gets no faster
    percentiles  of the times of single runs
    Raises       UsageError for what cannot be measured.
    """
    if time_s <= 0 or (runs is not None and runs < 1):
        raise UsageError(f"a measuring time of {time_s} s, {runs} runs")
    load_before = busy_cores()
    rows: list[Mapping[str, Any]] = []
    verdicts: list[str] = []
    warnings: list[str] = []
    for batch in batches:
        opened = [_open(model, target, records, _with_batch(model, batch, shapes)) for model in models]
        if others and not any(o.onnx_file for o in opened):
            raise UsageError("--with needs an .onnx file among the models")
        for count in threads:
            programs = _start_all(opened, others, choose_threads(count))
            timings = measure(programs, time_s, runs=runs, warmup_s=warmup_s)
            more = {} if batch is None else {"batch": batch}
            rows += [_row(t, timings[0], percentiles) | more for t in timings]
            verdicts += [compare(timings[0], t).text for t in timings[1:]]
            warnings += _doubts(timings, count)
    if load_before > BUSY:
        warnings.insert(0, f"other work kept {load_before:.1f} cores busy before this measurement")
    return BenchReport(tuple(rows), tuple(verdicts), _environment(target), tuple(dict.fromkeys(warnings)))


def _open(model: str | Path | Executable, target: Any, records: Any, shapes: Shapes | None) -> Opened:
    if isinstance(model, Executable):
        return Opened("executable", lambda: model)
    path = Path(model)
    if is_artifact(path):
        return Opened(path.name, lambda: _load_artifact(path))
    kept: list[Executable] = []  # a sweep over threads builds once

    def make() -> Executable:
        if not kept:
            kept.append(build(load_model(path, shapes), target=target, records=records))
        return kept[0]

    return Opened(path.name, make, path if path.suffix == ".onnx" else None, shapes)


def _load_artifact(path: Path) -> Executable:
    loaded = load(path)
    if not isinstance(loaded, Executable):
        raise UsageError(f"{path} holds functions and no model")
    return loaded


def _start_all(opened: Sequence[Opened], others: Sequence[str], threads: int) -> list[Program]:
    ours: list[Program] = []
    peers: list[Program] = []
    for model in opened:
        executables: list[Executable] = []

        def make(model: Opened = model, executables: list[Executable] = executables) -> Program:
            executables.append(model.make())
            return autosched_program(model.name, executables[0], threads)

        ours.append(start(make, memory=model.onnx_file is None))  # building takes memory that running does not
        for name in others if model.onnx_file else ():
            assert model.onnx_file is not None
            arguments = (name, model.onnx_file, threads, model.shapes, known_ranges(executables[0]))
            peers.append(start(lambda arguments=arguments: peer_program(*arguments)))  # type: ignore[misc]
    return ours + peers


def _with_batch(model: str | Path | Executable, batch: int | None, shapes: Shapes | None) -> Shapes | None:
    """The shapes of an .onnx file's inputs for a batch size. Raises UsageError where it has no dynamic first one."""
    if batch is None:
        return shapes
    if isinstance(model, Executable) or Path(model).suffix != ".onnx":
        raise UsageError("only .onnx files can be measured at several batch sizes", hint="a built model's are fixed")
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    found = dict(shapes or {})
    for value in graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.name not in constants and dims and dims[0] == 0 and value.name not in found:
            found[value.name] = (batch, *dims[1:])
    if not found:
        raise UsageError(f"no input of {Path(model).name} has a dynamic first dimension")
    return found


def _row(timing: Timing, first: Timing, percentiles: Sequence[float]) -> dict[str, Any]:
    times, program = timing.times_s, timing.program
    row: dict[str, Any] = {"name": program.name, "threads": program.threads, "median_s": timing.median_s}
    row |= {f"p{p:g}_s": float(v) for p, v in zip(percentiles, np.percentile(times, list(percentiles)), strict=True)}
    return row | {
        "min_s": float(times.min()),
        "interval_s": timing.interval_s,
        "cpu_s": timing.cpu_s,
        "memory_bytes": program.memory_bytes,
        "load_s": program.load_s,
        "first_run_s": program.first_run_s,
        "n_runs": len(times),
        "speed_up": compare(timing, first).ratio,
    }


def _doubts(timings: Sequence[Timing], asked: int | None) -> list[str]:
    """What makes these measurements less trustworthy."""
    found = []
    for t in timings:
        if abs(t.drift) > DRIFT_LIMIT:
            found.append(f"{t.program.name} drifted by {100 * t.drift:+.0f} % while it was measured")
        if t.outliers > OUTLIER_LIMIT:
            found.append(f"{100 * t.outliers:.0f} % of the runs of {t.program.name} are outliers")
    if asked is not None and asked > (cores := thread_limits().affinity):
        found.append(f"{asked} threads were asked for, and this process has {cores} cores")
    return found


def busy_cores() -> float:
    """The load that others put on the machine in the last minute, in cores; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _environment(target: Any) -> str:
    fingerprint = Target(target or "cpu").fingerprint()
    return f"{fingerprint.model_name}, {fingerprint.cores} cores, {fingerprint.vector_bits}-bit vectors"
