"""Search strategies on the ten synthetic spaces: `python -m benchmarks.search --strategies auto,genetic --seeds 5`.

The score after k evaluations is optimum / best time found, as in `autosched.testing.replay`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np

from autosched.tuner.search import make_search
from benchmarks.search_functions import Function, functions


def scores(function: Function, strategy: str, *, budget: int, batch: int, seed: int) -> tuple[np.ndarray, float]:
    """The score after each evaluation [budget], and the seconds spent on asking and telling."""
    (default,) = function.space.sample(np.random.default_rng((seed, 1)), 1)
    search = make_search(strategy, function.space.with_default(default), seed=seed, budget=budget)
    found: list[float] = []
    best, spent_s = np.inf, 0.0
    while len(found) < budget:
        start = time.perf_counter()
        configs = search.ask(min(batch, budget - len(found)))
        spent_s += time.perf_counter() - start
        trials = [function.measure(config) for config in configs]
        for trial in trials:
            best = min(best, trial.median_s)
            found.append(1e-3 / best)
        start = time.perf_counter()
        search.tell(trials)
        spent_s += time.perf_counter() - start
    return np.array(found), spent_s


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__.splitlines()[0])
    parser.add_argument("--strategies", default="auto,optuna-tpe,genetic,xgboost,random")
    parser.add_argument("--functions", default="", help="names separated by commas; all without")
    parser.add_argument("--budget", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args(arguments)
    points = [k for k in (50, 100, 200, 400) if k <= options.budget]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    chosen = [f for f in functions() if not options.functions or f.name in options.functions.split(",")]
    print("function, strategy: score after " + ", ".join(map(str, points)) + " evaluations; seconds a run")
    for strategy in options.strategies.split(","):
        table = []
        for function in chosen:
            how = {"budget": options.budget, "batch": options.batch}
            runs = [scores(function, strategy, seed=seed, **how) for seed in seeds]
            table.append(np.mean([run[0] for run in runs], axis=0))
            seconds = np.mean([run[1] for run in runs])
            _print(function.name, strategy, table[-1], points, f"{seconds:.1f} s, {function.space.count():.1e} valid")
        for title, kind in (("mean separable", True), ("mean interacting", False)):
            part = [row for row, function in zip(table, chosen, strict=True) if function.is_separable is kind]
            if part:
                _print(title, strategy, np.mean(part, axis=0), points, "")
        _print("mean", strategy, np.mean(table, axis=0), points, "")
    return 0


def _print(name: str, strategy: str, score: np.ndarray, points: Sequence[int], rest: str) -> None:
    cells = "  ".join(f"{score[k - 1]:.3f}" for k in points)
    print(f"{name:24} {strategy:12} {cells}  {rest}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
