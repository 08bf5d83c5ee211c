"""`python -m benchmarks.zoo`: networks of public packages, exported by torch.export, imported, built and compared.

The packages (transformers, timm, torchvision, diffusers) are installed by whoever runs it. A network's line has its
largest error against PyTorch, relative to the largest value, and the seconds that import and build took.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

import autosched
from autosched.errors import AutoschedError
from autosched.frontend.torch import from_exported_program
from benchmarks.zoo.definitions import make, names

MOST_ERROR = 1e-3


def run(name: str, threads: int) -> tuple[bool, str]:
    """(whether a network agrees with PyTorch, its line)."""
    import torch

    try:
        model, inputs = make(name)
        with torch.no_grad():
            expected = model(*inputs)
        program = torch.export.export(model, inputs)
    except Exception as error:  # packages that are missing or differ, what PyTorch cannot export
        return False, f"not exported: {type(error).__name__}: {error}".splitlines()[0][:160]
    try:
        start = time.perf_counter()
        module = from_exported_program(program)
        imported = time.perf_counter()
        result = autosched.build(module, threads=threads)(*(x.numpy() for x in inputs))
        built = time.perf_counter()
    except AutoschedError as error:
        return False, f"refused: {error.line}"
    results = list(result) if isinstance(result, tuple) else [result]
    wanted = [t.numpy() for t in torch.utils._pytree.tree_leaves(expected)]
    error_found = max((_error(np.asarray(a), b) for a, b in zip(results, wanted, strict=True)), default=0.0)
    return error_found < MOST_ERROR, f"{error_found:.1e} import {imported - start:.1f} s build {built - imported:.1f} s"


def _error(ours: Any, theirs: Any) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    difference = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max()
    return float(difference / (np.abs(theirs).max() + 1e-9))


def _torchvision_without_library() -> None:
    """torchvision's Python part loads where its native library does not, once these operators are declared."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for module in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)


_KEPT: list[Any] = []  # declarations end with the object that made them


def main(arguments: Sequence[str] | None = None) -> int:
    """Run networks and print a line for each; the status is 1 where one does not agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description=__doc__)
    parser.add_argument("names", nargs="*", help="networks; all by default")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    if importlib.util.find_spec("torchvision"):
        _torchvision_without_library()
    agreed, chosen = 0, options.names or names()
    for name in chosen:
        good, line = run(name, options.threads)
        agreed += good
        print(f"{name:20}{'ok' if good else 'NOT':4}{line}", flush=True)
    print(f"{agreed} of {len(chosen)} agree")
    return int(agreed < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
