"""What runs on the emulated machine: every case's artifact on its inputs, a line of the console for each.

It imports the runtime and NumPy alone. Cases run in a child process, so that one which kills it is a line too.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - names bfloat16 for NumPy
import numpy as np

from autosched.runtime import NeedsRebuildError
from autosched.runtime.library import read_module
from autosched.target import host_cpu

LINE = "case\t"  # how a line of a case begins


def find_error(result: np.ndarray, expected: np.ndarray, each: bool) -> float:
    """The largest difference by the largest expected value (at least 1), or of `each` value by that value."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return float("inf")
    got, want = result.astype("d"), expected.astype("d")
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    if not (np.isfinite(got) & np.isfinite(want) | same).all():
        return float("inf")
    difference = np.abs(np.subtract(got, want, out=np.zeros_like(got), where=~same))
    scale = np.maximum(np.abs(want), 1e-37) if each else max(1.0, float(np.abs(want[np.isfinite(want)]).max(initial=0)))
    return float((difference / scale).max(initial=0))


def _read(path: Path) -> np.ndarray:
    """An array of a file, whose format has no name for bfloat16."""
    array: np.ndarray = np.load(path)
    return array.view(np.dtype("bfloat16")) if array.dtype.kind == "V" else array


def run(folder: Path, case: dict[str, Any]) -> tuple[float, str]:
    """The error of a case, and what else is to be said of it."""
    name = f"{case['number']:04d}"
    arrays = [_read(folder / f"{name}.{n}.npy") for n in range(case["inputs"] + case["outputs"])]
    inputs, expected = arrays[: case["inputs"]], arrays[case["inputs"] :]
    try:
        loaded = read_module(folder / f"{name}.asx")
    except NeedsRebuildError as refusal:
        return (0.0 if case["refused"] else float("inf")), str(refusal)
    if case["refused"]:
        return float("inf"), "it was loaded"
    if case["variant"] != getattr(loaded, "variant", ""):
        return float("inf"), f"variant {getattr(loaded, 'variant', '')!r} was loaded"
    if case["call"] == "in place":
        results = [np.full_like(e, np.nan if e.dtype.kind == "f" else 77) for e in expected]
        loaded(*inputs, *results)
    else:
        given: Any = loaded(*inputs)
        results = [r.numpy() for r in (given if isinstance(given, tuple) else (given,))]
    return max(find_error(r, e, case["each"]) for r, e in zip(results, expected, strict=True)), case["variant"]


def run_from(folder: Path, cases: list[dict[str, Any]]) -> int:
    """Run cases in a child process until one ends it; gives how many are done with."""
    done = mmap.mmap(-1, 8)
    child = os.fork()
    if child == 0:
        for number, case in enumerate(cases, 1):
            try:
                error, note = run(folder, case)
            except Exception as problem:  # the border of a process: whatever went wrong is the case's result
                error, note = float("inf"), f"{type(problem).__name__}: {problem}"
            say(case, error, note)
            done[:] = number.to_bytes(8, "little")
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    count = int.from_bytes(done[:], "little")
    if count < len(cases):
        note = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"exit status {status >> 8}"
        say(cases[count], float("inf"), note)
        count += 1
    return count


def say(case: dict[str, Any], error: float, note: str) -> None:
    """Write the line of a case."""
    print(LINE + "\t".join((str(case["number"]), f"{error:.3e}", " ".join(note.split()))), flush=True)


def main(folder: Path) -> None:
    """Run all cases of a folder."""
    cpu = host_cpu()
    print("cpu\t" + "\t".join((cpu.model_name, cpu.mcpu, " ".join(sorted(cpu.features)))), flush=True)
    cases = [case for case in json.loads((folder / "cases.json").read_text()) if not case["left_out"]]
    while cases:
        cases = cases[run_from(folder, cases) :]
    print("all\tdone", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
