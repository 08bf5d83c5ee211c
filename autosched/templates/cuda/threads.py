"""Loops given to blocks and threads, as several templates for GPUs do it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.templates.classify import blocks_of, is_injective
from autosched.tir import Block, PrimFunc, as_int
from autosched.tir.axis import REDUCE
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.schedule import BlockRV, LoopRV, Schedule

BLOCK_X, BLOCK_Y, BLOCK_Z = "blockIdx.x", "blockIdx.y", "blockIdx.z"
CLUSTER_X, CLUSTER_Y = "clusterCtaIdx.x", "clusterCtaIdx.y"
THREAD_X, THREAD_Y, THREAD_Z = "threadIdx.x", "threadIdx.y", "threadIdx.z"
VTHREAD_X, VTHREAD_Y = "vthread.x", "vthread.y"
MOST_GRID_YZ = 65535  # blocks along y and z
VECTOR_BYTES = 16  # the widest access of a thread


def inline_injective(sch: Schedule, func: PrimFunc) -> None:
    """Fold element-wise producers into their consumers, those of the outputs excepted."""
    outputs = {id(b) for b in func.buffers}
    kept = too_large_to_inline(blocks_of(func))
    for block in blocks_of(func):
        if is_injective(block) and id(block.writes[0].buffer) not in outputs and block not in kept:
            with contextlib.suppress(ScheduleError):  # it stays a nest of its own
                sch.compute_inline(block.name_hint)


def ordered_loops(sch: Schedule, block: Block) -> tuple[list[LoopRV], list[LoopRV]]:
    """(spatial loops, reduction loops) of a block whose loops are its axes, brought into that order."""
    loops = list(sch.get_loops(block.name_hint))
    kinds = [iv.kind for iv in block.iter_vars]
    outer = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != REDUCE]
    inner = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCE]
    if outer and inner:
        sch.reorder(*outer, *inner)
    return outer, inner


def fused(sch: Schedule, loops: Sequence[LoopRV], block: str) -> LoopRV:
    """One loop of several; a loop of one iteration around the block where there are none."""
    if not loops:
        around = sch.get_loops(block)
        return sch.add_unit_loop(around[0] if around else sch.get_block(block))
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def bind_tiles(sch: Schedule, m_tile: LoopRV, n_tile: LoopRV, group: int) -> None:
    """Give neighbouring tiles of rows and columns to blocks that run at one time, so that they share what they read.

    Blocks go through `group` tiles of rows, then through the next tile of columns; groups come one after the other.
    """
    if group == 1:
        sch.bind(m_tile, BLOCK_Y)
        sch.bind(n_tile, BLOCK_X)
        return
    sch.bind(_in_groups(sch, m_tile, n_tile, group), BLOCK_X)


def turn_tiles(
    sch: Schedule, m_tile: LoopRV, n_tile: LoopRV, group: int, blocks: int, batch: Sequence[LoopRV] = ()
) -> None:
    """Let so many blocks go through all tiles in the order of `bind_tiles`, each through every `blocks`-th one.

    batch   the loops around those over tiles
    """
    tiles = _in_groups(sch, m_tile, n_tile, group)
    turn, block = sch.split(sch.fuse(*batch, tiles) if batch else tiles, [None, blocks])
    sch.reorder(block, turn)
    sch.bind(block, BLOCK_X)


def _in_groups(sch: Schedule, m_tile: LoopRV, n_tile: LoopRV, group: int) -> LoopRV:
    """One loop over all tiles: through `group` tiles of rows, then the next tile of columns."""
    far, near = sch.split(m_tile, [None, group])
    sch.reorder(far, n_tile, near)
    return sch.fuse(far, n_tile, near)


def group_of_tiles(count: int) -> int:
    """How many tiles of rows neighbouring blocks take: 8 at most, and a part of all."""
    return next(group for group in (8, 4, 2, 1) if count % group == 0)


def bind_flat(sch: Schedule, loop: LoopRV, threads: int, vector: int = 1) -> LoopRV:
    """One loop over blocks of `threads` threads, each taking `vector` iterations in a row; the thread's loop."""
    if vector > 1:
        loop, lanes = sch.split(loop, [None, vector])
        sch.vectorize(lanes)
    block, thread = sch.split(loop, [None, min(threads, as_int(sch.get(loop).extent))])
    sch.bind(block, BLOCK_X)
    sch.bind(thread, THREAD_X)
    return thread


def power_of_two_below(count: int) -> int:
    """The largest power of two that is not above."""
    return 1 << (count.bit_length() - 1)


def power_of_two_above(count: int) -> int:
    """The smallest power of two that is not below."""
    return 1 << max(count - 1, 0).bit_length()


def dividing(wanted: int, extent: int, shared: int = 2) -> int:
    """How many of `extent` results a block computes: `wanted`, or the next fewer that divide them.

    Threads that share a result wait for each other, so that none of them may be left out by a condition; where a thread
    has its results alone (`shared` is 1) any number will do.
    """
    most = max(1, min(wanted, extent))
    if shared == 1:
        return most
    return next(n for n in range(most, 0, -1) if extent % n == 0)


def read_index(sch: Schedule, block: str, name: str) -> int:
    """The position of a buffer among those that a block reads."""
    return [r.buffer.name for r in sch.get(sch.get_block(block)).reads].index(name)


def copy_together(
    sch: Schedule, copy: BlockRV | str, axes: int, threads: tuple[int, int, int], vector: int = 1
) -> LoopRV:
    """Let all threads of a block (z, y, x) copy a tile of so many inner axes, neighbours reading neighbours.

    Gives the loop over what one thread copies.

    vector   elements side by side that a thread copies at once
    """
    loops = list(sch.get_loops(copy))[-axes:]
    flat = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    steps, *inner, lanes = sch.split(flat, [None, *threads, vector])
    for loop, axis in zip(inner, (THREAD_Z, THREAD_Y, THREAD_X), strict=True):
        sch.bind(loop, axis)
    if vector > 1:
        sch.vectorize(lanes)
    return steps
