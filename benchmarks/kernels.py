"""`make bench-kernels`: single operators in chains, ours and every peer interleaved in one run, medians.

    python -m benchmarks.kernels [--only conv3x3,matmul] [--rows 56x56] [--threads 1,2] [--db tuned.db] [--budget 600]

A layer's time is (time of a chain of N layers - time of a chain of one) / (N - 1), round by round, for ours and peers
alike. The tables are printed and written to benchmarks/results/.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.driver import load_model
from autosched.driver.bench.peers import peer_program
from autosched.driver.bench.programs import Program, autosched_program
from autosched.driver.bench.rounds import Timing, measure
from autosched.tuner.measure.sampling import median_interval
from benchmarks import torch_chains
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.peers import save
from benchmarks.records import records_for
from benchmarks.rows import GROUPS, ROWS, Row

PEERS = ("onnxruntime", "openvino", "torch", "MKL")
TITLES = {"onnxruntime": "ORT", "openvino": "OpenVINO", "torch": "torch", "MKL": "MKL"}


@dataclass(frozen=True)
class Settings:
    """How to measure: threads, seconds for each chain, records that ours is built with, peers."""

    threads: int
    time_s: float
    records: Any
    peers: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Slope:
    """A layer's time in each round."""

    rounds_s: np.ndarray

    @property
    def median_s(self) -> float:
        return float(np.median(self.rounds_s))


@dataclass(frozen=True)
class Result:
    """One measured row: a layer's times by program, and the ratio to the best peer with its interval."""

    row: Row
    slopes: Mapping[str, Slope]
    failed: Mapping[str, str]

    @property
    def best(self) -> str:
        return min((name for name in self.slopes if name != "ours"), key=lambda n: self.slopes[n].median_s)

    @property
    def ratio(self) -> tuple[float, float]:
        """(ours / best, half the width of its 95 % interval)."""
        ours, best = self.slopes["ours"], self.slopes[self.best]
        low, high = median_interval(ours.rounds_s / best.rounds_s)
        return ours.median_s / best.median_s, (high - low) / 2


def programs(row: Row, settings: Settings) -> tuple[dict[tuple[str, int], Program], dict[str, str]]:
    """(program by name and length of the chain, what failed)."""
    found: dict[tuple[str, int], Program] = {}
    failed: dict[str, str] = {}
    for count in (1, row.layers):
        path = save(row.model(count), settings.folder, "chain")
        executable = autosched.build(load_model(path), target="cpu", records=settings.records, threads=settings.threads)
        found["ours", count] = autosched_program("ours", executable, settings.threads)
        for name in ("onnxruntime", "openvino"):
            if name in settings.peers:
                found[name, count] = peer_program(name, path, settings.threads)
        if "torch" in settings.peers:
            try:
                for name, run in _torch(row, count, settings.threads).items():
                    found[name, count] = Program(name, settings.threads, run)
            except (RuntimeError, TypeError, NotImplementedError) as error:
                failed["torch"] = str(error).splitlines()[0][:120]
    return found, failed


def _torch(row: Row, count: int, threads: int) -> Mapping[str, torch_chains.Run]:
    import torch

    torch.set_num_threads(threads)
    return row.torch(count)


def measure_row(row: Row, settings: Settings) -> Result:
    """Measure one row."""
    found, failed = programs(row, settings)
    keys = list(found)
    timings = dict(zip(keys, measure(list(found.values()), settings.time_s), strict=True))
    names = [name for name, count in keys if count == 1]
    slopes = {name: slope(timings[name, 1], timings[name, row.layers], row) for name in names}
    return Result(row, slopes, failed)


def slope(one: Timing, many: Timing, row: Row) -> Slope:
    """A layer's time from chains of one and many."""
    difference = many.round_medians_s - one.round_medians_s
    return Slope(difference / ((row.layers - 1) * row.per_layer))


def table(results: Sequence[Result], title: str, bar_text: str) -> Table:
    """The rows of one group, their geometric mean and the rows above their bar."""
    peers = [p for p in PEERS if any(p in r.slopes for r in results)]
    columns = ("layer", "ours µs", *(f"{TITLES[p]} µs" for p in peers), "GFLOP/s", "GB/s", "ours / best", "best", "bar")
    made = Table(f"{title}; {bar_text}", columns)
    ratios = []
    for r in results:
        ours = r.slopes["ours"].median_s
        ratio, half = r.ratio
        ratios.append(ratio)
        made.rows.append(
            (
                r.row.name,
                *(_us(r.slopes.get(name)) for name in ("ours", *peers)),
                f"{r.row.flops / ours / 1e9:.1f}" if r.row.flops and ours > 0 else "–",
                f"{r.row.size_bytes / ours / 1e9:.1f}" if r.row.size_bytes and ours > 0 else "–",
                f"{ratio:.3f} ± {half:.3f}",
                TITLES[r.best],
                f"{r.row.bar:.2f}{'' if ratio <= r.row.bar else ' missed'}",
            )
        )
    if len(ratios) > 1 and min(ratios) > 0:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        made.notes.append(f"geometric mean {mean:.3f}, largest {max(ratios):.3f}")
    made.notes += [f"{r.row.name}: {name} failed: {text}" for r in results for name, text in r.failed.items()]
    return made


def _us(found: Slope | None) -> str:
    return "–" if found is None else f"{1e6 * found.median_s:.4g}"


def choose(only: Sequence[str], pattern: str) -> tuple[Row, ...]:
    """The rows of some groups whose names hold one of the texts in `pattern`."""
    texts = [text for text in pattern.split(",") if text]
    rows = (row for row in ROWS if row.group in only)
    return tuple(row for row in rows if not texts or any(text in row.name for text in texts))


def run(rows: Sequence[Row], settings: Settings, budget_s: float) -> tuple[list[Result], list[Row]]:
    """(results, rows for which no time was left)."""
    end = time.monotonic() + budget_s
    results: list[Result] = []
    for at, row in enumerate(rows):
        if time.monotonic() > end:
            return results, list(rows[at:])
        results.append(measure_row(row, settings))
        ratio, half = results[-1].ratio
        ours = _us(results[-1].slopes["ours"])
        print(f"{row.group:12} {row.name:44} {ours:>8} µs  {ratio:.3f} ± {half:.3f} {results[-1].best}", flush=True)
    return results, []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, comma-separated")
    parser.add_argument("--rows", default="", help="only rows whose names hold one of these texts")
    parser.add_argument("--threads", default="1", help="numbers of threads, comma-separated")
    parser.add_argument("--peers", default="onnxruntime,openvino,torch")
    parser.add_argument("--time", type=float, default=0.25, help="seconds for each chain of each program")
    parser.add_argument("--budget", type=float, default=900, help="seconds for each number of threads")
    parser.add_argument("--db", type=Path, help="database of tuned configurations; default: what is shipped")
    parser.add_argument("--untuned", action="store_true", help="templates' defaults only")
    parser.add_argument("--list", action="store_true", help="show the rows and end")
    args = parser.parse_args(arguments)
    only = args.only.split(",")
    if unknown := [name for name in only if name not in GROUPS]:
        parser.error(f"no group {unknown[0]}; there are {', '.join(GROUPS)}")
    rows = choose(only, args.rows)
    if args.list:
        print("\n".join(f"{row.group:12} {row.name}" for row in rows))
        return
    print(describe())
    for threads in map(int, args.threads.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            records = records_for(args.db, untuned=args.untuned)
            peers = tuple(p for p in args.peers.split(",") if p != "torch" or torch_chains.is_there())
            results, left = run(rows, Settings(threads, args.time, records, peers, Path(folder)), args.budget)
        tables = []
        for group in dict.fromkeys(r.row.group for r in results):
            suffix = f"{threads} thread{'s' if threads > 1 else ''}, {_built(args)}"
            tables.append(table([r for r in results if r.row.group == group], suffix, GROUPS[group]))
        if left and tables:
            tables[-1].notes.append(f"no time was left for {len(left)} rows from {left[0].name} on")
        print("\n\n".join(t.markdown() for t in tables))
        if not args.rows and set(only) == set(GROUPS):
            command = f"python -m benchmarks.kernels --threads {threads}"
            write(result_file("kernels", threads), command, tables)


def _built(args: argparse.Namespace) -> str:
    if args.untuned:
        return "untuned"
    return "tuned" if args.db else "with the shipped configurations"


if __name__ == "__main__":
    main()
