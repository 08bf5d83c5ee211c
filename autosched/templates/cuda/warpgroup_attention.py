"""Attention without scores in memory by warpgroups of sm_90a: softmax(q kᵀ * scale) v of 16-bit floats.

for head in blockIdx.y, tile of queries in blockIdx.x:
    one warp:     query_shared = the queries; key_shared, value_shared = boxes of k and v, `stages` of them ahead
    warpgroups:   scores = query_shared * key_shared                     # of the first tile of keys
                  for tile of keys, as far as a query sees them:
                      weights = exp(scores - largest)                    # registers of the second product
                      scores = query_shared * key_shared                 # of the tile after it, wgmma
                      weighted += weights * value_shared                 # runs beside the next softmax
                      largest, total, weighted rescaled for a larger score
                  out = epilogue(weighted / total)

Source  Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao 2024, FlashAttention-3, section 3.2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from autosched.codegen.lower.fragments import EXP2_APPROX, GROUP_ACCUMULATOR, GROUP_MATRIX_A, ROW_VALUES
from autosched.codegen.lower.loops import COPIED_STAGES
from autosched.codegen.lower.warpgroup_chain import TURNS
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.cuda.nests import block, bound, with_statements, with_work_of
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.tensor_attention import DTYPES, LOG2E
from autosched.templates.cuda.threads import BLOCK_X, BLOCK_Y, MOST_GRID_YZ, THREAD_Y
from autosched.templates.flash import (
    WIDE,
    Flash,
    Operand,
    add_to,
    assign,
    element,
    fill,
    find_flash,
    safe,
    seen,
    wide,
    zero,
)  # fmt: skip
from autosched.templates.nests import index, loop, nested
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, FloatImm, PrimExpr, Select, Var, const_int
from autosched.tir.extrema import NumberMax
from autosched.tir.functor import free_vars
from autosched.tir.schedule import Schedule
from autosched.tir.simplify import split_conditions
from autosched.tir.stmt import BufferStore, IfThenElse, Stmt, seq

ARCH = "sm_90a"
LINE = 64  # elements of a row of shared memory, and rows of a product
STEP = 16  # keys that an instruction adds up
MOST_WIDTH = 256  # elements of a query, key or value
LEAST_LENGTH = 128  # of queries and keys: others have little to multiply
LEAST_KEYS, MOST_KEYS = 32, 128  # of a tile
KEYS_OF_A_TILE = 16  # what a tile takes beside its keys, in keys
MOST_WITH_EPILOGUE = 128  # elements of a value whose sums leave two warpgroups registers for more than a division
OTHER_REGISTERS = 32  # of a thread: rows' values, addresses, what is under way


class WarpgroupAttention:
    """Scaled dot-product attention of float16 and bfloat16 with rows of whole lines, causal or not."""

    name = "warpgroup_attention"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        if target.gpu.arch != ARCH:
            return None
        flash = find_flash(func)
        if flash is None or flash.dtype not in DTYPES or flash.sizes["heads"] > MOST_GRID_YZ:
            return None
        s, operands = flash.sizes, (flash.query, flash.key, flash.value)
        if s["D"] % LINE or s["E"] % LINE or max(s["D"], s["E"]) > MOST_WIDTH:
            return None
        if s["E"] == MOST_WIDTH and _has_epilogue(flash):  # sums take half of a thread's registers
            return None
        if min(s["M"], s["T"]) < LEAST_LENGTH or {*(x.load.buffer for x in operands), flash.out} != set(func.buffers):
            return None
        widths = (s["D"], s["D"], s["E"])
        if not all(_is_box(x, width) for x, width in zip(operands, widths, strict=True)):
            return None
        return Anchor(flash.found.scores.name_hint, "attention", dict(s), flash)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """Two warpgroups, so that one multiplies while the other one computes powers, where that leaves no SM idle.

        Narrow heads leave room for two blocks of one warpgroup, between which nothing has to wait (12.8 and 14.1 us for
        16 heads of 1024 x 64 on an H200). Of the numbers of keys that registers hold, the one by which tiles and their
        ends take least.
        """
        s, gpu = anchor.sizes, target.gpu
        blocks = s["heads"] * -(-s["M"] // (2 * LINE))
        is_full = registers(s, LEAST_KEYS) > registers_left(2) or (
            s["E"] > MOST_WITH_EPILOGUE and _has_epilogue(anchor.details)
        )
        at_once = 1 if max(s["D"], s["E"]) <= LINE else 2
        groups = 1 if is_full or at_once * blocks <= gpu.sm_count else 2
        fitting = [
            keys for keys in range(LEAST_KEYS, MOST_KEYS + 1, STEP)
            if registers(s, keys) <= registers_left(groups)
            and shared_bytes(s, groups, keys, 2) <= gpu.max_shared_memory_per_block
        ]  # fmt: skip
        keys = min(fitting, key=lambda n: -(-s["T"] // n) * (n + KEYS_OF_A_TILE))
        stages = min(2, -(-s["T"] // keys))
        return Config(self.name, {"groups": groups, "keys": keys, "stages": stages, "turns": int(groups > 1)})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        flash = find_flash(func)
        assert flash is not None, "apply is called on a function that matched"
        body, buffers = _Writer(flash, config).function()
        trace = Schedule(func).trace.to_json_text()
        return Applied(with_work_of(with_statements(func, body, buffers), func), (None,) * len(func.params), trace)


def _has_epilogue(flash: Flash) -> bool:
    """Whether more than the division by the sum of powers follows."""
    return len(flash.found.chain.after) > 1


def _is_box(operand: Operand, width: int) -> bool:
    """Whether rows of a head are one dimension of the argument, and their elements, side by side, the last one."""
    rows, columns = (operand.axes[n].var for n in (operand.rows, operand.columns))
    *outer, last = operand.load.indices
    is_row = [i is rows for i in outer]
    others = [i for i, own in zip(outer, is_row, strict=True) if not own]
    size = const_int(operand.load.buffer.shape[-1])
    return last is columns and sum(is_row) == 1 and size == width and not any(
        {rows, columns} & set(free_vars(i)) for i in others
    )  # fmt: skip


def registers(s: Mapping[str, int], keys: int) -> int:
    """Registers of a thread that hold sums, scores and weights."""
    return s["E"] // 2 + keys // 2 + keys // 4


def registers_left(groups: int) -> int:
    """Registers of a thread for these: see `warpgroup_matmul.registers_left`."""
    return min(255, 512 // (groups + 1) // 8 * 8) - OTHER_REGISTERS


def shared_bytes(s: Mapping[str, int], groups: int, keys: int, stages: int) -> int:
    """Bytes of a block's shared memory, with room for mbarriers."""
    return 2 * (LINE * groups * s["D"] + stages * keys * (s["D"] + s["E"])) + 1024


class _Writer:
    """The statements of one configuration."""

    def __init__(self, flash: Flash, config: Config):
        self.flash, self.s = flash, flash.sizes
        self.groups, self.keys, self.stages = (int(config[n]) for n in ("groups", "keys", "stages"))
        self.turns = int(config.get("turns", 0))
        self.rows, self.depth, self.width = LINE * self.groups, self.s["D"], self.s["E"]
        dtype = flash.dtype
        self.query_shared = _matrix("query_shared", self.rows, self.depth, dtype, "shared")
        self.key_shared = _matrix("key_shared", self.keys, self.depth, dtype, "shared")
        self.value_shared = _matrix("value_shared", self.keys, self.width, dtype, "shared")
        self.scores = _matrix("scores", LINE, self.keys, WIDE, GROUP_ACCUMULATOR)
        self.weights = _matrix("weights", LINE, self.keys, dtype, GROUP_MATRIX_A)
        self.weighted = _matrix("weighted", LINE, self.width, WIDE, GROUP_ACCUMULATOR)
        self.largest, self.total, self.larger, self.base, self.factor = (
            Buffer(name, (index(LINE),), WIDE, scope=ROW_VALUES)
            for name in ("largest", "total", "larger", "base", "factor")
        )
        self.buffers = [b for b in vars(self).values() if isinstance(b, Buffer)]
        self.scale = self.constant_scale()

    def constant_scale(self) -> float | None:
        """The positive factor that makes the softmax' argument of a product, where it is no more than that."""
        i, j = Var("i", "int32"), Var("j", "int32")
        made, _ = self.score(index(0), i, j, element(self.scores, i, j))
        if isinstance(made, E.Mul) and isinstance(made.a, BufferLoad) and isinstance(made.b, FloatImm):
            return made.b.value if 0 < made.b.value < math.inf else None
        return 1.0 if isinstance(made, BufferLoad) else None

    def score(
        self, head: PrimExpr, row: PrimExpr, key: PrimExpr, product: BufferLoad
    ) -> tuple[PrimExpr, PrimExpr | None]:
        """(the argument of the softmax without its causal mask, the mask); (all of it, None) where others are in it."""
        made = self.flash.score(head, row, key, product)
        if self.flash.shift is None or not isinstance(made, Select) or len(list(split_conditions(made.condition))) > 1:
            return made, None
        return made.true_value, made.condition

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """(the launch, the buffers between)."""
        tiles = -(-self.s["M"] // self.rows)

        def of_block(head: Var, tile: Var, group: Var) -> Stmt:
            # the last queries see most keys where the mask is causal: their blocks come first
            order: PrimExpr = E.sub(index(tiles - 1), tile) if self.flash.shift is not None else tile
            return self.tile(head, E.mul(order, index(self.rows)), group)

        axes = ((BLOCK_Y, self.s["heads"]), (BLOCK_X, tiles), (THREAD_Y, self.groups))
        return bound(axes, of_block), self.buffers

    def copy(
        self, target: Buffer, operand: Operand, head: Mapping[int, PrimExpr], first: PrimExpr, sizes: tuple[int, int]
    ) -> Stmt:
        """Rows of an operand to shared memory, 0 beyond `sizes`."""
        value = fill(operand, head, first, sizes)
        return self.over("row column", _shape(target), lambda i, j: assign(target, (i, j), value(i, j)))

    def tile(self, head: Var, first: PrimExpr, group: Var) -> Stmt:
        """The queries from `first` on, 64 for each warpgroup."""
        flash, s, own = self.flash, self.s, E.mul(group, index(LINE))
        count = flash.key_tiles(E.add(first, index(self.rows - 1)), self.keys)
        after = E.maximum(E.sub(count, index(1)), index(0))  # tiles behind the first one, which is always computed
        row = E.add(first, own)

        def keys(kt: PrimExpr) -> Stmt:
            at = E.mul(kt, index(self.keys))
            return self.copy(self.key_shared, flash.key, flash.of_scores(head), at, (s["T"], s["D"]))

        def values(kt: PrimExpr) -> Stmt:
            at = E.mul(kt, index(self.keys))
            return self.copy(self.value_shared, flash.value, flash.of_result(head), at, (s["T"], s["E"]))

        def step(kt: Var) -> Stmt:
            following = E.add(kt, index(1))
            return seq(
                keys(following),
                *self.products(own),
                values(kt),
                self.sums(),
                *self.softmax(head, row, E.mul(following, index(self.keys))),
                self.rescaled(),
                self.to_weights(),
            )

        return block("attention", seq(
            self.copy(self.query_shared, flash.query, flash.of_scores(head), first, (s["M"], s["D"])),
            self.over("row", (LINE,), lambda i: assign(self.largest, (i,), E.const(-math.inf, WIDE))),
            self.over("row", (LINE,), lambda i: assign(self.total, (i,), zero())),
            keys(index(0)),
            *self.products(own),
            *self.softmax(head, row, index(0)),
            self.over("row e", (LINE, self.width), lambda i, e: assign(self.weighted, (i, e), zero())),
            self.to_weights(),
            loop("key_tile", after, step, annotations={COPIED_STAGES: self.stages, TURNS: self.turns}),
            values(after),
            self.sums(),
            self.end(head, row),
        ))  # fmt: skip

    def over(self, names: str, extents: tuple[int, ...], body: Callable[..., Stmt]) -> Stmt:
        """A statement for each element of a fragment or a box."""
        return nested(names, extents, body)

    def products(self, own: PrimExpr) -> list[Stmt]:
        """scores = query * key; what the softmax begins with."""
        return [
            self.over("row", (LINE,), lambda i: assign(self.larger, (i,), element(self.largest, i))),
            self.over("row key", (LINE, self.keys), lambda i, j: assign(self.scores, (i, j), zero())),
            self.over("row key d", (LINE, self.keys, self.depth), lambda i, j, d: add_to(self.scores, (i, j), E.mul(
                wide(self.query_shared, E.add(own, i), d), wide(self.key_shared, j, d)))),
        ]  # fmt: skip

    def sums(self) -> Stmt:
        """weighted += weights * value."""
        return self.over("row e k", (LINE, self.width, self.keys), lambda i, e, k: add_to(self.weighted, (i, e), E.mul(
            wide(self.weights, i, k), wide(self.value_shared, k, e))))  # fmt: skip

    def softmax(self, head: Var, first: PrimExpr, first_key: PrimExpr) -> list[Stmt]:
        """Scores to powers; the largest score and the sum of powers so far."""
        whole = (LINE, self.keys)

        def rows(target: Buffer, value: Callable[[Var], PrimExpr]) -> Stmt:
            return self.over("row", (LINE,), lambda i: assign(target, (i,), value(i)))

        return [
            *self.arguments(head, first, first_key),
            self.over("row key", whole, lambda i, j: assign(
                self.larger, (i,), NumberMax(element(self.larger, i), element(self.scores, i, j)))),
            rows(self.base, lambda i: E.mul(safe(element(self.larger, i)), self.exponent())),
            rows(self.factor, lambda i: self.power(self.largest, i, (i,))),
            rows(self.largest, lambda i: element(self.larger, i)),
            self.over("row key", whole, lambda i, j: assign(self.scores, (i, j), self.power(self.scores, i, (i, j)))),
            rows(self.total, lambda i: E.mul(element(self.total, i), element(self.factor, i))),
            self.over("row key", whole, lambda i, j: add_to(self.total, (i,), element(self.scores, i, j))),
        ]  # fmt: skip

    def arguments(self, head: Var, first: PrimExpr, first_key: PrimExpr) -> list[Stmt]:
        """Products to arguments of the softmax, but for a constant scale; a tile that no mask meets stays as it is.

        The mask is tested in tiles on the diagonal, and in the last one where it has keys that do not exist.
        """
        s, last = self.s, E.add(first_key, index(self.keys - 1))

        def over(is_masked: bool) -> Stmt:
            def store(i: Var, j: Var) -> Stmt:
                column, product = E.add(first_key, j), element(self.scores, i, j)
                made, sees = self.score(head, E.add(first, i), column, product)
                made = made if self.scale is None else product
                if is_masked and sees is not None:
                    made = Select(sees, made, E.const(-math.inf, WIDE))
                return assign(self.scores, (i, j), seen(self.flash, column, made, self.keys) if is_masked else made)

            return self.over("row key", (LINE, self.keys), store)

        i, j = Var("i", "int32"), Var("j", "int32")
        _, sees = self.score(head, i, j, element(self.scores, i, j))
        if self.flash.shift is not None and sees is None:
            return [over(True)]
        meets = [] if sees is None else [E.compare(E.LT, self.flash.last_key(first), last)]
        if s["T"] % self.keys:
            meets.append(E.compare(E.LE, index(s["T"]), last))
        plain = None if self.scale is not None else over(False)
        if not meets:
            return [] if plain is None else [plain]
        return [IfThenElse(meets[0] if len(meets) == 1 else E.Or(*meets), over(True), plain)]

    def exponent(self) -> PrimExpr:
        """What the numbers in `scores` are multiplied by for powers of two."""
        return E.const(LOG2E * (1.0 if self.scale is None else self.scale), WIDE)

    def power(self, buffer: Buffer, i: Var, at: tuple[PrimExpr, ...]) -> PrimExpr:
        """exp(score - base); the base is scaled for powers of two already."""
        return Call(EXP2_APPROX, (E.sub(E.mul(element(buffer, *at), self.exponent()), element(self.base, i)),), WIDE)

    def rescaled(self) -> Stmt:
        """The sums so far in terms of the largest score so far."""
        return self.over("row e", (LINE, self.width), lambda i, e: assign(
            self.weighted, (i, e), E.mul(element(self.weighted, i, e), element(self.factor, i))))  # fmt: skip

    def to_weights(self) -> Stmt:
        """The powers as the first operand of the second product."""
        return self.over("row k", (LINE, self.keys), lambda i, k: assign(
            self.weights, (i, k), E.cast(self.flash.dtype, element(self.scores, i, k))))  # fmt: skip

    def end(self, head: Var, first: PrimExpr) -> Stmt:
        """The result, from both sums."""
        s = self.s

        def store(i: Var, e: Var) -> Stmt:
            row = E.add(first, i)
            value, indices = self.flash.result(head, row, e, element(self.weighted, i, e), element(self.total, i))
            stmt = BufferStore(self.flash.out, value, indices)
            return IfThenElse(E.compare(E.LT, row, index(s["M"])), stmt) if s["M"] % self.rows else stmt

        return self.over("row e", (LINE, self.width), store)


def _matrix(name: str, rows: int, columns: int, dtype: str, scope: str) -> Buffer:
    return Buffer(name, (index(rows), index(columns)), dtype, scope=scope)


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(const_int(s) or 0 for s in buffer.shape)
