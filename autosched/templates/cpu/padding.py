"""What stands before an anchor: padding and element-wise producers become one copy into scratch."""

from __future__ import annotations

from autosched.templates.classify import is_injective
from autosched.templates.cpu.parts import Chain, require
from autosched.tir.schedule import Schedule


def schedule_before(sch: Schedule, chain: Chain) -> None:
    """Inline all producers into the last one, which gets a parallel nest of its own with a vectorised last axis."""
    for block in chain.before[:-1]:
        require(is_injective(block), f"block '{block.name_hint}' before the anchor is not element-wise")
        sch.compute_inline(block.name_hint)
    if not chain.before:
        return
    loops = sch.get_loops(chain.before[-1].name_hint)
    if len(loops) > 3:
        sch.parallel(sch.fuse(*loops[:-2]))
    else:
        sch.parallel(loops[0])
    sch.vectorize(loops[-1])
