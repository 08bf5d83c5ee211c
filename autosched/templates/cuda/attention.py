"""Attention without scores in memory, on the cores of an SM: softmax(q kᵀ * scale + bias) v in one pass over the keys.

for head in blockIdx.y, tile of queries in blockIdx.x:
    query_shared = q of the tile
    for tile of keys, as far as a query sees them:
        key_shared, value_shared = k and v of the tile                        # copied by all threads of the block
        scores[:, :] = query_shared * key_shared                              # a register tile for each thread
        largest, total, weighted rescaled for a larger score                  # rows shared by threads of x
        weights_shared = exp(scores - largest)
        weighted[:, :] += weights_shared * value_shared
    out = epilogue(weighted / total)

Where few queries leave SMs idle, the keys are cut into `splits` parts, blockIdx.z. A part leaves its largest score and
both sums in device memory, and a second launch puts them in terms of the largest of all and adds them up.
Source  Dao, Haziza, Massa, Sizov 2023, Flash-Decoding for long-context inference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from autosched.codegen.lower.cross_thread import LANES
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.cuda.nests import block, bound, copy_tile, with_statements
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import (
    BLOCK_X,
    BLOCK_Y,
    BLOCK_Z,
    MOST_GRID_YZ,
    THREAD_X,
    THREAD_Y,
    power_of_two_above,
)  # fmt: skip
from autosched.templates.flash import (
    WIDE,
    Flash,
    add_to,
    assign,
    element,
    fill,
    find_flash,
    padded,
    safe,
    seen,
    zero,
)  # fmt: skip
from autosched.templates.nests import index, lanes, loop, unrolled
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Call, IntImm, PrimExpr, StringImm, Var, const_int
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, IfThenElse, Stmt, seq

VECTOR = 4  # float32 of one access
DTYPES = ("float32", "float16", "bfloat16")
MOST_SPLITS = 32
SUM_THREADS = 256  # of the launch that adds up parts
BUSY_THREADS = 256  # of an SM that is not idle
# Sizes that come with the call are scheduled as these: primes, which no tile divides, of one sequence.
STAND_INS = {"B": 1, "H": 13, "M": 1031, "T": 4099}
MOST_ELEMENTS = 256  # of a key or value: more do not fit registers and shared memory


class AttentionPass:
    """Scaled dot-product attention on the cores: float32, and what no tensor core takes."""

    name = "attention"
    version: int = 2

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        flash = find_flash(func)
        return None if flash is None or flash.sizes["heads"] > MOST_GRID_YZ else self._anchor(flash)

    def _anchor(self, flash: Flash) -> Anchor | None:
        if flash.dtype not in DTYPES:
            return None
        if max(flash.sizes["D"], flash.sizes["E"]) > MOST_ELEMENTS:
            return None
        sizes = {**flash.sizes, "bytes": item_bytes(flash.dtype)}
        return Anchor(flash.found.scores.name_hint, "attention", sizes, flash)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """16 x 16 threads with four queries each; fewer where there are few, or shared memory holds no more.

        Keys are split until every SM has threads enough, or parts of two tiles.
        """
        s = anchor.sizes
        threads_n, threads_m = 16, min(16, max(2, power_of_two_above(s["M"])))
        rows = min(64, max(threads_m, power_of_two_above(s["M"])))
        keys = 64 if max(s["D"], s["E"]) <= 64 else 32
        while keys > threads_n and shared_bytes(s, rows, keys) > target.gpu.max_shared_memory_per_block:
            keys //= 2
        while rows > threads_m and shared_bytes(s, rows, keys) > target.gpu.max_shared_memory_per_block:
            rows //= 2
        blocks, wanted = s["heads"] * -(-s["M"] // rows), target.gpu.sm_count * BUSY_THREADS // (threads_m * threads_n)
        splits = 1
        while blocks * splits < wanted and s["T"] >= 4 * splits * keys and splits < MOST_SPLITS:
            splits *= 2
        knobs = {"rows": rows, "keys": keys, "threads_m": threads_m, "threads_n": threads_n, "splits": splits}
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        flash = find_flash(func, STAND_INS)
        assert flash is not None, "apply is called on a function that matched"
        body, buffers = _Writer(flash, config).function()
        return Applied(
            with_statements(func, body, buffers), (None,) * len(func.params), Schedule(func).trace.to_json_text()
        )

    def of_open_sizes(self, func: PrimFunc, target: Target) -> Anchor | None:
        """The same as `match` for a function some of whose sizes come with the call."""
        flash = find_flash(func, STAND_INS)
        return None if flash is None else self._anchor(flash)


def shared_bytes(s: object, rows: int, keys: int) -> int:
    """Bytes of a block's shared memory: the queries, a tile of keys and one of values, the weights."""
    sizes: dict[str, int] = dict(s)  # type: ignore[call-overload]
    depth, width = padded(sizes["D"], VECTOR) + 2 * VECTOR, padded(sizes["E"], 16 * VECTOR)  # as in the space
    return sizes["bytes"] * ((rows + keys) * depth + keys * width) + 4 * rows * (keys + VECTOR)


class _Writer:
    """The statements of one configuration."""

    def __init__(self, flash: Flash, config: Config):
        self.flash, self.s = flash, flash.sizes
        self.rows, self.keys = int(config["rows"]), int(config["keys"])
        self.ty, self.tx, self.splits = int(config["threads_m"]), int(config["threads_n"]), int(config["splits"])
        self.row_count, self.key_count = self.rows // self.ty, self.keys // self.tx
        per_thread = -(-self.s["E"] // self.tx)
        self.group = VECTOR if self.s["E"] % VECTOR == 0 and per_thread >= VECTOR else 1
        self.groups = -(-self.s["E"] // (self.tx * self.group))
        self.depth = padded(self.s["D"], VECTOR)
        dtype, width = flash.dtype, self.groups * self.group * self.tx
        self.query = _shared("query_shared", self.rows, self.depth, dtype)
        self.key = _shared("key_shared", self.keys, self.depth, dtype)
        self.value = _shared("value_shared", self.keys, width, dtype, padding=0)
        self.weights = _shared("weights_shared", self.rows, self.keys, WIDE)
        n, values = self.row_count, self.groups * self.group
        self.scores = local("scores", n, self.key_count)
        self.weighted = local("weighted", n, values)
        self.largest, self.total = local("largest", n), local("total", n)
        self.larger, self.factor, self.part = local("larger", n), local("factor", n), local("part", n)
        self.query_part, self.key_part = local("query_part", n, VECTOR), local("key_part", self.key_count, VECTOR)
        self.weight_part, self.value_part = local("weight_part", n, VECTOR), local("value_part", values)
        if self.splits > 1:
            rows = (index(self.splits), flash.heads, flash.extents["M"])
            self.part_largest, self.part_total = between("part_largest", *rows), between("part_total", *rows)
            self.part_weighted = between("part_weighted", *rows, index(self.s["E"]))
            self.all_largest, self.all_total = local("all_largest", 1), local("all_total", 1)
            self.all_weighted = local("all_weighted", 1)
        self.buffers = [b for b in vars(self).values() if isinstance(b, Buffer)]

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """(the launch, or two, and the buffers between)."""
        tiles, threads = self.flash.tiles("M", self.rows), ((THREAD_Y, self.ty), (THREAD_X, self.tx))

        def of_block(part: PrimExpr, head: PrimExpr, tile: PrimExpr, ty: Var, tx: Var) -> Stmt:
            # the last queries see most keys where the mask is causal: their blocks come first
            order: PrimExpr = E.sub(E.sub(tiles, index(1)), tile) if self.flash.shift is not None else tile
            return self.tile(part, head, E.mul(order, index(self.rows)), ty, tx)

        def of_part(part: PrimExpr) -> Stmt:
            return bound_heads(self.flash, tiles, threads, functools.partial(of_block, part))

        if self.splits == 1:
            return of_part(index(0)), self.buffers
        return seq(bound(((BLOCK_Z, self.splits),), of_part), self.added_up()), self.buffers

    def tile(self, part: PrimExpr, head: PrimExpr, first: PrimExpr, ty: Var, tx: Var) -> Stmt:
        """The queries from `first` on, and a part of the keys."""
        flash, s, n = self.flash, self.s, self.row_count
        threads = ((ty, self.ty), (tx, self.tx))
        queries = fill(flash.query, flash.of_scores(head), first, (flash.extents["M"], s["D"]))
        vector = flash.query.vector(s["D"])
        start = [
            copy_tile(self.query, self.rows, self.depth, queries, threads, vector, not flash.query.is_contiguous),
            unrolled("row", (n,), lambda i: seq(
                assign(self.largest, (i,), E.const(float("-inf"), WIDE)), assign(self.total, (i,), zero()))),
            unrolled("row value", (n, self.groups * self.group), lambda i, e: assign(self.weighted, (i, e), zero())),
        ]  # fmt: skip
        count = flash.key_tiles(E.add(first, index(self.rows - 1)), self.keys)
        each = flash.tiles("T", self.keys * self.splits)  # of a part

        def of_part(kt: Var) -> Stmt:
            at = E.add(E.mul(part, each), kt)
            step = self.step(head, first, E.mul(at, index(self.keys)), ty, tx)
            whole = self.splits * self.keys
            is_whole = flash.shift is None and padded(s["T"], whole) == padded(s["T"], self.keys)
            is_whole = is_whole and not flash.is_open
            return step if is_whole else IfThenElse(E.compare(E.LT, at, count), step)

        if self.splits > 1:
            steps = loop("key_tile", each, of_part)
        else:
            steps = loop("key_tile", count, lambda kt: self.step(head, first, E.mul(kt, index(self.keys)), ty, tx))
        return block("attention", seq(*start, steps, self.end(part, head, first, ty, tx)))

    def step(self, head: PrimExpr, first: PrimExpr, first_key: PrimExpr, ty: Var, tx: Var) -> Stmt:
        """A tile of keys for all queries of the block."""
        flash, s = self.flash, self.s
        threads = ((ty, self.ty), (tx, self.tx))
        key, value = flash.key, flash.value
        keys = fill(key, flash.of_scores(head), first_key, (flash.extents["T"], s["D"]))
        values = fill(value, flash.of_result(head), first_key, (flash.extents["T"], s["E"]))
        width = self.groups * self.group * self.tx
        return seq(
            copy_tile(self.key, self.keys, self.depth, keys, threads, key.vector(s["D"]), not key.is_contiguous),
            copy_tile(self.value, self.keys, width, values, threads, value.vector(s["E"]), not value.is_contiguous),
            *self.products(ty, tx),
            *self.softmax(head, first, first_key, ty, tx),
            *self.sums(ty, tx),
        )

    def row(self, i: PrimExpr, ty: Var) -> PrimExpr:
        """A thread's queries lie side by side."""
        return E.add(E.mul(ty, index(self.row_count)), i)

    def column(self, j: PrimExpr, tx: Var) -> PrimExpr:
        """Neighbouring threads have neighbouring keys."""
        return E.add(E.mul(j, index(self.tx)), tx)

    def products(self, ty: Var, tx: Var) -> list[Stmt]:
        """scores = query * key, four elements of both at a time."""
        n, m = self.row_count, self.key_count

        def part(d: Var) -> Stmt:
            def take(target: Buffer, i: Var, source: Buffer, row: PrimExpr) -> Stmt:
                return lanes(VECTOR, lambda lane: assign(
                    target, (i, lane), E.cast(WIDE, element(source, row, E.add(E.mul(d, VECTOR), lane)))))  # fmt: skip

            return seq(
                unrolled("row", (n,), lambda i: take(self.query_part, i, self.query, self.row(i, ty))),
                unrolled("key", (m,), lambda j: take(self.key_part, j, self.key, self.column(j, tx))),
                unrolled("d row key", (VECTOR, n, m), lambda k, i, j: add_to(
                    self.scores, (i, j), E.mul(element(self.query_part, i, k), element(self.key_part, j, k)))),
            )  # fmt: skip

        return [
            unrolled("row key", (n, m), lambda i, j: assign(self.scores, (i, j), zero())),
            loop("d", self.depth // VECTOR, part),
        ]

    def softmax(self, head: PrimExpr, first: PrimExpr, first_key: PrimExpr, ty: Var, tx: Var) -> list[Stmt]:
        """Scores to weights; the sums so far in terms of the largest score so far."""
        n, m = self.row_count, self.key_count

        def argument(i: Var, j: Var) -> Stmt:
            column = E.add(first_key, self.column(j, tx))
            row = E.add(first, self.row(i, ty))
            inside = (
                row if self.s["M"] % self.rows == 0 else inside_of(row, self.flash.extents["M"]),
                column if self.s["T"] % self.keys == 0 else inside_of(column, self.flash.extents["T"]),
            )
            made = self.flash.score(head, *inside, element(self.scores, i, j))
            return assign(self.scores, (i, j), seen(self.flash, column, made, self.keys))

        def rescale(i: Var) -> Stmt:
            base = safe(element(self.larger, i))
            return seq(
                assign(self.factor, (i,), exp(E.sub(element(self.largest, i), base))),
                assign(self.largest, (i,), element(self.larger, i)),
                assign(self.larger, (i,), base),
            )

        return [
            unrolled("row key", (n, m), argument),
            unrolled("row", (n,), lambda i: assign(self.part, (i,), element(self.scores, i, index(0)))),
            unrolled("row key", (n, m), lambda i, j: assign(
                self.part, (i,), E.maximum(element(self.part, i), element(self.scores, i, j)))),
            unrolled("row", (n,), lambda i: assign(self.part, (i,), of_lanes("max", element(self.part, i), self.tx))),
            unrolled("row", (n,), lambda i: assign(
                self.larger, (i,), E.maximum(element(self.largest, i), element(self.part, i)))),
            unrolled("row", (n,), rescale),
            unrolled("row key", (n, m), lambda i, j: assign(
                self.scores, (i, j), exp(E.sub(element(self.scores, i, j), element(self.larger, i))))),
            unrolled("row", (n,), lambda i: assign(
                self.total, (i,), E.mul(element(self.total, i), element(self.factor, i)))),
            unrolled("row key", (n, m), lambda i, j: add_to(self.total, (i,), element(self.scores, i, j))),
            unrolled("row key", (n, m), lambda i, j: BufferStore(
                self.weights, element(self.scores, i, j), (self.row(i, ty), self.column(j, tx)))),
        ]  # fmt: skip

    def sums(self, ty: Var, tx: Var) -> list[Stmt]:
        """weighted = weighted * factor + weights * value, four keys at a time."""
        n, values = self.row_count, self.groups * self.group

        def part(t: Var) -> Stmt:
            def key(k: PrimExpr) -> Stmt:
                def take(g: Var) -> Stmt:
                    return lanes(self.group, lambda lane: assign(
                        self.value_part, (E.add(E.mul(g, self.group), lane),), E.cast(WIDE, BufferLoad(
                            self.value, (E.add(E.mul(t, VECTOR), k), self.element(g, lane, tx))))))  # fmt: skip

                return seq(
                    unrolled("group", (self.groups,), take),
                    unrolled("row value", (n, values), lambda i, e: add_to(
                        self.weighted, (i, e), E.mul(element(self.weight_part, i, k), element(self.value_part, e)))),
                )  # fmt: skip

            return seq(
                unrolled("row", (n,), lambda i: lanes(VECTOR, lambda lane: assign(
                    self.weight_part, (i, lane),
                    BufferLoad(self.weights, (self.row(i, ty), E.add(E.mul(t, VECTOR), lane)))))),
                unrolled("key", (VECTOR,), key),
            )  # fmt: skip

        return [
            unrolled("row value", (n, values), lambda i, e: assign(
                self.weighted, (i, e), E.mul(element(self.weighted, i, e), element(self.factor, i)))),
            loop("t", self.keys // VECTOR, part),
        ]  # fmt: skip

    def element(self, g: PrimExpr, lane: PrimExpr, tx: Var) -> PrimExpr:
        """Neighbouring threads have neighbouring groups of a value's elements."""
        return E.add(E.mul(E.add(E.mul(g, self.tx), tx), self.group), lane)

    def end(self, part: PrimExpr, head: PrimExpr, first: PrimExpr, ty: Var, tx: Var) -> Stmt:
        """The result, or what a part of the keys gives, from the sums of all threads of a row."""
        n, s = self.row_count, self.s

        def store(i: Var, g: Var) -> Stmt:
            row = E.add(first, self.row(i, ty))

            def stored(lane: PrimExpr) -> Stmt:
                e = self.element(g, lane, tx)
                sums = element(self.weighted, i, E.add(E.mul(g, self.group), lane))
                if self.splits > 1:
                    return assign(self.part_weighted, (part, head, row, e), sums)
                value, indices = self.flash.result(head, row, e, sums, element(self.total, i))
                return BufferStore(self.flash.out, value, indices)

            stmt = lanes(self.group, stored)
            limits = []
            if s["M"] % self.rows:
                limits.append(E.compare(E.LT, row, self.flash.extents["M"]))
            if s["E"] % (self.tx * self.group):
                limits.append(E.compare(E.LT, self.element(g, index(0), tx), index(s["E"])))
            return IfThenElse(E.all_of(*limits), stmt) if limits else stmt

        def of_part(i: Var) -> Stmt:
            row = E.add(first, self.row(i, ty))
            stmt = seq(
                assign(self.part_largest, (part, head, row), element(self.largest, i)),
                assign(self.part_total, (part, head, row), element(self.total, i)),
            )
            limits = [E.compare(E.EQ, tx, index(0)), E.compare(E.LT, row, self.flash.extents["M"])]
            return IfThenElse(E.all_of(*limits), stmt)

        return seq(
            unrolled("row", (n,), lambda i: assign(self.total, (i,), of_lanes("add", element(self.total, i), self.tx))),
            *([unrolled("row", (n,), of_part)] if self.splits > 1 else []),
            unrolled("row group", (n, self.groups), store),
        )

    def added_up(self) -> Stmt:
        """The launch that adds up what the parts of the keys give: a thread for each element of the result."""
        m, width = self.flash.extents["M"], index(self.s["E"])
        count, at, none = E.mul(E.mul(self.flash.heads, m), width), (index(0),), float("-inf")

        def of_thread(bx: Var, tx: Var) -> Stmt:
            place = E.add(E.mul(bx, index(SUM_THREADS)), tx)
            head, e = E.floordiv(place, E.mul(m, width)), E.floormod(place, width)
            row = E.floormod(E.floordiv(place, width), m)

            def largest(part: Var) -> Stmt:
                both = E.maximum(element(self.all_largest, *at), element(self.part_largest, part, head, row))
                return assign(self.all_largest, at, both)

            def sums(part: Var) -> Stmt:
                base = safe(element(self.all_largest, *at))
                factor = exp(E.sub(element(self.part_largest, part, head, row), base))
                return seq(
                    add_to(self.all_total, at, E.mul(element(self.part_total, part, head, row), factor)),
                    add_to(self.all_weighted, at, E.mul(element(self.part_weighted, part, head, row, e), factor)),
                )

            sum_of, total = element(self.all_weighted, *at), element(self.all_total, *at)
            value, indices = self.flash.result(head, row, e, sum_of, total)
            stmt = seq(
                assign(self.all_largest, at, E.const(none, WIDE)),
                assign(self.all_total, at, zero()),
                assign(self.all_weighted, at, zero()),
                loop("part", self.splits, largest),
                loop("part", self.splits, sums),
                BufferStore(self.flash.out, value, indices),
            )
            is_whole = (const_int(count) or 1) % SUM_THREADS == 0
            return stmt if is_whole else IfThenElse(E.compare(E.LT, place, count), stmt)

        blocks = E.floordiv(E.add(count, index(SUM_THREADS - 1)), index(SUM_THREADS))
        axes = ((BLOCK_X, blocks), (THREAD_X, SUM_THREADS))
        return bound(axes, lambda bx, tx: block("attention_sum", of_thread(bx, tx)))


def bound_heads(flash: Flash, tiles: PrimExpr, threads: Sequence[tuple[str, int]], body: Callable[..., Stmt]) -> Stmt:
    """Blocks for tiles of queries of all heads; `body` takes head, tile and the threads.

    Where sizes are open, which may be many heads, all blocks lie along one axis: others are short.
    """
    if not flash.is_open:
        return bound(((BLOCK_Y, flash.heads), (BLOCK_X, tiles), *threads), body)

    def of_block(bx: Var, *rest: Var) -> Stmt:
        return body(E.floordiv(bx, tiles), E.floormod(bx, tiles), *rest)

    return bound(((BLOCK_X, E.mul(flash.heads, tiles)), *threads), of_block)


def inside_of(at: PrimExpr, size: PrimExpr) -> PrimExpr:
    """A position that is there: those beyond read what no one uses."""
    return E.minimum(at, E.sub(size, index(1)))


def _shared(name: str, rows: int, columns: int, dtype: str, padding: int = VECTOR) -> Buffer:
    """A matrix in shared memory; rows that are `padding` elements apart begin in different banks."""
    strides = (index(columns + padding), index(1)) if padding else ()
    return Buffer(name, (index(rows), index(columns)), dtype, strides=strides, scope="shared")


def local(name: str, *shape: int, dtype: str = WIDE) -> Buffer:
    """A thread's own."""
    return Buffer(name, tuple(map(index, shape)), dtype, scope="local")


def between(name: str, *shape: int | PrimExpr) -> Buffer:
    """What one launch leaves for the next."""
    return Buffer(name, tuple(index(n) if isinstance(n, int) else n for n in shape), WIDE)


def exp(x: PrimExpr) -> PrimExpr:
    return Call("exp", (x,), WIDE)


def of_lanes(op: str, x: PrimExpr, width: int) -> PrimExpr:
    """What "add" or "max" makes of `width` lanes' values."""
    return Call(LANES, (StringImm(op), x, IntImm(width)), WIDE) if width > 1 else x
