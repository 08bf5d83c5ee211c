"""`bench`: programs side by side, interleaved, so that a change of the machine's speed meets all of them alike."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import (
    Program,
    Shapes,
    autosched_program,
    branching_program,
    dynamic_program,
    known_ranges,
    remote_program,
    start,
)
from autosched.driver.bench.rounds import DRIFT_LIMIT, OUTLIER_LIMIT, Timing, compare, measure
from autosched.driver.build.entry import Records, build
from autosched.driver.model_files import load_sized
from autosched.driver.options import TuneOptions
from autosched.driver.settings import check_runs_here, resolve_target
from autosched.driver.tables import frame
from autosched.errors import ImportModelError, UsageError
from autosched.printable import html_table
from autosched.rpc.client import RPCSession
from autosched.runtime import Executable
from autosched.runtime.artifact import is_artifact
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.library import load
from autosched.runtime.relax_vm import VMExecutable
from autosched.target import Target
from autosched.target.threads import choose_threads, thread_limits

if TYPE_CHECKING:
    import pandas

    from autosched.json_types import Json, JsonObject

RunAs = Literal["latency", "throughput"]
PERCENTILES = (50.0, 90.0, 99.0)
BUSY = 0.5  # the load that others put on each core, from which on it is worth a warning


@dataclass(frozen=True)
class BenchReport:
    """A row for each program, number of threads and batch; verdicts on the first against each other one; warnings."""

    rows: tuple[Mapping[str, Json], ...]
    verdicts: tuple[str, ...]
    environment: str
    warnings: tuple[str, ...] = ()

    def saying(self, verdict: str) -> BenchReport:
        """The report with one verdict more."""
        return dataclasses.replace(self, verdicts=(*self.verdicts, verdict))

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a frame of pandas; times in seconds. Raises UsageError without pandas."""
        return frame(self.rows)

    def _repr_html_(self) -> str:
        """What notebooks show: the rows and the verdicts."""
        return html_table(self.rows, "; ".join(self.verdicts))

    def to_json(self) -> JsonObject:
        """Everything as JSON values: what `--baseline` reads again."""
        return {
            "environment": self.environment,
            "rows": [dict(row) for row in self.rows],
            "verdicts": list(self.verdicts),
            "warnings": list(self.warnings),
        }


Built: TypeAlias = Executable | DynamicExecutable | VMExecutable


@dataclass(frozen=True)
class Opened:
    """A model to measure: its name, what makes it an executable, its artifact, and the .onnx file for others."""

    name: str
    make: Callable[[], Built]
    file: Path | None = None
    onnx_file: Path | None = None
    shapes: Shapes | None = None


def bench(
    models: Sequence[str | Path | Executable],
    *,
    target: str | Target | None = None,
    records: Records | None = None,
    threads: Sequence[int | None] = (None,),
    batches: Sequence[int | None] = (None,),
    others: Sequence[str] = (),
    time_s: float = 5.0,
    runs: int | None = None,
    warmup_s: float | None = None,
    percentiles: Sequence[float] = PERCENTILES,
    shapes: Shapes | None = None,
    run_as: RunAs = "latency",
    session: RPCSession | None = None,
) -> BenchReport:
    """Measure models (artifacts, .onnx files, executables), and each .onnx file in other runtimes as well.

    threads      numbers of threads to repeat everything for; None: as many as there are
    batches      sizes for the first dimension of .onnx files' inputs, where it is dynamic; None: as the file says
    time_s       measuring time for each row; `runs` instead: so many runs
    warmup_s     how long each program runs before; None: until it gets no faster
    percentiles  of the times of single runs
    run_as       "latency": each program runs alone; "throughput": one instance is timed while others of it, each on one
                 thread, keep the other cores busy
    session      of a remote device (`autosched.rpc.connect`): the models run there, and are timed by its clock;
                 `target` is what it is
    Raises       UsageError for what cannot be measured; DeviceError, before anything is built, where the GPU is missing
    """
    if time_s <= 0 or (runs is not None and runs < 1):
        raise UsageError(f"a measuring time of {time_s} s, {runs} runs")
    if session is not None and (others or run_as != "latency"):
        raise UsageError("on a remote device models are measured alone, and their latency")
    if session is None:
        check_runs_here(resolve_target(target))
    load_before = busy_cores() if session is None else 0.0
    instances = _instances(run_as, threads)
    reports: list[BenchReport] = []
    for batch in batches:
        opened = [_open(model, target, records, _with_batch(model, batch, shapes), run_as) for model in models]
        if others and not any(o.onnx_file for o in opened):
            raise UsageError("--with needs an .onnx file among the models")
        for count in threads:
            if session is None:
                n_threads = choose_threads(count) if run_as == "latency" else 1
                programs = _start_all(opened, others, n_threads, instances)
            else:
                programs = [_start_there(model, count, session) for model in opened]
            timings = measure(programs, time_s, runs=runs, warmup_s=warmup_s)
            more = [{} if batch is None else {"batch": batch}] * len(timings)
            reports.append(report_of(timings, percentiles, asked=count, target=target, more=more))
    return joined(
        reports, [f"other work kept {load_before:.1f} cores busy before this measurement"] * (load_before > BUSY)
    )


def report_of(
    timings: Sequence[Timing],
    percentiles: Sequence[float],
    *,
    asked: int | None = None,
    target: str | Target | None = None,
    more: Sequence[Mapping[str, object]] = (),
) -> BenchReport:
    """The report of programs that were measured in turn.

    asked  number of threads that somebody asked for;  more  further facts of each row
    """
    facts = more or [{}] * len(timings)
    return BenchReport(
        tuple(_row(t, timings[0], percentiles) | dict(m) for t, m in zip(timings, facts, strict=True)),
        tuple(compare(timings[0], t).text for t in timings[1:]),
        _environment(target),
        tuple(_doubts(timings, asked)),
    )


def joined(reports: Sequence[BenchReport], warnings: Sequence[str] = ()) -> BenchReport:
    """Several reports as one; `warnings` come first, and what was said twice is said once."""
    said = [*warnings, *(text for report in reports for text in report.warnings)]
    return BenchReport(
        tuple(row for report in reports for row in report.rows),
        tuple(text for report in reports for text in report.verdicts),
        reports[0].environment,
        tuple(dict.fromkeys(said)),
    )


def _instances(run_as: RunAs, threads: Sequence[int | None]) -> int:
    """How many instances of each program run at once. Raises UsageError for instances of several threads."""
    if run_as == "throughput" and any(count not in (None, 1) for count in threads):
        raise UsageError("throughput is measured with instances of one thread", hint="leave out the number of threads")
    return 1 + (TuneOptions(run_as=run_as).companions(1) or 0)


def _open(
    model: str | Path | Executable,
    target: str | Target | None,
    records: Records | None,
    shapes: Shapes | None,
    run_as: RunAs,
) -> Opened:
    if isinstance(model, Executable):
        return Opened("executable", lambda: model)
    path = Path(model)
    if is_artifact(path):
        return Opened(path.name, lambda: _load_artifact(path, shapes), path, shapes=shapes)
    kept: list[Built] = []  # a sweep over threads builds once

    def make() -> Built:
        if not kept:
            kept.append(_build(path, shapes, target=target, records=records, run_as=run_as))
        return kept[0]

    return Opened(path.name, make, None, path if path.suffix == ".onnx" else None, shapes)


def _build(path: Path, shapes: Shapes | None, **options: Any) -> Built:
    """A model's file, built for these sizes: as one graph, or for the VM where its course or sizes follow from data."""
    from autosched.frontend.onnx.node import OpenShapesError

    try:
        module = load_sized(path, shapes)
    except OpenShapesError:
        raise
    except ImportModelError:
        built = build(str(path), shapes=shapes, **options)
        if isinstance(built, VMExecutable):
            return built
        raise
    return _model(build(module, **options), path)


def _load_artifact(path: Path, shapes: Shapes | None) -> Built:
    """The model of an artifact. Raises UsageError for one that is measured otherwise, or built for other shapes."""
    loaded = load(path)
    if isinstance(loaded, DynamicExecutable | VMExecutable):
        return loaded
    found = _model(loaded, path)
    for value in found.inputs:
        if shapes and value.name in shapes and shapes[value.name] != value.shape:
            raise UsageError(
                f"{path} is built for {value.name}:{'x'.join(map(str, value.shape))}, and --shapes asks for another",
                hint="build it for these sizes, or for all of them",
            )
    return found


def _model(loaded: object, path: Path) -> Executable:
    """What was loaded or built, where it is a model of one graph. Raises UsageError."""
    if isinstance(loaded, Executable):
        return loaded
    if hasattr(loaded, "input_names"):
        raise UsageError(
            f"{path} is compiled when it is called, and there is nothing to measure before",
            hint='give the model\'s file and all sizes, such as --shapes "x:1x64"',
        )
    raise UsageError(f"{path} holds functions and no model", hint="bench takes package.module:function")


def _start_all(opened: Sequence[Opened], others: Sequence[str], threads: int, instances: int = 1) -> list[Program]:
    """Make every model ready, and each .onnx file in other runtimes, so many instances of each; ours come first."""
    ours: list[Program] = []
    peers: list[Program] = []
    for model in opened:
        executables: list[Built] = []

        def make(model: Opened = model, executables: list[Built] = executables) -> Program:
            executables.append(executables[0] if executables else model.make())
            if isinstance(executables[0], VMExecutable):
                return branching_program(model.name, executables[0], model.shapes, threads)
            if isinstance(executables[0], DynamicExecutable):
                return dynamic_program(model.name, executables[0], model.shapes, threads)
            return autosched_program(model.name, executables[0], threads)

        memory = model.onnx_file is None  # building takes memory that running does not
        ours.append(start(make, memory=memory).beside([make().run for _ in range(instances - 1)]))
        for name in others if model.onnx_file else ():
            assert model.onnx_file is not None
            arguments = (name, model.onnx_file, threads, model.shapes, known_ranges(executables[0]))
            peer = start(lambda arguments=arguments: peer_program(*arguments))  # type: ignore[misc]
            peers.append(peer.beside([peer_program(*arguments).run for _ in range(instances - 1)]))
    return ours + peers


def _start_there(model: Opened, threads: int | None, session: RPCSession) -> Program:
    """Make a model ready on a remote device."""
    count = threads or int(session.info["cores"])
    made = model.file or model.make()
    if isinstance(made, DynamicExecutable | VMExecutable):
        raise UsageError(f"{model.name} is no model of one graph of known sizes, and a remote device measures these")
    return start(lambda: remote_program(model.name, made, count, session), memory=False)


def _with_batch(model: str | Path | Executable, batch: int | None, shapes: Shapes | None) -> Shapes | None:
    """The shapes of an .onnx file's inputs for a batch size. Raises UsageError where it has no dynamic first one."""
    if batch is None:
        return shapes
    if isinstance(model, Executable) or Path(model).suffix != ".onnx":
        raise UsageError(
            "only .onnx files can be measured at several batch sizes",
            hint="measure an artifact at one --shapes after the other",
        )
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    found = dict(shapes or {})
    for value in graph.input:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.name not in constants and dims and dims[0] <= 0 and value.name not in found:
            found[value.name] = (batch, *dims[1:])
    if not found:
        raise UsageError(f"no input of {Path(model).name} has a dynamic first dimension")
    return found


def _row(timing: Timing, first: Timing, percentiles: Sequence[float]) -> JsonObject:
    times, program = timing.times_s, timing.program
    row: JsonObject = {"name": program.name, "threads": program.threads, "median_s": timing.median_s}
    row |= {f"p{p:g}_s": float(v) for p, v in zip(percentiles, np.percentile(times, list(percentiles)), strict=True)}
    if program.others:
        row |= {"instances": program.n_instances, "runs_per_s": program.n_instances / timing.median_s}
    return row | {
        "min_s": float(times.min()),
        "interval_s": timing.interval_s,
        "cpu_s": None if math.isnan(timing.cpu_s) else timing.cpu_s,
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


def _environment(target: str | Target | None) -> str:
    return Target(target or "cpu").fingerprint().summary
