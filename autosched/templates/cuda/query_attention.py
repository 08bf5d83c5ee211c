"""Attention of a few queries, as a model has that writes word by word: keys and values go from memory to registers.

for part of the keys in blockIdx.x, head in blockIdx.y, group of lanes in threadIdx.y, threadIdx.x:
    for step:                                                 # a group of lanes takes `keys` keys at once
        key_part, value_part = k and v                        # 16 bytes of each key and value a lane, all under way
        scores = query * key_part                             # added up by the lanes of a group
        largest, total, weighted rescaled for a larger score
        weighted += exp(scores - largest) * value_part
    out = epilogue(weighted / total), of all groups           # or what the part gives
out = epilogue(weighted / total), of all parts                # a second launch, where there are parts

Nothing is shared while keys come by, so no thread waits for another: as many bytes as registers hold are on their way.
Source  Dao, Haziza, Massa, Sizov 2023, Flash-Decoding for long-context inference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.target.gpus import GpuFacts
from autosched.templates.base import Anchor, Applied
from autosched.templates.cuda.attention import (
    DTYPES,
    MOST_ELEMENTS,
    STAND_INS,
    between,
    exp,
    inside_of,
    local,
    of_lanes,
)
from autosched.templates.cuda.core_tiles import LAUNCH_S
from autosched.templates.cuda.nests import block, bound, with_statements, with_work_of
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import (
    BLOCK_X,
    BLOCK_Y,
    MOST_GRID_YZ,
    THREAD_X,
    THREAD_Y,
    power_of_two_above,
)
from autosched.templates.flash import (
    WIDE,
    Flash,
    add_to,
    assign,
    element,
    fill,
    find_flash,
    safe,
    seen,
    wide,
    zero,
)
from autosched.templates.nests import index, lanes, loop, unrolled
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import Call, PrimExpr, Var, const_int
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, IfThenElse, Stmt, seq

WARP = 32
MOST_QUERIES = 4  # whose sums are registers beside keys and values
LEAST_KEYS = 128
MOST_REGISTERS = 96  # of a thread, for queries and sums
KEPT_WORDS = 32  # of keys and values, in a thread's registers
WARPS, BLOCKS_AT_ONCE = 4, 8  # of a block; of an SM, with 64 registers a thread
SUM_THREADS = (8, 128)  # of a block that adds up parts: over parts, over elements
MEMORY_LATENCY, KEY_CYCLES = 1400.0, 70.0  # cycles of a load where many are under way; of a key, for each block


class QueryAttention:
    """Scaled dot-product attention of a few queries with many keys, whose elements lie side by side."""

    name = "query_attention"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        flash = find_flash(func)
        return None if flash is None or flash.sizes["heads"] > MOST_GRID_YZ else self._anchor(flash)

    def of_open_sizes(self, func: PrimFunc, target: Target) -> Anchor | None:
        """The same as `match` for a known number of queries, where other sizes come with the call."""
        flash = find_flash(func, STAND_INS)
        return None if flash is None or const_int(flash.extents["M"]) is None else self._anchor(flash)

    def _anchor(self, flash: Flash) -> Anchor | None:
        s = dict(flash.sizes)
        if flash.dtype not in DTYPES or max(s["D"], s["E"]) > MOST_ELEMENTS:
            return None
        if s["M"] > MOST_QUERIES or s["T"] < LEAST_KEYS:
            return None
        if not (flash.key.is_contiguous and flash.value.is_contiguous):
            return None
        shape = _Lanes.of(flash)
        registers = s["M"] * (shape.of_key + shape.of_value)
        if registers > MOST_REGISTERS:
            return None
        item = item_bytes(flash.dtype)
        loaded = (shape.of_key + shape.of_value) * item  # bytes of a key and a value in a lane
        s |= {"bytes": item, "registers": registers, "loaded": -(-loaded // 4), "groups": WARP // shape.width}
        return Anchor(flash.found.scores.name_hint, "attention", s, flash)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """Four keys at once where registers suffice; parts as many as are done first."""
        s = anchor.sizes
        keys = 4
        while keys > 1 and keys * s["loaded"] > KEPT_WORDS:
            keys //= 2
        most = max(1, s["T"] // (WARPS * s["groups"] * keys))
        choices = [n for n in (1, 2, 4, 8, 16, 32, 64, 128) if n <= most]
        splits = min(choices, key=lambda n: _cycles(s, target.gpu, keys, n))
        return Config(self.name, {"keys": keys, "warps": WARPS, "splits": splits})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        flash = find_flash(func, STAND_INS)
        assert flash is not None, "apply is called on a function that matched"
        body, buffers = _Writer(flash, config).function()
        trace = Schedule(func).trace.to_json_text()
        made = with_statements(func, body, buffers)
        return Applied(made if flash.is_open else with_work_of(made, func), (None,) * len(func.params), trace)


def _cycles(s: Mapping[str, int], gpu: GpuFacts, keys: int, splits: int) -> float:
    """Cycles until the last block is done: as long as memory takes, or the steps of a block, one after the other."""
    steps = -(-s["T"] // (splits * WARPS * s["groups"] * keys))
    beside = -(-s["heads"] * splits // gpu.sm_count)  # blocks of an SM
    moved = s["heads"] * s["T"] * (s["D"] + s["E"]) * s["bytes"]
    waits = -(-beside // BLOCKS_AT_ONCE) * steps * (MEMORY_LATENCY + KEY_CYCLES * keys * min(beside, BLOCKS_AT_ONCE))
    cycles = max(waits, moved / gpu.memory_bandwidth * gpu.clock_hz)
    return cycles + (LAUNCH_S * gpu.clock_hz + MEMORY_LATENCY if splits > 1 else 0)


class _Lanes:
    """How the elements of a key and a value lie in the lanes of a group.

    width               lanes of a group
    key, value          neighbours of one access
    of_key, of_value    elements of a lane
    """

    def __init__(self, width: int, key: int, value: int, sizes: tuple[int, int]):
        self.width, self.key, self.value = width, key, value
        self.of_key, self.of_value = (
            -(-size // (width * vector)) * vector for size, vector in zip(sizes, (key, value), strict=True)
        )

    @staticmethod
    def of(flash: Flash) -> _Lanes:
        sizes = flash.sizes["D"], flash.sizes["E"]
        key, value = flash.key.vector(sizes[0]), flash.value.vector(sizes[1])
        width = min(WARP, power_of_two_above(max(-(-sizes[0] // key), -(-sizes[1] // value))))
        return _Lanes(width, key, value, sizes)


class _Writer:
    """The statements of one configuration."""

    def __init__(self, flash: Flash, config: Config):
        self.flash, self.s = flash, flash.sizes
        self.keys, self.warps, self.splits = (int(config[knob]) for knob in ("keys", "warps", "splits"))
        self.lanes = _Lanes.of(flash)
        m, self.slots = self.s["M"], self.warps * WARP // self.lanes.width
        of_key, of_value = self.lanes.of_key, self.lanes.of_value
        self.query = local("query", m, of_key)
        self.key_part = local("key_part", self.keys, of_key, dtype=flash.key.load.buffer.dtype)
        self.value_part = local("value_part", self.keys, of_value, dtype=flash.value.load.buffer.dtype)
        self.scores, self.weighted = local("scores", m, self.keys), local("weighted", m, of_value)
        self.largest, self.total, self.larger, self.factor = (
            local(name, m) for name in ("largest", "total", "larger", "factor")
        )
        self.slot_largest, self.slot_total = (_shared(name, self.slots, m) for name in ("slot_largest", "slot_total"))
        self.slot_weighted = _shared("slot_weighted", self.slots, m, self.s["E"])
        self.own_largest, self.own_total, self.own_weighted = (
            local(name, 1) for name in ("own_largest", "own_total", "own_weighted")
        )
        if self.splits > 1:
            rows = (flash.heads if flash.is_open else self.s["heads"], m, self.splits)
            self.part_largest, self.part_total = between("part_largest", *rows), between("part_total", *rows)
            self.part_weighted = between("part_weighted", *rows, self.s["E"])
            each, rounds = -(-self.splits // SUM_THREADS[0]), -(-self.splits // WARP)
            self.lane_largest, self.lane_total = local("lane_largest", rounds), local("lane_total", rounds)
            self.thread_weighted = local("thread_weighted", each)
            self.factors, self.sums = _shared("factors", SUM_THREADS[0] * each), _shared("sums", *SUM_THREADS)
            self.all_largest, self.all_total, self.all_weighted = (
                local(name, 1) for name in ("all_largest", "all_total", "all_weighted")
            )
        self.buffers = [b for b in vars(self).values() if isinstance(b, Buffer)]

    @property
    def steps(self) -> int | PrimExpr:
        """How often a group of lanes takes keys: those behind the last one that a query sees are not read."""
        each, shift = self.slots * self.keys * self.splits, self.flash.shift
        most = None if shift is None else max(1, self.s["M"] + shift)
        if const_int(self.flash.extents["T"]) is None:
            count = self.flash.extents["T"] if most is None else E.minimum(self.flash.extents["T"], index(most))
            return E.floordiv(E.add(count, index(each - 1)), index(each))
        return -(-(self.s["T"] if most is None else min(self.s["T"], most)) // each)

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """(the launch, or two, and the buffers between)."""
        threads = ((THREAD_Y, self.warps), (THREAD_X, WARP))
        if self.flash.is_open:  # many heads perhaps, for which other axes of a grid are short
            launch = bound(((BLOCK_X, self.flash.heads), (BLOCK_Y, self.splits), *threads), self.of_block)
        else:
            launch = bound(((BLOCK_Y, self.s["heads"]), (BLOCK_X, self.splits), *threads), self.of_block)
        return (launch if self.splits == 1 else seq(launch, self.added_up())), self.buffers

    def of_block(self, head: Var, part: Var, warp: Var, lane: Var) -> Stmt:
        """A part of the keys of a head."""
        s, width = self.s, self.lanes.width
        place = E.floormod(lane, index(width))  # in its group
        slot = E.add(E.mul(warp, index(WARP // width)), E.floordiv(lane, index(width)))
        query = fill(self.flash.query, self.flash.of_scores(head), index(0), (s["M"], s["D"]))

        def step(kt: Var) -> Stmt:
            at = E.add(E.mul(part, _as_index(self.steps)), kt)
            return self.step(head, E.add(E.mul(at, index(self.slots * self.keys)), slot), place)

        start = [
            unrolled("row", (s["M"],), lambda i: self.over_elements(
                self.lanes.of_key, self.lanes.key, place,
                lambda at, e: assign(self.query, (i, at), E.cast(WIDE, query(i, e))))),
            unrolled("row", (s["M"],), lambda i: seq(
                assign(self.largest, (i,), _lowest()), assign(self.total, (i,), zero()))),
            unrolled("row value", (s["M"], self.lanes.of_value), lambda i, e: assign(self.weighted, (i, e), zero())),
        ]  # fmt: skip
        end = [self.left_by_group(slot, place), self.of_groups(head, part, E.add(E.mul(warp, index(WARP)), lane))]
        return block("attention", seq(*start, loop("step", self.steps, step), *end))

    def over_elements(
        self, count: int, vector: int, place: PrimExpr, body: Callable[[PrimExpr, PrimExpr], Stmt]
    ) -> Stmt:
        """body(position in the lane, element) for the elements of a lane; neighbouring lanes have neighbours."""

        def group(g: Var) -> Stmt:
            first = E.mul(E.add(E.mul(g, index(self.lanes.width)), place), index(vector))
            return lanes(vector, lambda lane: body(E.add(E.mul(g, index(vector)), lane), E.add(first, lane)))

        return unrolled("group", (count // vector,), group)

    def step(self, head: Var, first: PrimExpr, place: PrimExpr) -> Stmt:
        """The keys `first`, `first` + slots, … of a group of lanes."""
        flash, s, m, shape = self.flash, self.s, self.s["M"], self.lanes
        whole = (m, self.keys)
        count, steps = self.flash.extents["T"], self.steps
        known = const_int(count)
        keys = fill(flash.key, flash.of_scores(head), first, (count if known is None else known, s["D"]))
        values = fill(flash.value, flash.of_result(head), first, (count if known is None else known, s["E"]))
        most = s["T"] + 1  # keys that come by: more than there are, where their number is open
        reach = steps * self.slots * self.keys * self.splits if isinstance(steps, int) else most
        is_whole = reach <= s["T"]

        def copy(target: Buffer, source: Callable[[PrimExpr, PrimExpr], PrimExpr], count: int, vector: int) -> Stmt:
            return unrolled("key", (self.keys,), lambda k: self.over_elements(
                count, vector, place,
                lambda at, e: assign(target, (k, at), source(E.mul(k, index(self.slots)), e))))  # fmt: skip

        def argument(i: Var, k: Var) -> Stmt:
            column = E.add(first, E.mul(k, index(self.slots)))
            made = flash.score(head, i, column if is_whole else inside_of(column, count), element(self.scores, i, k))
            return assign(self.scores, (i, k), made if is_whole else seen(flash, column, made, reach))

        def rescale(i: Var) -> Stmt:
            base = safe(element(self.larger, i))
            return seq(
                assign(self.factor, (i,), exp(E.sub(element(self.largest, i), base))),
                assign(self.largest, (i,), element(self.larger, i)),
                assign(self.larger, (i,), base),
                assign(self.total, (i,), E.mul(element(self.total, i), element(self.factor, i))),
            )

        return seq(
            copy(self.key_part, keys, shape.of_key, shape.key),
            copy(self.value_part, values, shape.of_value, shape.value),
            unrolled("row key", whole, lambda i, k: assign(self.scores, (i, k), zero())),
            unrolled("key d row", (self.keys, shape.of_key, m), lambda k, d, i: add_to(
                self.scores, (i, k), E.mul(element(self.query, i, d), wide(self.key_part, k, d)))),
            unrolled("row key", whole, lambda i, k: assign(
                self.scores, (i, k), of_lanes("add", element(self.scores, i, k), shape.width))),
            unrolled("row key", whole, argument),
            unrolled("row", (m,), lambda i: assign(self.larger, (i,), element(self.largest, i))),
            unrolled("row key", whole, lambda i, k: assign(
                self.larger, (i,), E.maximum(element(self.larger, i), element(self.scores, i, k)))),
            unrolled("row", (m,), rescale),
            unrolled("row key", whole, lambda i, k: seq(
                assign(self.scores, (i, k), exp(E.sub(element(self.scores, i, k), element(self.larger, i)))),
                add_to(self.total, (i,), element(self.scores, i, k)))),
            unrolled("row value", (m, shape.of_value), lambda i, e: assign(
                self.weighted, (i, e), E.mul(element(self.weighted, i, e), element(self.factor, i)))),
            unrolled("key value row", (self.keys, shape.of_value, m), lambda k, e, i: add_to(
                self.weighted, (i, e), E.mul(element(self.scores, i, k), wide(self.value_part, k, e)))),
        )  # fmt: skip

    def left_by_group(self, slot: PrimExpr, place: PrimExpr) -> Stmt:
        """What each group of lanes has found, in shared memory."""
        s, shape = self.s, self.lanes
        is_even = shape.of_value * shape.width == s["E"]

        def sums(i: Var, g: Var) -> Stmt:
            first = E.mul(E.add(E.mul(g, index(shape.width)), place), index(shape.value))
            stmt = lanes(shape.value, lambda lane: assign(
                self.slot_weighted, (slot, i, E.add(first, lane)),
                element(self.weighted, i, E.add(E.mul(g, index(shape.value)), lane))))  # fmt: skip
            return stmt if is_even else IfThenElse(E.compare(E.LT, first, index(s["E"])), stmt)

        return seq(
            unrolled("row group", (s["M"], shape.of_value // shape.value), sums),
            unrolled("row", (s["M"],), lambda i: IfThenElse(E.compare(E.EQ, place, index(0)), seq(
                assign(self.slot_largest, (slot, i), element(self.largest, i)),
                assign(self.slot_total, (slot, i), element(self.total, i))))),
        )  # fmt: skip

    def of_groups(self, head: Var, part: Var, thread: PrimExpr) -> Stmt:
        """The result, or what a part of the keys gives, of all groups of lanes: elements in turn for all threads."""
        s, at = self.s, (index(0),)
        count, threads = s["M"] * s["E"], self.warps * WARP

        def each(step: Var) -> Stmt:
            place = E.add(E.mul(step, index(threads)), thread)
            i, e = E.floordiv(place, index(s["E"])), E.floormod(place, index(s["E"]))

            def largest(slot: Var) -> Stmt:
                return assign(
                    self.own_largest, at,
                    E.maximum(element(self.own_largest, *at), element(self.slot_largest, slot, i)),
                )  # fmt: skip

            def sums(slot: Var) -> Stmt:
                base = safe(element(self.own_largest, *at))
                factor = exp(E.sub(element(self.slot_largest, slot, i), base))
                return seq(
                    add_to(self.own_total, at, E.mul(element(self.slot_total, slot, i), factor)),
                    add_to(self.own_weighted, at, E.mul(element(self.slot_weighted, slot, i, e), factor)),
                )

            stmt = seq(
                assign(self.own_largest, at, _lowest()),
                assign(self.own_total, at, zero()),
                assign(self.own_weighted, at, zero()),
                loop("slot", self.slots, largest),
                loop("slot", self.slots, sums),
                *self.found(head, part, i, e),
            )
            return IfThenElse(E.compare(E.LT, place, index(count)), stmt) if count % threads else stmt

        return loop("step", -(-count // threads), each)

    def found(self, head: Var, part: Var, row: PrimExpr, e: PrimExpr) -> list[Stmt]:
        """An element of the result, or of what a part of the keys gives."""
        at = (index(0),)
        total, weighted = element(self.own_total, *at), element(self.own_weighted, *at)
        if self.splits == 1:
            value, indices = self.flash.result(head, row, e, weighted, total)
            return [BufferStore(self.flash.out, value, indices)]
        once = seq(
            assign(self.part_largest, (head, row, part), element(self.own_largest, *at)),
            assign(self.part_total, (head, row, part), total),
        )
        return [
            assign(self.part_weighted, (head, row, part, e), weighted),
            IfThenElse(E.compare(E.EQ, e, index(0)), once),
        ]

    def added_up(self) -> Stmt:
        """The launch that adds up what the parts of the keys give: a block for some elements of a row.

        Each warp finds all factors by itself, while what the factors are for is on its way.
        """
        s, at, (deep, across) = self.s, (index(0),), SUM_THREADS
        tiles, each, rounds = -(-s["E"] // across), -(-self.splits // deep), -(-self.splits // WARP)

        def of_block(row: Var, tile: Var, ty: Var, tx: Var) -> Stmt:
            head, i = E.floordiv(row, index(s["M"])), E.floormod(row, index(s["M"]))
            e = E.add(E.mul(tile, index(across)), tx)
            inside = None if s["E"] % across == 0 else E.compare(E.LT, e, index(s["E"]))
            lane = E.floormod(tx, index(WARP))

            def there(part: PrimExpr, count: int, value: PrimExpr, other: PrimExpr, also: PrimExpr | None) -> PrimExpr:
                limits = [] if count == self.splits else [E.compare(E.LT, part, index(self.splits))]
                limits += [] if also is None else [also]
                return Call("if_then_else", (E.all_of(*limits), value, other), WIDE) if limits else value

            def of_lane(r: Var) -> PrimExpr:
                return E.add(E.mul(r, index(WARP)), lane)

            def of_thread(n: Var) -> PrimExpr:
                return E.add(E.mul(n, index(deep)), ty)

            def load_sum(n: Var) -> Stmt:
                p = of_thread(n)
                value = element(self.part_weighted, head, i, p, e)
                return assign(self.thread_weighted, (n,), there(p, each * deep, value, zero(), inside))

            def load_largest(r: Var) -> Stmt:
                p = of_lane(r)
                value = element(self.part_largest, head, i, p)
                return assign(self.lane_largest, (r,), there(p, rounds * WARP, value, _lowest(), None))

            def load_total(r: Var) -> Stmt:
                p = of_lane(r)
                value = element(self.part_total, head, i, p)
                return assign(self.lane_total, (r,), there(p, rounds * WARP, value, zero(), None))

            def weigh(r: Var) -> Stmt:
                power = exp(E.sub(element(self.lane_largest, r), safe(element(self.all_largest, *at))))
                own = seq(
                    assign(self.lane_largest, (r,), power),
                    add_to(self.all_total, at, E.mul(element(self.lane_total, r), element(self.lane_largest, r))),
                )
                first = E.all_of(
                    E.compare(E.EQ, ty, index(0)), E.compare(E.LT, tx, index(WARP)),
                    E.compare(E.LT, of_lane(r), index(each * deep)),
                )  # fmt: skip
                return seq(own, IfThenElse(first, assign(self.factors, (of_lane(r),), element(self.lane_largest, r))))

            def add_weighted(n: Var) -> Stmt:
                factor = element(self.factors, of_thread(n))
                return add_to(self.all_weighted, at, E.mul(element(self.thread_weighted, n), factor))

            def add_deep(n: Var) -> Stmt:
                return add_to(self.all_weighted, at, element(self.sums, n, tx))

            value, indices = self.flash.result(
                head, i, e, element(self.all_weighted, *at), element(self.all_total, *at)
            )
            last = seq(
                assign(self.all_weighted, at, zero()),
                unrolled("n", (deep,), add_deep),
                BufferStore(self.flash.out, value, indices),
            )
            limits = [E.compare(E.EQ, ty, index(0)), *([] if inside is None else [inside])]
            return seq(
                unrolled("n", (each,), load_sum),
                unrolled("r", (rounds,), load_largest),
                unrolled("r", (rounds,), load_total),
                assign(self.all_largest, at, _lowest()),
                unrolled("r", (rounds,), lambda r: assign(
                    self.all_largest, at, E.maximum(element(self.all_largest, *at), element(self.lane_largest, r)))),
                assign(self.all_largest, at, of_lanes("max", element(self.all_largest, *at), WARP)),
                assign(self.all_total, at, zero()),
                unrolled("r", (rounds,), weigh),
                assign(self.all_total, at, of_lanes("add", element(self.all_total, *at), WARP)),
                assign(self.all_weighted, at, zero()),
                unrolled("n", (each,), add_weighted),
                assign(self.sums, (ty, tx), element(self.all_weighted, *at)),
                IfThenElse(E.all_of(*limits), last),
            )  # fmt: skip

        threads = ((THREAD_Y, deep), (THREAD_X, across))
        rows = E.mul(self.flash.heads, index(s["M"])) if self.flash.is_open else index(s["heads"] * s["M"])
        along, other = (BLOCK_X, BLOCK_Y) if self.flash.is_open else (BLOCK_Y, BLOCK_X)
        axes = ((along, rows), (other, index(tiles)), *threads)
        return bound(axes, lambda *v: block("attention_sum", of_block(*v)))


def _as_index(n: int | PrimExpr) -> PrimExpr:
    return index(n) if isinstance(n, int) else n


def _lowest() -> PrimExpr:
    return E.const(float("-inf"), WIDE)


def _shared(name: str, *shape: int) -> Buffer:
    return Buffer(name, tuple(map(index, shape)), WIDE, scope="shared")
