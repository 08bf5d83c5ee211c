"""Tuning of own functions: the price of a call, the wait for the first trial, trials a second beside Optuna's.

    python -m benchmarks.own_functions [--budget 30] [--only call,first,trials]

Optuna drives the same function as one would by hand: a trial compiles the function with the knobs as constants,
compares one result with NumPy's, and takes the best of five runs, in this process. autosched builds, checks and times
in worker processes, and measures its winner beside the default at the end, which is part of its time.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np

import autosched
from autosched.driver.tune.report import TuneReport
from benchmarks.machine import Table, result_file, write

ROUNDS, RUNS = 15, 5
FIRST_BAR_S, CALL_BAR_US = 4.0, 0.3
SPACE: dict[str, Sequence[Any]] = {
    "rows": [1, 2, 4, 8, 16, 32],
    "columns": [32, 64, 128, 256, 512],
    "depth": [8, 16, 32, 64],
    "fastmath": [False, True],
}


def product(a, b, out, rows=4, columns=64, depth=16):  # type: ignore[no-untyped-def]
    """A matrix product in blocks."""
    n, m = out.shape
    for top in range(0, n, rows):
        for left in range(0, m, columns):
            for i in range(top, min(top + rows, n)):
                for j in range(left, min(left + columns, m)):
                    out[i, j] = 0
            for first in range(0, a.shape[1], depth):
                for i in range(top, min(top + rows, n)):
                    for k in range(first, min(first + depth, a.shape[1])):
                        for j in range(left, min(left + columns, m)):
                            out[i, j] += a[i, k] * b[k, j]


def by_hand(rows: int, columns: int, depth: int, fastmath: bool) -> Callable[..., None]:
    """The same product with the knobs as constants, as one writes it for Optuna."""

    def made(a, b, out):  # type: ignore[no-untyped-def]
        n, m = out.shape
        for top in range(0, n, rows):
            for left in range(0, m, columns):
                for i in range(top, min(top + rows, n)):
                    for j in range(left, min(left + columns, m)):
                        out[i, j] = 0
                for first in range(0, a.shape[1], depth):
                    for i in range(top, min(top + rows, n)):
                        for k in range(first, min(first + depth, a.shape[1])):
                            for j in range(left, min(left + columns, m)):
                                out[i, j] += a[i, k] * b[k, j]

    return cast(Callable[..., None], numba.njit(fastmath=fastmath)(made))


def arguments(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b = (rng.random((size, size), np.float32) for _ in range(2))
    return a, b, np.empty_like(a)


def tuned_by_autosched(size: int, folder: Path, **limits: Any) -> tuple[int, float, float]:
    """(trials, seconds in all, seconds before the first trial is done)."""
    function = autosched.autotune(SPACE)(numba.njit(product))
    first: list[float] = []

    def progress(report: TuneReport) -> None:
        if report.n_trials and not first:
            first.append(time.perf_counter() - start)

    start = time.perf_counter()
    report = function.tune(*arguments(size), until=0, records=folder / f"{size}.db", progress=progress, **limits)
    return report.n_trials, time.perf_counter() - start, first[0]


def tuned_by_optuna(size: int, budget_s: float) -> tuple[int, float]:
    """(trials, seconds in all)."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    a, b, out = arguments(size)
    expected = a @ b

    def objective(trial: Any) -> float:
        function = by_hand(**{name: trial.suggest_categorical(name, values) for name, values in SPACE.items()})
        function(a, b, out)
        if not np.allclose(out, expected, rtol=1e-4):
            raise optuna.TrialPruned
        return min(timeit.repeat(lambda: function(a, b, out), number=1, repeat=5))

    start = time.perf_counter()
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, timeout=budget_s)
    return len(study.trials), time.perf_counter() - start


def trials(budget_s: float) -> Table:
    table = Table(
        "Trials a second of a function of one's own (bar: at least those of Optuna)",
        ("product of float32", "autosched: trials", "a second", "Optuna by hand: trials", "a second", "ratio"),
    )
    for size in (64, 256):
        with tempfile.TemporaryDirectory() as folder:
            ours, our_s, _ = tuned_by_autosched(size, Path(folder), budget=budget_s)
        theirs, their_s = tuned_by_optuna(size, budget_s)
        rates = ours / our_s, theirs / their_s
        table.rows.append(
            (f"{size}³", str(ours), f"{rates[0]:.2f}", str(theirs), f"{rates[1]:.2f}", f"{rates[0] / rates[1]:.2f}")
        )
    return table


def first(_budget_s: float) -> Table:
    """The wait is that of a process's first tuning and of its second."""
    table = Table(f"The first trial is done after (bar: {FIRST_BAR_S:g} s)", ("tuning of the process", "seconds"))
    for name in ("first", "second"):
        with tempfile.TemporaryDirectory() as folder:
            table.rows.append((name, f"{tuned_by_autosched(64, Path(folder), trials=1)[2]:.2f}"))
    return table


def scale(x, a, out, block=256):  # type: ignore[no-untyped-def]
    """One element in use: the call costs more than the work."""
    for i in range(min(block, x.size)):
        out[i] = a * x[i]


def call(_budget_s: float) -> Table:
    """Rounds of calls of the tuned function and of Numba's own, in turn; medians."""
    table = Table(f"A call of a tuned function (bar: {CALL_BAR_US} µs over Numba's)", ("call", "µs"))
    with tempfile.TemporaryDirectory() as folder:
        function = autosched.autotune({"block": [64, 256]})(numba.njit(scale))
        x, out = np.ones(1), np.empty(1)
        function.tune(x, 2.0, out, trials=2, records=Path(folder) / "call.db")
        function(x, 2.0, out)
        plain = numba.njit(lambda x, a, out: scale_64(x, a, out))
        plain(x, 2.0, out)
        number, times = 200_000, [[], []]  # type: ignore[var-annotated]
        for _ in range(ROUNDS):
            for i, one in enumerate((function, plain)):
                times[i].append(timeit.timeit(functools.partial(one, x, 2.0, out), number=number) / number * 1e6)
        ours, theirs = map(statistics.median, times)
        over = statistics.median(a - b for a, b in zip(*times, strict=True))
    table.rows += [("autosched", f"{ours:.3f}"), ("Numba", f"{theirs:.3f}"), ("difference", f"{over:.3f}")]
    return table


@numba.njit
def scale_64(x, a, out):  # type: ignore[no-untyped-def]
    """`scale` with its knob as a constant."""
    for i in range(min(64, x.size)):
        out[i] = a * x[i]


TABLES = {"call": call, "first": first, "trials": trials}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=30.0, help="seconds for each of the two (%(default)s)")
    parser.add_argument("--only", default=",".join(TABLES), help="which tables (%(default)s)")
    options = parser.parse_args(argv)
    tables = [TABLES[name](options.budget) for name in options.only.split(",")]
    for table in tables:
        print(table.markdown() + "\n")
    if options.only == ",".join(TABLES):
        write(result_file("own-functions"), f"python -m benchmarks.own_functions --budget {options.budget:g}", tables)


if __name__ == "__main__":
    main()
