"""The performance tables: each function measures one and says which bar it is held against."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import autosched
from autosched.driver import TuneOptions, load_model
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import autosched_program, input_specs
from autosched.driver.bench.rounds import Timing, measure
from autosched.records import FallbackContext
from autosched.runtime import Executable
from benchmarks.fresh import fresh
from benchmarks.machine import Table
from benchmarks.models import get_model
from benchmarks.peers import dense_model, dense_programs, save


@dataclass(frozen=True)
class Settings:
    """Where to work and how long to measure."""

    folder: Path
    threads: int
    time_s: float
    trials: int
    models: tuple[str, ...]


def _ms(timing: Timing) -> str:
    return f"{1e3 * timing.median_s:.4g}"


def _ratio(ours: Timing, peers: list[Timing]) -> str:
    best = min(peers, key=lambda t: t.median_s)
    return f"{ours.median_s / best.median_s:.3f} ({best.program.name})"


def _build(path: Path, settings: Settings, database: Path | None = None) -> Executable:
    records = FallbackContext() if database is None else database
    return autosched.build(load_model(path), target="cpu", records=records, threads=settings.threads)


def _tune(path: Path, database: Path, settings: Settings, trials: int) -> float:
    start = time.perf_counter()
    options = TuneOptions(trials=trials, threads=settings.threads)
    autosched.tune(load_model(path), "cpu", records=database, options=options)
    return time.perf_counter() - start


def models(settings: Settings) -> Table:
    """Whole models, untuned and tuned, against ONNX Runtime (and OpenVINO, for orientation)."""
    table = Table(
        "Models, ms (bars: untuned / ONNX Runtime <= 1.3, tuned <= 1.05)",
        ("model", "untuned", "tuned", "ONNX Runtime", "OpenVINO", "untuned / ORT", "tuned / ORT", "tuning s"),
    )
    for name in settings.models:
        path = save(get_model(name), settings.folder, name)
        database = settings.folder / f"{name}.db"
        seconds = _tune(path, database, settings, settings.trials)
        programs = [
            autosched_program("untuned", _build(path, settings), settings.threads),
            autosched_program("tuned", _build(path, settings, database), settings.threads),
            peer_program("onnxruntime", path, settings.threads),
            peer_program("openvino", path, settings.threads),
        ]
        u, t, ort, ov = measure(programs, settings.time_s)
        ratios = (f"{u.median_s / ort.median_s:.3f}", f"{t.median_s / ort.median_s:.3f}")
        table.rows.append((name, _ms(u), _ms(t), _ms(ort), _ms(ov), *ratios, f"{seconds:.0f}"))
    return table


def dense(settings: Settings) -> Table:
    """Matrix products with a constant weight, tuned, against the best of ONNX Runtime, MKL and OpenBLAS."""
    table = Table(
        "Dense, tuned with 64 trials, ms (bar: ours / best peer <= 1.05)",
        ("M x K x N", "untuned", "tuned", "ONNX Runtime", "MKL", "OpenBLAS", "tuned / best"),
    )
    for m, k, n in ((128, 784, 256), (512, 512, 512)):
        name = f"dense_{m}_{k}_{n}"
        path = save(dense_model(m, k, n), settings.folder, name)
        database = settings.folder / f"{name}.db"
        _tune(path, database, settings, 64)
        programs = [
            autosched_program("untuned", _build(path, settings), settings.threads),
            autosched_program("tuned", _build(path, settings, database), settings.threads),
            peer_program("onnxruntime", path, settings.threads),
            *dense_programs(m, k, n, settings.threads),
        ]
        u, t, *peers = measure(programs, settings.time_s)
        table.rows.append((f"{m} x {k} x {n}", _ms(u), _ms(t), *map(_ms, peers), _ratio(t, peers)))
    return table


def mlp(settings: Settings) -> Table:
    """The MLP 784-256-10 at batch 128 and 1, untuned and tuned, against ONNX Runtime."""
    table = Table(
        "MLP 784-256-10, ms (bar: ours / ONNX Runtime <= 1.0)",
        ("batch", "untuned", "tuned", "ONNX Runtime", "untuned / ORT", "tuned / ORT"),
    )
    for batch in (128, 1):
        path = save(get_model("mlp", batch), settings.folder, f"mlp_{batch}")
        database = settings.folder / f"mlp_{batch}.db"
        _tune(path, database, settings, 100)
        programs = [
            autosched_program("untuned", _build(path, settings), settings.threads),
            autosched_program("tuned", _build(path, settings, database), settings.threads),
            peer_program("onnxruntime", path, settings.threads),
        ]
        u, t, ort = measure(programs, settings.time_s)
        ratios = (f"{u.median_s / ort.median_s:.3f}", f"{t.median_s / ort.median_s:.3f}")
        table.rows.append((str(batch), _ms(u), _ms(t), _ms(ort), *ratios))
    return table


def tuning_throughput(settings: Settings) -> Table:
    """Trials per second of dense 128 x 784 x 256: compile, check and measure."""
    table = Table("Tuning throughput (bar: >= 4 trials/s on two cores)", ("task", "trials", "seconds", "trials/s"))
    path = save(dense_model(128, 784, 256), settings.folder, "throughput")
    trials = 100
    seconds = _tune(path, settings.folder / "throughput.db", settings, trials)
    table.rows.append(("dense 128x784x256", str(trials), f"{seconds:.1f}", f"{trials / seconds:.2f}"))
    return table


def executor_overhead(settings: Settings) -> Table:
    """Time per kernel call of a chain of kernels that do next to nothing."""
    from onnx import TensorProto, helper

    table = Table("Graph executor overhead, one thread (bar: <= 1 µs a kernel call)", ("kernels", "µs a call"))
    medians = {}
    for count in (10, 210):
        nodes = []
        for i in range(count):  # softmax is never fused with its neighbours, so each is a kernel call
            nodes.append(helper.make_node("Softmax", [f"v{i}"], [f"v{i + 1}"], axis=-1))
        graph = helper.make_graph(
            nodes,
            "chain",
            [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [1, 2])],
            [helper.make_tensor_value_info(f"v{count}", TensorProto.FLOAT, [1, 2])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        path = save(model, settings.folder, f"chain_{count}")
        program = autosched_program(str(count), _build(path, settings), 1)
        medians[count] = measure([program], 1.0)[0].median_s
    per_call = (medians[210] - medians[10]) / 200
    table.rows.append(("200 softmax of [1, 2], their computing included", f"{1e6 * per_call:.3f}"))
    return table


def import_time(settings: Settings) -> Table:
    """`import autosched` in a new process."""
    code = "import time; t = time.perf_counter(); import autosched; print(time.perf_counter() - t)"
    times = fresh(code, runs=9)
    table = Table("import autosched, s (bar: <= 0.3)", ("median", "max"))
    table.rows.append((f"{statistics.median(times):.3f}", f"{max(times):.3f}"))
    return table


def artifact_load(settings: Settings) -> Table:
    """Load a saved ResNet-18 and run it once, in a new process."""
    path = save(get_model("resnet18"), settings.folder, "load_resnet18")
    executable = _build(path, settings)
    artifact = settings.folder / "resnet18.asx"
    executable.save(artifact)
    (name,) = input_specs(executable)
    shape = input_specs(executable)[name][0]
    code = f"""
import time; t = time.perf_counter()
import numpy, autosched
ex = autosched.load({str(artifact)!r})
ex(numpy.zeros({shape}, "float32"))
import sys; assert "numba" not in sys.modules
print(time.perf_counter() - t)
"""
    times = fresh(code)
    table = Table(
        "Load of a saved ResNet-18 and its first inference in a new process, s (bar: <= 1.5)", ("median", "max", "MB")
    )
    size = artifact.stat().st_size / 1e6
    table.rows.append((f"{statistics.median(times):.3f}", f"{max(times):.3f}", f"{size:.0f}"))
    return table
