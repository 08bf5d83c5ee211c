"""What this machine can do at most, measured with generated kernels: multiply-adds, and reading from each cache."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime.graph import graph_of_kernel
from autosched.runtime.memory import empty_block
from autosched.runtime.program import Program
from autosched.target import Target
from autosched.templates.registry import PeakFunctions, peak_functions
from autosched.tir import PrimFunc
from autosched.tuner.measure.sampling import calls_per_repeat, time_calls

MEASURE_S, CALLS_S = 0.15, 0.001


@dataclass(frozen=True)
class Level:
    """How fast data is read over and over whose size is `size_bytes`, which lie in `name`."""

    name: str
    size_bytes: int
    bytes_per_s: float


@dataclass(frozen=True)
class Peaks:
    """The two peaks of a machine on a number of threads: multiply-adds, and reading by where the data lie."""

    threads: int
    flops_per_s: float
    levels: tuple[Level, ...]

    def level(self, size_bytes: int) -> Level:
        """The fastest memory that holds so many bytes."""
        return next((level for level in self.levels if size_bytes <= level.size_bytes), self.levels[-1])

    def least_s(self, flops: int, size_bytes: int) -> float:
        """The roofline: the time below which no kernel of so much arithmetic and data gets here."""
        return max(flops / self.flops_per_s, size_bytes / self.level(size_bytes).bytes_per_s)

    @property
    def text(self) -> str:
        """Both in one line."""
        reading = ", ".join(f"{level.name} {level.bytes_per_s / 1e9:.0f}" for level in self.levels)
        threads = f"{self.threads} thread{'s' if self.threads != 1 else ''}"
        return f"peaks on {threads}: {self.flops_per_s / 1e9:.0f} GFLOP/s; reading GB/s: {reading}"


@cache
def measure_peaks(target: Target, threads: int) -> Peaks:
    """Measure both peaks on so many threads: about a second, once in a process.

    Where a back end has no functions for it, they are those of the device's data sheet.
    """
    functions = peak_functions(target)
    if functions is None:
        gpu = target.gpu
        return Peaks(1, gpu.peak_flops("float32"), (Level("memory", gpu.memory_bytes, gpu.memory_bandwidth),))
    before = _flops_per_s(target, threads, functions)
    levels = tuple(
        Level(name, room, _bytes_per_s(target, threads, size, functions))
        for name, (room, size) in functions.memory_levels(target, threads).items()
    )
    return Peaks(threads, max(before, _flops_per_s(target, threads, functions)), levels)  # clocks need a while to rise


def _flops_per_s(target: Target, threads: int, functions: PeakFunctions) -> float:
    func, flops = functions.peak_product(target, threads)
    return flops / _least_time(func, target, threads)


def _bytes_per_s(target: Target, threads: int, size_bytes: int, functions: PeakFunctions) -> float:
    func, read_bytes = functions.peak_read(target, threads, size_bytes)
    return read_bytes / _least_time(func, target, threads)


def _least_time(func: PrimFunc, target: Target, threads: int) -> float:
    """The least time of one call, of calls in rows of CALLS_S: too short for other programs to come in between."""
    program, buffers = load_function(func, target, threads)
    number = calls_per_repeat(program.run, CALLS_S)
    times: list[float] = []
    end = time.perf_counter() + MEASURE_S
    while time.perf_counter() < end or len(times) < 3:
        times.append(time_calls(program.run, number) / number)
    assert buffers, "the arrays live until here"
    return min(times)


def load_function(func: PrimFunc, target: Target, threads: int) -> tuple[Program, Mapping[int, np.ndarray]]:
    """A compiled function on arrays full of 0.5, ready to run; gives the arrays by the number of their argument."""
    kernel = compile_func(func, target, name="peak").kernel
    graph = graph_of_kernel(kernel, "peak")
    program = Program(graph, {"peak": kernel}, (), native_object(), threads)
    buffers = {}
    for number, value in enumerate(graph.values):
        block = empty_block(math.prod(value.shape) * np.dtype(value.dtype).itemsize)
        buffers[number] = np.ndarray(value.shape, value.dtype, block.data)
    for number, buffer in buffers.items():
        buffer.fill(np.float32(0.5))
        program.place(number, buffer)
    return program, buffers
