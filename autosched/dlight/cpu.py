"""Rules for CPUs."""

from __future__ import annotations

from autosched.dlight.base import Answer, ScheduleRule
from autosched.dlight.blocks import BlockInfo, fused, inline_all, ordered_loops, try_schedule
from autosched.dlight.gpu import VECTOR, only_reduction, product_kind
from autosched.errors import ScheduleError
from autosched.target import Target
from autosched.tir import PrimFunc, Schedule


class _CPUReduction(ScheduleRule):
    """Results over threads; every sum stays in one."""

    def accepts(self, kind: str | None) -> bool:
        """Whether the rule is for this kind of product."""
        raise NotImplementedError

    def apply(self, func: PrimFunc, target: Target, tunable: bool) -> Answer:
        """The schedule, None for other targets and functions of another form."""
        found = try_schedule(func) if "cpu" in target.keys else None
        if found is None:
            return None
        sch, blocks = found
        main = only_reduction(blocks)
        if main is None or not self.accepts(product_kind(sch, main)):
            return None
        try:
            for info in inline_all(sch, blocks):
                _parallel(sch, info)
        except ScheduleError:
            return None
        return sch


def _parallel(sch: Schedule, info: BlockInfo) -> None:
    spatial, reduce = ordered_loops(sch, info)
    if spatial:
        sch.parallel(fused(sch, info, spatial))
    if reduce:
        sch.decompose_reduction(info.rv, reduce[0])


class GEMV(_CPUReduction):
    """A matrix times a vector."""

    def accepts(self, kind: str | None) -> bool:
        """A product with a vector."""
        return kind == VECTOR


class Reduction(_CPUReduction):
    """A sum, maximum … over some dimensions."""

    def accepts(self, kind: str | None) -> bool:
        """A reduction that is no product."""
        return kind is None
