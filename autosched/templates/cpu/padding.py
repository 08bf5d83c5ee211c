"""What stands before an anchor: padding and element-wise producers."""

from __future__ import annotations

from autosched.templates.chain import Chain, require
from autosched.templates.classify import is_injective
from autosched.templates.cpu.task_order import rows_first
from autosched.tir.schedule import LoopRV, Schedule


def inline_before(sch: Schedule, chain: Chain) -> None:
    """Inline all producers into the anchor: what pads becomes a condition, which the code generator tests early."""
    for block in chain.before:
        require(is_injective(block), f"block '{block.name_hint}' before the anchor is not element-wise")
        sch.compute_inline(block.name_hint)


def schedule_before(sch: Schedule, chain: Chain, at: LoopRV | None = None) -> None:
    """Inline all producers into the last one, which becomes a copy into scratch, with a vectorised last axis.

    at  the loop of which each iteration copies what it needs; without it the whole is copied, in parallel, beforehand
    """
    name = inline_all_but_last(sch, chain)
    if not name:
        return
    if at is not None:
        sch.compute_at(name, at)
    loops = sch.get_loops(name)
    if at is None and len(loops) > 3:
        loops = rows_first(sch, loops)
        sch.parallel(sch.fuse(*loops[:-2]))
    elif at is None:
        sch.parallel(loops[0])
    sch.vectorize(loops[-1])


def inline_all_but_last(sch: Schedule, chain: Chain) -> str:
    """Inline all producers into the last one; its name, or "" where there is none."""
    for block in chain.before[:-1]:
        require(is_injective(block), f"block '{block.name_hint}' before the anchor is not element-wise")
        sch.compute_inline(block.name_hint)
    return chain.before[-1].name_hint if chain.before else ""
