"""`make bench-models`: whole networks, untuned and tuned, against the best peer of the same run.

    python -m benchmarks.networks [--only resnet18,mlp] [--threads 1] [--trials 200 | --db tuned.db] [--skip memory]

Each model's error against float64 stands beside its time, as a share of the largest output; the peers' too. Further
tables: the first build of ResNet-50 from an empty kernel cache, and its memory, loaded and running. The tables are
printed and written to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import autosched
from autosched.driver import TuneOptions, load_model
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import autosched_program
from autosched.driver.bench.rounds import Timing, compare, measure
from autosched.relax.evaluate import evaluate
from autosched.runtime import Executable, GraphModule
from benchmarks.fresh import fresh
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.models import get_model, make_inputs
from benchmarks.peers import save
from benchmarks.records import records_for

PEERS = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class Network:
    """A line of the table: a model of `models.NAMES`, its batch, and its bar, ours tuned / the best peer."""

    name: str
    bar: float
    batch: int = 1

    @property
    def label(self) -> str:
        return f"{self.name} b{self.batch}" if self.name == "mlp" else self.name


NETWORKS = (
    *(Network("vgg19", 0.45), Network("resnet18", 0.55), Network("resnet50", 0.80), Network("squeezenet", 0.75)),
    *(Network("inception_v1", 0.75), Network("mobilenet_v2", 0.85), Network("bert", 0.97)),
    *(Network("mlp", 0.95, 1), Network("mlp", 0.95, 128)),
)


@dataclass(frozen=True)
class Settings:
    """Threads, seconds for each program, trials of tuning (0: no tuning), a database that exists, where to work."""

    threads: int
    time_s: float
    trials: int
    database: Path | None
    folder: Path


@dataclass(frozen=True)
class Result:
    """One network's times and errors by program, and how long building and tuning took."""

    network: Network
    timings: Mapping[str, Timing]
    errors: Mapping[str, float]
    build_s: float
    tune_s: float


def measure_network(network: Network, settings: Settings) -> Result:
    """Build, tune, check and measure one network."""
    model = get_model(network.name, network.batch, softmax=False)
    path = save(model, settings.folder, network.label.replace(" ", "_"))
    begin = time.perf_counter()
    executables = {"untuned": _build(path, settings, records_for(untuned=True))}
    build_s = time.perf_counter() - begin
    database, tune_s = settings.database, 0.0
    if database is None and settings.trials:
        database, tune_s = _tune(path, settings)
    executables["tuned"] = _build(path, settings, records_for(database))
    made = {name: autosched_program(name, ex, settings.threads) for name, ex in executables.items()}
    made |= {name: peer_program(name, path, settings.threads) for name in PEERS}
    timings = dict(zip(made, measure(list(made.values()), settings.time_s), strict=True))
    return Result(network, timings, _errors(model, path, network, executables), build_s, tune_s)


def _build(path: Path, settings: Settings, records: Any) -> Executable:
    built: Executable = autosched.build(load_model(path), target="cpu", records=records, threads=settings.threads)
    return built


def _tune(path: Path, settings: Settings) -> tuple[Path, float]:
    database, begin = path.with_suffix(".db"), time.perf_counter()
    options = TuneOptions(trials=settings.trials, threads=settings.threads)
    autosched.tune(load_model(path), "cpu", records=database, options=options)
    return database, time.perf_counter() - begin


def _errors(
    model: onnx.ModelProto, path: Path, network: Network, executables: Mapping[str, Executable]
) -> dict[str, float]:
    """The largest error against float64 by program, as a share of the largest output."""
    inputs = make_inputs(model, seed=7, batch=network.batch)
    truth = np.asarray(evaluate(load_model(path), list(inputs.values()), dtype="float64"))  # names differ by characters
    results = {name: _run(executable, inputs) for name, executable in executables.items()}
    results["onnxruntime"] = _run_onnxruntime(path, inputs)
    results["openvino"] = _run_openvino(path, inputs)
    return {name: float(np.abs(found - truth).max() / np.abs(truth).max()) for name, found in results.items()}


def _run(executable: Executable, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    module = GraphModule(executable)
    module.run(**inputs)
    return np.array(module.get_output(0).numpy())


def _run_onnxruntime(path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, dict(inputs))[0])


def _run_openvino(path: Path, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    import openvino

    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(compiled(dict(inputs))[0])


def model_table(results: Sequence[Result], settings: Settings) -> Table:
    how = f"tuned with {settings.trials} trials" if settings.trials else "with the shipped configurations"
    if settings.database:
        how = "tuned"
    threads = f"{settings.threads} thread{'s' if settings.threads > 1 else ''}"
    made = Table(
        f"Networks, ms, {threads}, {how} (bars: tuned / best peer as below, untuned / tuned <= 1.25)",
        ("model", "untuned", "tuned", "ORT", "OpenVINO", "tuned / best", "bar", "untuned / tuned",
         "error untuned, tuned", "error ORT, OpenVINO", "build s", "tuning s"),
    )  # fmt: skip
    for r in results:
        best = min(PEERS, key=lambda name: r.timings[name].median_s)
        comparison = compare(r.timings[best], r.timings["tuned"])
        half = (comparison.high - comparison.low) / 2
        bar = f"{r.network.bar:.2f}{'' if comparison.ratio <= r.network.bar else ' missed'}"
        slowdown = compare(r.timings["tuned"], r.timings["untuned"]).ratio
        times = (f"{1e3 * r.timings[name].median_s:.4g}" for name in ("untuned", "tuned", *PEERS))
        errors = [f"{r.errors[name]:.1e}" for name in ("untuned", "tuned", *PEERS)]
        made.rows.append(
            (
                *(r.network.label, *times, f"{comparison.ratio:.3f} ± {half:.3f}", bar, f"{slowdown:.3f}"),
                *(", ".join(errors[:2]), ", ".join(errors[2:]), f"{r.build_s:.1f}", f"{r.tune_s:.0f}"),
            )
        )
    made.notes.append("errors: the largest against float64, as a share of the largest output")
    return made


BUILD = """
import time; begin = time.perf_counter()
import autosched
from autosched.driver import load_model
from autosched.records import FallbackContext
if __name__ == "__main__":
    autosched.build(load_model({path!r}), target="cpu", records=FallbackContext())
    print(time.perf_counter() - begin)
"""
MEMORY_START = """
import numpy as np
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
"""
MEMORY_OURS = """
import autosched, autosched.runtime
from autosched.runtime import GraphModule
before = resident()
module = GraphModule(autosched.load({path!r}), threads={threads})
for _ in range(3): module.run()
print(resident() - before)
"""
MEMORY_PEER = """
import onnxruntime
before = resident()
options = onnxruntime.SessionOptions(); options.intra_op_num_threads = {threads}; options.log_severity_level = 3
session = onnxruntime.InferenceSession({path!r}, options, providers=["CPUExecutionProvider"])
x = np.zeros(session.get_inputs()[0].shape, "float32")
for _ in range(3): session.run(None, {{session.get_inputs()[0].name: x}})
print(resident() - before)
"""


def build_table(settings: Settings) -> Table:
    """The first untuned build of ResNet-50 with an empty kernel cache, on all cores."""
    path = save(get_model("resnet50"), settings.folder, "build_resnet50")
    environment = {"AUTOSCHED_CACHE_DIR": str(settings.folder / "cache")}
    (seconds,) = fresh(BUILD.format(path=str(path)), environment, runs=1)
    made = Table("First untuned build of ResNet-50 from an empty kernel cache, s (bar on two cores: <= 20)", ("s",))
    made.rows.append((f"{seconds:.1f}",))
    return made


def memory_table(settings: Settings) -> Table:
    """Resident memory of a loaded, running ResNet-50 after import."""
    path = save(get_model("resnet50"), settings.folder, "memory_resnet50")
    artifact = path.with_suffix(".asx")
    _build(path, settings, records_for(settings.database)).save(artifact)
    (ours,) = fresh(MEMORY_START + MEMORY_OURS.format(path=str(artifact), threads=settings.threads), runs=1)
    (peer,) = fresh(MEMORY_START + MEMORY_PEER.format(path=str(path), threads=settings.threads), runs=1)
    made = Table("Memory of a running ResNet-50 after import, MB (bar: ours / ORT <= 1.5)", ("ours", "ORT", "ratio"))
    made.rows.append((f"{ours / 1e6:.0f}", f"{peer / 1e6:.0f}", f"{ours / peer:.2f}"))
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    labels = [network.label for network in NETWORKS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.networks", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help=f"only models whose names hold one of these: {', '.join(labels)}")
    parser.add_argument("--threads", default="1", help="numbers of threads, comma-separated")
    parser.add_argument("--time", type=float, default=1.5, help="seconds for each program")
    parser.add_argument("--trials", type=int, default=0, help="trials for tuning each model; 0: what is shipped")
    parser.add_argument("--db", type=Path, help="database of tuned configurations")
    parser.add_argument("--budget", type=float, default=900, help="seconds; models after that are left out")
    parser.add_argument("--skip", default="", help="leave out these tables: models, build, memory")
    args = parser.parse_args(arguments)
    texts = [text for text in args.only.split(",") if text]
    chosen = [n for n in NETWORKS if not texts or any(text in n.label for text in texts)]
    skipped = args.skip.split(",")
    print(describe())
    for threads in map(int, args.threads.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(threads, args.time, args.trials, args.db, Path(folder))
            tables = [] if "models" in skipped else [measure_networks(chosen, settings, args.budget)]
            tables += [] if "build" in skipped else [build_table(settings)]
            tables += [] if "memory" in skipped else [memory_table(settings)]
        print("\n\n".join(t.markdown() for t in tables))
        if not texts and not args.skip:
            command = f"python -m benchmarks.networks --threads {threads}"
            command += f" --trials {args.trials}" if args.trials else ""
            write(result_file("networks", threads), command, tables)


def measure_networks(chosen: Sequence[Network], settings: Settings, budget_s: float) -> Table:
    """The table of the networks for which there is time."""
    end = time.monotonic() + budget_s
    results: list[Result] = []
    for network in chosen:
        if time.monotonic() > end:
            break
        results.append(measure_network(network, settings))
        medians = ", ".join(f"{name} {1e3 * t.median_s:.4g}" for name, t in results[-1].timings.items())
        print(f"{network.label:14} {medians} ms", flush=True)
    made = model_table(results, settings)
    if len(results) < len(chosen):
        made.notes.append(f"no time was left for {', '.join(n.label for n in chosen[len(results) :])}")
    return made


if __name__ == "__main__":
    main()
