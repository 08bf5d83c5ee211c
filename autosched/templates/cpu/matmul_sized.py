"""Products whose sizes come with the call: see `matmul`; a task is a tile of rows with a panel of columns.

What is read along the columns is copied into panels [.., N / width, K, width], the last one filled up with zeros. The
last tile of rows and the last panel are computed whole (`whole_tiles`), and what is too much is not stored.
"""

from __future__ import annotations

from autosched.target import Target
from autosched.templates.base import Applied
from autosched.templates.chain import chain_around, schedule_epilogue
from autosched.templates.classify import find_contraction, is_injective, reduced, spatial
from autosched.templates.cpu.matmul import schedule_update
from autosched.templates.cpu.register_tile import choose_tile
from autosched.templates.cpu.sized import sized
from autosched.templates.cpu.whole_tiles import compute_whole
from autosched.templates.product import Operands, find_operands
from autosched.tir import PrimFunc
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.schedule import BlockRV, Schedule

USUAL = 128  # rows, columns and steps that tiles are chosen for where they are not known
MOST_ROWS = 8  # of a tile: those of the last one that are no rows are computed too


def schedule_product(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a product over symbols; None for another function. Raises ScheduleError."""
    c = find_contraction(func)
    if c is None or c.block.writes[0].buffer.dtype != "float32" or not (operands := find_operands(func, c)):
        return None
    if {operands.rows.buffer.dtype, operands.columns.buffer.dtype} != {"float32"}:
        return None
    chain = chain_around(func, c.block)
    if chain is None or not all(map(is_injective, chain.before)):
        return None
    sch = Schedule(func)
    for block in chain.before:
        sch.compute_inline(block.name_hint)
    m, n = (const_int(iv.dom.extent) or USUAL for iv in spatial(c.block)[-2:])
    lanes = target.lanes("float32")
    most = min(m, MOST_ROWS)
    tile = choose_tile(most, -(-n // lanes), USUAL, target, rows=most)
    name, width = c.block.name_hint, tile.vectors * lanes
    copy = _copy_panels(sch, name, operands, width)
    out = schedule_epilogue(sch, chain)
    *outer, row, column = sch.get_loops(out)
    rows, row = sch.split(row, [None, tile.rows])
    panel, lane = sch.split(column, [None, width])
    sch.reorder(*outer, panel, rows, row, lane)
    for loop in (*outer, panel, rows):
        sch.parallel(loop)
    sch.unroll(row)
    sch.vectorize(lane)
    sch.compute_at(name, rows, True)
    schedule_update(sch, name, 1)
    _schedule_copy(sch, copy, operands, lanes)
    whole = (sch.get(rows).loop_var, sch.get(panel).loop_var)
    scheduled = compute_whole(sch.func, {f"{name}{part}": whole for part in ("", "_init", "_update")})
    return sized(func, scheduled, sch.trace.to_json_text())


def _copy_panels(sch: Schedule, name: str, operands: Operands, width: int) -> BlockRV:
    """A copy of what is read along the columns: panels of `width` of them."""
    block = sch.get(sch.get_block(name))
    indices, axes = operands.columns.indices, (spatial(block)[-1].var, reduced(block)[0].var)
    column, inner = (next(i for i, x in enumerate(indices) if x is v) for v in axes)
    rest = [i for i in range(len(indices)) if i not in (column, inner)]
    copy = sch.cache_read(name, operands.columns.buffer.name, "global")

    def panels(*i: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*(i[r] for r in rest), i[column] // width, i[inner], i[column] % width)

    sch.transform_layout(copy, ("write", 0), panels, pad_value=0.0)
    return copy


def _schedule_copy(sch: Schedule, copy: BlockRV, operands: Operands, lanes: int) -> None:
    """Write a panel's rows as vectors; where k is contiguous, in squares that are turned in registers."""
    *outer, inner, column = sch.get_loops(copy)  # a single panel has no loop
    for loop in outer:
        sch.parallel(loop)
    column_tile, column_in = sch.split(column, [None, lanes])
    if operands.n_contiguous:
        sch.vectorize(column_in)
        return
    inner_tile, inner_in = sch.split(inner, [None, lanes])
    sch.reorder(*outer, column_tile, inner_tile, column_in, inner_in)
    sch.unroll(column_in)
    sch.vectorize(inner_in)
