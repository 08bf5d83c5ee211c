"""Small programs for tests of the driver, and a process that tunes one of them and says what it has done."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autosched import relax, te
from autosched.ir import IRModule
from autosched.tir import PrimFunc

ROOT = Path(__file__).parents[2]
TUNED_HERE = ("verified here", "measured under noise")  # how far a winner is trusted; the second on a busy machine


def matmul(m: int = 32, n: int = 48, k: int = 64) -> PrimFunc:
    """A matrix product C[m, n] = A[m, k] @ B[k, n]."""
    a, b, r = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.reduce_axis((0, k), "r")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def one_call(make: Callable[..., Any], *types: tuple[tuple[int, ...], str]) -> IRModule:
    """A model of one operator; its inputs, of (shape, dtype), are called x0, x1, …."""
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{i}", relax.TensorStructInfo(shape, dtype)) for i, (shape, dtype) in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(make(*params)))
        builder.emit_func_output(result)
    return builder.get()


# argv: database, trials. Prints for each change: trials so far, the state of the task, the ids of the workers.
TUNER = """
import sys, autosched
from autosched.driver import TuneOptions
from autosched.tuner.measure.process import _ALIVE
from tests.driver.programs import matmul
if __name__ == "__main__":
    def show(report):
        task = report.tasks[0]
        print(report.n_trials, task.state.replace(" ", "_"), *(w.pid for w in list(_ALIVE)), flush=True)
    report = autosched.tune(matmul(), "cpu", records=sys.argv[1], progress=show,
                            options=TuneOptions(trials=int(sys.argv[2]), threads=1, strategy="random", until=0.0))
    print("interrupted" if report.interrupted else "finished", report.n_trials, flush=True)
"""


def start_tuner(database: Path, trials: int, before: str = "") -> subprocess.Popen[str]:
    """Start a tuning of `matmul()` in a process of its own; `before` is Python that it runs first."""
    command = [sys.executable, "-c", f"{before}\n{TUNER}", str(database), str(trials)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
