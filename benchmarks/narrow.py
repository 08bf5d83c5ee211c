"""What the tables of narrow types share: a model in one, in float32 and in other runtimes, row by row."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from autosched.driver.bench.programs import Program
from autosched.driver.bench.rounds import Comparison, compare, measure
from autosched.target import Target
from benchmarks.machine import Table, result_file, write


@dataclass(frozen=True)
class Row:
    """A float32 model: the most of the best peer's time that it may take, and of its own in float32; None: any."""

    name: str
    model: Callable[[], onnx.ModelProto]
    bar: float | None = None
    own_bar: float | None = None
    is_network: bool = False


def measured(row: Row, programs: Mapping[str, Program], time_s: float) -> tuple[tuple[str, ...], str]:
    """(the cells of times and ratios, the cell of bars); first our programs, narrow and float32, then the peers."""
    narrow, wide, *peers = programs
    times = dict(zip(programs, measure(list(programs.values()), time_s), strict=True))
    best = min(peers, key=lambda name: times[name].median_s)
    ratios = compare(times[best], times[narrow]), compare(times[wide], times[narrow])
    bars = [(r.ratio, bar) for r, bar in zip(ratios, (row.bar, row.own_bar), strict=True) if bar is not None]
    missed = " missed" if any(ratio > bar for ratio, bar in bars) else ""
    cells = (row.name, *(f"{times[name].median_s * 1e3:.4g}" for name in programs), *map(_ratio, ratios))
    return cells, ", ".join(str(bar) for _, bar in bars) + missed


def _ratio(found: Comparison) -> str:
    return f"{found.ratio:.3f} ± {(found.high - found.low) / 2:.3f}"


def first_result(executable: Any, inputs: Iterable[np.ndarray]) -> np.ndarray:
    """A model's first output, in float64."""
    result = executable(*inputs)
    first = result[0] if isinstance(result, tuple | list) else result
    return np.asarray(first.numpy() if hasattr(first, "numpy") else first, "f8")


def run(
    module: str, suite: str, title: str, columns: Sequence[str], note: str, rows: Iterable[Row],
    line: Callable[[Row, Target, int, float], tuple[str, ...]],
) -> None:  # fmt: skip
    """The command of a table: flags, a line for each row, the file where all rows were measured."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=title)
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--target", default="cpu", help='for ours: "llvm -mcpu=x86-64-v3" (%(default)s)')
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=2.0, help="seconds for each program of each row")
    args = parser.parse_args()
    target = Target(args.target)
    heading = f"{title}, {args.threads} thread{'s' * (args.threads > 1)}"
    table = Table(heading, tuple(columns), notes=[note])
    for row in (row for row in rows if args.only in row.name):
        table.rows.append(line(row, target, args.threads, args.time))
        print(" | ".join(table.rows[-1]), flush=True)
    print(table.markdown())
    if not args.only and target == Target("cpu"):
        write(result_file(suite, args.threads), f"python -m {module} --threads {args.threads}", [table])
