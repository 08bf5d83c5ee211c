"""Tune your own CUDA kernel: the tile of a transpose through shared memory, and call the result.

    python -m examples.own_cuda_kernel [--budget 20s] [--db own.db] [--emulate]

With --emulate the kernel is called on the emulator instead of a GPU; nothing is tuned there, whose times say nothing.
"""

from __future__ import annotations

import argparse
import contextlib

import numpy as np
from numba import cuda, float32

import autosched


def reference(x, out):
    """What `turn` computes, in NumPy."""
    out[:] = x.T


@autosched.autotune(
    {"tile": [8, 16, 32], "rows": [1, 2, 4, 8]},
    grid=lambda x, tile: (-(-x.shape[1] // tile), -(-x.shape[0] // tile)),
    threads=lambda tile, rows: (tile, tile // rows),
    check=reference,
)
@cuda.jit
def turn(x, out, tile, rows):
    """Transpose [m, n] to [n, m]: a block turns one square, a thread `rows` elements of a column of it."""
    square = cuda.shared.array((tile, tile + 1), float32)  # a column more, so that its banks differ
    step = tile // rows
    column = cuda.blockIdx.x * tile + cuda.threadIdx.x
    for k in range(rows):
        row = cuda.blockIdx.y * tile + cuda.threadIdx.y + k * step
        if row < x.shape[0] and column < x.shape[1]:
            square[cuda.threadIdx.y + k * step, cuda.threadIdx.x] = x[row, column]
    cuda.syncthreads()
    column = cuda.blockIdx.y * tile + cuda.threadIdx.x
    for k in range(rows):
        row = cuda.blockIdx.x * tile + cuda.threadIdx.y + k * step
        if row < x.shape[1] and column < x.shape[0]:
            out[row, column] = square[cuda.threadIdx.x, cuda.threadIdx.y + k * step]


@turn.example
def matrices():
    """The arguments that `autosched tune` takes."""
    x = np.random.default_rng(0).random((2048, 3000), np.float32)
    return x, np.empty((3000, 2048), np.float32)


def main(argv: list[str] | None = None) -> None:
    """Tune, then call what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--db", default="own.db")
    parser.add_argument("--emulate", action="store_true")
    arguments = parser.parse_args(argv)
    with contextlib.ExitStack() as stack:
        if arguments.emulate:
            from autosched.codegen.cuda.emulate import EmulatorDriver
            from autosched.runtime.cuda.devices import use_driver

            stack.enter_context(use_driver(EmulatorDriver))
            x, out = np.random.default_rng(0).random((50, 70), np.float32), np.empty((70, 50), np.float32)
        else:
            x, out = matrices()
            report = turn.tune(x, out, budget=arguments.budget, records=arguments.db)
            task = report.tasks[0]
            print(f"{report.n_trials} trials, {report.n_failed} failed, {task.state}: {task.config}")
            if task.default_s and task.best_s:
                print(f"default {1e6 * task.default_s:.1f} µs, now {1e6 * task.best_s:.1f} µs")
        turn(x, out)
        print(f"equal to NumPy: {np.array_equal(out, x.T)}")
        used = turn.resources(x, out)
        print(f"{turn.best_config(x, out)}: {used.registers} registers, {used.shared_bytes} bytes of shared memory")


if __name__ == "__main__":
    main()
