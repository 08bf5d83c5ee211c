"""Reductions over short rows and what hangs on them, such as the softmax of a few classes: rows side by side.

for rows in parallel:
    for k: total[lanes] = combine(total[lanes], x[row : row + lanes, k])     # one row in each lane
    … further reductions and element-wise blocks of the same rows, column by column …
"""

from __future__ import annotations

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, is_reduction
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.templates.cpu.powers import bound_powers
from autosched.templates.row_blocks import Rows, inline_cheap, match_rows_of_one_result
from autosched.tir import PrimFunc, as_int
from autosched.tir.schedule import Schedule

MOST_LENGTH = 8  # longer rows fill vectors of their own
LEAST_WIDTH = 4
MANY_VECTORS = 16  # of rows, so that a last piece with fewer rows costs little


class ShortRows:
    """Softmax, LayerNorm and plain reductions over a last axis of few elements."""

    name = "short_rows"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = match_rows_of_one_result(in_two_reductions(func))
        if found is None or not 1 < found.sizes["length"] <= MOST_LENGTH:
            return None
        width = _width(found.details.innermost, target.lanes("float32"))
        return Anchor(found.block, found.op, {**found.sizes, "most": width}, found.details) if width else None

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        space = load_space(target.backend, self.name, anchor.sizes)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, {"width": anchor.sizes["most"]})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        func = bound_powers(in_two_reductions(func))
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        rows: Rows = anchor.details
        sch = Schedule(func)
        inline_cheap(sch, rows.blocks)
        blocks = blocks_of(sch.func)
        loops = sch.get_loops(blocks[-1].name_hint)
        *outer, row = loops[: rows.row_axes]
        task, _ = sch.split(row, [None, config["width"]])
        task = sch.fuse(*outer, task) if outer else task
        sch.parallel(task)
        for block in reversed(blocks[:-1]):
            sch.compute_at(block.name_hint, task)
        for block in blocks:
            own = list(sch.get_loops(block.name_hint))[1:]
            if as_int(sch.get(own[0]).extent) < 2:
                continue
            if len(own) > 1:
                sch.reorder(*own[1:], own[0])
            sch.vectorize(own[0])
            if is_reduction(block):
                sch.decompose_reduction(block.name_hint, own[1])
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _width(rows: int, lanes: int) -> int:
    """Rows side by side: two vectors of many rows, whose last ones are fewer, else a divisor that fills vectors best.

    0 where none is worth it.
    """
    if rows % lanes and rows >= MANY_VECTORS * lanes:
        return 2 * lanes
    fits = [n for n in range(LEAST_WIDTH, 2 * lanes + 1) if rows % n == 0]
    return max(fits, key=lambda n: (n / -(-n // lanes), -n), default=0)
