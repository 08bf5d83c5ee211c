"""What checks of positions cost: rows taken from tables, with the checks and without, side by side.

    python -m benchmarks.checked_positions            prints a table; both kernels run in turn, on one thread

The kernel without checks is the same function with positions taken as they come, a negative one from the end.
"""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import autosched
from autosched import te, topi
from autosched.runtime.memory import empty_aligned
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.checked_index import CHECK_INDEX
from autosched.tir.functor import rewrite

ROUNDS = 41
LEAST_S = 2e-3  # of one measurement
# name, shape of the table, shape of the positions, axis (None: element by element along the last one)
CASES: tuple[tuple[str, tuple[int, ...], tuple[int, ...], int | None], ...] = (
    ("embedding, 128 of 30522 rows of 768", (30522, 768), (128,), 0),
    ("embedding, 16 of 32000 rows of 4096", (32000, 4096), (16,), 0),
    ("embedding, 8 x 64 of 1000 rows of 64", (1000, 64), (8, 64), 0),
    ("gather rows, 4096 of 4096 rows of 32", (4096, 32), (4096,), 0),
    ("gather rows, 2048 of 2048 rows of 8", (2048, 8), (2048,), 0),
    ("gather columns, 64 of 512, 256 rows", (256, 512), (64,), 1),
    ("gather elements, 256 x 512", (256, 512), (256, 512), None),
)


def without_checks(func: PrimFunc) -> PrimFunc:
    """The function with positions taken as they come."""

    def step(x: Any) -> Any:
        if not isinstance(x, E.Call) or x.op != CHECK_INDEX:
            return x
        index, size = x.args[0], x.args[2]
        return E.select(E.compare(E.LT, index, 0), index + size, index)

    return func.with_body(rewrite(func.body, step))


def function(shape: tuple[int, ...], places: tuple[int, ...], axis: int | None) -> PrimFunc:
    """Rows, columns or elements of a table."""
    x, i = te.placeholder(shape, name="x"), te.placeholder(places, "int64", name="i")
    return te.create_prim_func([x, i, topi.gather(x, i, len(shape) - 1) if axis is None else topi.take(x, i, axis)])


def main() -> None:
    """Print the table: microseconds, and the median of the ratios of neighbouring measurements."""
    rng = np.random.default_rng(0)
    print("| case | checked us | unchecked us | checked / unchecked |\n|---|---|---|---|")
    for name, shape, places, axis in CASES:
        func = function(shape, places, axis)
        modules = [autosched.build(f, threads=1) for f in (func, without_checks(func))]
        size = shape[-1 if axis is None else axis]
        x, i = rng.random(shape, "float32"), rng.integers(0, size, places)
        out = empty_aligned(func.buffers[-1].const_shape(), "float32")  # one for both: places in memory differ in speed
        dev = autosched.cpu()
        timers = [m.time_evaluator(m.entry_func.name, dev, number=1, min_repeat_ms=LEAST_S * 1e3) for m in modules]
        times: list[list[float]] = [[], []]
        for n in range(ROUNDS):
            for k in (0, 1) if n % 2 else (1, 0):
                times[k].append(timers[k](x, i, out).mean)
        ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
        checked, unchecked = (statistics.median(t) * 1e6 for t in times)
        print(f"| {name} | {checked:.2f} | {unchecked:.2f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
