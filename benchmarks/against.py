"""The rows of `make bench-kernels`, and networks, built and run by another commit of this repository and by this one.

    python -m benchmarks.against COMMIT [--only conv3x3,matmul] [--rows 56x56] [--models resnet18,bert] [--threads 1]

Each commit is a process of its own, with its own sources and shipped configurations and an empty kernel cache. The two
run in turns, one waiting while the other measures. The ratio is this commit's time by the other's, round by round, with
half of its 95 % interval: above 1 by more than that, this commit is slower.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np

from autosched.tuner.measure.sampling import median_interval
from benchmarks.kernels import choose
from benchmarks.machine import Table, describe, result_file, write
from benchmarks.models import NAMES, get_model
from benchmarks.peers import save
from benchmarks.rows import GROUPS

ROOT = Path(__file__).parents[1]
WORKER = """
import hashlib, json, re, sys, time
import numpy as np
import autosched
from autosched.contrib import graph_executor
from autosched.driver import load_model

def code(executable):
    texts = sorted(re.sub("_[0-9a-f]{12,}", "", kernel.asm) for kernel in executable.kernels.values())
    return hashlib.sha256("".join(texts).encode()).hexdigest()

models = []
for line in sys.stdin:
    call, *args = json.loads(line)
    if call == "build":
        models, found = [], []
        for path in args[0]:
            executable = autosched.build(load_model(path), target=args[2], threads=args[1])
            module = graph_executor.GraphModule(executable["default"](autosched.cpu(0)))
            for value in executable.inputs:
                sample = np.random.default_rng(0).standard_normal(value.shape)
                module.set_input(value.name, sample.astype(value.dtype))
            module.run()
            models.append(module)
            found.append(code(executable))
    else:
        found = []
        for module in models:
            times, end = [], time.perf_counter() + args[0]
            while not times or time.perf_counter() < end:
                start = time.perf_counter()
                module.run()
                times.append(time.perf_counter() - start)
            found.append(float(np.median(times)))
    print(json.dumps(found), flush=True)
"""


@dataclass(frozen=True)
class Compared:
    """A row by its name: times of the other commit and of this one, round by round; whether its code is the same."""

    group: str
    name: str
    before_s: np.ndarray
    after_s: np.ndarray
    is_same: bool

    @property
    def ratio(self) -> tuple[float, float]:
        """(this commit's time / the other's, half the width of its 95 % interval)."""
        low, high = median_interval(self.after_s / self.before_s)
        return float(np.median(self.after_s) / np.median(self.before_s)), (high - low) / 2

    @property
    def is_slower(self) -> bool:
        ratio, half = self.ratio
        return ratio - half > 1 and not self.is_same

    def __str__(self) -> str:
        ratio, half = self.ratio
        return f"{ratio:.3f} ± {half:.3f}{' same code' * self.is_same}{' slower' * self.is_slower}"


class Worker:
    """A process that builds and runs models with the sources of one commit; its caches and records lie in `folder`."""

    def __init__(self, tree: Path, folder: Path):
        self.tree = tree
        private = {key: str(folder) for key in ("AUTOSCHED_CACHE_DIR", "XDG_DATA_HOME", "XDG_CACHE_HOME")}
        env = {**os.environ, **private, "PYTHONPATH": str(tree)}
        command = [sys.executable, "-c", WORKER]
        self.process = subprocess.Popen(command, cwd=tree, env=env, text=True, stdin=PIPE, stdout=PIPE)

    def __call__(self, *call: object) -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(call) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.tree}: the process ended at {call[0]}")
        return json.loads(answer)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def compare(models: Sequence[Path], workers: Sequence[Worker], args: argparse.Namespace) -> tuple[np.ndarray, bool]:
    """(medians of calls in s by worker, round and model, whether the workers' kernels are the same code).

    In every second round the workers take turns the other way.
    """
    before, after = (worker("build", [str(path) for path in models], args.threads, args.target) for worker in workers)
    rounds = np.empty((len(workers), args.rounds, len(models)))
    for at in range(args.rounds):
        order = list(enumerate(workers))
        for which, worker in order if at % 2 else reversed(order):
            rounds[which, at] = worker("time", args.time / args.rounds)
    return rounds, before == after


def table(found: Sequence[Compared], title: str) -> Table:
    """The rows, their geometric mean, and those that are slower by more than their interval."""
    made = Table(title, ("row", "before µs", "now µs", "now / before"))
    ratios = []
    for one in found:
        ratios.append(one.ratio[0])
        before, after = (f"{1e6 * float(np.median(x)):.4g}" for x in (one.before_s, one.after_s))
        made.rows.append((one.name, before, after, str(one)))
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    made.notes.append(f"geometric mean {mean:.3f}, largest {max(ratios):.3f}; {sum(c.is_slower for c in found)} slower")
    return made


def run(args: argparse.Namespace, workers: Sequence[Worker], folder: Path) -> list[Compared]:
    """Compare the chosen rows and networks."""
    found: list[Compared] = []

    def note(one: Compared) -> None:
        found.append(one)
        print(f"{one.group:12} {one.name:44} {one}", flush=True)

    for row in choose(args.only.split(","), args.rows):
        models = [save(row.model(count), folder, f"chain{count}") for count in (1, row.layers)]
        rounds, is_same = compare(models, workers, args)
        of_one = (rounds[..., 1] - rounds[..., 0]) / ((row.layers - 1) * row.per_layer)
        note(Compared(row.group, row.name, *of_one, is_same))
    for name in filter(None, args.models.split(",")):
        rounds, is_same = compare([save(get_model(name), folder, name)], workers, args)
        note(Compared("networks", name, *rounds[..., 0], is_same))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups of rows, comma-separated; '' for none")
    parser.add_argument("--rows", default="", help="only rows whose names hold one of these texts")
    parser.add_argument("--models", default="", help=f"networks, comma-separated, of {', '.join(NAMES)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu", help="as build takes it: llvm -mcpu=haswell for AVX2")
    parser.add_argument("--time", type=float, default=0.5, help="seconds for each model of each commit")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/results/")
    args = parser.parse_args(arguments)
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), args.commit], check=True)
        try:
            with Worker(tree, Path(folder) / "before") as before, Worker(ROOT, Path(folder) / "now") as now:
                found = run(args, (before, now), Path(folder))
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    threads = f"{args.threads} thread{'s' if args.threads > 1 else ''}"
    groups = dict.fromkeys(one.group for one in found)
    tables = [table([c for c in found if c.group == g], f"{g}, {threads}, against {args.commit}") for g in groups]
    print("\n\n".join(t.markdown() for t in tables))
    if args.write:
        options = f"--threads {args.threads} --models '{args.models}' --target '{args.target}'"
        command = f"python -m benchmarks.against {args.commit} {options}"
        write(result_file("against", args.threads), command, tables)


if __name__ == "__main__":
    main()
