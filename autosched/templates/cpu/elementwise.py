"""Everything without an anchor: each remaining block is a loop nest of its own, one after the other.

Element-wise blocks fold into their consumers; those that would make them too large are stages of one nest. The
innermost axes that every access follows alike become one flat loop, divided into vectors; the axes around it are
divided over the threads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from autosched.codegen.cpu.prefetch import PREFETCH_L2
from autosched.codegen.cpu.types import Isa
from autosched.codegen.lower.partition import FULL_APART
from autosched.errors import ScheduleError
from autosched.ir.node import Node, children, preorder
from autosched.ir.structural import structural_equal
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import alike_axes, blocks_of, extents, is_injective, is_reduction, reduced, spatial
from autosched.templates.cpu.lone_reductions import reads_along, reduce_beside, sum_in_lanes, sums_rows
from autosched.templates.cpu.task_order import is_blocked_image, largest_divisor, rows_first
from autosched.tir import (
    Add,
    Block,
    Buffer,
    BufferLoad,
    BufferStore,
    FloorMod,
    IntImm,
    IterVar,
    LoopKind,
    Mul,
    PrimFunc,
    Var,
    as_int,
)
from autosched.tir import expr as E
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Max, Min
from autosched.tir.functor import free_vars, loads, stores
from autosched.tir.inlined_size import too_large_to_inline
from autosched.tir.schedule import LoopRV, Schedule
from autosched.tir.simplify import Analyzer

TASK_ELEMENTS = 8192  # elements in one piece of parallel work: some microseconds
LEAST_ELEMENTS = 1024  # smaller pieces cost more than they gain
STAGE_VECTORS = 4  # that go through stages together at least: one alone waits for loads whose places other loads say
LEAST_VECTORS = 8  # in a flat loop, from which on a ragged last one costs less than a ragged one for each row
PAIRS = (2, 4)  # elements of a last axis that vectors are wholes of
FAR_BYTES, NEAR = 2048, 0.5  # how far ahead lines are asked for; the share of the second level that is near enough
TURNS = (2, 3, 4)  # rows whose elements come to take turns in vectors
LEAST_LANES = 4  # worth vectors: of the last axis of a reduction, of a part of a blocked image, of what is repeated


class Elementwise:
    """Element-wise chains, layout changes, and whatever no other template takes."""

    name = "elementwise"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        blocks = blocks_of(func)
        last = blocks[-1]
        inner = math.prod(extents(spatial(last))[-alike_axes(last) :]) if spatial(last) else 1
        kind = "reduce" if any(is_reduction(b) for b in blocks) else "elementwise"
        return Anchor("", kind, {"inner": inner, "elements": math.prod(extents(spatial(last)))})

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes("float32")}
        space = load_space(target.backend, self.name, values)
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        lanes = target.lanes("float32")
        width = min(4 * lanes, max(lanes, 1 << (anchor.sizes["inner"] - 1).bit_length()))
        return Config(self.name, {"width": width})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        try:
            sch = _scheduled(func, config["width"], target, True)
        except ScheduleError:  # no proof that the flat loop reaches every element once
            sch = _scheduled(func, config["width"], target, False)
        return Applied(sch.func, (None,) * len(func.params), sch.trace.to_json_text())


def _scheduled(func: PrimFunc, width: int, target: Target, may_flatten: bool) -> Schedule:
    sch = Schedule(func)
    inline_all(sch, func)
    blocks = blocks_of(sch.func)
    if _are_stages(blocks, func):
        _schedule_stages(sch, blocks, max(width, STAGE_VECTORS * target.lanes("float32")))
        return sch
    for block in blocks:
        schedule_nest(sch, block, width, target.lanes("float32"), may_flatten)
        if Isa.of(target).fetches_into_l2:
            _ask_ahead(sch, block, int(NEAR * target.cache.l2_bytes))
    return sch


def _ask_ahead(sch: Schedule, block: Block, near: int) -> None:
    """Ask for what comes from far, of arrays of more than `near` bytes together that are read as the result is written.

    256 x 56 x 56 sums of two take .70 of the time, 1024 x 14 x 14 .89, 128 x 768 .95 (Zen 4).
    """
    store = block.body
    if not isinstance(store, BufferStore) or not is_injective(block):
        return
    loops = sch.get_loops(block.name_hint)[-2:]
    if [sch.get(loop).kind for loop in loops] != [LoopKind.SERIAL, LoopKind.VECTORIZED]:
        return
    alike = {x.buffer for x in loads(store.value) if structural_equal(x.indices, store.indices)}
    shape = store.buffer.const_shape()
    sizes = {b.name: item_bytes(b.dtype) for b in sch.func.buffers if b in alike and b.const_shape() == shape}
    if math.prod(shape) * sum(sizes.values()) > near:
        width = as_int(sch.get(loops[1]).extent)
        sch.annotate(loops[0], PREFETCH_L2, {name: -(-FAR_BYTES // (width * size)) for name, size in sizes.items()})


def _are_stages(blocks: Sequence[Block], func: PrimFunc) -> bool:
    """Whether each block but the last computes what the next one alone reads, each element at its own place.

    A block that leaves its buffer is none: it stays as it is, for the code generator to refuse.
    """
    if len(blocks) < 2 or not all(is_injective(b) and spatial(b) for b in blocks):
        return False
    shapes = [[E.const_int(d) for d in b.writes[0].buffer.shape] for b in blocks]
    if shapes != [[E.const_int(iv.dom.extent) for iv in b.iter_vars] for b in blocks] or None in chain(*shapes):
        return False
    writers = {b.writes[0].buffer: n for n, b in enumerate(blocks[:-1])}
    if len(writers) < len(blocks) - 1 or any(b in writers for b in func.buffers):
        return False
    return all(
        writers[load.buffer] == n - 1 and load.indices == tuple(iv.var for iv in block.iter_vars)
        for n, block in enumerate(blocks)
        for load in preorder(block.body)
        if isinstance(load, BufferLoad) and load.buffer in writers
    )


def _schedule_stages(sch: Schedule, blocks: Sequence[Block], width: int) -> None:
    """All blocks for some vectors, then for the next ones: what lies between blocks stays in registers.

    width  elements in a tile of them: a part of a row, or several rows where they are shorter
    """
    *names, last = [b.name_hint for b in blocks]
    loops = list(sch.get_loops(last))
    while len(loops) > 1 and as_int(sch.get(loops[-1]).extent) == 1:
        loops = [*loops[:-2], sch.fuse(*loops[-2:])]
    extent = as_int(sch.get(loops[-1]).extent)
    task, vector = sch.split(loops[-1], [None, min(width, extent)])
    outer, inner = [*loops[:-1], task], [vector]
    rows = largest_divisor(as_int(sch.get(loops[-2]).extent), width // extent) if len(loops) > 1 else 1
    if rows > 1:
        outer[-2], row = sch.split(loops[-2], [None, rows])
        sch.reorder(outer[-2], task, row, vector)
        inner.insert(0, row)
    sch.parallel(_task_loop(sch, outer, len(blocks) * rows * min(width, extent)))
    for name in reversed(names):
        sch.compute_at(name, sch.get_loops(last)[-1 - len(inner)], preserve_unit_loops=True)
        sch.set_scope(name, 0, "local")
    for name in (*names, last):
        *_, above, lowest = sch.get_loops(name)
        sch.vectorize(lowest)
        if rows > 1:
            sch.unroll(above)


def inline_all(sch: Schedule, func: PrimFunc) -> None:
    """Fold element-wise producers into their consumers, but for outputs and what would make them too large.

    What reads a recurrence's state is not folded into what writes it: no loop over elements would be left. Nor is what
    is found by positions and becomes several positions: each would be found anew.
    """
    outputs = {id(b) for b in func.buffers}
    writers = Counter(r.buffer for b in blocks_of(func) for r in b.writes)
    readers = [b for b in blocks_of(func) if any(writers[r.buffer] > 1 for r in b.reads)]
    kept = {*too_large_to_inline(blocks_of(func)), *readers, *_followed_again(blocks_of(func))}
    for block in blocks_of(func):
        if is_injective(block) and id(block.writes[0].buffer) not in outputs and block not in kept:
            try:
                sch.compute_inline(block.name_hint)
            except ScheduleError:
                continue  # it stays a nest of its own


def _followed_again(blocks: Sequence[Block]) -> Iterator[Block]:
    """Blocks that load at positions which are data, and whose values several positions of a later block are made of."""
    found: dict[Buffer, Block] = {}
    for block in blocks:
        for value in (store.value for store in stores(block.body)):
            positions = [i for x in preorder(value) if isinstance(x, BufferLoad) for i in x.indices]
            used = Counter(x.buffer for i in positions for x in preorder(i) if isinstance(x, BufferLoad))
            yield from (found[buffer] for buffer, times in used.items() if times > 1 and buffer in found)
            if used:
                found |= {r.buffer: block for r in block.writes}


def schedule_nest(sch: Schedule, block: Block, width: int, lanes: int, may_flatten: bool) -> None:
    """One nest: outer axes over the threads, the innermost ones in vectors."""
    loops = list(sch.get_loops(block.name_hint))
    n_spatial, n_reduced = len(spatial(block)), len(reduced(block))
    if n_reduced or not n_spatial or not is_injective(block):
        if n_reduced and n_spatial and isinstance(block.body, BufferStore) and _schedule_reduction(sch, block, lanes):
            return
        if n_spatial:
            sch.parallel(sch.fuse(*loops[:n_spatial]) if n_spatial > 1 else loops[0])
        return
    if outer := schedule_square(sch, block, lanes):
        sch.parallel(sch.fuse(*outer) if len(outer) > 1 else outer[0])
        return
    if _schedule_interleaved(sch, block, width, lanes):
        return
    if is_blocked_image(extents(block.iter_vars)):
        _schedule_image(sch, block, width, may_flatten)
        return
    period = _period(block)
    if period >= LEAST_LANES:
        loops[-1:] = sch.split(loops[-1], [None, period])
        flat, sizes = 1, [period]
    else:
        flat, width = _flat_axes(block, width, lanes) if may_flatten else (1, width)
        sizes = list(extents(spatial(block))[-flat:])
    outer, inner = loops[:-flat], loops[-flat:]
    fused = sch.fuse(*inner) if len(inner) > 1 else inner[0]
    extent = as_int(sch.get(fused).extent)
    size = _task_size(sizes, width)
    if not outer and extent > size:
        task, fused = sch.split(fused, [None, size])
        outer = [task]
        extent = size
    if outer:
        sch.parallel(_task_loop(sch, outer, extent))
    if extent > width:
        _, vector = sch.split(fused, [None, width])
    else:
        vector = fused
    sch.vectorize(vector)


def _schedule_image(sch: Schedule, block: Block, width: int, may_flatten: bool) -> None:
    """A blocked image: rows over the threads before channels, as in its neighbours; a piece is of one channel block."""
    *outer, row, pixel, lane = rows_first(sch, sch.get_loops(block.name_hint))
    *_, n_pixels, n_lanes = extents(spatial(block))
    rows = largest_divisor(as_int(sch.get(row).extent), TASK_ELEMENTS // (n_pixels * n_lanes))
    row, row_in = sch.split(row, [None, rows])
    inner, sizes = [row_in, pixel, lane], [rows, n_pixels, n_lanes]
    flat = min(alike_axes(block), len(inner)) if may_flatten else 1
    if flat < 2:
        sch.fuse(row_in, pixel)
    else:
        lane = sch.fuse(*inner[-flat:])
    size = math.prod(sizes[-flat:])
    width = width if flat < 2 else _even_width(size, width, LEAST_LANES)
    if size > width:
        _, lane = sch.split(lane, [None, width])
    sch.vectorize(lane)
    for loop in (*outer, row):  # not as one: its pieces are the same code for any number of channels
        sch.parallel(loop)


def _schedule_reduction(sch: Schedule, block: Block, lanes: int) -> bool:
    """A sum, product or extremum in vectors along the last axis that it writes or reads; False where neither goes."""
    name, outer = block.name_hint, spatial(block)
    if not isinstance(block.body, BufferStore) or not isinstance(block.body.value, Add | Mul | Max | Min):
        return False
    if len(outer) > 1 and extents(outer)[-1] >= LEAST_LANES and reads_along(block):
        reduce_beside(sch, block, 2 * lanes)
        return True
    if extents(reduced(block))[-1] >= LEAST_LANES and sums_rows(block):
        loops = sch.get_loops(name)
        sch.parallel(sch.fuse(*loops[: len(outer)]) if len(outer) > 1 else loops[0])
        sum_in_lanes(sch, name, 2 * lanes)
        return True
    return False


def _task_size(shape: Sequence[int], width: int) -> int:
    """Elements of one piece of a flat loop over `shape`: whole inner axes, so that indices stay provable."""
    if len(shape) == 1 or math.prod(shape) <= TASK_ELEMENTS:
        return TASK_ELEMENTS
    inner, axis = shape[-1], len(shape) - 2
    while axis > 0 and inner * shape[axis] <= TASK_ELEMENTS:
        inner, axis = inner * shape[axis], axis - 1
    counts = range(max(1, TASK_ELEMENTS // inner), 0, -1)
    sizes = (inner * n for n in counts if shape[axis] % n == 0)
    return next((s for s in sizes if s % width == 0 and s >= LEAST_ELEMENTS), math.prod(shape))


def schedule_square(sch: Schedule, block: Block, lanes: int) -> list[LoopRV]:
    """Squares of vectors, where the block reads along another axis than it writes: the loops around those of a row.

    Rows of the square are the last output axis, unrolled; its vectors run along what the load reads contiguously. An
    extent that comes with the call is taken for a long one. Empty where the block reads along the axis that it writes.
    """
    along = _turned_axis(block, lanes)
    if along is None:
        return []
    *loops, rows = sch.get_loops(block.name_hint)
    while len(loops) - 1 > along and _go_together(block, len(loops)):
        rows = sch.fuse(loops.pop(), rows)
    first = _first_together(block, along)
    if first < along:
        loops[first : along + 1] = [sch.fuse(*loops[first : along + 1])]
        along = first
    height, width = _square(block, lanes, _usual(sch.get(rows).extent), _usual(sch.get(loops[along]).extent))
    rows_tile, rows_in = sch.split(rows, [None, height])
    columns_tile, columns_in = sch.split(loops[along], [None, width])
    outer = [*loops[:along], columns_tile, *loops[along + 1 :]]
    sch.reorder(*outer, rows_tile, rows_in, columns_in)
    for tile, extent in ((rows_tile, sch.get(rows_in).extent), (columns_tile, sch.get(columns_in).extent)):
        if E.const_int(sch.get(tile).extent) is None and E.const_int(extent) is not None:
            sch.annotate(tile, FULL_APART, True)
    sch.unroll(rows_in)
    sch.vectorize(columns_in)
    return outer


def _usual(extent: E.PrimExpr) -> int:
    """An extent, or many where it comes with the call."""
    known = E.const_int(extent)
    return TASK_ELEMENTS if known is None else known


def _square(block: Block, lanes: int, rows: int, columns: int) -> tuple[int, int]:
    """(rows, vectors' elements) that are turned at once: small elements in as many rows as fill 128 bits."""
    size_bytes = item_bytes(block.writes[0].buffer.dtype)
    if size_bytes == 4:
        return (2 * lanes if rows >= 4 * lanes else lanes), lanes
    height, width = 16 // size_bytes, 4 * lanes // size_bytes
    whole = (width >> n for n in range(3) if width >> n >= height)
    return height, next((w for w in whole if columns % w == 0), min(width, height * (columns // height)))


def _first_together(block: Block, axis: int) -> int:
    """The first of the axes up to one that are one axis of all that is read."""
    while axis and _go_together(block, axis):
        axis -= 1
    return axis


def _go_together(block: Block, axis: int) -> bool:
    """Whether an axis and the one before it are one axis of all that is read, or of none of it."""
    assert isinstance(block.body, BufferStore), "the caller looked"
    first, second = (block.iter_vars[n] for n in (axis - 1, axis))
    if None in (E.const_int(first.dom.extent), E.const_int(second.dom.extent)):
        return False
    for load in loads(block.body.value):
        named = [n for n, i in enumerate(load.indices) if {first.var, second.var} & set(free_vars(i))]
        if not named:
            continue
        if len(named) != 2 or named[1] - named[0] != 1:
            return False
        if load.indices[named[0]] is not first.var or load.indices[named[1]] is not second.var:
            return False
        if E.const_int(load.buffer.shape[named[1]]) != E.const_int(second.dom.extent):
            return False
    return True


def _turned_axis(block: Block, lanes: int) -> int | None:
    """The output axis that a load reads contiguously while the output does not; None where there is none."""
    if not isinstance(block.body, BufferStore):
        return None
    size_bytes = item_bytes(block.body.buffer.dtype)
    lanes = 16 // size_bytes if size_bytes < 4 else lanes
    if size_bytes > 4 or (size_bytes == 4 and block.body.buffer.dtype not in ("float32", "int32")):
        return None
    variables, shape = [iv.var for iv in block.iter_vars], [_usual(iv.dom.extent) for iv in block.iter_vars]
    if len(variables) < 2 or shape[-1] < lanes:
        return None
    reads = [x for x in loads(block.body.value) if x.indices and x.buffer.dtype == block.body.buffer.dtype]
    if any(not isinstance(i, Var) and loads(i) for x in reads for i in x.indices):
        return None
    for load in reads:
        last = load.indices[-1]
        if isinstance(last, FloorMod) and isinstance(last.b, IntImm) and last.b.value % lanes == 0:
            last = last.a
        at = next((n for n, v in enumerate(variables[:-1]) if v is last), None)
        if at is None or variables[-1] not in {v for i in load.indices for v in free_vars(i)}:
            continue
        if math.prod(shape[_first_together(block, at) : at + 1]) >= lanes:
            return at
    return None


def _schedule_interleaved(sch: Schedule, block: Block, width: int, lanes: int) -> bool:
    """Rows side by side, whose elements come to take turns: vectors along the rows, the last axis within; False if not.

    out[…, n, g] = in[…, g, …, n] for g in 2, 3 or 4
    """
    if not _is_interleaved(block):
        return False
    *outer, rows, turns = sch.get_loops(block.name_hint)
    while outer and _go_together(block, len(outer)):
        rows = sch.fuse(outer.pop(), rows)
    count, extent = as_int(sch.get(turns).extent), as_int(sch.get(rows).extent)
    size = max(_task_size([extent * count], width) // count, 1)
    if not outer and extent > size:
        task, rows = sch.split(rows, [None, size])
        outer, extent = [task], size
    if outer:
        sch.parallel(_task_loop(sch, outer, extent * count))
    vector = max(width // count, 4 * lanes // item_bytes(block.writes[0].buffer.dtype))
    if extent > vector:
        rows = sch.split(rows, [None, vector])[1]
    sch.unroll(turns)
    sch.vectorize(rows)
    return True


def _is_interleaved(block: Block) -> bool:
    """Whether all loads run along the last but one axis, and the last one, of 2 to 4, chooses among their rows."""
    if len(block.iter_vars) < 2 or not isinstance(block.body, BufferStore) or block.body.buffer.dtype == "bool":
        return False
    row, turn = block.iter_vars[-2:]
    if as_int(turn.dom.extent) not in TURNS or as_int(row.dom.extent) < LEAST_LANES:
        return False
    chooses = False
    for load in loads(block.body.value):
        if not load.indices or any(loads(i) for i in load.indices):
            return False
        *before, last = load.indices
        if turn.var in free_vars(last) or any(row.var in free_vars(i) for i in before):
            return False
        terms = Analyzer().linear(last).terms.values()
        along = [(k, atom) for k, atom in terms if row.var in free_vars(atom)]
        if any(k != 1 or atom is not row.var for k, atom in along):
            return False
        chooses |= bool(along) and any(turn.var in free_vars(i) for i in before)
    return chooses


def _period(block: Block) -> int:
    """After how many elements of the last axis the same is read again, as in a tensor that is repeated; 0 for never."""
    last = block.iter_vars[-1]
    found: set[int] = set()
    for index in (i for load in loads(block.body) for i in load.indices if last.var in free_vars(i)):
        match index:
            case FloorMod(a=a, b=IntImm(value=period)) if a is last.var:
                found.add(period)
            case _ if index is not last.var:  # x[…, j // 16, …, j % 16] is a row in blocks
                return 0
    period = found.pop() if len(found) == 1 else 0
    return period if period and as_int(last.dom.extent) % period == 0 else 0


def _counts_with(block: Block, axes: Sequence[IterVar]) -> bool:
    """Whether one of the axes is more than a place of what is read: compared, or part of the value."""
    assert isinstance(block.body, BufferStore), "the caller looked"
    inner = {iv.var for iv in axes}
    below: list[Node] = [block.body.value]
    while below:
        node = below.pop()
        if isinstance(node, Var) and node in inner:
            return True
        if not isinstance(node, BufferLoad):
            below += children(node)
    return False


def _axes_of_pairs(block: Block, lanes: int) -> int:
    """How many innermost axes every access runs along, if the last one is of pairs, or of fours: 1 where it is not.

    Vectors are whole pairs then. What is read of a pair is the same for each: in other order, or one element for both.
    """
    shape = extents(spatial(block))
    if shape[-1] not in PAIRS or lanes % shape[-1]:
        return 1
    *axes, last = (iv.var for iv in block.iter_vars)
    depth = 1
    while depth < len(shape) and not _counts_with(block, block.iter_vars[-depth - 1 :]):
        if not all(_goes_along_pairs(x, axes[-depth:], last, shape[-depth - 1 :]) for x in loads(block.body)):
            break
        depth += 1
    return depth


def _goes_along_pairs(load: BufferLoad, axes: Sequence[Var], last: Var, shape: Sequence[int]) -> bool:
    """Whether a load runs along `axes` as an output of this shape does, in a tensor of such pairs or of single ones."""
    indices, dims = list(load.indices), list(load.buffer.const_shape())
    of_pair = dims and free_vars(indices[-1]) == {last} and dims[-1] == shape[-1] and not loads(indices[-1])
    if of_pair or (dims and dims[-1] == 1):
        indices.pop()
        dims.pop()
    if any(last in free_vars(i) for i in indices):
        return False
    if not any(v in free_vars(i) for i in indices for v in axes):
        return True
    n = len(axes)
    inner = indices[-n:]
    return (
        len(inner) == n
        and tuple(dims[-n:]) == tuple(shape[:-1])
        and all(x is y for x, y in zip(inner, axes, strict=True))
        and not any(v in free_vars(i) for i in indices[:-n] for v in axes)
    )


def _flat_axes(block: Block, width: int, lanes: int) -> tuple[int, int]:
    """(innermost axes that become one loop, its vector width): several where they are one vector, even or many.

    Also where a row is short and ragged itself: the loop has one ragged vector then, and the rows have one each. Not
    where the code would divide to find the row and column of each element of a vector: rows are loops then.
    """
    sizes = extents(spatial(block))
    is_ragged = sizes[-1] < width and sizes[-1] % lanes != 0
    for flat in range(max(alike_axes(block), _axes_of_pairs(block, lanes)), 1, -1):
        size = math.prod(sizes[-flat:])
        even = _even_width(size, width, 2 * lanes)
        if sizes[-1] >= lanes and sizes[-1] % even and _counts_with(block, block.iter_vars[-flat:]):
            continue
        if size <= width or size % even == 0 or size >= LEAST_VECTORS * width or is_ragged:
            return flat, even
    return 1, _even_width(sizes[-1], width, 2 * lanes)


def _even_width(size: int, width: int, least: int) -> int:
    """The largest width of vectors between `least` and `width` elements that divides a loop; `width` if none does."""
    even = width
    while even > least and size % even:
        even //= 2
    return width if size % even else even


def _task_loop(sch: Schedule, outer: list[LoopRV], inner_elements: int) -> LoopRV:
    """The outer loops as one, in pieces of at most TASK_ELEMENTS elements.

    Of several loops a piece is no more than one iteration of the first, so that its size says nothing of their number.
    """
    counts = [n for n in (as_int(sch.get(loop).extent) for loop in outer) if n > 1]
    fused = sch.fuse(*outer) if len(outer) > 1 else outer[0]
    within = math.prod(counts[1:] if len(counts) > 1 else counts)
    pieces = largest_divisor(within, TASK_ELEMENTS // max(inner_elements, 1))
    return sch.split(fused, [None, pieces])[0] if pieces > 1 else fused
