"""Values drawn at random: tile sizes, choices, places. Part of `Schedule`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.tir.schedule import compute_at, inline, sampling
from autosched.tir.schedule.base import INLINE, ROOT, ScheduleBase
from autosched.tir.schedule.rv import BlockRV, ExprRV, LoopRV


class Sampling(ScheduleBase):
    """See `Schedule`."""

    def sample_perfect_tile(
        self, loop: LoopRV, n: int, max_innermost_factor: int = 16, decision: Sequence[int] | None = None
    ) -> list[ExprRV]:
        """n factors whose product is the loop's extent, drawn evenly (or those decided)."""
        fn, var = self._loop(loop)
        extent = sampling.constant_extent(self._tree(fn).loops[var])
        factors = sampling.perfect_tile(self._random, extent, n, max_innermost_factor, decision)
        rvs = [self._new_value(f) for f in factors]
        attrs = {"n": n, "max_innermost_factor": max_innermost_factor}
        self._record("SamplePerfectTile", (loop,), attrs, rvs, decision=factors)
        return rvs

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

    def sample_categorical(
        self, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
    ) -> ExprRV:
        """One of the candidates with the given probabilities; the decision is its position."""
        index = sampling.categorical(self._random, candidates, probs, decision)
        rv = self._new_value(candidates[index])
        attrs = {"candidates": list(candidates), "probs": list(probs)}
        self._record("SampleCategorical", (), attrs, (rv,), decision=index)
        return rv

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
