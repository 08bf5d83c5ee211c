"""Kernels whose sizes come with the call against the same kernels compiled for their sizes, on the same memory.

    python -m benchmarks.forms [--only conv3x3,matmul] [--rows 56x56] [--write]

The rows are those of `make bench-kernels`. A row is built once. Each of its kernels that is a form
(`tir/outer_sizes.py`) is compiled again with its numbers, and programs of both kinds read and write the same arrays.
They take turns of a few milliseconds, in some placements of all arrays, since a time depends on where those begin. A
layer's time is that of a chain of N layers minus that of one, divided by N - 1. The ratio is form / numbers: the median
over the rounds of all placements, with half of its 95 % interval.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import autosched
from autosched.codegen.compile import compile_func
from autosched.driver import load_model
from autosched.runtime import Executable
from autosched.runtime.cpu.kernel import as_cpu
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import empty_block
from autosched.runtime.program import Memory, Program
from autosched.target import Target
from autosched.tir.serialize import from_json
from autosched.tuner.measure.sampling import calls_per_repeat, median_interval, take_turns
from benchmarks.kernels import choose
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.peers import save
from benchmarks.records import records_for
from benchmarks.rows import GROUPS, Row

MEAN_BAR, ROW_BAR = 1.01, 1.04
TURN_S = 2e-3  # how long one program runs before the next has its turn, at least
SPREAD_BYTES = 64 << 10  # within which the beginnings of arrays differ between placements
LEAST_ROUNDS = 5  # in each placement


class Placed(Memory):
    """Blocks that begin somewhere within SPREAD_BYTES, the same ones for all programs."""

    def __init__(self, rng: random.Random):
        super().__init__()
        self._rng = rng
        self._blocks: dict[str, np.ndarray] = {}

    def arena(self, size_bytes: int) -> np.ndarray:
        return self.block("arena", size_bytes)

    def scratch(self, size_bytes: int) -> np.ndarray:
        return self.block("scratch", size_bytes)

    def block(self, name: str, size_bytes: int) -> np.ndarray:
        """A block by name, made when it is first asked for."""
        if name not in self._blocks or self._blocks[name].nbytes < size_bytes:
            start = self._rng.randrange(0, SPREAD_BYTES, 64)
            self._blocks[name] = empty_block(size_bytes + SPREAD_BYTES)[start : start + size_bytes]
        return self._blocks[name]

    def copy(self, name: str, values: np.ndarray) -> np.ndarray:
        """A block by name as an array with these values."""
        block = self.block(name, values.nbytes).view(values.dtype).reshape(values.shape)
        np.copyto(block, values)
        return block


@dataclass(frozen=True)
class Chain:
    """A chain of layers as it is built, and the kernels of its forms compiled with their numbers."""

    built: Executable
    numbers: Mapping[str, Kernel]

    @staticmethod
    def of(path: Path, records: Any) -> Chain:
        """Build a model of one thread; compile what of it are forms once more."""
        built: Executable = autosched.build(load_model(path), target="cpu", records=records, threads=1)
        target, numbers = Target("cpu"), dict[str, Kernel]()
        for name, kernel in built.kernels.items():
            if as_cpu(kernel).sized is not None:
                func = from_json(built.manifest["functions"][name])
                numbers[name] = compile_func(func, target, name=name, use_cache=False).kernel
        return Chain(built, numbers)

    def programs(self, rng: random.Random) -> tuple[Program, Program]:
        """(of forms, of numbers) on the same arrays, somewhere in memory."""
        built, memory = self.built, Placed(rng)
        constants = tuple(memory.copy(f"constant {n}", c) for n, c in enumerate(built.constants))
        values = np.random.default_rng(0)
        ends = {
            number: memory.copy(f"value {number}", values.standard_normal(v.shape).astype(v.dtype))
            for number, v in enumerate(built.graph.values)
            if v.storage.kind in ("input", "output")
        }
        made = []
        for kernels in (built.kernels, {**built.kernels, **self.numbers}):
            program = Program(built.graph, kernels, constants, built.native, 1, memory)
            for number, array in ends.items():
                program.place(number, array)
            made.append(program)
        return made[0], made[1]


@dataclass(frozen=True)
class Compared:
    """A row: which of its kernels are forms; a layer's times of both kinds in seconds, by placement and round."""

    row: Row
    forms: tuple[str, ...]
    form_s: tuple[np.ndarray, ...]
    numbers_s: tuple[np.ndarray, ...]

    @property
    def placements(self) -> list[float]:
        """The ratio in each placement."""
        return [float(np.median(a / b)) for a, b in zip(self.form_s, self.numbers_s, strict=True)]

    @property
    def ratio(self) -> tuple[float, float]:
        """(form / numbers, half the width of its 95 % interval)."""
        ratios = np.concatenate(self.form_s) / np.concatenate(self.numbers_s)
        low, high = median_interval(ratios)
        return float(np.median(ratios)), (high - low) / 2

    @property
    def columns(self) -> tuple[str, ...]:
        """A line of the table."""
        if not self.forms:
            return self.row.name, "–", "–", "1, same code", "–"
        ratio, half = self.ratio
        times = (f"{1e6 * float(np.median(np.concatenate(x))):.4g}" for x in (self.numbers_s, self.form_s))
        text = f"{ratio:.3f} ± {half:.3f}{' missed' if ratio - half > ROW_BAR else ''}"
        return self.row.name, *times, text, f"{min(self.placements):.2f}–{max(self.placements):.2f}"


def same_results(chain: Chain) -> None:
    """See that both kinds of kernels compute the same up to rounding. Raises AssertionError."""
    form, numbers = chain.programs(random.Random(0))
    results = []
    for program in (form, numbers):
        program.run()
        results.append([np.array(program.view(n)) for n in chain.built.graph.outputs])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * float(np.abs(b).max()))


def compare(row: Row, folder: Path, args: argparse.Namespace) -> Compared:
    """Measure one row."""
    records = records_for(None, untuned=args.untuned)
    chains = [Chain.of(save(row.model(n), folder, f"chain{n}"), records) for n in (1, row.layers)]
    forms = tuple(chains[1].numbers)
    if not forms:
        return Compared(row, (), (), ())
    rng = random.Random(0)
    found: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for chain in chains:
        same_results(chain)
    for _ in range(args.placements):
        times = turns([p for chain in chains for p in chain.programs(rng)], args.time / args.placements, rng)
        layers = (times[2:] - times[:2]) / ((row.layers - 1) * row.per_layer)
        for which in (0, 1):
            found[which].append(layers[which])
    return Compared(row, forms, tuple(found[0]), tuple(found[1]))


def turns(programs: Sequence[Program], time_s: float, rng: random.Random) -> np.ndarray:
    """Seconds of a run, by program and round: short turns until the time is over."""
    calls = [calls_per_repeat(program.seconds, TURN_S) for program in programs]
    seconds: list[list[float]] = [[] for _ in programs]
    end = time.perf_counter() + time_s

    def turn(which: int) -> None:
        seconds[which].append(float(programs[which].seconds(calls[which])) / calls[which])

    take_turns(len(programs), turn, lambda: len(seconds[0]) >= LEAST_ROUNDS and time.perf_counter() >= end, rng)
    return np.array(seconds)


def table(found: Sequence[Compared], title: str) -> Table:
    """The rows and their geometric mean."""
    made = Table(title, ("layer", "numbers µs", "form µs", "form / numbers", "by placement"))
    made.rows = [one.columns for one in found]
    made.notes.append(summary(found))
    return made


def summary(found: Sequence[Compared]) -> str:
    """The geometric mean of rows, in which rows without forms count as 1, with its error."""
    measured = [one.ratio for one in found if one.forms]
    mean = math.exp(sum(math.log(ratio) if ratio > 0 else math.nan for ratio, _ in measured) / len(found))
    error = mean * math.sqrt(sum((half / ratio) ** 2 for ratio, half in measured)) / len(found)
    largest = max([ratio for ratio, _ in measured], default=1.0)
    return f"geometric mean {mean:.4f} ± {error:.4f}, largest {largest:.3f}, {len(measured)} of {len(found)} are forms"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forms", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(GROUPS), help="groups of rows, comma-separated")
    parser.add_argument("--rows", default="", help="only rows whose names hold one of these texts")
    parser.add_argument("--untuned", action="store_true", help="templates' defaults only")
    parser.add_argument("--placements", type=int, default=8, help="of all arrays")
    parser.add_argument("--time", type=float, default=1.5, help="seconds for each row")
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/results/")
    args = parser.parse_args(arguments)
    print(describe())
    found: list[Compared] = []
    with tempfile.TemporaryDirectory() as folder:
        for row in choose(args.only.split(","), args.rows):
            found.append(compare(row, Path(folder), args))
            print(f"{row.group:12} {' | '.join(found[-1].columns)}", flush=True)
    groups = dict.fromkeys(one.row.group for one in found)
    tables = [table([c for c in found if c.row.group == group], f"{group}, 1 thread") for group in groups]
    tables[-1].notes.append(f"all rows: {summary(found)} (bars: mean <= {MEAN_BAR}, none above {ROW_BAR})")
    print("\n\n".join(t.markdown() for t in tables))
    if args.write:
        write(result_file("forms", 1), "python -m benchmarks.forms --write", tables)


if __name__ == "__main__":
    main()
