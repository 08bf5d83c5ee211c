"""Loops: dividing, joining, order, kinds, threads. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidTypeError
from autosched.tir.schedule import loops, partition
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.rv import BlockRV, ExprRV, LoopRV
from autosched.tir.stmt import LoopKind

Factor = int | ExprRV | None


class Loops(ScheduleBase):
    """See `Schedule`."""

    def split(
        self,
        loop: LoopRV,
        factors: Sequence[Factor],
        preserve_unit_iters: bool = True,
        disable_predication: bool = False,
    ) -> list[LoopRV]:
        """Divide a loop into one per factor; one may be None. A surplus is kept out by the blocks' predicates.

           for i in range(7): s(i)   with [None, 4]
        -> for i_0 in range(2):
               for i_1 in range(4):
                   if i_0 * 4 + i_1 < 7: s(i_0 * 4 + i_1)
        """
        fn, var = self._loop(loop)
        if isinstance(factors, str) or not isinstance(factors, Sequence):
            raise InvalidTypeError(f"split: factors is a {type(factors).__name__}, expected a list of integers or None")
        sizes = [None if f is None else self._int(f) for f in factors]
        tree, new = loops.split(self._tree(fn), var, sizes, preserve_unit_iters, not disable_predication)
        self._trees[fn] = tree
        rvs = [self._new_loop(fn, v) for v in new]
        attrs = {"preserve_unit_iters": preserve_unit_iters, "disable_predication": disable_predication}
        self._record("Split", (loop, *factors), attrs, rvs)
        return rvs

    def loop_partition(
        self, loop: LoopRV, factors: Sequence[int | ExprRV | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """Cut a loop into consecutive ones of these lengths; one may be None (what is left).

           for i in range(10): s(i)   with [2, None]
        -> for i_0 in range(2): s(i_0)
           for i_1 in range(8): s(2 + i_1)
        """
        fn, var = self._loop(loop)
        sizes = [None if f is None else self._int(f) for f in factors]
        self._trees[fn], made = partition.loop_partition(self._tree(fn), var, sizes)
        rvs = [self._new_loop(fn, v) for v in made]
        self._record("LoopPartition", (loop, *factors), {"preserve_unit_iters": preserve_unit_iters}, rvs)
        return rvs

    def fuse(self, *loop_rvs: LoopRV, preserve_unit_iters: bool = True) -> LoopRV:
        """One loop of several, outer to inner, each the only child of the one before; named `i_j_fused`."""
        found = [self._loop(x) for x in loop_rvs]
        fn = self._same_function(*(f for f, _ in found))
        tree, var = loops.fuse(self._tree(fn), [v for _, v in found], preserve_unit_iters)
        self._trees[fn] = tree
        rv = self._new_loop(fn, var)
        self._record("Fuse", loop_rvs, {"preserve_unit_iters": preserve_unit_iters}, (rv,))
        return rv

    def merge(self, *loop_rvs: LoopRV) -> LoopRV:
        """One loop of sibling loops of equal extents, running their bodies one behind the other."""
        found = [self._loop(x) for x in loop_rvs]
        fn = self._same_function(*(f for f, _ in found))
        self._trees[fn], var = partition.merge(self._tree(fn), [v for _, v in found])
        rv = self._new_loop(fn, var)
        self._record("Merge", loop_rvs, {}, (rv,))
        return rv

    def reorder(self, *ordered_loops: LoopRV) -> None:
        """Put loops of one chain into the given order."""
        found = [self._loop(x) for x in ordered_loops]
        fn = self._same_function(*(f for f, _ in found))
        self._trees[fn] = loops.reorder(self._tree(fn), [v for _, v in found])
        self._record("Reorder", ordered_loops)

    def reorder_block_iter_var(self, block: BlockRV | str, new_order: Sequence[int]) -> None:
        """Give a block's iteration variables another order."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn] = partition.reorder_block_iter_var(self._tree(fn), name, list(new_order))
        self._record("ReorderBlockIterVar", (block,), {"new_order": list(new_order)})

    def add_unit_loop(self, block_or_loop: BlockRV | LoopRV | str) -> LoopRV:
        """A loop of extent 1 around a block or loop."""
        place = self._rv_of(block_or_loop) if isinstance(block_or_loop, str) else block_or_loop
        fn, key = self._loop(place) if isinstance(place, LoopRV) else self._block(place)
        tree = self._tree(fn)
        tree, var = loops.add_unit_loop(tree, tree.realizes[key] if isinstance(key, str) else tree.loops[key])
        self._trees[fn] = tree
        rv = self._new_loop(fn, var)
        self._record("AddUnitLoop", (place,), {}, (rv,))
        return rv

    def parallel(self, loop: LoopRV) -> None:
        """Let threads share the iterations: data-parallel loops over complete or reduction blocks only."""
        self._set_kind("Parallel", loop, LoopKind.PARALLEL)

    def vectorize(self, loop: LoopRV) -> None:
        """Let vector lanes share the iterations; preconditions as `parallel`."""
        self._set_kind("Vectorize", loop, LoopKind.VECTORIZED)

    def unroll(self, loop: LoopRV) -> None:
        """Write the iterations out."""
        self._set_kind("Unroll", loop, LoopKind.UNROLLED)

    def _set_kind(self, name: str, loop: LoopRV, kind: LoopKind) -> None:
        fn, var = self._loop(loop)
        self._trees[fn] = loops.set_kind(self._tree(fn), var, kind)
        self._record(name, (loop,))

    def bind(self, loop: LoopRV, thread_axis: str) -> None:
        """Bind a loop to a GPU thread axis such as "blockIdx.x".

        A loop bound to "clusterCtaIdx.x" runs in blocks of one cluster; one bound to "blockIdx.x" then counts clusters.
        """
        fn, var = self._loop(loop)
        if not isinstance(thread_axis, str):
            raise InvalidTypeError(f"bind: thread_axis is a {type(thread_axis).__name__}, expected a string")
        self._trees[fn] = loops.bind(self._tree(fn), var, thread_axis)
        self._record("Bind", (loop,), {"thread_axis": thread_axis})
