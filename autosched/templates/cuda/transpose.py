"""Permutations and what is element-wise around them, through squares of shared memory.

    for square in blockIdx.x:
        square_shared[rows, columns] = x[…]               # threads of x along the input's last axis
        for rows in threadIdx.y, columns in threadIdx.x: out[…] = square_shared[columns, rows]

Both sides of the copy then read and write whole lines of memory. The square has one column more than it needs, so that
threads that read a column of it meet different banks.
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, extents, is_injective, spatial
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, THREAD_Y, fused, inline_injective, read_index
from autosched.tir import BufferLoad, BufferStore, PrimFunc, Var
from autosched.tir.functor import loads
from autosched.tir.schedule import Schedule

LEAST_SIDE = 8  # of a square: thinner ones are no better than reading across


@dataclass(frozen=True)
class Turn:
    """A load that reads along another axis than its block writes.

    buffer  what is read; `along` the output axis that is its last one; `rows` its axis that is the output's last one
    """

    buffer: str
    along: int
    rows: int


def find_turn(func: PrimFunc) -> Turn | None:
    """The one permuted load of a function of element-wise blocks; None where there is none, or several."""
    if not all(is_injective(b) for b in blocks_of(func)):
        return None
    sch = Schedule(func)
    inline_injective(sch, func)
    blocks = blocks_of(sch.func)
    if len(blocks) != 1 or not isinstance(blocks[0].body, BufferStore):
        return None
    axes = [iv.var for iv in blocks[0].iter_vars]
    found = {}
    for load in loads(blocks[0].body.value):
        turn = _turn(load, axes)
        if turn is not None:
            found[load.buffer] = turn
    arguments = {b for b in func.buffers}
    return next(iter(found.values())) if len(found) == 1 and set(found) <= arguments else None


def _turn(load: BufferLoad, axes: list[Var]) -> Turn | None:
    if len(load.indices) < 2 or not all(isinstance(i, Var) for i in load.indices):
        return None
    places = [next((n for n, v in enumerate(axes) if v is i), None) for i in load.indices]
    last = len(axes) - 1
    if places[-1] in (None, last) or last not in places:
        return None
    return Turn(load.buffer.name, int(places[-1] or 0), places.index(last))


class Transpose:
    """Copies whose input is contiguous along another axis than the output."""

    name = "transpose"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        turn = find_turn(func)
        if turn is None:
            return None
        shape = extents(spatial(blocks_of(func)[-1]))
        sizes = {"rows": shape[turn.along], "columns": shape[-1]}
        if min(sizes.values()) < LEAST_SIDE:
            return None
        return Anchor("", "elementwise", sizes, turn)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, {"side": target.gpu.warp_size, "at_once": 8})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        turn: Turn = anchor.details
        sch = Schedule(func)
        inline_injective(sch, func)
        name = blocks_of(sch.func)[0].name_hint
        copy = sch.cache_read(name, read_index(sch, name, turn.buffer), "shared")
        loops = list(sch.get_loops(name))
        row_tile, row_serial, row_thread = sch.split(
            loops[turn.along], [None, config["side"] // config["at_once"], config["at_once"]]
        )
        column_tile, column = sch.split(loops[-1], [None, config["side"]])
        outer = [loop for n, loop in enumerate(loops[:-1]) if n != turn.along]
        sch.reorder(*outer, row_tile, column_tile, row_serial, row_thread, column)
        square = fused(sch, [*outer, row_tile, column_tile], name)
        sch.bind(square, BLOCK_X)
        sch.bind(row_thread, THREAD_Y)
        sch.bind(column, THREAD_X)
        sch.compute_at(copy, square, True)
        inner = list(sch.get_loops(copy))[1:]
        thread = inner[-1]
        _, across = sch.split(inner[turn.rows], [None, config["at_once"]])
        sch.bind(across, THREAD_Y)
        sch.bind(thread, THREAD_X)
        sch.storage_align(copy, 0, turn.rows, 32, 1)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())
