"""CUDA kernels to tune: good ones, and one whose candidates do what candidates must not do."""

from __future__ import annotations

from typing import Any

from numba import cuda, float32

import autosched

GOOD, WRONG, HALF, BESIDE = range(4)
FACTOR = 2.0


@cuda.jit(device=True)
def scaled(value, a):
    return value * a * FACTOR


def axpy_reference(x: Any, y: Any, a: float, n: int) -> None:
    y[:n] += x[:n] * a * FACTOR


@autosched.autotune({"items": [1, 4]}, grid=lambda n, threads, items: -(-n // (threads * items)), check=axpy_reference)
@cuda.jit
def axpy(x, y, a, n, items=1):
    """Add in place, some items a thread."""
    for k in range(items):
        i = (cuda.blockIdx.x * items + k) * cuda.blockDim.x + cuda.threadIdx.x
        if i < n:
            y[i] += scaled(x[i], a)


@autosched.autotune(
    {"tile": [8, 16]}, grid=lambda x, tile: (-(-x.shape[1] // tile), -(-x.shape[0] // tile)),
    threads=lambda tile: (tile, tile), target="cuda",
)  # fmt: skip
def turn(x, out, tile):
    """Transpose through shared memory."""
    square = cuda.shared.array((tile, tile + 1), float32)
    row, column = cuda.blockIdx.y * tile + cuda.threadIdx.y, cuda.blockIdx.x * tile + cuda.threadIdx.x
    if row < x.shape[0] and column < x.shape[1]:
        square[cuda.threadIdx.y, cuda.threadIdx.x] = x[row, column]
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * tile + cuda.threadIdx.y, cuda.blockIdx.y * tile + cuda.threadIdx.x
    if row < x.shape[1] and column < x.shape[0]:
        out[row, column] = square[cuda.threadIdx.x, cuda.threadIdx.y]


def doubled(x: Any, out: Any) -> None:
    out[:] = 2 * x


@autosched.autotune({"mode": [GOOD, WRONG, HALF, BESIDE]}, grid=lambda x: -(-x.size // 64), threads=64, check=doubled)
@cuda.jit
def double(x, out, mode=GOOD):
    i = cuda.grid(1)
    if mode == BESIDE:
        out[i + 1000000] = 1.0
    if i < x.size and (mode != HALF or i < x.size // 2):
        out[i] = x[i] * (3.0 if mode == WRONG else 2.0)
