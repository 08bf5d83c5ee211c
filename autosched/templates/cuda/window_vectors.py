"""Windows that slide over rows of whole vectors: a thread computes several rows of four neighbouring results.

for images, channels, groups of rows, groups of four columns in blockIdx.x, threadIdx.x:
    for each row under the windows of the thread's results:
        part = the vectors under them                            # 16 bytes at a time, padding in place of others
        acc[row, :] += weight[kh, kw] * part[kw : kw + 4]        # for the results whose windows have this row
    out[rows, 4 columns] = epilogue(acc)
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from autosched.ir.node import preorder
from autosched.templates.chain import Chain
from autosched.templates.classify import extents, reduced, spatial
from autosched.templates.cuda.nests import block, bound, with_statements, with_work_of
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X
from autosched.templates.nests import index, lanes, unrolled, value_at
from autosched.tir import Block, BufferLoad, BufferStore, PrimExpr, PrimFunc, Var, as_int
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Call, add, const_int, sub
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.simplify import simplify, split_conditions
from autosched.tir.stmt import IfThenElse, Stmt, seq

LANES = 4  # results of a thread side by side
DTYPE = "float32"  # whose four are 16 bytes; sums of smaller floats are others' business
MOST_RESULTS = 1 << 30
COLUMN = Var("column", "int64")  # of what the window slides over


@dataclass(frozen=True)
class Vectors:
    """How windows lie over vectors.

    down           the position among the result's axes of the one that a thread goes along; `stride` between windows
    rows, columns  how far each term of a window lies behind its first one, along both
    value          an element of what the window slides over, in terms of `at`, of arguments; along the last axis an
                   element of theirs stands `shift` behind it
    """

    down: int
    stride: int
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    value: PrimExpr
    at: tuple[Var, ...]
    shift: int

    @property
    def first(self) -> int:
        """Where the vectors under a group of four results begin, in vectors behind that of the results."""
        return (self.shift + min(self.columns)) // LANES

    @property
    def count(self) -> int:
        """Vectors in a row under a group of four results."""
        return (self.shift + max(self.columns) + LANES - 1) // LANES - self.first + 1


def find_vectors(chain: Chain, data: BufferLoad, down: int) -> Vectors | None:
    """How the windows of a chain lie over vectors; None where they do not."""
    anchor = chain.anchor
    axes, terms = spatial(anchor), reduced(anchor)
    made_before = {b.writes[0].buffer for b in chain.before}
    others = [x for b in (anchor, *chain.after) for x in preorder(b.body) if isinstance(x, BufferLoad)]
    if anchor.annotations or sum(x.buffer is data.buffer for x in others) != 1:
        return None
    if any(x.buffer in made_before and x.buffer is not data.buffer for x in others):
        return None
    buffers = {
        x.buffer for b in (*chain.before, anchor, *chain.after) for x in preorder(b) if isinstance(x, BufferLoad)
    }
    if any(b.dtype != DTYPE for b in buffers | {anchor.writes[0].buffer}) or down == len(axes) - 1:
        return None
    sizes = extents(axes)
    if sizes[-1] % LANES or math.prod(sizes) > MOST_RESULTS:
        return None
    places = [n for n, i in enumerate(data.indices) if axes[down].var in free_vars(i)]
    if len(places) != 1 or axes[-1].var not in free_vars(data.indices[-1]) or places[0] == len(data.indices) - 1:
        return None
    along = _behind(data.indices[-1], axes[-1].var, [iv.var for iv in terms], extents(terms))
    below = _behind(data.indices[places[0]], axes[down].var, [iv.var for iv in terms], extents(terms))
    if along is None or below is None or along[0] != 1 or below[0] < 1:
        return None
    moving = {iv.var for iv in terms}
    rest = [i for n, i in enumerate(data.indices) if n not in (places[0], len(data.indices) - 1)]
    if any((moving | {axes[-1].var}) & free_vars(i) for i in rest):
        return None
    at = tuple(Var(f"at{n}", "int64") for n in range(len(data.indices) - 1))
    blocks = {b.writes[0].buffer: b for b in chain.before}
    value = value_at(blocks, data.buffer, (*at, COLUMN), {})
    found = _shift(value)
    if found is None:
        return None
    made = Vectors(down, below[0], below[1], along[1], value, at, found)
    return made if _is_of_vectors(made, sizes[-1] // LANES) else None


def _behind(e: PrimExpr, axis: Var, terms: list[Var], sizes: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """(step along an axis, how far each term lies from the axis' 0) of an index; None where it has other variables."""
    if not free_vars(e) <= {axis, *terms}:
        return None

    def at(position: int, values: tuple[int, ...]) -> int | None:
        known = {v: E.const(n, v.dtype) for v, n in zip((axis, *terms), (position, *values), strict=True)}
        return const_int(simplify(substitute(e, known)))

    every = list(itertools.product(*map(range, sizes)))
    found = [at(0, values) for values in every]
    step = const_int(simplify(sub(substitute(e, {axis: add(axis, 1)}), e)))
    if step is None or any(x is None for x in found):
        return None
    return step, tuple(x for x in found if x is not None)


def _shift(value: PrimExpr) -> int | None:
    """How far behind its column all that is loaded for an element lies; None where that differs, or rows are odd."""
    shifts = set()
    for x in preorder(value):
        if isinstance(x, BufferLoad) and COLUMN in free_vars(x):
            if COLUMN in set().union(*map(free_vars, x.indices[:-1]), set()) or as_int(x.buffer.shape[-1]) % LANES:
                return None
            shifts.add(const_int(simplify(sub(x.indices[-1], E.cast(x.indices[-1].dtype, COLUMN)))))
    (shift,) = shifts if len(shifts) == 1 else (None,)
    return shift


def _is_of_vectors(v: Vectors, groups: int) -> bool:
    """Whether each condition on an element's column holds for all of a vector or for none of it."""
    for x in preorder(v.value):
        if isinstance(x, Call) and x.op == "if_then_else":
            for part in split_conditions(x.args[0]):
                if COLUMN in free_vars(part) and not (free_vars(part) == {COLUMN} and _is_same(part, v, groups)):
                    return False
        elif isinstance(x, E.Select) and COLUMN in free_vars(x.condition):
            return False
    loads = {id(y) for x in preorder(v.value) if isinstance(x, BufferLoad) for y in preorder(x)}
    conditions = {
        id(y) for x in preorder(v.value) if isinstance(x, Call) and x.op == "if_then_else" for y in preorder(x.args[0])
    }
    return all(id(x) in loads | conditions for x in preorder(v.value) if x is COLUMN)


def _is_same(condition: PrimExpr, v: Vectors, groups: int) -> bool:
    for vector in range(v.first, groups + v.first + v.count):
        columns = (LANES * vector + lane - v.shift for lane in range(LANES))
        held = {const_int(simplify(substitute(condition, {COLUMN: E.const(c, COLUMN.dtype)}))) for c in columns}
        if len(held) != 1 or None in held:
            return False
    return True


def wide_windows(func: PrimFunc, chain: Chain, data: BufferLoad, v: Vectors, rows: int, threads: int) -> PrimFunc:
    """The function with `rows` times four results to a thread."""
    return _Writer(func, chain, data, v, rows).function(threads)


class _Writer:
    """The statements of one configuration."""

    def __init__(self, func: PrimFunc, chain: Chain, data: BufferLoad, v: Vectors, rows: int):
        self.func, self.chain, self.data, self.v, self.rows = func, chain, data, v, rows
        self.axes = spatial(chain.anchor)
        self.sizes = [*extents(self.axes)]
        self.first_row = min(v.rows)
        self.height = (rows - 1) * v.stride + max(v.rows) - self.first_row + 1
        self.sums = Buffer("sums", (index(rows), index(LANES)), DTYPE, scope="local")
        self.part = Buffer("part", (index(self.height), index(v.count * LANES)), DTYPE, scope="local")
        last: Block = chain.after[-1] if chain.after else chain.anchor
        self.out = last.writes[0].buffer

    def function(self, threads: int) -> PrimFunc:
        sizes = self.sizes[:-1]
        sizes[self.v.down] //= self.rows
        sizes.append(self.sizes[-1] // LANES)
        count = math.prod(sizes)

        def of_thread(bx: Var, tx: Var) -> Stmt:
            flat: PrimExpr = E.add(E.mul(bx, index(threads)), tx)
            place, at = flat, []
            for n, size in reversed(list(enumerate(sizes))):
                at.append(E.floormod(place, index(size)) if n else place)
                place = E.floordiv(place, index(size))
            at.reverse()
            stmt = self.results(at)
            return IfThenElse(E.compare(E.LT, flat, index(count)), stmt) if count % threads else stmt

        axes = ((BLOCK_X, -(-count // threads)), (THREAD_X, threads))
        made = with_statements(
            self.func, bound(axes, lambda bx, tx: block("windows", of_thread(bx, tx))), [self.sums, self.part]
        )
        return with_work_of(made, self.func)

    def results(self, at: list[PrimExpr]) -> Stmt:
        """All results of a thread, whose number along each axis is given."""
        anchor = self.chain.anchor
        assert isinstance(anchor.init, BufferStore) and isinstance(anchor.body, BufferStore), "a sum of one value"
        start = anchor.init.value
        stmts = [unrolled("row lane", (self.rows, LANES), lambda r, lane: BufferStore(self.sums, start, (r, lane)))]
        stmts += [self.load(at, row) for row in range(self.height)]
        terms = list(itertools.product(*map(range, extents(reduced(anchor)))))
        for row in range(self.height):
            for n, term in enumerate(terms):
                r, rest = divmod(row + self.first_row - self.v.rows[n], self.v.stride)
                if not rest and 0 <= r < self.rows:
                    stmts.append(self.add(at, r, row, n, term))
        blocks = {b.writes[0].buffer: b for b in self.chain.after}
        sums = anchor.writes[0].buffer

        def write(r: Var) -> Stmt:
            def of_lane(lane: PrimExpr) -> Stmt:
                places = self.places(at, r, lane)
                known = {sums: lambda _: BufferLoad(self.sums, (r, lane))}
                value = value_at(blocks, self.out, places, known)
                kinds = [s.dtype for s in self.out.shape]
                return BufferStore(self.out, value, tuple(map(E.cast, kinds, places)))

            return lanes(LANES, of_lane)

        return seq(*stmts, unrolled("row", (self.rows,), write))

    def places(self, at: list[PrimExpr], r: PrimExpr, lane: PrimExpr) -> list[PrimExpr]:
        """The indices of a result of the thread."""
        found = list(at)
        found[self.v.down] = E.add(E.mul(at[self.v.down], index(self.rows)), r)
        found[-1] = E.add(E.mul(at[-1], index(LANES)), lane)
        return found

    def values(self, places: list[PrimExpr]) -> dict[Var, PrimExpr]:
        return {iv.var: E.cast(iv.var.dtype, p) for iv, p in zip(self.axes, places, strict=True)}

    def load(self, at: list[PrimExpr], row: int) -> Stmt:
        """The vectors of a row under the windows of the thread's results."""
        v, first = self.v, {iv.var: E.const(0, iv.var.dtype) for iv in reduced(self.chain.anchor)}
        where = [substitute(i, self.values(self.places(at, index(0), index(0))) | first) for i in self.data.indices]
        (down,) = (n for n, i in enumerate(self.data.indices) if self.axes[v.down].var in free_vars(i))
        zero = self.v.rows[0]  # of the term that all numbers are 0 for
        where[down] = E.add(where[down], E.const(self.first_row - zero + row, where[down].dtype))
        known = {var: E.cast(var.dtype, i) for var, i in zip(v.at, where[:-1], strict=True)}

        def group(g: Var) -> Stmt:
            vector = E.mul(E.add(E.add(at[-1], index(v.first)), g), index(LANES))
            column = E.sub(vector, index(v.shift))

            def of_lane(lane: PrimExpr) -> Stmt:
                made = self._at_lane(v.value, vector, column, lane)
                return BufferStore(
                    self.part, substitute(made, known), (index(row), E.add(E.mul(g, index(LANES)), lane))
                )

            return lanes(LANES, of_lane)

        return unrolled("vector", (v.count,), group)

    def _at_lane(self, value: PrimExpr, vector: PrimExpr, column: PrimExpr, lane: PrimExpr) -> PrimExpr:
        """An element of a vector: what is loaded lies side by side, conditions are those of the vector's first one."""

        def step(x: object) -> object:
            if isinstance(x, BufferLoad) and COLUMN in free_vars(x):
                return BufferLoad(x.buffer, (*x.indices[:-1], E.cast(x.indices[-1].dtype, E.add(vector, lane))))
            return x

        made: PrimExpr = rewrite(value, step)
        return substitute(made, {COLUMN: E.cast(COLUMN.dtype, column)})

    def add(self, at: list[PrimExpr], r: int, row: int, n: int, term: tuple[int, ...]) -> Stmt:
        """One term of the sums of the thread's `r`-th row of results."""
        anchor, v = self.chain.anchor, self.v
        assert isinstance(anchor.body, BufferStore), "a sum of one value"
        body = anchor.body
        numbers = {iv.var: E.const(k, iv.var.dtype) for iv, k in zip(reduced(anchor), term, strict=True)}
        first = v.shift + v.columns[n] - LANES * v.first

        def of_lane(lane: Var) -> Stmt:
            def step(x: object) -> object:
                if isinstance(x, BufferLoad) and x.buffer is body.buffer:
                    return BufferLoad(self.sums, (index(r), lane))
                if isinstance(x, BufferLoad) and x.buffer is self.data.buffer:
                    return BufferLoad(self.part, (index(row), E.add(lane, index(first))))
                return x

            value: PrimExpr = rewrite(body.value, step)
            value = substitute(value, self.values(self.places(at, index(r), lane)) | numbers)
            return BufferStore(self.sums, value, (index(r), lane))

        return unrolled("lane", (LANES,), of_lane)


__all__ = ["LANES", "Vectors", "find_vectors", "wide_windows"]
