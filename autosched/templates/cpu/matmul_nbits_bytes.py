"""Few rows times weights of 2, 4 or 8 bits in groups, where the dot product of four bytes is one instruction (VNNI).

Before the product the numbers of each group of a row become integers of 24 bits times a power of two, the same for the
group, and the integers three signed bytes each. Four fields of a weight's word are unpacked by one mask, and times four
bytes of a row summed up exactly:

    for group in parallel: for m: unit[m], digits[m] = a[m, group]                     # a = unit * (d2, d1, d0)
    for n panel in parallel:
        for group:
            for word: for fields of it: s2, s1, s0[m, :] += dot of four(fields, digits[m])
            tile[m, :] += float32(65536 * s2 + 256 * s1 + s0) * unit[m] * scale[:]

Where the CPU has tile registers (AMX) several rows' digits are multiplied there, one digit of all rows a tile, or all
three where those have 16 rows together; the fields of a group and its sums then pass through the first-level cache.

A number is rounded by 2^-23 of the largest of its group. One row and groups of 32 weights of 4 bits take 1.3 operations
for 16 weights, in float32 3.2: it is memory that holds them back. Four rows take 0.81 of the time (Emerald Rapids).

AMD's cores read panels of four vectors in order, by one stream, with lines asked for in the first level alone: 0.93 of
the speed of reading, where four streams with lines in two levels reach 0.69 (one row, groups of 32, Zen 5).

Where a model allows bytes (`activation_bits`), there is one digit, whose unit is a 127th of the largest number of the
group: a third of the products and of their sums.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from autosched import te
from autosched.codegen.cpu.amx_nest import AMX, ROWS
from autosched.codegen.cpu.byte_dot import GROUP
from autosched.codegen.cpu.cut import WHOLE_TILE
from autosched.codegen.cpu.narrow_products import DOT_BYTES
from autosched.codegen.cpu.prefetch import PREFETCH, PREFETCH_L2
from autosched.codegen.cpu.types import Isa
from autosched.ir.structural import structural_equal
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, spatial
from autosched.templates.core_nests import load, one_of, store, typed
from autosched.templates.cpu.amx_tile import tile_words
from autosched.templates.cpu.core_nests import Core
from autosched.templates.cpu.matmul_nbits import AHEAD_KIB, IN_ORDER_KIB, reads_in_order
from autosched.templates.nbits_form import GROUP_SUMS, WORD_BYTES, NBits, find_nbits
from autosched.templates.nests import index, loop, unrolled
from autosched.templates.pack import Pack, repack
from autosched.tir import PrimFunc, as_int
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.calls import reinterpret
from autosched.tir.expr import Call, PrimExpr, Var, const
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, Stmt, seq
from autosched.topi.nbits import matmul_nbits

MOST_ROWS = 16  # more rows share weights that are unpacked to floats once
DIGITS = 3  # bytes of an integer
LARGEST_DIGIT = 127
LEAST_LARGEST = 2.0**-119  # of the largest number of a group of one digit, so that no unit is a denormal
TOP_BIT = 22  # of the integers; their largest one is that of three digits of 127
ROUND_UP = 0x10101  # added to the bits of a float32: where that one would be passed, the next power of two is taken
INFINITE = 0x7F800000  # bits of a float32
LEAST_EXPONENT = TOP_BIT + 1  # of the largest number of a group, so that the unit is no denormal
BIAS, MANTISSA_BITS = 127, 23
MOST_SUM = 1 << 31
LEAST_TILE_ROWS = 3  # that are multiplied in tile registers
FEW_FIELDS = 512  # of a group and a panel: four panels side by side of more, or of more sums, are slower than two
FAR_KIB = 16  # of weights that are asked for into the second level of caches
MOST_POINT = 255  # of zero points that are given


class MatmulNBitsBytes:
    """Floats times integers in groups, by dot products of bytes."""

    name = "matmul_nbits_bytes"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        found = find_nbits(func)
        if found is None or not Isa.of(target).has_byte_dots or not _is_plain(func, found):
            return None
        m, n = (as_int(iv.dom.extent) for iv in spatial(found.chain.anchor))
        depth = found.weight.const_shape()[1] * found.per_word
        block = depth // found.factors[-1].const_shape()[1]
        largest = MOST_POINT if len(found.factors) > 1 else (1 << found.bits) - 1
        digits = _digits(found)
        most = largest << TOP_BIT - 7 if digits > 1 else largest * (LARGEST_DIGIT + 1)
        if m > MOST_ROWS or block % target.lanes("float32") or block * most >= MOST_SUM:
            return None
        sizes = {"M": m, "N": n, "K": depth, "block": block, "bits": found.bits, "digits": digits}
        return Anchor(found.chain.anchor.name_hint, "matmul_nbits", sizes, found)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        words = tile_words(anchor.sizes["block"] // GROUP, GROUP, target)
        machine = {"lanes": target.lanes("float32"), "registers": target.num_registers, "tile_words": words}
        space = load_space(target.backend, self.name, {**anchor.sizes, **machine})
        return space.with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        m, n, digits = (anchor.sizes[name] for name in ("M", "N", "digits"))
        most = max(1, (target.num_registers - 4) // (digits + 1))
        tiles = -(-m // most)
        rows = -(-m // tiles)
        panels = -(-n // target.lanes("float32"))
        block = anchor.sizes["block"]
        in_tiles = m >= LEAST_TILE_ROWS and tile_words(block // GROUP, GROUP, target) > 0
        if in_tiles:
            rows, most = m, m * (4 if digits * m <= ROWS and block * target.lanes("float32") <= FEW_FIELDS else 2)
        beside = next(s for s in (4, 2, 1) if panels % s == 0 and (s == 1 or rows * s <= most))
        in_order = {"streams": 1, "vectors": beside, "ahead": IN_ORDER_KIB, "far": 0}
        apart = {"streams": beside, "vectors": 1, "ahead": AHEAD_KIB, "far": FAR_KIB}
        reading = in_order if reads_in_order(target) and not in_tiles else apart
        return Config(self.name, {"rows": rows, **reading, "tiles": in_tiles})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        found: NBits = anchor.details
        packs: list[Pack | None] = [None] * len(func.params)
        packed, before = [], func
        width = int(config.get("vectors", 1)) * target.lanes("float32")
        for buffer in (found.weight, *found.factors):
            place = next(i for i, b in enumerate(before.buffers) if b is buffer)
            packs[place] = pack = Pack(buffer.const_shape(), (width, 0), (0, 2, 1))
            func = repack(func, buffer, pack)
            packed.append(func.buffers[place])
        core = Core(func, [found.chain.before[-1].name_hint, anchor.block], target)
        writer = _Writer(found, anchor, config, target, packed, core)
        applied = core.applied(seq(writer.split(), writer.product()), writer.buffers)
        return dataclasses.replace(applied, packs=tuple(packs))


def _is_plain(func: PrimFunc, found: NBits) -> bool:
    """Whether it computes what `topi.matmul_nbits` does, with the middle or bytes as zero points."""
    blocks = blocks_of(func)[:2]
    *points, scales = found.factors
    if len(points) > 1 or any(p.dtype != "uint8" for p in points) or len(found.chain.before) != 1:
        return False
    groups = scales.const_shape()[1]
    depth = found.weight.const_shape()[1] * found.per_word
    if depth % groups or not any(found.x is b for b in func.buffers) or len(found.x.shape) != 2:
        return False
    x, weight, scale, *point = (te.placeholder(b.shape, b.dtype, name=b.name)
                                for b in (found.x, found.weight, scales, *points))  # fmt: skip
    zeros, block = point[0] if point else None, depth // groups
    by_groups = found.chain.before[0].name_hint == GROUP_SUMS
    product = matmul_nbits(x, weight, scale, zeros, found.bits, block, found.activation_bits, by_groups)
    kind = spatial(found.chain.anchor)[0].var.dtype
    expected = blocks_of(te.create_prim_func([x, weight, scale, *point, product], index_dtype_override=kind))
    return structural_equal(blocks, expected, map_free_vars=True)


def _digits(found: NBits) -> int:
    """Bytes that a number becomes."""
    return DIGITS if found.activation_bits > 8 else 1


class _Writer:
    """The statements of one configuration."""

    def __init__(self, found: NBits, anchor: Anchor, config: Config, target: Target, packed: list[Buffer], core: Core):
        self.found, self.core, self.s = found, core, anchor.sizes
        self.weight, *self.points, self.scales = packed
        self.out = found.chain.anchor.writes[0].buffer
        self.rows, self.streams, self.ahead = (int(config[name]) for name in ("rows", "streams", "ahead"))
        self.far = int(config.get("far", 0))
        self.lanes = target.lanes("float32")
        self.width = int(config.get("vectors", 1)) * self.lanes
        m, block = self.s["M"], self.s["block"]
        self.in_tiles = bool(config.get("tiles", False))
        self.tile_words = tile_words(block // GROUP, GROUP, target) if self.in_tiles else 0
        self.many = self.in_tiles and self.rows * self.streams > target.num_registers // 2
        self.groups, self.words, self.fields = self.s["K"] // block, block // found.per_word, 8 // found.bits
        self.panels = -(-self.s["N"] // self.width)
        self.n_digits = self.s["digits"]
        self.n_starts = min(self.n_digits, 2)  # sums of the lowest digits, and of what is left without them
        self.digits = one_of("digits", "int32", self.groups, self.n_digits * m, block // GROUP, scope="global")
        self.starts = one_of("starts", "int32", self.groups, m, self.n_starts, scope="global")
        self.units = one_of("units", "float32", self.groups, m, scope="global")
        self.tops, self.top = (one_of(name, "uint32", n) for name, n in (("tops", self.lanes), ("top", 1)))
        self.whole = one_of("whole", "int32", block)
        self.totals, self.total = (
            one_of(name, "int32", self.n_starts, n) for name, n in (("totals", self.lanes), ("total", 1))
        )
        tile, between = ("global" if is_outside else "local" for is_outside in (self.many, self.in_tiles))
        self.sums = one_of("sums", "int32", self.n_digits * self.rows, self.streams, self.width, scope=between)
        words = block // GROUP if self.in_tiles else self.fields
        self.bytes = one_of("fields", "uint32", self.streams, words, self.width, scope=between)
        self.tile = one_of("tile", "float32", self.rows, self.streams, self.width, scope=tile)

    @property
    def buffers(self) -> list[Buffer]:
        """Those between."""
        own = (self.weight, *self.points, self.scales, self.out)
        return [b for b in vars(self).values() if isinstance(b, Buffer) and b not in own]

    def vector(self, body: Callable[[Var], Stmt]) -> Stmt:
        return loop("lane", self.lanes, body, LoopKind.VECTORIZED)

    def columns(self, body: Callable[[Var], Stmt]) -> Stmt:
        """Those of a panel."""
        return loop("lane", self.width, body, LoopKind.VECTORIZED)

    def split(self) -> Stmt:
        """Units and digits of all rows."""
        return loop("g", self.groups, lambda g: loop(
            "m", self.s["M"], lambda m: self.group(g, m), annotations={WHOLE_TILE: 1}), LoopKind.PARALLEL)  # fmt: skip

    def group(self, g: Var, m: Var) -> Stmt:
        """Unit, digits and their sums of one row's group."""
        block = self.s["block"]

        def element(k: PrimExpr) -> PrimExpr:
            at = typed(self.found.x, (m, E.add(E.mul(g, index(block)), k)))
            return E.cast("float32", self.core.value(BufferLoad(self.found.x, at)))

        def steps(body: Callable[[PrimExpr, Var], Stmt]) -> Stmt:
            return loop("step", block // self.lanes, lambda n: self.vector(
                lambda lane: body(E.add(E.mul(n, index(self.lanes)), lane), lane)))  # fmt: skip

        def largest(k: PrimExpr, lane: Var) -> Stmt:
            size = E.bitwise("bitwise_and", reinterpret("uint32", element(k)), _word(0x7FFFFFFF))
            return store(self.tops, E.maximum(load(self.tops, lane), size), lane)

        top = load(self.top, 0)
        unit, inverse = _power_unit(top) if self.n_digits > 1 else _byte_unit(top)
        is_number = E.compare(E.LT, top, _word(INFINITE))

        def rounded(k: PrimExpr, lane: Var) -> Stmt:
            whole = E.cast("int32", E.call("nearbyint", E.mul(element(k), inverse), dtype="float32"))
            parts = [load(self.whole, k), _without_digit(load(self.whole, k))][: self.n_starts]
            totals = (store(self.totals, E.add(load(self.totals, i, lane), x), i, lane) for i, x in enumerate(parts))
            return seq(store(self.whole, whole, k), *totals)

        zero = const(0, "int32")
        totals: list[PrimExpr] = [load(self.total, i, 0) for i in range(self.n_starts)]
        if self.n_starts > 1:
            totals[0] = E.sub(totals[0], E.mul(totals[1], const(256, "int32")))
        times = -1 if self.points else -(1 << self.found.bits - 1)
        return seq(
            self.vector(lambda lane: store(self.tops, _word(0), lane)),
            steps(largest),
            store(self.top, _word(0), 0),
            unrolled("lane", (self.lanes,), lambda lane: store(
                self.top, E.maximum(load(self.top, 0), load(self.tops, lane)), 0)),
            store(self.units, E.select(is_number, unit, const(math.nan, "float32")), g, m),
            unrolled("i", (self.n_starts,), lambda i: self.vector(lambda lane: store(self.totals, zero, i, lane))),
            steps(rounded),
            unrolled("i", (self.n_starts,), lambda i: store(self.total, zero, i, 0)),
            unrolled("i lane", (self.n_starts, self.lanes), lambda i, lane: store(
                self.total, E.add(load(self.total, i, 0), load(self.totals, i, lane)), i, 0)),
            *(store(self.starts, E.mul(x, const(times, "int32")), g, m, i) for i, x in enumerate(totals)),
            loop("field", self.fields, lambda f: loop("word", self.words, lambda w: self.bytes_of(g, m, f, w),
                LoopKind.VECTORIZED), LoopKind.UNROLLED),
        )  # fmt: skip

    def bytes_of(self, g: Var, m: Var, field: Var, word: Var) -> Stmt:
        """The digits of the four numbers that meet a field of each byte of a word."""
        first = E.add(E.mul(word, index(self.found.per_word)), field)
        left: list[PrimExpr] = [load(self.whole, E.add(first, index(self.fields * j))) for j in range(GROUP)]
        stores = []
        for digit in range(self.n_digits):
            kept = [E.bitwise("bitwise_and", x, const(255, "int32")) for x in left]
            value = kept[0]
            for j, x in enumerate(kept[1:], 1):
                value = E.bitwise("bitwise_or", value, E.bitwise("shift_left", x, const(8 * j, "int32")))
            stores.append(store(self.digits, value, g, *self.place(index(digit), m, self.s["M"], field, word)))
            left = [_without_digit(x) for x in left]
        return seq(*stores)

    def place(self, digit: PrimExpr, row: PrimExpr, rows: int, field: PrimExpr, word: PrimExpr) -> tuple[PrimExpr, ...]:
        """The row of a digit and the word that meets a field of a word."""
        return E.add(E.mul(digit, index(rows)), row), E.add(E.mul(field, index(self.words)), word)

    def product(self) -> Stmt:
        """The tiles of all panels."""
        m = self.s["M"]
        tiles = [(first, min(self.rows, m - first)) for first in range(0, m, self.rows)]
        return loop("panel", self.panels // self.streams, lambda panel: seq(
            *(_Tile(self, panel, first, rows).stmt() for first, rows in tiles)), LoopKind.PARALLEL)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class _Tile:
    """Some rows times the panels side by side."""

    of: _Writer  # of all tiles
    panel: Var
    first: int
    rows: int

    def stmt(self) -> Stmt:
        of_words, of_groups = {}, {}
        for annotation, kib in ((PREFETCH, self.of.ahead), (PREFETCH_L2, self.of.far)):
            words = kib * 1024 // (WORD_BYTES * self.of.streams * self.of.width)
            if kib:
                of_words[annotation] = {self.of.weight.name: max(1, words)}
                of_groups[annotation] = {
                    b.name: max(1, words // self.of.words) for b in (*self.of.points, self.of.scales)
                }
        # The sums are memory of all groups, not of one: they are named before the loop.
        first_sums = [store(self.of.sums, const(0, "int32"), 0, 0, 0)]
        return seq(
            *(first_sums if self.of.in_tiles else ()),
            self.over(lambda i, s, lane: store(self.of.tile, const(0.0, "float32"), i, s, lane)),
            loop("g", self.of.groups, lambda g: seq(
                *([] if self.of.in_tiles else [self.over(lambda i, s, lane: self.start(g, i, s, lane))]),
                loop("word", self.of.words, lambda w: self.word(g, w), annotations=of_words),
                *(self.in_registers(g) if self.of.in_tiles else ()),
                self.over(lambda i, s, lane: self.scaled(g, i, s, lane)),
            ), annotations={WHOLE_TILE: 1, **of_groups}),
            self.over(self.written),
        )  # fmt: skip

    def over(self, body: Callable[[Var, Var, Var], Stmt]) -> Stmt:
        """What `body` makes for each row, stream and lane."""

        def row(i: Var) -> Stmt:
            return unrolled("stream", (self.of.streams,), lambda s: self.of.columns(lambda lane: body(i, s, lane)))

        # Of many rows at once LLVM keeps more on its way than there are registers, on the stack.
        return loop("i", self.rows, row, LoopKind.SERIAL if self.of.many else LoopKind.UNROLLED)

    def at(self, stream: Var) -> PrimExpr:
        """Each stream has panels one behind the other: it goes on from one tile to the next."""
        return E.add(E.mul(stream, index(self.of.panels // self.of.streams)), self.panel)

    def starts_of(self, g: Var, i: Var, s: Var, lane: Var) -> list[PrimExpr]:
        """What the sums of a group's digits begin with, where it is known before."""
        row = E.add(i, index(self.first))
        lower: list[PrimExpr] = [load(self.of.starts, g, row, n) for n in range(self.of.n_starts)]
        if self.of.points:
            point = E.cast("int32", load(self.of.points[0], self.at(s), g, lane))
            lower = [E.mul(point, x) for x in lower]
        return lower

    def sum_at(self, i: Var, s: Var, n: PrimExpr | int, lane: Var) -> tuple[PrimExpr, ...]:
        digit = index(n) if isinstance(n, int) else n
        return E.add(E.mul(digit, index(self.of.rows)), i), s, lane

    def start(self, g: Var, i: Var, s: Var, lane: Var) -> Stmt:
        values = [*self.starts_of(g, i, s, lane), *[const(0, "int32")] * (self.of.n_digits - self.of.n_starts)]
        return seq(*(store(self.of.sums, x, *self.sum_at(i, s, n, lane)) for n, x in enumerate(values)))

    def unpacked(self, g: Var, w: Var, s: Var, f: Var, lane: Var) -> Stmt:
        """A field of a word of weights as bytes."""
        word: PrimExpr = load(self.of.weight, self.at(s), E.add(E.mul(g, index(self.of.words)), w), lane)
        if self.of.fields > 1:
            moved = E.bitwise("shift_right", word, E.cast("uint32", E.mul(f, index(self.of.found.bits))))
            ones = ((1 << self.of.found.bits) - 1) * 0x01010101
            word = E.bitwise("bitwise_and", moved, _word(ones))
        place = E.add(E.mul(f, index(self.of.words)), w) if self.of.in_tiles else f
        return store(self.of.bytes, word, s, place, lane)

    def added(self, g: Var, w: Var, i: Var, s: Var, f: Var, n: Var) -> Stmt:
        """A field times four bytes of a row, added to the sums of a digit."""
        digits = load(self.of.digits, g, *self.of.place(n, E.add(i, index(self.first)), self.of.s["M"], f, w))

        def body(lane: Var) -> Stmt:
            place = self.sum_at(i, s, n, lane)
            value = Call(DOT_BYTES, (load(self.of.sums, *place), load(self.of.bytes, s, f, lane), digits), "int32")
            return store(self.of.sums, value, *place)

        return self.of.columns(body)

    def word(self, g: Var, w: Var) -> Stmt:
        """A word of weights: its fields, and their products where no tile registers are used."""
        unpack = unrolled("stream field", (self.of.streams, self.of.fields),
                          lambda s, f: self.of.columns(lambda lane: self.unpacked(g, w, s, f, lane)))  # fmt: skip
        return unpack if self.of.in_tiles else seq(
            unpack,
            unrolled("field i digit stream", (self.of.fields, self.rows, self.of.n_digits, self.of.streams),
                     lambda f, i, n, s: self.added(g, w, i, s, f, n)),
        )  # fmt: skip

    def scaled(self, g: Var, i: Var, s: Var, lane: Var) -> Stmt:
        """The sums of a group in float32, added to the tile."""
        sums: list[PrimExpr] = [load(self.of.sums, *self.sum_at(i, s, n, lane)) for n in range(self.of.n_digits)]
        if self.of.in_tiles:
            sums[: self.of.n_starts] = [E.add(x, y) for x, y in zip(sums, self.starts_of(g, i, s, lane), strict=False)]
        whole = E.cast("float32", sums[0])
        if self.of.n_digits > 1:
            upper = E.add(E.bitwise("shift_left", sums[2], const(8, "int32")), sums[1])
            whole = E.add(E.mul(E.cast("float32", upper), const(256.0, "float32")), whole)
        real = E.mul(whole, load(self.of.units, g, E.add(i, index(self.first))))
        scale = E.cast("float32", load(self.of.scales, self.at(s), g, lane))
        return store(self.of.tile, E.add(load(self.of.tile, i, s, lane), E.mul(real, scale)), i, s, lane)

    def written(self, i: Var, s: Var, lane: Var) -> Stmt:
        """An element of the result, inside of it."""
        n = E.add(E.mul(self.at(s), index(self.of.width)), lane)
        done = BufferStore(
            self.of.out, load(self.of.tile, i, s, lane), typed(self.of.out, (E.add(i, index(self.first)), n))
        )  # fmt: skip
        return IfThenElse(E.compare(E.LT, n, index(self.of.s["N"])), done) if self.of.s["N"] % self.of.width else done

    def in_registers(self, g: Var) -> Iterator[Stmt]:
        """The sums of a group's fields and all digits, in tile registers."""
        rows, words = self.of.n_digits * self.of.rows, self.of.tile_words
        each = rows if rows <= ROWS else self.of.rows

        def over(first: int, body: Callable[[PrimExpr, Var, Var], Stmt]) -> Stmt:
            return loop("row", each, lambda r: loop("stream", self.of.streams, lambda s: self.of.columns(
                lambda lane: body(E.add(r, index(first)), s, lane)), LoopKind.UNROLLED), LoopKind.UNROLLED)  # fmt: skip

        def added(step: Var, row: PrimExpr, s: Var, word: Var, lane: Var) -> Stmt:
            at = E.add(E.mul(step, index(words)), word)
            factors = load(self.of.bytes, s, at, lane), load(self.of.digits, g, row, at)
            return store(
                self.of.sums, Call(DOT_BYTES, (load(self.of.sums, row, s, lane), *factors), "int32"), row, s, lane
            )

        for first in range(0, rows, each):
            yield over(first, lambda row, s, lane: store(self.of.sums, const(0, "int32"), row, s, lane))
            yield loop("step", self.of.s["block"] // GROUP // words, lambda step, first=first: over(
                first, lambda row, s, lane: loop("word", words, lambda word: added(step, row, s, word, lane),
                LoopKind.UNROLLED, annotations={AMX: 1})))  # type: ignore[misc]  # fmt: skip


def _word(value: int) -> PrimExpr:
    return const(value, "uint32")


def _power(exponent: PrimExpr) -> PrimExpr:
    """The power of two of a float32 whose exponent has these bits."""
    return reinterpret("float32", E.bitwise("shift_left", exponent, _word(MANTISSA_BITS)))


def _power_unit(top: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """(unit, its reciprocal) of integers of three digits, for the bits of the largest number."""
    raised = E.bitwise("shift_right", E.add(top, _word(ROUND_UP)), _word(MANTISSA_BITS))
    exponent = E.minimum(E.maximum(raised, _word(LEAST_EXPONENT)), _word(255))
    return _power(E.sub(exponent, _word(TOP_BIT))), _power(E.sub(_word(2 * BIAS + TOP_BIT), exponent))


def _byte_unit(top: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The same of one digit."""
    largest = E.maximum(reinterpret("float32", top), const(LEAST_LARGEST, "float32"))
    return E.mul(largest, const(1 / LARGEST_DIGIT, "float32")), E.div(const(float(LARGEST_DIGIT), "float32"), largest)


def _without_digit(x: PrimExpr) -> PrimExpr:
    """What is left of an integer without its lowest digit, of -128 to 127, in units of the next one."""
    return E.bitwise("shift_right", E.add(x, const(128, "int32")), const(8, "int32"))


__all__ = ["MatmulNBitsBytes"]
