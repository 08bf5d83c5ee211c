"""Random programs with random legal schedules for a GPU, for property tests."""

from __future__ import annotations

import contextlib
import random

from autosched.errors import InvalidValueError, ScheduleError
from autosched.tir import REDUCE, PrimFunc, as_int
from autosched.tir.schedule import Schedule

REFUSED = (ScheduleError, InvalidValueError)


def random_gpu_schedule(func: PrimFunc, r: random.Random) -> PrimFunc:
    """The function with all its nests bound: tiles, copies through shared memory, register tiles, shared reductions."""
    s = Schedule(func)
    names = [s.get(b).name_hint for b in s.get_child_blocks("root")]
    for name in names[:-1]:
        if r.random() < 0.3:
            with contextlib.suppress(*REFUSED):
                s.compute_inline(name)
    done: set[str] = set()
    for name in reversed([s.get(b).name_hint for b in s.get_child_blocks("root")]):
        if name not in done:
            _bind(s, name, r, done)
    return s.func


def _bind(s: Schedule, name: str, r: random.Random, done: set[str]) -> None:
    """Give the nest of a block to threads, and perhaps move its producers into it."""
    done.add(name)
    block, loops = s.get(s.get_block(name)), list(s.get_loops(name))
    kinds = [iv.kind for iv in block.iter_vars]
    spatial = [x for x, kind in zip(loops, kinds, strict=True) if kind != REDUCE]
    reduced = [x for x, kind in zip(loops, kinds, strict=True) if kind == REDUCE]
    with contextlib.suppress(*REFUSED):
        s.reorder(*spatial, *reduced)
    if not spatial:
        spatial = [s.add_unit_loop(loops[0])]
    flat = s.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    threads, own = r.choice([1, 3, 8, 32, 40]), r.choice([1, 1, 2, 3, 4])
    pieces = s.split(flat, [None, threads, own])
    if r.random() < 0.5:  # a thread's elements lie apart
        far = s.split(s.fuse(*pieces), [None, own, threads])
        grid, thread, inner = far[0], far[2], far[1]
        s.reorder(grid, thread, inner)
    else:
        grid, thread, inner = pieces
    shared_by = 1
    if reduced and r.random() < 0.4:
        shared_by = r.choice([2, 5, 8, 32])
        along = s.fuse(*reduced) if len(reduced) > 1 else reduced[0]
        _, lane = s.split(along, [None, shared_by])
        s.bind(lane, "threadIdx.x")
        s.bind(thread, "threadIdx.y")
    else:
        s.bind(thread, "threadIdx.x")
    s.bind(grid, "blockIdx.x")
    if not reduced:
        with contextlib.suppress(*REFUSED):
            (s.vectorize if r.random() < 0.5 else s.unroll)(inner)
    for producer in [s.get(p).name_hint for p in s.get_producers(name)]:
        _move(s, producer, r.choice([grid, thread]), grid, threads, r, done)
    if r.random() < 0.5 and shared_by == 1 and len(s.get(s.get_block(name)).reads):
        _copy(s, name, grid, threads, r)


def _move(s: Schedule, producer: str, to, grid, threads: int, r: random.Random, done: set[str]) -> None:  # type: ignore[no-untyped-def]
    scope = r.choice(["shared", "local", "global", "shared"])
    with contextlib.suppress(*REFUSED):
        s.set_scope(producer, 0, scope)  # first: what threads share is computed for all of them
    try:
        s.compute_at(producer, to)
    except REFUSED:
        with contextlib.suppress(*REFUSED):
            s.set_scope(producer, 0, "global")
        return
    done.add(producer)
    inside = s.get_loops(producer)
    at = next(i for i, x in enumerate(inside) if s.get(x).loop_var is s.get(to).loop_var)
    block = s.get(s.get_block(producer))
    below = inside[at + 1 :]
    n_spatial = sum(iv.kind != REDUCE for iv in block.iter_vars)
    if to is grid and scope != "local" and below and len(below) <= len(block.iter_vars) and n_spatial:
        with contextlib.suppress(*REFUSED):
            _, x = s.split(below[0], [None, threads])
            s.bind(x, "threadIdx.x")


def _copy(s: Schedule, name: str, grid, threads: int, r: random.Random) -> None:  # type: ignore[no-untyped-def]
    try:
        copy = s.cache_read(name, r.randrange(len(s.get(s.get_block(name)).reads)), "shared")
        s.compute_at(copy, grid)
    except REFUSED:
        return
    at = len(s.get_loops(name)) and 1
    loops = list(s.get_loops(copy))[at:]
    if not loops:
        return
    flat = s.fuse(*loops) if len(loops) > 1 else loops[0]
    if as_int(s.get(flat).extent) > 1:
        vector = r.choice([1, 2, 4])
        _, x, v = s.split(flat, [None, threads, vector])
        s.bind(x, "threadIdx.x")
        with contextlib.suppress(*REFUSED):
            s.vectorize(v)
