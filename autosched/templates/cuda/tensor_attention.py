"""Attention without scores in memory, on tensor cores: softmax(q kᵀ * scale + bias) v of 16-bit floats.

for head in blockIdx.y, tile of queries in blockIdx.x, warp in threadIdx.y:
    query = q of the warp                                                  # stays in registers
    for tile of keys, as far as a query sees them:                         # copies run `stages` - 1 tiles ahead
        key_shared, value_shared = k and v of the tile                     # asynchronously, by all threads
        scores = query * key_shared                                        # mma.sync, float32
        largest, total, weighted rescaled for a larger score               # rows shared by four lanes
        weights = exp(scores - largest)                                    # registers of the next product
        weighted += weights * value_shared
    out = epilogue(weighted / total)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autosched.codegen.lower.fragments import ACCUMULATOR, EXP2_APPROX, MATRIX_A, MATRIX_B, ROW_VALUES
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.cuda.attention import STAND_INS, bound_heads, inside_of
from autosched.templates.cuda.nests import block, copy_tile, with_statements, with_work_of
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import MOST_GRID_YZ, THREAD_X, THREAD_Y
from autosched.templates.flash import (
    WIDE,
    Flash,
    Operand,
    add_to,
    assign,
    element,
    fill,
    find_flash,
    padded,
    safe,
    seen,
    wide,
    zero,
)  # fmt: skip
from autosched.templates.nests import index, loop, nested
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, PrimExpr, Var, const_int
from autosched.tir.extrema import NumberMax
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, IfThenElse, Stmt, seq

DTYPES = ("float16", "bfloat16")
LEAST_CAPABILITY = (8, 0)
LANES, ROWS, STEP = 32, 16, 16  # of a warp; queries of an instruction; elements it adds up
PADDING = 8  # elements between rows of shared memory: rows begin in different banks
LOG2E = math.log2(math.e)
FEW_QUERIES, MANY_KEYS = 4, 512
MOST_REGISTERS = 176  # of fragments in a lane
MOST_COPIED = 8192  # elements of a tile of keys and values that a warp copies: places and conditions take registers
# Where lengths come with the call, places and conditions of a tile are not known either. By the oldest capability: the
# widest head, and the elements that a warp of 16 queries copies. Wider ones spill, on sm_80 with tiles of 16 keys too.
OPEN_LIMITS = (((9, 0), 128, 2048), (LEAST_CAPABILITY, 80, 640))


class TensorAttention:
    """Scaled dot-product attention of float16 and bfloat16 with more than a few queries."""

    name = "tensor_attention"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        if target.gpu.compute_capability < LEAST_CAPABILITY:
            return None
        flash = find_flash(func)
        return None if flash is None or flash.sizes["heads"] > MOST_GRID_YZ else self._anchor(flash, target)

    def of_open_sizes(self, func: PrimFunc, target: Target) -> Anchor | None:
        """The same as `match` for a function some of whose sizes come with the call."""
        flash = find_flash(func, STAND_INS) if target.gpu.compute_capability >= LEAST_CAPABILITY else None
        if flash is None or (_is_open(flash) and max(flash.sizes["D"], flash.sizes["E"]) > _open_limits(target)[0]):
            return None
        return self._anchor(flash, target)

    def _anchor(self, flash: Flash, target: Target) -> Anchor | None:
        if flash.dtype not in DTYPES:
            return None
        s = dict(flash.sizes) | {"DP": padded(flash.sizes["D"], STEP), "EP": padded(flash.sizes["E"], STEP)}
        if registers(s, ROWS, 32, 1) > MOST_REGISTERS or _wants_parts(s, target):
            return None
        return Anchor(flash.found.scores.name_hint, "attention", s, flash)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """Two instructions' rows a warp where registers suffice; fewer queries a block where SMs would be idle."""
        s = anchor.sizes
        is_open, most_copied = _is_open(anchor.details), MOST_COPIED
        if is_open:
            _, most_copied = _open_limits(target)
        rows, warps, keys = (128, 4, 64) if max(s["DP"], s["EP"]) <= 64 and not is_open else (128, 8, 64)
        while rows > ROWS and (rows >= 2 * s["M"] or 4 * s["heads"] * -(-s["M"] // rows) < 3 * target.gpu.sm_count):
            rows //= 2
        warps = min(warps, rows // ROWS)
        while keys > STEP and (
            keys >= 2 * s["T"]
            or registers(s, rows, keys, warps) > MOST_REGISTERS
            or keys * (s["DP"] + s["EP"]) > most_copied * warps
        ):
            keys //= 2
        stages = 2 if s["T"] > keys else 1
        while stages > 1 and shared_bytes(s, rows, keys, stages) > target.gpu.max_shared_memory_per_block:
            stages -= 1
        while keys > STEP and shared_bytes(s, rows, keys, stages) > target.gpu.max_shared_memory_per_block:
            keys //= 2
        return Config(self.name, {"rows": rows, "keys": keys, "warps": warps, "stages": stages})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        flash = find_flash(func, STAND_INS)
        assert flash is not None, "apply is called on a function that matched"
        body, buffers = _Writer(flash, config).function()
        trace = Schedule(func).trace.to_json_text()
        return Applied(with_work_of(with_statements(func, body, buffers), func), (None,) * len(func.params), trace)


def _wants_parts(s: Mapping[str, int], target: Target) -> bool:
    """Whether few queries of few heads see many keys: the other template shares these among blocks."""
    return s["M"] <= FEW_QUERIES and s["heads"] < target.gpu.sm_count and s["T"] >= MANY_KEYS


def _is_open(flash: Flash) -> bool:
    """Whether the number of queries or keys comes with the call."""
    return any(const_int(flash.extents[n]) is None for n in "MT")


def _open_limits(target: Target) -> tuple[int, int]:
    """(the widest head, the most that a warp copies) where lengths come with the call."""
    return next((d, n) for least, d, n in OPEN_LIMITS if target.gpu.compute_capability >= least)


def registers(s: Mapping[str, int], rows: int, keys: int, warps: int) -> int:
    """Registers of a lane that hold the queries, scores and sums of a warp."""
    per_warp = rows // warps
    return per_warp * (s["DP"] // 2 + keys + s["EP"]) // LANES


def shared_bytes(s: Mapping[str, int], rows: int, keys: int, stages: int) -> int:
    """Bytes of a block's shared memory; the queries' place is used again by keys."""
    tiles = stages * keys * (s["DP"] + s["EP"] + 2 * PADDING)
    return 2 * max(tiles, rows * (s["DP"] + PADDING) + 128)


class _Writer:
    """The statements of one configuration."""

    def __init__(self, flash: Flash, config: Config):
        self.flash, self.s = flash, flash.sizes
        self.rows, self.keys, self.warps = int(config["rows"]), int(config["keys"]), int(config["warps"])
        self.stages = int(config["stages"])
        self.depth, self.width = padded(self.s["D"], STEP), padded(self.s["E"], STEP)
        self.own = self.rows // self.warps  # queries of a warp
        dtype = flash.dtype
        self.query_shared = _matrix("query_shared", self.rows, self.depth, dtype, "shared")
        self.key_shared = _matrix("key_shared", self.keys, self.depth, dtype, "shared")
        self.value_shared = _matrix("value_shared", self.keys, self.width, dtype, "shared")
        self.query = _matrix("query", self.own, self.depth, dtype, MATRIX_A)
        self.key = _matrix("key", self.keys, STEP, dtype, MATRIX_B)
        self.scores = _matrix("scores", self.own, self.keys, WIDE, ACCUMULATOR)
        self.weights = _matrix("weights", self.own, STEP, dtype, MATRIX_A)
        self.value = _matrix("value", STEP, self.width, dtype, MATRIX_B)
        self.weighted = _matrix("weighted", self.own, self.width, WIDE, ACCUMULATOR)
        self.largest, self.total, self.larger, self.base, self.factor = (
            Buffer(name, (index(self.own),), WIDE, scope=ROW_VALUES)
            for name in ("largest", "total", "larger", "base", "factor")
        )
        self.buffers = [b for b in vars(self).values() if isinstance(b, Buffer)]

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """(the launch, the buffers between)."""
        tiles = self.flash.tiles("M", self.rows)

        def of_block(head: PrimExpr, tile: PrimExpr, warp: Var, lane: Var) -> Stmt:
            # the last queries see most keys where the mask is causal: their blocks come first
            order: PrimExpr = E.sub(E.sub(tiles, index(1)), tile) if self.flash.shift is not None else tile
            return self.tile(head, E.mul(order, index(self.rows)), warp, lane)

        threads = ((THREAD_Y, self.warps), (THREAD_X, LANES))
        return bound_heads(self.flash, tiles, threads, of_block), self.buffers

    def copy(
        self, target: Buffer, operand: Operand, head: Mapping[int, PrimExpr], first: PrimExpr,
        sizes: tuple[PrimExpr, int], warp: Var, lane: Var,
    ) -> Stmt:  # fmt: skip
        """Rows of an operand to shared memory, 0 beyond `sizes`."""
        rows, columns = (int(x.value) for x in target.shape)  # type: ignore[attr-defined]
        values = fill(operand, head, first, sizes)
        threads = ((warp, self.warps), (lane, LANES))
        vector = operand.vector(sizes[1])
        return copy_tile(target, rows, columns, values, threads, vector, not operand.is_contiguous)

    def tile(self, head: PrimExpr, first: PrimExpr, warp: Var, lane: Var) -> Stmt:
        """The queries from `first` on; those of a warp begin `own` behind those of the one before."""
        flash, s, own = self.flash, self.s, E.mul(warp, index(self.own))
        queries, keys = flash.extents["M"], flash.extents["T"]
        count = flash.key_tiles(E.add(first, index(self.rows - 1)), self.keys)
        notes: dict[str, object] = {}
        if self.stages > 1:
            notes["software_pipeline_stage"] = [0, 0, self.stages - 1]
            notes["software_pipeline_order"] = [0, 1, 2]
            notes["software_pipeline_async_stages"] = [0]

        def step(kt: Var) -> Stmt:
            first_key = E.mul(kt, index(self.keys))
            return seq(
                self.copy(self.key_shared, flash.key, flash.of_scores(head), first_key, (keys, s["D"]), warp, lane),
                self.copy(self.value_shared, flash.value, flash.of_result(head), first_key, (keys, s["E"]), warp, lane),
                *self.products(),
                *self.softmax(head, E.add(first, own), first_key),
                *self.sums(),
            )

        return block("attention", seq(
            self.copy(self.query_shared, flash.query, flash.of_scores(head), first, (queries, s["D"]), warp, lane),
            self.over("row d", (self.own, self.depth), lambda i, d: assign(
                self.query, (i, d), BufferLoad(self.query_shared, (E.add(own, i), d)))),
            self.over("row", (self.own,), lambda i: assign(self.largest, (i,), E.const(-math.inf, WIDE))),
            self.over("row", (self.own,), lambda i: assign(self.total, (i,), zero())),
            self.over("row e", (self.own, self.width), lambda i, e: assign(self.weighted, (i, e), zero())),
            loop("key_tile", count, step, annotations=notes),
            self.end(head, E.add(first, own)),
        ))  # fmt: skip

    def over(self, names: str, extents: tuple[int, ...], body: Callable[..., Stmt]) -> Stmt:
        """A statement for each element of a fragment."""
        return nested(names, extents, body)

    def products(self) -> list[Stmt]:
        """scores = query * key, a step of elements at a time."""

        def step(d: Var) -> Stmt:
            at = E.mul(d, index(STEP))
            return seq(
                self.over("key k", (self.keys, STEP), lambda j, k: assign(
                    self.key, (j, k), BufferLoad(self.key_shared, (j, E.add(at, k))))),
                self.over("row key k", (self.own, self.keys, STEP), lambda i, j, k: add_to(
                    self.scores, (i, j), E.mul(wide(self.query, i, E.add(at, k)), wide(self.key, j, k)))),
            )  # fmt: skip

        return [
            self.over("row key", (self.own, self.keys), lambda i, j: assign(self.scores, (i, j), zero())),
            loop("d", self.depth // STEP, step),
        ]

    def softmax(self, head: PrimExpr, first: PrimExpr, first_key: PrimExpr) -> list[Stmt]:
        """Scores to weights; the sums so far in terms of the largest score so far."""
        s, whole = self.s, (self.own, self.keys)

        def argument(i: Var, j: Var) -> Stmt:
            row, column = E.add(first, i), E.add(first_key, j)
            inside = (
                row if s["M"] % self.rows == 0 else inside_of(row, self.flash.extents["M"]),
                column if s["T"] % self.keys == 0 else inside_of(column, self.flash.extents["T"]),
            )
            made = self.flash.score(head, *inside, element(self.scores, i, j))
            return assign(self.scores, (i, j), seen(self.flash, column, made, self.keys))

        def rows(target: Buffer, value: Callable[[Var], PrimExpr]) -> Stmt:
            return self.over("row", (self.own,), lambda i: assign(target, (i,), value(i)))

        return [
            self.over("row key", whole, argument),
            rows(self.larger, lambda i: element(self.largest, i)),
            self.over("row key", whole, lambda i, j: assign(
                self.larger, (i,), NumberMax(element(self.larger, i), element(self.scores, i, j)))),
            rows(self.base, lambda i: E.mul(safe(element(self.larger, i)), E.const(LOG2E, WIDE))),
            rows(self.factor, lambda i: self.power(self.largest, i, (i,))),
            rows(self.largest, lambda i: element(self.larger, i)),
            self.over("row key", whole, lambda i, j: assign(self.scores, (i, j), self.power(self.scores, i, (i, j)))),
            rows(self.total, lambda i: E.mul(element(self.total, i), element(self.factor, i))),
            self.over("row key", whole, lambda i, j: add_to(self.total, (i,), element(self.scores, i, j))),
            self.over("row e", (self.own, self.width), lambda i, e: assign(
                self.weighted, (i, e), E.mul(element(self.weighted, i, e), element(self.factor, i)))),
        ]  # fmt: skip

    def power(self, buffer: Buffer, i: Var, at: tuple[PrimExpr, ...]) -> PrimExpr:
        """exp(score - base); the base is scaled for powers of two already."""
        scaled = E.sub(E.mul(element(buffer, *at), E.const(LOG2E, WIDE)), element(self.base, i))
        return Call(EXP2_APPROX, (scaled,), WIDE)

    def sums(self) -> list[Stmt]:
        """weighted += weights * value, a step of keys at a time."""

        def step(t: Var) -> Stmt:
            at = E.mul(t, index(STEP))
            return seq(
                self.over("row k", (self.own, STEP), lambda i, k: assign(
                    self.weights, (i, k), E.cast(self.flash.dtype, element(self.scores, i, E.add(at, k))))),
                self.over("k e", (STEP, self.width), lambda k, e: assign(
                    self.value, (k, e), BufferLoad(self.value_shared, (E.add(at, k), e)))),
                self.over("row e k", (self.own, self.width, STEP), lambda i, e, k: add_to(
                    self.weighted, (i, e), E.mul(wide(self.weights, i, k), wide(self.value, k, e)))),
            )  # fmt: skip

        return [loop("t", self.keys // STEP, step)]

    def end(self, head: PrimExpr, first: PrimExpr) -> Stmt:
        """The result, from both sums."""
        s = self.s

        def store(i: Var, e: Var) -> Stmt:
            row = E.add(first, i)
            value, indices = self.flash.result(head, row, e, element(self.weighted, i, e), element(self.total, i))
            limits = []
            if s["M"] % self.rows:
                limits.append(E.compare(E.LT, row, self.flash.extents["M"]))
            if s["E"] != self.width:
                limits.append(E.compare(E.LT, e, index(s["E"])))
            stmt = BufferStore(self.flash.out, value, indices)
            return IfThenElse(E.all_of(*limits), stmt) if limits else stmt

        return self.over("row e", (self.own, self.width), store)


def _matrix(name: str, rows: int, columns: int, dtype: str, scope: str) -> Buffer:
    strides = (index(columns + PADDING), index(1)) if scope == "shared" else ()
    return Buffer(name, (index(rows), index(columns)), dtype, strides=strides, scope=scope)
