"""Stream-K: tiles that are left for an incomplete last wave of blocks are shared by all multiprocessors.

Before:  for tile in blockIdx.x(162): for k in 36: acc += …          132 multiprocessors: the second wave has 30 tiles
         out[tile] = epilogue(acc)
After:   for block in blockIdx.x(132 + 30 * 4):
             tile, part = block, 0 where block < 132, else 132 + (block - 132) // 4, (block - 132) % 4
             for k in 36 or 9: acc += … of that part
             out[tile] = epilogue(acc) where block < 132, else left[block - 132] = acc
         out[tiles from 132 on] = epilogue(left[first part] + left[second part] + …)          a second launch

No block waits for another one. The parts of a sum are added in the order of k, so that results are the same each time.

Source: Osama, Merrill, Cecka, Garland, Owens 2023, Stream-K: Work-centric Parallel Decomposition for Dense
Matrix-Matrix Multiplication on the GPU (its hybrid of whole tiles and shared ones).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

from autosched.errors import ScheduleError
from autosched.ir.node import children, map_children, preorder
from autosched.space import Config
from autosched.target.gpus import GpuFacts
from autosched.templates.classify import blocks_of, contraction
from autosched.templates.cuda.core_tiles import L2_BYTES_PER_CYCLE, LAUNCH_S
from autosched.templates.cuda.nests import bound, with_work_of
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X
from autosched.templates.nests import INDEX, index, lanes
from autosched.tir import expr as E
from autosched.tir.access import point
from autosched.tir.axis import REDUCE, SPATIAL, IterVar, Range
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Select, Var, as_int
from autosched.tir.function import PrimFunc, make_root
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import Block, BlockRealize, BufferRegion, BufferStore, For, IfThenElse, LoopKind, Stmt, seq

KNOB = "wave_parts"
PARTS = (1, 2, 3, 4, 6, 8)
SUM_THREADS, SUM_VECTOR = 256, 4  # of the launch that adds up parts
LEAST_STEPS = 4  # tiles of k in a part: copies run ahead of something
MEMORY_LATENCY = 600.0  # cycles
HALVES = ("float16", "bfloat16")


def best_parts(
    tiles: int, slots: int, cycles: float, start: float, elements: int, steps: int, gpu: GpuFacts
) -> tuple[int, float]:
    """(parts of the last wave's sums, cycles until the busiest multiprocessor is done).

    tiles     of the result, or of its clusters; `slots` how many of them are computed at one time
    cycles    that a multiprocessor multiplies for a tile, `start` those that a block takes beside
    elements  of a tile; `steps` tiles of k in its sums, 0 where they have a rest
    """
    whole, rest = divmod(tiles, slots)

    def cost(parts: int) -> float:
        waves = -(-rest * parts // slots)
        total = whole * (cycles + start) + waves * (cycles / parts + start)
        if parts > 1:  # what is left is written by a multiprocessor each, and read by all
            moved = 4 * elements * (waves + parts * rest / slots)
            total += LAUNCH_S * gpu.clock_hz + MEMORY_LATENCY + moved / L2_BYTES_PER_CYCLE
        return total

    fitting = [p for p in PARTS if p == 1 or (rest and steps >= p * LEAST_STEPS)]
    best = min(fitting, key=cost)
    return best, cost(best)


def with_wide_sums(func: PrimFunc, anchor: Block) -> PrimFunc:
    """The function with sums of halves in float32, rounded where they are read: parts are added up unrounded."""
    sums, found = anchor.writes[0].buffer, contraction(anchor)
    if sums.dtype not in HALVES or found is None:
        return func
    wide = dataclasses.replace(sums, name=f"{sums.name}_sums", dtype="float32")
    assert isinstance(anchor.body, BufferStore), "a sum of products is one store"
    at = anchor.body.indices
    product = E.Mul(E.cast("float32", found.a), E.cast("float32", found.b))
    body = BufferStore(wide, E.Add(BufferLoad(wide, at), product), at)
    init = BufferStore(wide, E.const(0.0, "float32"), at)
    new = dataclasses.replace(anchor, body=body, init=init, writes=(point(wide, at),))

    def step(x: object) -> object:
        if x is anchor:
            return new
        if isinstance(x, BufferLoad) and x.buffer is sums:
            return E.cast(sums.dtype, BufferLoad(wide, x.indices))
        return BufferRegion(wide, x.region) if isinstance(x, BufferRegion) and x.buffer is sums else x

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, BlockRealize):
            return dataclasses.replace(stmt, block=new if stmt.block is anchor else rewrite(stmt.block, step))
        return map_children(stmt, lambda c: visit(c) if isinstance(c, Stmt) else c)

    root = func.root
    buffers = tuple(wide if b is sums else b for b in root.alloc_buffers)
    nests = [visit(root.body)]
    if sums in func.buffers:
        buffers = (*buffers, wide)
        axes = tuple(IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), SPATIAL) for iv in anchor.iter_vars[: sums.ndim])
        places = tuple(iv.var for iv in axes)
        rounded = BufferStore(sums, E.cast(sums.dtype, BufferLoad(wide, places)), places)
        block = Block(axes, (), (point(wide, places),), (point(sums, places),), "rounded", rounded)
        loops = [Var(f"i{n}", iv.var.dtype) for n, iv in enumerate(axes)]
        copy: Stmt = BlockRealize(tuple(loops), E.const(1, "bool"), block)
        for v, iv in zip(reversed(loops), reversed(axes), strict=True):
            copy = For(v, E.const(0, v.dtype), iv.dom.extent, LoopKind.SERIAL, copy)
        nests.append(copy)
    return func.with_body(make_root(seq(*nests), buffers, root.annotations))


def share_last_wave(
    func: PrimFunc, natural: PrimFunc, anchor: str, out: str, config: Config, slots: int
) -> PrimFunc:  # fmt: skip
    """The scheduled function with the tiles of an incomplete last wave in as many parts as the configuration says.

    natural      the function before it was scheduled
    anchor, out  the blocks that compute the sums and write the result; `slots` tiles, or clusters, of a wave
    """
    parts = int(config.get(KNOB, 1))
    return func if parts == 1 else with_work_of(_Sharing(func, anchor, out, parts, slots).function(), natural)


@dataclass(frozen=True)
class _Grid:
    """The loops over blocks of a function, the outermost first, and what is below them."""

    loops: tuple[For, ...]
    body: Stmt

    @staticmethod
    def of(stmt: Stmt) -> _Grid:
        loops: list[For] = []
        while isinstance(stmt, For) and stmt.thread.startswith("blockIdx"):
            loops.append(stmt)
            stmt = stmt.body
        if not loops or any(isinstance(x, For) and x.thread.startswith("blockIdx") for x in preorder(stmt)):
            raise ScheduleError("the loops over blocks are not the outermost ones")
        return _Grid(tuple(loops), stmt)

    @property
    def count(self) -> int:
        """Tiles, or clusters of them."""
        return math.prod(as_int(x.extent) for x in self.loops)

    def at(self, tile: PrimExpr) -> dict[Var, PrimExpr]:
        """The values of the loops' variables for a tile, counted along the innermost loop first."""
        values: dict[Var, PrimExpr] = {}
        for n, x in reversed(list(enumerate(self.loops))):
            extent = E.const(as_int(x.extent), tile.dtype)
            values[x.loop_var] = E.cast(x.loop_var.dtype, E.floormod(tile, extent) if n else tile)
            tile = E.floordiv(tile, extent)
        return values


class _Sharing:
    """One scheduled function, whose sums are not of halves."""

    def __init__(self, func: PrimFunc, anchor: str, out: str, parts: int, slots: int):
        self.func, self.parts = func, parts
        blocks = {b.name_hint: b for b in blocks_of(func)}
        self.anchor, self.out = blocks[anchor], blocks[out]
        self.grid = _Grid.of(func.root.body)
        self.realize = next(x for x in preorder(self.grid.body) if isinstance(x, BlockRealize) and x.block is self.out)
        self.rest = self.grid.count % slots
        self.full = self.grid.count - self.rest
        if not self.rest:
            raise ScheduleError("no tile is left for an incomplete last wave", hint=f"use {KNOB}=1")
        self.sums = self.anchor.writes[0].buffer
        # a tile's place: rows and columns of the result within those of its block, or of its cluster
        start = {x.loop_var: E.const(0, x.loop_var.dtype) for x in self.grid.loops}
        self.local = [substitute(v, start) for v in self.realize.iter_values[-2:]]
        self.inner = {x.loop_var: as_int(x.extent) for x in preorder(self.grid.body) if isinstance(x, For)}
        bounds = Analyzer({v: (0, n) for v, n in self.inner.items()})
        self.shape = [1 + int(bounds.bound(e)[1] or 0) for e in self.local]
        self.left = Buffer("left", tuple(map(index, (self.rest * parts, *self.shape))), self.sums.dtype)

    def function(self) -> PrimFunc:
        """Both launches."""
        unit = Var("block", INDEX)
        shared = E.sub(unit, index(self.full))  # the number of a part
        tile = E.minimum(unit, E.add(index(self.full), E.floordiv(shared, index(self.parts))))
        is_whole = E.compare(E.LT, unit, index(self.full))
        body = self.terms(self.grid.body, shared, is_whole)
        body = substitute(self.written(body, shared, is_whole), self.grid.at(tile))
        count = index(self.full + self.rest * self.parts)
        launch = For(unit, index(0), count, LoopKind.THREAD_BINDING, body, BLOCK_X)
        root = self.func.root
        return self.func.with_body(
            make_root(seq(launch, self.total()), (*root.alloc_buffers, self.left), root.annotations)
        )

    def terms(self, body: Stmt, shared: PrimExpr, is_whole: PrimExpr) -> Stmt:
        """The loop over tiles of k for those of a part: what is copied begins where the part does."""
        realize = next(x for x in preorder(body) if isinstance(x, BlockRealize) and x.block is self.anchor)
        used = {
            v for iv, e in zip(self.anchor.iter_vars, realize.iter_values, strict=True) if iv.kind == REDUCE
            for v in free_vars(e)
        }  # fmt: skip
        k_tile = next(x for x in preorder(body) if isinstance(x, For) and x.loop_var in used)
        steps, dtype = as_int(k_tile.extent), k_tile.loop_var.dtype
        part = E.floormod(E.maximum(shared, index(0)), index(self.parts))
        if steps % self.parts == 0:
            count: PrimExpr = index(steps // self.parts)
            first = E.mul(part, count)
        else:
            first, end = (E.floordiv(E.mul(p, index(steps)), index(self.parts)) for p in (part, E.add(part, index(1))))
            count = E.maximum(E.sub(end, first), index(1))  # said, for the assembler: no loop is left out
        own = Select(is_whole, E.const(steps, dtype), E.cast(dtype, count))

        def step(x: object) -> object:
            is_copy = isinstance(x, BlockRealize) and x.block is not self.anchor
            return self.copied(x, k_tile.loop_var, first) if is_copy and isinstance(x, BlockRealize) else x

        return _replaced(body, k_tile, dataclasses.replace(k_tile, extent=own, body=rewrite(k_tile.body, step)))

    def copied(self, realize: BlockRealize, k_tile: Var, first: PrimExpr) -> BlockRealize:
        """A block whose source lies behind by the tiles of k before the part."""
        if k_tile in free_vars(realize.predicate):
            raise ScheduleError("the last tile of k is cut off", hint="choose a step that divides the sum")
        moved: dict[Var, PrimExpr] = {}
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if k_tile in free_vars(value):
                zero, one = (substitute(value, {k_tile: E.const(n, k_tile.dtype)}) for n in (0, 1))
                size = Analyzer().simplify(E.sub(one, zero))
                moved[iv.var] = E.add(iv.var, E.mul(E.cast(iv.var.dtype, first), E.cast(iv.var.dtype, size)))

        def shift(x: object) -> object:
            outside = isinstance(x, BufferLoad | BufferRegion) and x.buffer in self.func.buffers
            return substitute(x, moved) if outside and isinstance(x, BufferLoad | BufferRegion) else x

        return dataclasses.replace(realize, block=rewrite(realize.block, shift)) if moved else realize

    def written(self, body: Stmt, shared: PrimExpr, is_whole: PrimExpr) -> Stmt:
        """What writes a tile for whole sums; another nest of the same loops that leaves the sums of a part."""
        nest = _largest_with(body, self.realize, self.anchor)
        names = {x.loop_var: Var(x.loop_var.name, x.loop_var.dtype) for x in preorder(nest) if isinstance(x, For)}

        def renamed(stmt: Stmt) -> Stmt:
            if stmt is self.realize:
                return self.leaving(shared)
            made = map_children(stmt, lambda c: renamed(c) if isinstance(c, Stmt) else c)
            return dataclasses.replace(made, loop_var=names[made.loop_var]) if isinstance(made, For) else made

        parts = substitute(renamed(nest), names)
        return _replaced(body, nest, IfThenElse(is_whole, nest, parts) if self.full else parts)

    def leaving(self, shared: PrimExpr) -> BlockRealize:
        """The block that leaves the sums of a part, in place of the one that writes the result."""
        load = next(x for x in preorder(self.out.body) if isinstance(x, BufferLoad) and x.buffer is self.sums)
        own = [IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.kind) for iv in self.out.iter_vars]
        load = substitute(load, {iv.var: new.var for iv, new in zip(self.out.iter_vars, own, strict=True)})
        at = [
            IterVar(Range(index(0), size), Var(name, INDEX), SPATIAL)
            for name, size in zip(("v_part", "v_row", "v_column"), self.left.shape, strict=True)
        ]
        places = tuple(iv.var for iv in at)
        reads, writes = (point(load.buffer, load.indices),), (point(self.left, places),)
        block = Block((*own, *at), (), reads, writes, "left", BufferStore(self.left, load, places))
        values = (*self.realize.iter_values, shared, *(E.cast(INDEX, e) for e in self.local))
        return BlockRealize(values, self.realize.predicate, block)

    def total(self) -> Stmt:
        """The launch that adds up the parts of each element, in the order of k, and computes the result of it."""
        rows, columns = self.shape
        sizes = [as_int(iv.dom.extent) for iv in self.out.iter_vars]
        vector = math.gcd(SUM_VECTOR, columns, sizes[-1])
        count = self.rest * rows * columns // vector
        threads = min(SUM_THREADS, count)

        def of_thread(block: Var, thread: Var) -> Stmt:
            flat = E.add(E.mul(block, index(threads)), thread)
            at = E.floordiv(flat, index(rows * columns // vector))
            row = E.floormod(E.floordiv(flat, index(columns // vector)), index(rows))
            first = E.mul(E.floormod(flat, index(columns // vector)), index(vector))
            places = {**self.grid.at(E.add(index(self.full), at)), **{v: E.const(0, v.dtype) for v in self.inner}}
            start = [substitute(e, places) for e in self.realize.iter_values]
            ends = [
                E.compare(E.LT, E.add(E.cast(INDEX, start[d]), own), index(sizes[d]))
                for d, own, tile in ((-2, row, rows), (-1, first, columns)) if sizes[d] % tile
            ]  # fmt: skip
            if count % threads:
                ends.append(E.compare(E.LT, flat, index(count)))
            stmt = lanes(vector, lambda lane: self.element(start, at, row, E.add(first, lane)))
            return IfThenElse(E.all_of(*ends), stmt) if ends else stmt

        return bound(((BLOCK_X, -(-count // threads)), (THREAD_X, threads)), of_thread)

    def element(self, start: list[PrimExpr], at: PrimExpr, row: PrimExpr, column: PrimExpr) -> Stmt:
        """One element of the result, of tile `at` of those in parts, whose first element is at `start`."""
        parts: list[PrimExpr] = [
            BufferLoad(self.left, (E.add(E.mul(at, index(self.parts)), index(n)), row, column))
            for n in range(self.parts)
        ]
        total = functools.reduce(E.Add, parts)
        axes = [iv.var for iv in self.out.iter_vars]
        values = dict(zip(axes, start, strict=True))
        for v, own in zip(axes[-2:], (row, column), strict=True):
            values[v] = E.add(start[axes.index(v)], E.cast(v.dtype, own))
        made: Stmt = rewrite(
            self.out.body, lambda x: total if isinstance(x, BufferLoad) and x.buffer is self.sums else x
        )
        return substitute(made, values)


def _replaced(stmt: Stmt, old: Stmt, new: Stmt) -> Stmt:
    if stmt is old:
        return new
    return map_children(stmt, lambda c: _replaced(c, old, new) if isinstance(c, Stmt) else c)


def _largest_with(stmt: Stmt, wanted: Stmt, other: Block) -> Stmt:
    """The largest part of a statement that has one in it, and not a certain block."""
    if not any(x is other for x in preorder(stmt)):
        return stmt
    return next(
        _largest_with(c, wanted, other)
        for c in children(stmt)
        if isinstance(c, Stmt) and any(x is wanted for x in preorder(c))
    )


__all__ = ["KNOB", "best_parts", "share_last_wave", "with_wide_sums"]
