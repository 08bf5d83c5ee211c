"""Random graphs against NumPy, with every access of every kernel checked.

    python -m benchmarks.fuzz --graphs 10000 --first 0 [--unchecked]

Prints each seed whose result is wrong, that crashes the compiler, or whose position out of range is not reported (or
reported where there is none), and a last line with the counts. The exit code is 1 where there is such a seed.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

import autosched
from autosched.errors import IndexOutOfRangeError
from autosched.testing.random_graphs import RandomGraph, random_graph


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


def main(argv: list[str] | None = None) -> int:
    """Run the graphs and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--unchecked", action="store_true", help="build as users do, without checks of all accesses")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    options = parser.parse_args(argv)
    wrong = done = bad = 0
    start = time.perf_counter()
    for seed in range(options.first, options.first + options.graphs):
        if time.perf_counter() - start > options.seconds:
            break
        try:
            graph = random_graph(seed)
            bad += graph.bad_index is not None
            problem = check(graph, not options.unchecked)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        done += 1
        if problem:
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
    print(f"{done} graphs, {bad} with a position out of range, {wrong} wrong, {time.perf_counter() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
