"""What this machine can do at most, measured with generated kernels: multiply-adds, and reading from each cache."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from autosched import te
from autosched.codegen import compile_func
from autosched.codegen.native import native_object
from autosched.runtime.graph import graph_of_kernel
from autosched.runtime.memory import empty_aligned
from autosched.runtime.program import Program
from autosched.target import Target
from autosched.templates.cpu.register_tile import choose_tile
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule
from autosched.tuner.measure.sampling import calls_per_repeat, time_calls

if TYPE_CHECKING:
    pass

STEPS = 256  # of the multiply-add kernel's reduction: its operands stay in the first-level cache
READ_VECTORS = 8  # accumulators of the reading kernel
MIB = 1 << 20
LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 128 * MIB, 512 * MIB
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
        """The fastest memory that has room for so many bytes."""
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
    """Measure both peaks on so many threads: about a second, once in a process. A GPU's are those of its data sheet."""
    if not target.is_cpu:
        gpu = target.gpu
        return Peaks(1, gpu.peak_flops("float32"), (Level("memory", gpu.memory_bytes, gpu.memory_bandwidth),))
    before = _flops_per_s(target, threads)
    levels = tuple(_levels(target, threads))
    return Peaks(threads, max(before, _flops_per_s(target, threads)), levels)  # clocks need a while to rise


def fma_function(rows: int, width: int, tasks: int) -> PrimFunc:
    """out[t, i, j] = sum over k of a[i, k] * b[k, j] in a register tile [rows, width]."""
    a, b = te.placeholder((rows, STEPS), name="a"), te.placeholder((STEPS, width), name="b")
    k = te.reduce_axis((0, STEPS), "k")
    tile = te.compute((tasks, rows, width), lambda t, i, j: te.sum(a[i, k] * b[k, j], axis=k), name="tile")
    sch = Schedule(te.create_prim_func([a, b, tile]))
    out = sch.cache_write("tile", 0, "local")
    t, i, j = sch.get_loops(out)
    sch.parallel(t)
    sch.unroll(i)
    sch.vectorize(j)
    sch.compute_at("tile", t, True)
    *_, i, j, step = sch.get_loops("tile")
    sch.reorder(step, i, j)
    sch.unroll(i)
    sch.vectorize(j)
    sch.decompose_reduction("tile", step)
    return sch.func


def read_function(tasks: int, steps: int, width: int) -> PrimFunc:
    """out[t, j] = sum over k of x[t, k, j]: reads all of x once, in order, into accumulators."""
    x = te.placeholder((tasks, steps, width), name="x")
    k = te.reduce_axis((0, steps), "k")
    total = te.compute((tasks, width), lambda t, j: te.sum(x[t, k, j], axis=k), name="total")
    sch = Schedule(te.create_prim_func([x, total]))
    out = sch.cache_write("total", 0, "local")
    t, j = sch.get_loops(out)
    sch.parallel(t)
    sch.vectorize(j)
    sch.compute_at("total", t, True)
    *_, j, step = sch.get_loops("total")
    sch.reorder(step, j)
    sch.vectorize(j)
    sch.decompose_reduction("total", step)
    return sch.func


def _flops_per_s(target: Target, threads: int) -> float:
    lanes = target.lanes("float32")
    tile = choose_tile(16, 4, STEPS, target)
    tasks = 256 * threads
    func = fma_function(tile.rows, tile.vectors * lanes, tasks)
    flops = 2 * tasks * tile.rows * tile.vectors * lanes * STEPS
    return flops / _least_time(func, target, threads)


def _levels(target: Target, threads: int) -> list[Level]:
    caches = target.cache
    last = max(caches.l3_bytes, caches.l2_bytes)
    memory = min(max(4 * last, LEAST_MEMORY_BYTES), MOST_MEMORY_BYTES)
    wanted = [("L1", caches.l1_bytes * threads, 2), ("L2", caches.l2_bytes * threads, 2), ("L3", caches.l3_bytes, 2)]
    sizes = {name: size // part for name, size, part in wanted if size}
    return [
        Level(name, size if name == "memory" else 2 * size, _bytes_per_s(target, threads, size))
        for name, size in (*sizes.items(), ("memory", memory))
    ]


def _bytes_per_s(target: Target, threads: int, size_bytes: int) -> float:
    width = READ_VECTORS * target.lanes("float32")
    tasks = 4 * threads
    steps = max(size_bytes // (4 * tasks * width), 1)
    return 4 * tasks * steps * width / _least_time(read_function(tasks, steps, width), target, threads)


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
    buffers = {number: empty_aligned(value.shape, value.dtype) for number, value in enumerate(graph.values)}
    for number, buffer in buffers.items():
        buffer.fill(np.float32(0.5))
        program.place(number, buffer)
    return program, buffers
