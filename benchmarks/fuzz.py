"""Random graphs against NumPy, with every access of every kernel checked.

    python -m benchmarks.fuzz --graphs 10000 --first 0 [--workers 2] [--unchecked]

Prints each seed whose result is wrong, that crashes the compiler or the process, that takes longer than a minute, or
whose position out of range is not reported (or reported where there is none), and a last line with the counts. The exit
code is 1 where there is such a seed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, TypeAlias

import numpy as np

import autosched
from autosched.errors import IndexOutOfRangeError
from autosched.target import host_cpu
from autosched.testing.random_graphs import RandomGraph, random_graph

Outcome: TypeAlias = tuple[int, str, str]  # the seed, what kind of graph it has given, what is wrong with it
Judge: TypeAlias = Callable[[int], Outcome]
BAD_POSITION = "a position out of range"
HANG_S = 60.0  # a graph takes a fifth of a second
LONGEST_WAIT_S = 2.0  # of what passes between two looks at the workers: more means that all were stopped
COLLECTED = 50  # graphs between two collections of cycles: at every chance they take a sixth of the time


def check(graph: RandomGraph, checks: bool) -> str:
    """What is wrong with a graph's build; an empty text where all is well."""
    executable = autosched.build(graph.module, threads=1, records=[], checks=checks)
    try:
        found = executable(**graph.inputs).numpy()
    except IndexOutOfRangeError as error:
        if graph.bad_index is None or f"index {graph.bad_index} is out of range" not in str(error):
            return f"reported {error}"
        return ""
    if graph.bad_index is not None:
        return f"position {graph.bad_index} is not reported"
    if found.shape != graph.expected.shape:
        return f"shape {found.shape} instead of {graph.expected.shape}"
    scale = max(1.0, float(np.nanmax(np.abs(graph.expected), initial=0)))
    if not np.allclose(found, graph.expected, rtol=1e-4, atol=1e-4 * scale, equal_nan=True):
        return f"differs by {np.nanmax(np.abs(found - graph.expected)):.3g} of {scale:.3g}"
    return ""


def outcome(seed: int, checks: bool) -> Outcome:
    """What becomes of a graph; of its kind is said whether it has a position out of range."""
    kind = ""
    try:
        graph = random_graph(seed)
        kind = "" if graph.bad_index is None else BAD_POSITION
        return seed, kind, check(graph, checks)
    except Exception as error:
        return seed, kind, f"{type(error).__name__}: {error}"


def _work(judge: Judge, seeds: Sequence[int], current: Any, results: Connection) -> None:
    """A worker's life: graph after graph; `current` is the one that it is at."""
    gc.disable()
    for n, seed in enumerate(seeds):
        current.value = seed
        results.send(judge(seed))
        if n % COLLECTED == 0:
            gc.collect()
            gc.freeze()  # what imports have left
    results.close()


class _Worker:
    """A process that goes through seeds; another takes over behind a graph that ends it."""

    def __init__(self, judge: Judge, seeds: Sequence[int]):
        self.judge = judge
        self.start(seeds)

    def start(self, seeds: Sequence[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self.left = list(seeds)
        self.current = context.Value(ctypes.c_int64, -1)
        self.results, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(self.judge, self.left, self.current, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.silent_s = 0.0

    def take(self) -> Outcome | None:
        """The next result, or what has become of the graph that has ended the process; None at the end."""
        self.silent_s = 0.0
        try:
            found: Outcome = self.results.recv()
            self.left.remove(found[0])
            return found
        except EOFError:
            self.process.join()
            return self.lost(f"the process ended with code {self.process.exitcode}") if self.left else None

    def lost(self, what: str) -> Outcome:
        """The graph that the worker was at is wrong; the others go on in a new process."""
        self.process.kill()
        self.process.join()
        seed = self.current.value if self.current.value in self.left else self.left[0]
        self.left.remove(seed)
        self.start(self.left)
        return seed, "", what


def outcomes(judge: Judge, seeds: Sequence[int], n_workers: int) -> Iterator[Outcome]:
    """What `judge` says of each seed, as it comes; with no workers in this process."""
    if n_workers == 0:
        yield from (judge(seed) for seed in seeds)
        return
    workers = [_Worker(judge, seeds[i::n_workers]) for i in range(min(n_workers, len(seeds)))]
    now = time.perf_counter()
    try:
        while workers:
            ready = wait([w.results for w in workers], timeout=1.0)
            before, now = now, time.perf_counter()
            passed_s = min(now - before, LONGEST_WAIT_S)
            for worker in list(workers):
                if worker.results in ready:
                    found = worker.take()
                    if found is None:
                        workers.remove(worker)
                    else:
                        yield found
                    continue
                worker.silent_s += passed_s
                if worker.silent_s > HANG_S:
                    yield worker.lost(f"no end within {HANG_S:.0f} s")
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def main(argv: list[str] | None = None) -> int:
    """Run the graphs and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--unchecked", action="store_true", help="build as users do, without checks of all accesses")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--workers", type=int, default=host_cpu().cores, help="processes; 0: in this one")
    options = parser.parse_args(argv)
    wrong = done = bad = 0
    judge = partial(outcome, checks=not options.unchecked)
    start = time.perf_counter()
    seeds = range(options.first, options.first + options.graphs)
    for seed, kind, problem in outcomes(judge, seeds, options.workers):
        done += 1
        bad += kind == BAD_POSITION
        if problem:
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
        if time.perf_counter() - start > options.seconds:
            break
    print(f"{done} graphs, {bad} with a position out of range, {wrong} wrong, {time.perf_counter() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
