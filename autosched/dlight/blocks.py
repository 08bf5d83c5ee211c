"""What the rules look at: a function's blocks, which of them reduce, and simple ways to bind their loops."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from autosched.errors import ScheduleError
from autosched.tir import BlockRV, For, LoopRV, PrimFunc, Schedule
from autosched.tir.axis import REDUCE, SPATIAL
from autosched.tir.expr import const_int


@dataclass(frozen=True)
class BlockInfo:
    """A block: its name, reference, and the kinds of its iterators as letters, "SSR"."""

    name: str
    rv: BlockRV
    kinds: str

    @property
    def is_reduction(self) -> bool:
        """Whether it sums over something."""
        return "R" in self.kinds


def find_blocks(sch: Schedule) -> list[BlockInfo]:
    """The innermost blocks in program order."""
    found = []
    for rv in sch.get_child_blocks("root"):
        block = sch.get(rv)
        letters = {SPATIAL: "S", REDUCE: "R"}
        kinds = "".join(letters.get(iv.kind, "O") for iv in block.iter_vars)
        found.append(BlockInfo(block.name_hint, rv, kinds))
    return found


def try_schedule(func: PrimFunc) -> tuple[Schedule, list[BlockInfo]] | None:
    """A schedule and the blocks of a function; None where these are not plain: nested, opaque, or in symbolic loops."""
    sch = Schedule(func)
    blocks = find_blocks(sch)
    for info in blocks:
        if "O" in info.kinds or sch.get_child_blocks(info.rv):
            return None
        loops = sch.get_loops(info.rv)
        if len(loops) != len(info.kinds) or any(extent(sch, x) is None for x in loops):
            return None
    return (sch, blocks) if blocks else None


def extent(sch: Schedule, loop: LoopRV) -> int | None:
    """The number of iterations, None where it is not known."""
    node = sch.get(loop)
    return const_int(node.extent) if isinstance(node, For) else None


def inline_all(sch: Schedule, blocks: list[BlockInfo]) -> list[BlockInfo]:
    """Put every block that can be into its consumers; gives those that are left."""
    left = []
    for info in blocks:
        if info.is_reduction:
            left.append(info)
            continue
        try:
            sch.compute_inline(info.rv)
        except ScheduleError:
            left.append(info)
    return left


def ordered_loops(sch: Schedule, info: BlockInfo) -> tuple[list[LoopRV], list[LoopRV]]:
    """(spatial loops, reduction loops) of a block, put into that order."""
    loops = sch.get_loops(info.rv)
    spatial = [x for x, kind in zip(loops, info.kinds, strict=True) if kind == "S"]
    reduce = [x for x, kind in zip(loops, info.kinds, strict=True) if kind == "R"]
    if spatial and reduce:
        sch.reorder(*spatial, *reduce)
    return spatial, reduce


def fused(sch: Schedule, info: BlockInfo, loops: list[LoopRV]) -> LoopRV:
    """One loop of several; a loop of one iteration where there are none."""
    if not loops:
        return sch.add_unit_loop(sch.get_loops(info.rv)[0])
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def bind_spatial(sch: Schedule, info: BlockInfo, threads: int) -> None:
    """One GPU thread per element: the spatial loops fused and bound, reductions within the thread."""
    spatial, reduce = ordered_loops(sch, info)
    whole = fused(sch, info, spatial)
    block_x, thread_x = sch.split(whole, [None, threads])
    sch.bind(block_x, "blockIdx.x")
    sch.bind(thread_x, "threadIdx.x")
    if reduce:
        with contextlib.suppress(ScheduleError):
            sch.decompose_reduction(info.rv, reduce[0])
