"""Blocks that move: under loops, into one another. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Callable

from autosched.tir.buffer import Buffer
from autosched.tir.schedule import cache, compute_at, inline, rolling
from autosched.tir.schedule.base import INLINE, ScheduleBase
from autosched.tir.schedule.rv import BlockRV, LoopRV
from autosched.tir.schedule.tree import Tree

Which = int | str | Buffer


class Moves(ScheduleBase):
    """See `Schedule`."""

    def compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a producer under a loop of its consumers; it computes what they read there.

        index  place in the loop's body; -1 the last possible, -2 the first
        """
        self._move("ComputeAt", compute_at.compute_at, block, loop, preserve_unit_loops, index)

    def reverse_compute_at(
        self, block: BlockRV | str, loop: LoopRV, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Move a consumer under a loop of its producers; it works on what they have just written."""
        self._move("ReverseComputeAt", compute_at.reverse_compute_at, block, loop, preserve_unit_loops, index)

    def _move(
        self,
        kind: str,
        primitive: Callable[..., Tree],
        block: BlockRV | str,
        loop: LoopRV,
        unit_loops: bool,
        index: int,
    ) -> None:
        block = self._rv_of(block)
        fn, name = self._block(block)
        if loop in self._places:  # a sampled place that is no loop
            if self._places[loop] == INLINE:
                self._trees[fn] = inline.compute_inline(self._tree(fn), name)
        else:
            loop_fn, var = self._loop(loop)
            self._same_function(fn, loop_fn)
            self._trees[fn] = primitive(self._tree(fn), name, var, unit_loops, index)
        self._record(kind, (block, loop), {"preserve_unit_loops": unit_loops, "index": index})

    def compute_inline(self, block: BlockRV | str) -> None:
        """Put what a block computes into its consumers."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn] = inline.compute_inline(self._tree(fn), name)
        self._record("ComputeInline", (block,))

    def reverse_compute_inline(self, block: BlockRV | str) -> None:
        """Put an element-wise block into its only producer."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn] = inline.reverse_compute_inline(self._tree(fn), name)
        self._record("ReverseComputeInline", (block,))

    def rolling_buffer(self, block: BlockRV | str, write_buffer_index: Which) -> None:
        """Keep what a producer computed in the iteration before, in a ring, and compute only what is new."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        position = cache.position_of(tree, name, write_buffer_index, written=True, action="rolling_buffer")
        found = cache.buffer_at(tree, name, position, written=True, action="rolling_buffer")
        self._trees[fn] = rolling.rolling_buffer(tree, name, found)
        self._record("RollingBuffer", (block,), {"write_buffer_index": position})
