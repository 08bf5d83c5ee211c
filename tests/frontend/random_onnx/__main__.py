"""`python -m tests.frontend.random_onnx`: see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from functools import partial

from autosched.target import host_cpu
from benchmarks.fuzz import outcomes
from tests.frontend.random_onnx.check import Options, model_of, outcome, plan_of
from tests.frontend.random_onnx.kinds import KINDS


def main(argv: list[str] | None = None) -> int:
    """Make, build and compare the models; 1 where something is wrong with one."""
    parser = argparse.ArgumentParser(prog="python -m tests.frontend.random_onnx", description="Random ONNX models.")
    parser.add_argument("first", type=int, help="the first model's seed")
    parser.add_argument("count", type=int, help="how many models")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--target", default="cpu", help='"cpu", "llvm -mcpu=haswell", "cuda -arch=sm_80" (emulated)')
    parser.add_argument("--open", type=float, default=0.3, metavar="SHARE", help="of models with open sizes (0.3)")
    parser.add_argument("--drawn", type=float, default=0.3, metavar="SHARE", help="of drawn configurations (0.3)")
    parser.add_argument("--strict", type=float, default=0.1, metavar="SHARE", help='of accuracy="strict" (0.1)')
    parser.add_argument("--old", type=float, default=0.3, metavar="SHARE", help="in older versions of ONNX (0.3)")
    parser.add_argument("--edges", type=float, default=0.0, metavar="SHARE", help="with infinities, NaN and such (0)")
    parser.add_argument("--steps", type=int, default=6, help="operators of a model, at most (6)")
    parser.add_argument("--only", default="", metavar="KINDS", help=f"of these alone: {', '.join(KINDS)}")
    parser.add_argument("--workers", type=int, default=host_cpu().cores, help="processes; 0: in this one")
    parser.add_argument("--show", action="store_true", help="print each model")
    given = parser.parse_args(argv)
    only = tuple(name for name in given.only.split(",") if name)
    shares = (given.open, given.drawn, given.strict, given.old, given.edges)
    options = Options(given.target, *shares, given.steps, only)
    seeds, start = range(given.first, given.first + given.count), time.perf_counter()
    kinds: Counter[str] = Counter()
    wrong = 0
    if given.show:
        for seed in seeds:
            show(seed, options)
    for seed, kind, problem in outcomes(partial(outcome, options=options), seeds, given.workers):
        kinds[kind] += 1
        if problem:
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
        if time.perf_counter() - start > given.seconds:
            break
    for kind, n in kinds.most_common():
        print(f"{n:6} {kind}")
    print(f"{sum(kinds.values())} models, {wrong} wrong, {time.perf_counter() - start:.0f} s")
    return 1 if wrong else 0


def show(seed: int, options: Options) -> None:
    """Print the model of a seed."""
    import onnx

    plan = plan_of(seed, options)
    print(f"seed {seed}: {plan}\n{onnx.printer.to_text(model_of(plan, options).model)}")


if __name__ == "__main__":
    sys.exit(main())
