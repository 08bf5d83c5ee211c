"""Reductions along an axis that is not the innermost one, and what hangs on them, such as a softmax over channels.

    for (outer axes, tiles of the innermost one) in parallel:
        total[lanes] = start; for k: total = combine(total, x[…, k, …, tile : tile + lanes])     # in registers
        … further reductions and element-wise blocks of the same columns …

All blocks run for the columns of a tile while these are in the cache. Few long columns that are only reduced are cut
into pieces for the threads, whose results are combined in the end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, contraction, extents, is_injective, is_reduction, reduced, spatial
from autosched.templates.cpu.arguments import in_two_reductions
from autosched.templates.cpu.powers import bound_powers
from autosched.templates.cpu.rows import MOST_PIECES, PIECE_ELEMENTS
from autosched.templates.row_blocks import inline_cheap
from autosched.tir import REDUCE, Block, BufferStore, PrimFunc, Var, as_int
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import free_vars, loads
from autosched.tir.schedule import LoopRV, Schedule

MOST_VECTORS = 8  # of a tile
MOST_UNROLLED = 8  # steps of the last of several axes that are reduced: the mean of 7x7 pixels in blocks of channels


@dataclass(frozen=True)
class Columns:
    """The blocks in order, and how many axes of extent one stand behind that along which columns lie side by side."""

    blocks: tuple[Block, ...]
    behind: int


class ColumnReduction:
    """Softmax, normalisations and plain reductions over an axis beside the innermost one."""

    name = "columns"
    fuses_tasks = True  # see `RowReduction.fuses_rows`
    cuts_columns = True  # into pieces for the threads, which takes lengths that are known

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        blocks = blocks_of(in_two_reductions(func))
        reductions = [b for b in blocks if is_reduction(b)]
        results = {id(b) for b in func.buffers}
        if not reductions or any(id(b.writes[0].buffer) in results for b in blocks[:-1]):
            return None
        if not all(is_injective(b) or is_reduction(b) and isinstance(b.body, BufferStore) for b in blocks):
            return None
        behind = _units_behind(reductions[0])
        if not all(_reduces_columns(b, behind) for b in reductions):
            return None
        inner = _columns(reductions[0], behind)
        if inner is None or any(_columns(b, behind) != inner for b in blocks):
            return None
        length = math.prod(extents(reduced(reductions[0])))
        count = math.prod(extents(spatial(reductions[0])))
        kept = sum(math.prod(extents(spatial(b))) > count for b in blocks[:-1])
        sizes = {"columns": count, "length": length, "inner": inner, "kept": kept}
        return Anchor(reductions[0].name_hint, "columns", sizes, Columns(blocks, behind))

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32")}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        lanes, inner = target.lanes("float32"), anchor.sizes["inner"]
        width = lanes
        while width < MOST_VECTORS * lanes and width < inner:
            width *= 2
        return Config(self.name, {"width": width})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        func = bound_powers(in_two_reductions(func))
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        columns: Columns = anchor.details
        sch = Schedule(func)
        inline_cheap(sch, columns.blocks)
        blocks, width = blocks_of(sch.func), config["width"]
        pieces = _pieces(anchor.sizes, blocks, width) if self.cuts_columns else 1
        if pieces > 1:
            partial = _cut(sch, blocks[0], pieces)
            _schedule(sch, [partial], columns.behind, width, self.fuses_tasks)
            blocks = tuple(sch.get(sch.get_block(b.name_hint)) for b in blocks)
        _schedule(sch, blocks, columns.behind, width, self.fuses_tasks)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _pieces(sizes: Mapping[str, int], blocks: Sequence[Block], width: int) -> int:
    """Pieces that columns are cut into: 1 but for few long ones, of which one reduction alone goes along all."""
    count = sizes["columns"]
    if not is_reduction(blocks[0]) or any(
        is_reduction(b) or math.prod(extents(b.iter_vars)) != count for b in blocks[1:]
    ):
        return 1
    side_by_side = min(width, sizes["inner"])
    tiles = count // sizes["inner"] * -(-sizes["inner"] // width)
    most = extents(reduced(blocks[0]))[0]
    return min(sizes["length"] * side_by_side // PIECE_ELEMENTS, MOST_PIECES // tiles, most)


def _cut(sch: Schedule, block: Block, pieces: int) -> Block:
    """The block of the results of pieces of a reduction's first axis, which the reduction then combines.

    The loops of both are in the order of their axes: the piece stands first.
    """
    n_spatial = len(spatial(block))
    loops = sch.get_loops(block.name_hint)
    piece, inner = sch.split(loops[n_spatial], [pieces, None])
    sch.reorder(piece, *loops[:n_spatial], inner, *loops[n_spatial + 1 :])
    found: Block = sch.get(sch.rfactor(piece, 0))
    *others, piece = sch.get_loops(block.name_hint)
    sch.reorder(piece, *others)
    return found


def _units_behind(block: Block) -> int:
    """How many of a block's last axes have extent one."""
    count = 0
    for extent in reversed(extents(spatial(block))):
        if extent != 1:
            break
        count += 1
    return count


def _columns(block: Block, behind: int) -> int | None:
    """The extent of the axis along which columns lie; None where there is none, or others stand behind it."""
    sizes = extents(spatial(block))
    if len(sizes) <= behind or any(n != 1 for n in sizes[len(sizes) - behind :]):
        return None
    return sizes[-1 - behind]


def _reduces_columns(block: Block, behind: int) -> bool:
    """Whether all that is read lies along the columns or is the same for all, and no axis is computed with."""
    assert isinstance(block.body, BufferStore)
    axes = [iv.var for iv in spatial(block)]
    if len(axes) <= behind:
        return False
    product = contraction(block)
    if product is not None and product.a.buffer is not product.b.buffer:
        return False
    column = axes[-1 - behind]
    over: set[PrimExpr] = {iv.var for iv in reduced(block)}
    reads = [x for x in loads(block.body.value) if x.buffer is not block.body.buffer]
    if any(not isinstance(i, Var) and const_int(i) is None for x in reads for i in x.indices):
        return False
    along = [x for x in reads if any(column in free_vars(i) for i in x.indices)]
    for x in along:
        at, *rest = x.indices[-1 - behind :]
        if at is not column or over & set(rest):
            return False
    return any(over & set(x.indices) for x in along) and len(along) == len(reads)


def _schedule(sch: Schedule, blocks: Sequence[Block], behind: int, width: int, fuses: bool) -> None:
    """All blocks tile by tile of columns."""
    last = blocks[-1]
    if is_reduction(last):
        copy = sch.get(sch.cache_write(last.name_hint, 0, "local")).name_hint
        inner: set[int] = set()
    else:
        copy, inner = last.name_hint, _axes_along(last, blocks)
    loops = list(sch.get_loops(copy))
    column = loops.pop(-1 - behind)
    along = [loop for n, loop in enumerate(loops) if n in inner]
    outer = [loop for n, loop in enumerate(loops) if n not in inner]
    if as_int(sch.get(column).extent) > width:
        tile, column = sch.split(column, [None, width])
        outer.append(tile)
    sch.reorder(*outer, *along, column)
    if not fuses:
        for loop in outer[:-1]:
            sch.parallel(loop)
        outer = outer[-1:]
    if outer:
        task = sch.fuse(*outer) if len(outer) > 1 else outer[0]
        sch.parallel(task)
    sch.vectorize(column)
    computed = blocks if is_reduction(last) else blocks[:-1]
    for block in reversed(computed):
        if outer:
            sch.compute_at(block.name_hint, task, True)
    for block in computed:
        own = zip(sch.get_loops(block.name_hint)[-len(block.iter_vars) :], block.iter_vars, strict=True)
        steps, places = list[LoopRV](), list[LoopRV]()
        for loop, iv in own:
            (steps if iv.kind == REDUCE else places).append(loop)
        column = places.pop(-1 - behind)
        sch.reorder(*places, *steps, column)
        sch.vectorize(column)
        if len(steps) > 1 and as_int(sch.get(steps[-1]).extent) <= MOST_UNROLLED:
            sch.unroll(steps[-1])
        if steps:
            sch.set_scope(block.name_hint, 0, "local")
            sch.decompose_reduction(block.name_hint, steps[0])


def _axes_along(last: Block, blocks: Sequence[Block]) -> set[int]:
    """The axes of the last block along which it goes through whole columns: not all it reads of the others has them."""
    assert isinstance(last.body, BufferStore)
    made = {b.writes[0].buffer for b in blocks[:-1]}
    reads = [{v for i in x.indices for v in free_vars(i)} for x in loads(last.body.value) if x.buffer in made]
    shared = set.intersection(*reads) if reads else set()
    return {n for n, iv in enumerate(last.iter_vars) if iv.var not in shared and const_int(iv.dom.extent) != 1}
