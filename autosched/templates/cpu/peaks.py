"""Functions that reach what a CPU can do at most: multiply-adds on registers, and reading from each cache."""

from __future__ import annotations

from autosched import te
from autosched.target import Target
from autosched.templates.cpu.register_tile import choose_tile
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule

STEPS = 256  # of the multiply-add kernel's reduction: its operands stay in the first-level cache
READ_VECTORS = 8  # accumulators of the reading kernel
MIB = 1 << 20
LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 128 * MIB, 512 * MIB


def peak_product(target: Target, threads: int) -> tuple[PrimFunc, int]:
    """(a function, its floating-point operations)."""
    tile = choose_tile(16, 4, STEPS, target)
    tasks, width = 256 * threads, tile.vectors * target.lanes("float32")
    return fma_function(tile.rows, width, tasks), 2 * tasks * tile.rows * width * STEPS


def peak_read(target: Target, threads: int, size_bytes: int) -> tuple[PrimFunc, int]:
    """(a function, the bytes that it reads): about so many."""
    width = READ_VECTORS * target.lanes("float32")
    tasks = 4 * threads
    steps = max(size_bytes // (4 * tasks * width), 1)
    return read_function(tasks, steps, width), 4 * tasks * steps * width


def memory_levels(target: Target, threads: int) -> dict[str, tuple[int, int]]:
    """(bytes that a level holds, bytes to read of it) by its name, the fastest first."""
    caches = target.cache
    last = max(caches.l3_bytes, caches.l2_bytes)
    memory = min(max(4 * last, LEAST_MEMORY_BYTES), MOST_MEMORY_BYTES)
    wanted = [("L1", caches.l1_bytes * threads, 2), ("L2", caches.l2_bytes * threads, 2), ("L3", caches.l3_bytes, 2)]
    found = {name: (2 * (size // part), size // part) for name, size, part in wanted if size}
    return {**found, "memory": (memory, memory)}


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
