"""Primitives that are used seldom: partitions, merging, sampled places; parts of `Schedule`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.tir.schedule import compute_at, inline, partition, sampling
from autosched.tir.schedule.base import ScheduleBase
from autosched.tir.schedule.rv import BlockRV, ExprRV, LoopRV

INLINE, ROOT = -2, -1  # places that are no loop: into the consumers; where the block stands


class ScheduleExtras(ScheduleBase):
    """See `Schedule`."""

    @property
    def state(self) -> ScheduleExtras:
        """The schedule itself, which holds its state."""
        return self

    def enter_postproc(self) -> None:
        """Note that what follows is no search any more: traces leave it out with `remove_postproc`."""
        self._record("EnterPostproc")

    def sample_partitioned_tile(
        self, loop: LoopRV, n: int, partition_pos: int = 0, innerpart_factor: int = 1,
        decision: Sequence[int] | None = None,
    ) -> list[ExprRV]:  # fmt: skip
        """n factors whose product is the extent, those from `partition_pos` on a multiple of `innerpart_factor`."""
        fn, var = self._loop(loop)
        extent = sampling.constant_extent(self._tree(fn).loops[var])
        factors = sampling.partitioned_tile(self._random, extent, n, partition_pos, innerpart_factor, decision)
        rvs = [self._new_value(f) for f in factors]
        attrs = {"n": n, "partition_pos": partition_pos, "innerpart_factor": innerpart_factor}
        self._record("SamplePartitionedTile", (loop,), attrs, rvs, decision=factors)
        return rvs

    def sample_compute_location(self, block: BlockRV | str, decision: int | None = None) -> LoopRV:
        """A loop that the block can be moved under, by its position among the consumer's; -1 where it is, -2 inline.

        `compute_at` takes the result, whatever it stands for.
        """
        block = self._rv_of(block)
        fn, name = self._block(block)
        tree = self._tree(fn)
        consumers = tree.consumers(name)
        loops = tree.loops_of(consumers[0]) if consumers else []
        if decision is None:
            places = [ROOT]
            for place in [INLINE, *range(len(loops))]:
                try:
                    if place == INLINE:
                        inline.compute_inline(tree, name)
                    else:
                        compute_at.compute_at(tree, name, loops[place].loop_var, False, -1)
                except ScheduleError:
                    continue
                places.append(place)
            decision = self._random.choice(places)
        if not INLINE <= decision < len(loops):
            raise ScheduleError(f"sample_compute_location: there is no loop {decision} around the consumer of '{name}'")
        if decision < 0:
            rv = LoopRV()
            self._places[rv] = decision
        else:
            rv = self._new_loop(fn, loops[decision].loop_var)
        self._record("SampleComputeLocation", (block,), {}, (rv,), decision=decision)
        return rv

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

    def merge(self, *loop_rvs: LoopRV) -> LoopRV:
        """One loop of sibling loops of equal extents, running their bodies one behind the other."""
        found = [self._loop(x) for x in loop_rvs]
        fn = self._same_function(*(f for f, _ in found))
        self._trees[fn], var = partition.merge(self._tree(fn), [v for _, v in found])
        rv = self._new_loop(fn, var)
        self._record("Merge", loop_rvs, {}, (rv,))
        return rv

    def reorder_block_iter_var(self, block: BlockRV | str, new_order: Sequence[int]) -> None:
        """Give a block's iteration variables another order."""
        block = self._rv_of(block)
        fn, name = self._block(block)
        self._trees[fn] = partition.reorder_block_iter_var(self._tree(fn), name, list(new_order))
        self._record("ReorderBlockIterVar", (block,), {"new_order": list(new_order)})
