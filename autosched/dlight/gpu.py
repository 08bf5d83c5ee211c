"""Rules for GPUs."""

from __future__ import annotations

from typing import ClassVar

from autosched.dlight.base import Answer, ApplyDefaultSchedule, ScheduleRule
from autosched.dlight.blocks import (
    BlockInfo,
    bind_spatial,
    extent,
    fused,
    inline_all,
    ordered_loops,
    try_schedule,
)  # fmt: skip
from autosched.errors import ScheduleError
from autosched.ir import preorder
from autosched.target import Target
from autosched.tir import BufferLoad, PrimFunc, Schedule
from autosched.tir.expr import Var

MATRIX, VECTOR, LOW_BATCH = "matrix", "vector", "low batch"
MAX_LOW_BATCH = 16


class GPUScheduleRule(ScheduleRule):
    """A rule that answers for GPU targets only; `threads` run in a block."""

    threads: ClassVar[int] = 256

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Answer:
        """The schedule, None for other targets and functions of another form."""
        found = try_schedule(func) if "gpu" in target.keys else None
        if found is None:
            return None
        sch, blocks = found
        try:
            return sch if self.schedule(sch, blocks) else None
        except ScheduleError:
            return None

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """Change the schedule; gives whether the rule fits."""
        raise NotImplementedError


def only_reduction(blocks: list[BlockInfo]) -> BlockInfo | None:
    """The one block that reduces, if there is exactly one."""
    found = [b for b in blocks if b.is_reduction]
    return found[0] if len(found) == 1 else None


def product_kind(sch: Schedule, info: BlockInfo) -> str | None:
    """What sort of matrix product a block is: of matrices, with a vector, of few rows; None for other reductions."""
    block = sch.get(info.rv)
    spatial = [iv.var for iv, kind in zip(block.iter_vars, info.kinds, strict=True) if kind == "S"]
    summed = [iv.var for iv, kind in zip(block.iter_vars, info.kinds, strict=True) if kind == "R"]
    written = {w.buffer for w in block.writes}
    loads = [x for x in preorder(block.body) if isinstance(x, BufferLoad) and x.buffer not in written]
    used = [{v for i in x.indices for v in preorder(i) if isinstance(v, Var)} for x in loads]
    if len(loads) != 2 or len(summed) != 1 or not all(summed[0] in u for u in used):
        return None
    sizes = {v: extent(sch, x) or 1 for v, x in zip((iv.var for iv in block.iter_vars), sch.get_loops(info.rv))}
    rows, columns = ([v for v in spatial if v in u and v not in w] for u, w in (used, used[::-1]))
    heights = sorted(_product([sizes[v] for v in side]) for side in (rows, columns))
    if heights[1] == 1:
        return None
    if heights[0] == 1:
        return VECTOR
    return LOW_BATCH if heights[0] <= MAX_LOW_BATCH else MATRIX


def _product(sizes: list[int]) -> int:
    total = 1
    for s in sizes:
        total *= s
    return total


class Fallback(GPUScheduleRule):
    """For all functions: one thread per element of every block that cannot be inlined."""

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """Bind every block."""
        for info in inline_all(sch, blocks):
            bind_spatial(sch, info, self.threads)
        return True


def default_schedule() -> ApplyDefaultSchedule:
    """The pass that TVM calls `tir.transform.DefaultGPUSchedule`."""
    return ApplyDefaultSchedule(Fallback())


class Matmul(GPUScheduleRule):
    """A product of two matrices, batched or not: tiles per block of threads, a few elements per thread."""

    kinds: ClassVar[tuple[str, ...]] = (MATRIX, LOW_BATCH)
    tile: ClassVar[tuple[int, int]] = (8, 16)  # threads
    per_thread: ClassVar[tuple[int, int]] = (4, 4)  # elements

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """Tile the product and compute it in the threads that finish it."""
        main = only_reduction(blocks)
        if main is None or product_kind(sch, main) not in self.kinds or main.kinds.count("S") < 2:
            return False
        before = blocks[: blocks.index(main)]
        if inline_all(sch, before):
            return False
        after = inline_all(sch, blocks[blocks.index(main) + 1 :])
        if len(after) > 1:
            return False
        self.tiled(sch, main, after[0] if after else _copy_out(sch, main))
        return True

    def tiled(self, sch: Schedule, main: BlockInfo, last: BlockInfo) -> None:
        """Tile the block that writes the result; each thread sums what it writes in its registers before."""
        *batch, i, j = ordered_loops(sch, last)[0]
        z = fused(sch, last, batch) if batch else None
        (ty, tx), (vi, vj) = self.tile, self.per_thread
        by, yi, y = sch.split(i, [None, ty, vi])
        bx, xi, x = sch.split(j, [None, tx, vj])
        sch.reorder(*([] if z is None else [z]), by, bx, yi, xi, y, x)
        for loop, axis in (
            (z, "blockIdx.z"),
            (by, "blockIdx.y"),
            (bx, "blockIdx.x"),
            (yi, "threadIdx.y"),
            (xi, "threadIdx.x"),
        ):
            if loop is not None:
                sch.bind(loop, axis)
        sch.compute_at(main.rv, xi, preserve_unit_loops=True)
        sch.set_scope(main.rv, 0, "local")
        inner = list(zip(sch.get_loops(main.rv)[-len(main.kinds) :], main.kinds, strict=True))
        reduce = [x for x, kind in inner if kind == "R"]
        sch.reorder(*reduce, *[x for x, kind in inner if kind == "S"])
        sch.decompose_reduction(main.rv, reduce[0])


def _copy_out(sch: Schedule, main: BlockInfo) -> BlockInfo:
    """A block that writes what a product leaves in registers: sums of halves are summed as float32 there."""
    copy = sch.cache_write(main.rv, 0, "local")
    return BlockInfo(sch.get(copy).name_hint, copy, "S" * len(sch.get(copy).iter_vars))


class _CrossThread(GPUScheduleRule):
    """One block of threads per result; the threads share the sum."""

    def accepts(self, sch: Schedule, main: BlockInfo) -> bool:
        """Whether the reduction is of the rule's kind."""
        raise NotImplementedError

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """Bind the reduction's loops to threads and everything else as Fallback does."""
        main = only_reduction(blocks)
        if main is None or not self.accepts(sch, main):
            return False
        for info in inline_all(sch, blocks):
            if info.rv is main.rv:
                self.bind_reduction(sch, info)
            else:
                bind_spatial(sch, info, self.threads)
        return True

    def bind_reduction(self, sch: Schedule, info: BlockInfo) -> None:
        """Results over blocks, the sum over threads."""
        spatial, reduce = ordered_loops(sch, info)
        if spatial:
            sch.bind(fused(sch, info, spatial), "blockIdx.x")
        whole = fused(sch, info, reduce)
        threads = min(self.threads, extent(sch, whole) or 1)
        outer, thread = sch.split(whole, [None, threads])
        sch.reorder(thread, outer)
        sch.bind(thread, "threadIdx.x")


class GEMV(_CrossThread):
    """A matrix times a vector."""

    def accepts(self, sch: Schedule, main: BlockInfo) -> bool:
        """A product with a vector."""
        return product_kind(sch, main) == VECTOR


class LowBatchGEMV(Matmul):
    """A matrix times a few vectors."""

    kinds = (LOW_BATCH,)
    tile = (1, 64)

    def __init__(self, bucket: int = 4):
        self.per_thread = (bucket, 1)  # type: ignore[misc]


class Reduction(_CrossThread):
    """A sum, maximum … over some dimensions."""

    def accepts(self, sch: Schedule, main: BlockInfo) -> bool:
        """A reduction that is no product of matrices."""
        return product_kind(sch, main) in (None, VECTOR)


class GeneralReduction(GPUScheduleRule):
    """Several reductions one behind the other, as in softmax and layer norm: each shared by the threads of a block."""

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """Bind every reduction's loops to threads."""
        left = inline_all(sch, blocks)
        if not any(b.is_reduction for b in left) or any(product_kind(sch, b) for b in left if b.is_reduction):
            return False
        reduction = Reduction()
        for info in left:
            if info.is_reduction:
                reduction.bind_reduction(sch, info)
            else:
                bind_spatial(sch, info, self.threads)
        return True


class RMSNorm(GeneralReduction):
    """Root-mean-square norm: one sum of squares, then an element-wise block."""

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """As a general reduction, where there is one square sum."""
        main = only_reduction(blocks)
        if main is None or product_kind(sch, main) or "rsqrt" not in _calls(sch, blocks):
            return False
        return super().schedule(sch, blocks)


def _calls(sch: Schedule, blocks: list[BlockInfo]) -> set[str]:
    names = set()
    for info in blocks:
        for node in preorder(sch.get(info.rv).body):
            names.add(str(getattr(node, "op", "")).removeprefix("tir."))
    return names


class Transpose(GPUScheduleRule):
    """A change of the order of dimensions: squares of threads."""

    tile: ClassVar[tuple[int, int]] = (8, 32)

    def schedule(self, sch: Schedule, blocks: list[BlockInfo]) -> bool:
        """Bind the last two dimensions to both thread axes, the rest to blocks."""
        left = inline_all(sch, blocks)
        if len(left) != 1 or left[0].is_reduction or len(left[0].kinds) < 2 or not _is_transpose(sch, left[0]):
            return False
        *outer, i, j = sch.get_loops(left[0].rv)
        by, ty = sch.split(i, [None, self.tile[0]])
        bx, tx = sch.split(j, [None, self.tile[1]])
        sch.reorder(*outer, by, bx, ty, tx)
        sch.bind(sch.fuse(*outer, by, bx), "blockIdx.x")
        sch.bind(ty, "threadIdx.y")
        sch.bind(tx, "threadIdx.x")
        return True


def _is_transpose(sch: Schedule, info: BlockInfo) -> bool:
    block = sch.get(info.rv)
    order = [iv.var for iv in block.iter_vars]
    for load in (x for x in preorder(block.body) if isinstance(x, BufferLoad)):
        places = [order.index(i) for i in load.indices if isinstance(i, Var) and i in order]
        if len(places) == len(load.indices) and sorted(places) != places:
            return True
    return False
