"""`python -m benchmarks.zoo.compiled`: networks under `torch.compile(model, backend="autosched")`, against PyTorch.

Each network runs in eager PyTorch, in ours and, with `--time`, in inductor (which needs a C++ compiler); the last line
is the geometric mean of our time over inductor's. A network agrees where its results do and no graph fell back to
PyTorch.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autosched.driver.bench.programs import Program
from autosched.driver.bench.rounds import compare, measure
from benchmarks.machine import Table, write
from benchmarks.zoo.check import MOST_ERROR, largest_error
from benchmarks.zoo.definitions import make, names
from benchmarks.zoo.process import import_packages, in_process

NETWORKS = (
    "bert", "roberta", "distilbert", "electra", "albert", "gpt2", "opt", "llama", "qwen2", "t5_encoder", "vit",
    "dinov2", "swin", "clip_text", "whisper_encoder", "timm_resnet26d", "timm_mobilenetv3", "timm_convnext",
    "tv_squeezenet", "unet",
)  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """What became of a network: its error against eager PyTorch, graphs, those that fell back, times in seconds."""

    name: str
    error: float = float("inf")
    graphs: int = 0
    fallbacks: int = 0
    compile_s: float = float("nan")
    ratio: float | None = None
    ratio_half: float | None = None
    reason: str = ""

    @property
    def agrees(self) -> bool:
        return self.error < MOST_ERROR and not self.fallbacks


def check(name: str, threads: int, time_s: float) -> Compiled:
    """Compile and compare one network."""
    import torch

    from autosched.contrib.torch_compile import counters

    with torch.no_grad():
        model, inputs = make(name)
        expected = [t.numpy() for t in torch.utils._pytree.tree_leaves(model(*inputs))]
        ours = torch.compile(model, backend="autosched", options={"threads": threads})
        start = time.perf_counter()
        try:
            results = [t.numpy() for t in torch.utils._pytree.tree_leaves(ours(*inputs))]
        except Exception as error:  # what a user would meet as a traceback
            return Compiled(name, reason=f"{type(error).__name__}: {error}".splitlines()[0][:200])
        compile_s = time.perf_counter() - start
        error_found, problem = largest_error(results, expected)
        reason = "; ".join([*([problem] if problem else []), *counters.fallbacks])
        found: dict[str, Any] = {"graphs": counters.graphs, "fallbacks": sum(counters.fallbacks.values())}
        if time_s:
            torch._dynamo.reset()
            theirs = torch.compile(make(name)[0], backend="inductor")
            theirs(*inputs)
            programs = [Program(n, threads, lambda f=f: f(*inputs)) for n, f in (("inductor", theirs), ("ours", ours))]
            comparison = compare(*measure(programs, time_s))
            found |= {"ratio": comparison.ratio, "ratio_half": (comparison.high - comparison.low) / 2}
    return Compiled(name, error_found, compile_s=compile_s, reason=reason, **found)


def table(results: Sequence[Compiled]) -> Table:
    """Results by network, with the geometric mean."""
    made = Table(
        "Networks under torch.compile", ("network", "agrees", "error", "graphs", "compile, s", "ours / inductor", "")
    )
    for r in results:
        ratio = "" if r.ratio is None else f"{r.ratio:.2f} ± {r.ratio_half:.2f}"
        cells = (f"{r.error:.1e}", str(r.graphs), f"{r.compile_s:.1f}", ratio, r.reason.replace("|", "/"))
        made.rows.append((r.name, "yes" if r.agrees else "no", *cells))
    made.notes.append(f"{sum(r.agrees for r in results)} of {len(results)} agree")
    if ratios := [r.ratio for r in results if r.ratio is not None]:
        mean = np.exp(np.mean(np.log(ratios)))
        made.notes.append(f"geometric mean of ours / inductor over {len(ratios)} networks: {mean:.3f} (bar: <= 0.85)")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Check networks, print a line for each; the status is 1 where one does not agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.compiled", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="networks; twenty of the zoo by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", type=float, default=0.0, help="seconds for each program; 0: nothing is timed")
    parser.add_argument("--limit", type=float, default=400, help="seconds after which a network is given up")
    parser.add_argument("--table", type=Path, help="write the results there as Markdown")
    options = parser.parse_args(arguments)
    if options.time and not (shutil.which("g++") or shutil.which("clang++")):
        parser.error("inductor needs a C++ compiler, and there is none: leave --time out")
    import_packages()
    if unknown := [n for n in options.names if n not in names()]:
        parser.error(f"there is no network {', '.join(unknown)}; there are {', '.join(names())}")
    results = []
    for name in options.names or NETWORKS:
        found, why = in_process(check, (name, options.threads, options.time), options.threads, options.limit)
        results.append(found or Compiled(name, reason=why))
        r = results[-1]
        ratio = "" if r.ratio is None else f"ours / inductor {r.ratio:.2f} ± {r.ratio_half:.2f} "
        agrees = "agrees" if r.agrees else "NOT"
        print(f"{name:18}{agrees:8}{r.error:.1e} {r.graphs} graphs {r.compile_s:6.1f} s {ratio}{r.reason}", flush=True)
    made = table(results)
    print("\n".join(made.notes))
    if options.table:
        write(options.table, f"python -m benchmarks.zoo.compiled --time {options.time:g}", [made])
    return int(not all(r.agrees for r in results))


if __name__ == "__main__":
    sys.exit(main())
