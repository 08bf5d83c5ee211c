"""Reductions: their start, partial results, padding, epilogues. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.tir.schedule import epilogue, reduction
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.padding import decompose_padding, pad_einsum
from autosched.tir.schedule.rv import BlockRV, LoopRV


class Reductions(ScheduleBase):
    """See `Schedule`."""

    def decompose_reduction(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Initialise in front of `loop`; the block is renamed `X_update`, the new `X_init` is returned."""
        block = self._rv_of(block)
        (fn, name), (loop_fn, var) = self._block(block), self._loop(loop)
        self._same_function(fn, loop_fn)
        tree, init, update = reduction.decompose_reduction(self._tree(fn), name, var)
        self._trees[fn] = tree
        self._rename(fn, name, update)
        rv = self._new_block(fn, init)
        self._record("DecomposeReduction", (block, loop), {}, (rv,))
        return rv

    def rfactor(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """Partial results per iteration of `loop` (block `X_rf`, returned), then their combination (block `X`)."""
        return self._factor("RFactor", loop, factor_axis)

    def rfactor_inside(self, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
        """As `rfactor`, but the combination stays under the loops around that are not reduced: each of their
        iterations is finished before the next begins. TVM has no such primitive."""
        return self._factor("RFactorInside", loop, factor_axis)

    def _factor(self, kind: str, loop: LoopRV, factor_axis: int) -> BlockRV:
        fn, var = self._loop(loop)
        tree, partial, _ = reduction.rfactor(self._tree(fn), var, factor_axis, behind_all=kind == "RFactor")
        self._trees[fn] = tree
        rv = self._new_block(fn, partial)
        self._record(kind, (loop,), {"factor_axis": factor_axis}, (rv,))
        return rv

    def fuse_reduction_epilogue(self, reduction_block: BlockRV | str, epilogue_block: BlockRV | str) -> None:
        """Start a sum from what an element-wise block adds to it, and take that block away."""
        first, second = self._rv_of(reduction_block), self._rv_of(epilogue_block)
        (fn, name), (other, tail) = self._block(first), self._block(second)
        self._same_function(fn, other)
        self._trees[fn] = epilogue.fuse_reduction_epilogue(self._tree(fn), name, tail)
        self._record("FuseReductionEpilogue", (first, second))

    def pad_einsum(self, block: BlockRV | str, padding: Sequence[int]) -> None:
        """Let each variable of a sum of products run to a multiple of a number; what is added is zero."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        numbers = [self._int(p) for p in padding]
        self._trees[fn] = pad_einsum(self._tree(fn), name, numbers)
        self._record("PadEinsum", (block,), {"padding": numbers})

    def decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> BlockRV:
        """Fill with the padding value in front of `loop`, then copy the part inside; returns the filling block."""
        block = self._rv_of(block)
        (fn, name), (loop_fn, var) = self._block(block), self._loop(loop)
        self._same_function(fn, loop_fn)
        self._trees[fn], fill = decompose_padding(self._tree(fn), name, var)
        rv = self._new_block(fn, fill)
        self._record("DecomposePadding", (block, loop), {}, (rv,))
        return rv

    def can_decompose_padding(self, block: BlockRV | str, loop: LoopRV) -> bool:
        """Whether `decompose_padding` would do it."""
        (fn, name), (_, var) = self._block(block), self._loop(loop)
        try:
            decompose_padding(self._tree(fn), name, var)
        except ScheduleError:
            return False
        return True
