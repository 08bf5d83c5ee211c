"""Random programs with random legal schedules, for property tests."""

from __future__ import annotations

import random
from collections.abc import Callable

from autosched import te
from autosched.errors import InvalidValueError, ScheduleError
from autosched.tir import PrimFunc
from autosched.tir.schedule import Schedule


def chain(r: random.Random) -> PrimFunc:
    m, n = r.randint(1, 9), r.randint(1, 21)
    a = te.placeholder((m, n), name="A")
    b = te.compute((m, n), lambda i, j: a[i, j] * 2.0 + 1.0, name="B")
    c = te.compute((n, m), lambda i, j: b[j, i] + a[j, n - 1 - i], name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * c[i, j], name="D")
    return te.create_prim_func([a, d])


def matmul(r: random.Random) -> PrimFunc:
    m, n, k = r.randint(1, 9), r.randint(1, 20), r.randint(1, 7)
    a, b, bias = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B"), te.placeholder((n,), name="bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="C")
    d = te.compute((m, n), lambda i, j: te.if_then_else(c[i, j] + bias[j] > 0, c[i, j] + bias[j], 0.0), name="D")
    return te.create_prim_func([a, b, bias, d])


def convolution(r: random.Random) -> PrimFunc:
    channels, out, size, stride = r.randint(1, 3), r.randint(1, 9), r.randint(3, 6), r.randint(1, 2)
    x, w = te.placeholder((channels, size, size), name="X"), te.placeholder((out, channels, 3, 3), name="W")
    inside = lambda i: te.all(i >= 1, i < size + 1)  # noqa: E731
    pad = te.compute(
        (channels, size + 2, size + 2),
        lambda c, i, j: te.if_then_else(te.all(inside(i), inside(j)), x[c, i - 1, j - 1], 0.0), name="pad",
    )  # fmt: skip
    end = (size - 1) // stride + 1
    c, p, q = te.reduce_axis((0, channels), "c"), te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q")
    y = te.compute(
        (out, end, end),
        lambda o, i, j: te.sum(pad[c, i * stride + p, j * stride + q] * w[o, c, p, q], axis=[c, p, q]), name="Y",
    )  # fmt: skip
    z = te.compute((out, end, end), lambda o, i, j: y[o, i, j] + 1.0, name="Z")
    return te.create_prim_func([x, w, z])


def rows(r: random.Random) -> PrimFunc:
    m, n = r.randint(1, 6), r.randint(1, 19)
    x = te.placeholder((m, n), name="X")
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    top = te.compute((m,), lambda i: te.max(x[i, k], axis=k), name="top")
    power = te.compute((m, n), lambda i, j: te.exp(x[i, j] - top[i]), name="power")
    total = te.compute((m,), lambda i: te.sum(power[i, k2], axis=k2), name="total")
    y = te.compute((m, n), lambda i, j: power[i, j] / total[i], name="Y")
    return te.create_prim_func([x, y])


PROGRAMS: tuple[Callable[[random.Random], PrimFunc], ...] = (chain, matmul, convolution, rows)


def random_schedule(func: PrimFunc, r: random.Random, steps: int) -> PrimFunc:
    """The function after some random primitives; those that are refused change nothing."""
    s = Schedule(func)
    for _ in range(steps):
        try:
            _step(s, r)
        except (ScheduleError, InvalidValueError):
            continue
    return s.mod["main"]


def _step(s: Schedule, r: random.Random) -> None:
    blocks = s.get_child_blocks(s.get_block("root"))
    block = r.choice(blocks)
    loops = s.get_loops(block)
    what = r.choice([
        "split", "split", "split", "vectorize", "vectorize", "unroll", "parallel", "reorder", "fuse", "compute_at",
        "reverse_compute_at", "inline", "cache_write", "cache_read", "decompose",
    ])  # fmt: skip
    loop = r.choice(loops) if loops else None
    if what == "inline":
        s.compute_inline(block)
    elif what == "cache_write":
        s.cache_write(block, 0, r.choice(["local", "global"]))
    elif what == "cache_read":
        s.cache_read(block, 0, r.choice(["local", "global"]))
    elif loop is None:
        return
    elif what == "split":
        s.split(loop, [None, r.choice([2, 3, 4, 8])])
    elif what == "vectorize":
        s.vectorize(loops[-1])
    elif what == "unroll":
        s.unroll(loop)
    elif what == "parallel":
        s.parallel(loops[0])
    elif what == "reorder":
        some = r.sample(loops, r.randint(1, len(loops)))
        s.reorder(*some)
    elif what == "fuse" and len(loops) > 1:
        at = r.randrange(len(loops) - 1)
        s.fuse(loops[at], loops[at + 1])
    elif what == "decompose":
        s.decompose_reduction(block, loop)
    elif what in ("compute_at", "reverse_compute_at"):
        other = r.choice(blocks)
        targets = s.get_loops(other)
        if targets:
            getattr(s, what)(block, r.choice(targets))
