"""`make bench-tune`: how fast tuning is, what it buys over time, and that it never loses.

    python -m benchmarks.tuning [--only throughput,model,graph] [--model resnet18] [--minutes 10] [--threads 2]

`model`: the model is tuned once, for so many minutes. Its time after fewer minutes is that of the best configurations
that the records held by then, built and measured in turn with the untuned model, the tuned one and the peers. Every
kernel that was tuned then meets its default again. `graph`: options of the graph are searched too; the model is tuned
for a minute and, from nothing again, for all minutes. The tables are printed and written to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import autosched
from autosched import te
from autosched.driver import TuneOptions, TuneReport, extract_tasks, load_model
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import Program, autosched_program
from autosched.driver.bench.rounds import Comparison, Timing, compare, measure
from autosched.driver.build.graph import prepare
from autosched.driver.task_space import default_of
from autosched.driver.tune.drift import corrected
from autosched.driver.tune.model_check import ModelCheck
from autosched.driver.tune.session import SPENT
from autosched.ir import IRModule
from autosched.records import Record, open_store
from autosched.space import Config
from autosched.target import Target
from autosched.task import Task
from autosched.tir import PrimFunc
from autosched.topi import nn
from autosched.tuner.measure import MeasureOptions
from autosched.tuner.measure.local import LocalMeasurer
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.models import get_model
from benchmarks.peers import save

PEERS = ("onnxruntime", "openvino")
POINTS_MIN = (0.25, 0.5, 1.0, 2.0, 5.0)  # of the curve, besides the beginning and the end
SLOWER = 0.01  # a kernel may be measured so much slower than its default by chance
BARS = {"dense 128x784x256": 20.0, "conv 3x3 56x56x64": 10.0}
PEER_BAR, MINUTE_BAR = 0.50, 0.80
GRAPH_BARS = {"mobilenet_v2": 1.15, "inception_v1": 1.10, "bert": 1.05}


@dataclass(frozen=True)
class Settings:
    """How long and with what."""

    model: str
    minutes: float
    threads: int
    trials: int
    time_s: float
    folder: Path


def dense() -> PrimFunc:
    """out[128, 256] = a[128, 784] @ b[784, 256]."""
    a, b, k = te.placeholder((128, 784), name="a"), te.placeholder((784, 256), name="b"), te.reduce_axis((0, 784), "k")
    return te.create_prim_func(
        [a, b, te.compute((128, 256), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="out")]
    )


def conv() -> PrimFunc:
    """A 3x3 convolution of 64 channels to 64, 56 by 56, padding 1."""
    data, weight = te.placeholder((1, 64, 56, 56), name="data"), te.placeholder((64, 64, 3, 3), name="weight")
    return te.create_prim_func([data, weight, nn.conv2d_nchw(data, weight, 1, 1, 1)])


def throughput(settings: Settings) -> Table:
    """Trials a second from the first one to the last: compiling, checking and measuring, workers running."""
    table = Table("Tuning throughput, two cores", ("kernel", "bar", "trials/s", "trials", "failed", ""))
    for name, func in zip(BARS, (dense(), conv()), strict=True):
        seen: list[tuple[int, float]] = []
        options = TuneOptions(trials=settings.trials, threads=settings.threads, until=0.0)
        report = autosched.tune(
            func,
            "cpu",
            records=settings.folder / f"{name.split()[0]}.db",
            options=options,
            progress=lambda r, seen=seen: seen.append((r.n_trials, r.elapsed_s)),  # type: ignore[misc]
        )
        first = next(point for point in seen if point[0])
        last = next(point for point in seen if point[0] == report.n_trials)
        rate = (last[0] - first[0]) / (last[1] - first[1])
        verdict = "" if rate >= BARS[name] else "missed"
        table.rows.append(
            (name, f"≥ {BARS[name]:g}", f"{rate:.1f}", str(report.n_trials), str(report.n_failed), verdict)
        )
    return table


def model(settings: Settings) -> list[Table]:
    """The model's time over tuning time, against peers, and every tuned kernel against its default again."""
    path = save(get_model(settings.model, 1), settings.folder, settings.model)
    module, database = load_model(path), settings.folder / f"{settings.model}.db"
    options = TuneOptions(budget=60 * settings.minutes, threads=settings.threads, until=0.0)
    report = autosched.tune(module, "cpu", records=database, options=options, progress=_Say())
    tasks = extract_tasks(module, Target("cpu"), threads=settings.threads)
    with open_store(database, write=False) as store:
        records = {task.key: list(store.trials(task)) for task in tasks}
    timings = _measure_model(settings, path, module, records)
    return [_curve(settings, timings, report), _losers(settings, tasks, records, timings)]


def graph(settings: Settings) -> Table:
    """The model tuned for a minute and for all minutes, kernels and graph, built and measured in turn."""
    path = save(get_model(settings.model, 1), settings.folder, settings.model)
    module = load_model(path)
    made = {"untuned": autosched.build(module, target="cpu", threads=settings.threads)}
    notes = []
    for minutes in (1.0, settings.minutes):
        database = settings.folder / f"{settings.model}-{minutes:g}.db"
        options = TuneOptions(budget=60 * minutes, threads=settings.threads, until=0.0, graph=True)
        report = autosched.tune(module, "cpu", records=database, options=options, progress=_Say())
        name = f"{minutes:g} min"
        made[name] = autosched.build(module, target="cpu", threads=settings.threads, records=database)
        notes.append(f"{name}: {report.n_trials} trials, {report.n_failed} failed; {report.reason}")
    programs = [autosched_program(name, built, settings.threads) for name, built in made.items()]
    programs += [peer_program(name, path, settings.threads) for name in PEERS]
    timings = {p.name: timing for p, timing in zip(programs, measure(programs, settings.time_s), strict=True)}
    table = Table(
        f"{settings.model}, kernels and graph tuned, {settings.threads} threads", ("after", "ms", "± ms", "gain")
    )
    untuned = timings["untuned"].median_s
    for name, timing in timings.items():
        gain = f"{untuned / timing.median_s:.3f}" if name in made else "–"
        table.rows.append((name, f"{1e3 * timing.median_s:.4g}", f"{1e3 * timing.interval_s:.2g}", gain))
    short, long = (timings[name].median_s for name in list(made)[1:])
    bar = GRAPH_BARS.get(settings.model)
    if bar is not None:
        table.notes.append(f"gain {untuned / long:.3f}, bar {bar}{'' if untuned / long >= bar else ': missed'}")
    if untuned > long:
        share = (untuned - short) / (untuned - long)
        verdict = "" if share >= MINUTE_BAR else ": missed"
        table.notes.append(f"gain after 1 minute, as a share of all: {share:.0%}, bar {MINUTE_BAR:.0%}{verdict}")
    table.notes += notes
    return table


def best_by(records: Mapping[str, Sequence[Record]], spent_s: float) -> dict[str, Config]:
    """The best configuration of each task among the trials that a tuning had made by then, by workload key."""
    found = {}
    for key, known in records.items():
        trials = [corrected(r.trial) for r in known if _spent(r) <= spent_s and "interleaved" not in r.measurement.how]
        failed = {t.config for t in trials if not t.is_ok}
        good = [t for t in trials if t.is_ok and t.config not in failed]
        if good:
            found[key] = min(good, key=lambda t: t.median_s).config
    return found


def winners_of(records: Mapping[str, Sequence[Record]]) -> dict[str, Config]:
    """The winner named last of each task, by workload key."""
    found = {key: [r.config for r in known if r.is_winner] for key, known in records.items()}
    return {key: configs[-1] for key, configs in found.items() if configs}


def _spent(record: Record) -> float:
    return float(record.measurement.how.get(SPENT, 0.0))


class _Say:
    """A line a minute."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, report: TuneReport) -> None:
        if report.elapsed_s >= self._next:
            self._next = report.elapsed_s + 60
            print(f"  {report.elapsed_s:4.0f} s  {report.n_trials} trials, {report.n_failed} failed", flush=True)


def _measure_model(
    settings: Settings, path: Path, module: IRModule, records: Mapping[str, Sequence[Record]]
) -> dict[str, Timing]:
    """Untuned, after some minutes, tuned, and the peers, all in turn."""
    target = Target("cpu")
    check = ModelCheck(module, prepare(module, target, {}), target, settings.threads)
    programs: dict[str, Program] = {"untuned": check.program({}, "untuned")}
    for minutes in (m for m in POINTS_MIN if m < settings.minutes):
        programs[f"{minutes:g} min"] = check.program(best_by(records, 60 * minutes), f"{minutes:g} min")
    programs["tuned"] = check.program(winners_of(records), "tuned")
    programs |= {name: peer_program(name, path, settings.threads) for name in PEERS}
    return dict(zip(programs, measure(list(programs.values()), settings.time_s), strict=True))


def _curve(settings: Settings, timings: Mapping[str, Timing], report: TuneReport) -> Table:
    untuned, tuned = timings["untuned"].median_s, timings["tuned"].median_s
    peer = min(PEERS, key=lambda name: timings[name].median_s)
    table = Table(
        f"{settings.model} tuned for {settings.minutes:g} minutes, {settings.threads} threads",
        ("after", "ms", "± ms", "of untuned", f"of {peer}", "share of the gain"),
    )
    for name, timing in timings.items():
        gain = (untuned - timing.median_s) / (untuned - tuned) if untuned > tuned else float("nan")
        own = name not in PEERS
        table.rows.append(
            (
                f"{settings.minutes:g} min, winners" if name == "tuned" else name,
                f"{1e3 * timing.median_s:.3g}",
                f"{1e3 * timing.interval_s:.2g}",
                f"{timing.median_s / untuned:.2f}",
                f"{timing.median_s / timings[peer].median_s:.2f}",
                f"{100 * gain:.0f} %" if own else "–",
            )
        )
    ratio = tuned / timings[peer].median_s
    table.notes.append(f"ours / the best peer: {ratio:.2f}, bar {PEER_BAR}{'' if ratio <= PEER_BAR else ': missed'}")
    if "1 min" in timings and untuned > tuned:
        share = (untuned - timings["1 min"].median_s) / (untuned - tuned)
        verdict = "" if share >= MINUTE_BAR else ": missed"
        table.notes.append(f"gain after 1 minute, as a share of all: {share:.0%}, bar {MINUTE_BAR:.0%}{verdict}")
    rate = report.n_trials / report.elapsed_s
    table.notes.append(f"{report.n_trials} trials, {report.n_failed} failed, {rate:.1f}/s; {report.reason}")
    if report.model is not None:
        table.notes.append(report.model.text)
    return table


def _losers(
    settings: Settings, tasks: Sequence[Task], records: Mapping[str, Sequence[Record]], timings: Mapping[str, Timing]
) -> Table:
    """Tuned kernels and the model against their defaults, measured again."""
    table = Table("Slower than the default when both are measured again", ("what", "tuned / default", "interval", ""))
    winners, slower = winners_of(records), 0
    how = MeasureOptions(threads=settings.threads, cache="cold")
    with LocalMeasurer("cpu", how) as measurer:
        for task in tasks:
            default, winner = default_of(task), winners.get(task.key)
            if winner is None or winner == default:
                continue
            found = measurer.compare(task, [default, winner])[1]
            is_slower = found.ratio > max(1 + SLOWER, 1 + (found.high - found.low) / 2)
            slower += is_slower
            interval = f"{found.low:.3f} to {found.high:.3f}"
            table.rows.append((task.name, f"{found.ratio:.3f}", interval, "slower" if is_slower else ""))
    verdict = compare(timings["untuned"], timings["tuned"])
    is_slower = _is_slower(verdict)
    interval = f"{verdict.low:.3f} to {verdict.high:.3f}"
    table.rows.append((settings.model, f"{verdict.ratio:.3f}", interval, "slower" if is_slower else ""))
    total = len(tasks)
    kept = total - (len(table.rows) - 1)
    table.notes.append(f"{slower + is_slower} slower, bar 0; {kept} of {total} kernels keep their default")
    return table


def _is_slower(found: Comparison) -> bool:
    return found.ratio > 1 + max(SLOWER, (found.high - found.low) / 2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and keep the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="throughput,model", help="of throughput, model and graph, with commas")
    parser.add_argument("--model", default="resnet18", help="of `benchmarks.models`, with commas")
    parser.add_argument("--minutes", type=float, default=10.0, help="of tuning the model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trials", type=int, default=80, help="of each kernel, for the throughput")
    parser.add_argument("--time", type=float, default=3.0, help="seconds of measuring for each program")
    parser.add_argument("--no-save", action="store_true", help="print only")
    args = parser.parse_args(arguments)
    wanted = args.only.split(",")
    if unknown := sorted(set(wanted) - {"throughput", "model", "graph"}):
        parser.error(f"no part {unknown[0]}; there are throughput, model and graph")
    print(describe())
    tables: list[Table] = []
    with tempfile.TemporaryDirectory() as folder:
        each = [
            Settings(name, args.minutes, args.threads, args.trials, args.time, Path(folder))
            for name in args.model.split(",")
        ]
        if "throughput" in wanted:
            tables.append(throughput(each[0]))
            print(f"\n{tables[-1].markdown()}", flush=True)
        for settings in each:
            made = model(settings) if "model" in wanted else []
            made += [graph(settings)] if "graph" in wanted else []
            tables += made
            print("".join(f"\n{table.markdown()}\n" for table in made), flush=True)
    if not args.no_save:
        command = f"python -m benchmarks.tuning --only {args.only} --model {args.model} --minutes {args.minutes:g}"
        command += f" --threads {args.threads} --trials {args.trials}"
        write(result_file("tuning-graph" if wanted == ["graph"] else "tuning", args.threads), command, tables)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
