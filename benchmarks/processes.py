"""Throughput of one model in several processes side by side, against one process.

    python -m benchmarks.processes squeezenet resnet18 --write
    python -m benchmarks.processes resnet18 --combinations 1x1,2x1,4x1,1x2,2x2 --seconds 5

A combination is PROCESSESxTHREADS. All processes load one artifact, run it once, wait for each other and count the runs
that they finish within the same seconds. The third column is the throughput against one process with as many threads:
with enough cores, the number of processes. The last is that divided by the number of processes: 1 where they do not
disturb each other. Combinations take turns, so that a machine that drifts, drifts for all. The table is printed, and
written to benchmarks/results/ with --write.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.frontend.onnx import from_onnx
from benchmarks.machine import Table, result_file, write
from benchmarks.models import NAMES, get_model


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="+", choices=NAMES)
    parser.add_argument("--combinations", default="1x1,2x1,4x1,1x2,2x2", type=_combinations)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/results/")
    options = parser.parse_args(arguments)
    tables = []
    for model in options.models:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.asx"
            autosched.build(from_onnx(get_model(model)), target="cpu").save(path)
            found: dict[tuple[int, int], list[float]] = {combination: [] for combination in options.combinations}
            for _ in range(options.turns):
                for combination, rates in found.items():
                    rates.append(measure(path, *combination, options.seconds))
        tables.append(make_table(model, found))
        print(tables[-1].markdown(), flush=True)
    if options.write:
        command = f"python -m benchmarks.processes {' '.join(sys.argv[1:] if arguments is None else arguments)}"
        write(result_file("processes"), command, tables)


def _combinations(text: str) -> list[tuple[int, int]]:
    pairs = [part.split("x") for part in text.split(",")]
    return [(int(processes), int(threads)) for processes, threads in pairs]


def measure(path: Path, processes: int, threads: int, seconds: float) -> float:
    """Runs a second of all processes together."""
    context = multiprocessing.get_context("spawn")
    ready, counts = context.Barrier(processes), context.Queue()
    children = [context.Process(target=_run, args=(path, threads, seconds, ready, counts)) for _ in range(processes)]
    for child in children:
        child.start()
    total = sum(counts.get(timeout=120 + seconds) for _ in children)
    for child in children:
        child.join()
    return float(total / seconds)


def _run(path: Path, threads: int, seconds: float, ready: Any, counts: Any) -> None:
    executable = autosched.load(path)
    executor = executable.create_executor(threads=threads)
    generator = np.random.default_rng(0)
    for value in executable.inputs:
        executor.set_input(value.name, generator.standard_normal(value.shape).astype(value.dtype))
    executor.run()
    ready.wait(120)
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        executor.run()
        count += 1
    counts.put(count)


def make_table(model: str, found: dict[tuple[int, int], list[float]]) -> Table:
    """Medians of the turns, with the ratio to one process of as many threads where that was measured."""
    columns = ("processes × threads", "runs/s", "all against one alone", "each against one alone")
    table = Table(f"{model}: processes side by side", columns)
    for (processes, threads), rates in found.items():
        alone = found.get((1, threads))
        ratios = [rate / one for rate, one in zip(rates, alone or (), strict=False)]
        row = (f"{processes} × {threads}", f"{statistics.median(rates):.1f}")
        table.rows.append((*row, _spread(ratios), _spread([ratio / processes for ratio in ratios])))
    return table


def _spread(ratios: Sequence[float]) -> str:
    """The median, least and largest of ratios."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else ""


if __name__ == "__main__":
    main()
