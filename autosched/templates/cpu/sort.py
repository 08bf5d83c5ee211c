"""Sorting along an axis: sort, argsort, topk. Equal elements stay in order, NaN is the greatest.

Elements become unsigned words of the same order, which are distributed by one digit after the other, the lowest first
(radix sort: Knuth, The Art of Computer Programming 3, 5.2.5). That is stable, and linear in the length.

    for line in parallel:
        for i: words[0, i], places[0, i] = word of x[i], i;  counts[d, digit d of the word] += 1 for all digits d
        for d: starts of the digits from their counts; each word and its place go to the next place of its digit
        for rank: out = places[rank]

A digit that all words share is passed over: sorting small integers takes few passes. Where only the first `count` are
wanted, words beyond the highest digit in which the last of them lies are left out. Where they are few, the line is read
in chunks, in vectors: of `count` chunks the least words are at most the bound, and so are all words that are wanted:

    for chunk: least[chunk] = min of its words
    bound = the least word that `count` of `least` do not exceed, found bit by bit
    for chunk with least[chunk] <= bound: keep its words <= bound

A few of many lines are kept in order while the lines are read, side by side in vectors (`sort_few.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.core_nests import CoreNests, load, one_of, others_are_elementwise, store, typed
from autosched.templates.cpu.core_nests import Core, OpenCore
from autosched.templates.cpu.sized import sized
from autosched.templates.cpu.sort_few import MOST_KEPT, keep_few, side_by_side
from autosched.templates.nests import index, loop, nested
from autosched.templates.sort_form import SortForm, find_open_sort, find_sort, sorted_values
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.calls import reinterpret
from autosched.tir.dtypes import is_float, item_bytes
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, Stmt, seq

PLACE, OPEN_PLACE = "int32", "int64"  # of positions along a line
OPEN_DIGIT_BITS = 8  # where the length is not known
MOST_ELEMENTS = 1 << 30  # whose numbers fit 32 bits
DIGIT_BITS = ((64, 6), (1024, 8), (MOST_ELEMENTS, 11))  # of lines up to a length: wide ones have many counters
CHUNKS = (64, 16)  # words of which the least is known; two chunks at least for each word that is wanted
KEEPS = 3  # `selects`: the first few are kept in order
MOST_VECTORS = 4  # of lines side by side, fewer where more is kept of each: they stay in registers
LANES = {"uint32": 16, "uint64": 8}
ZERO_BITS = {"float16": 13, "bfloat16": 16}  # low bits of these types' values as float32

Element = Callable[[PrimExpr, PrimExpr], PrimExpr]
Write = Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]


class Sort:
    """One sort and what is element-wise around it."""

    name = "sort"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        form = find_sort(func)
        if form is None or form.lines.length < 2 or form.lines.count * form.lines.length > MOST_ELEMENTS:
            return None
        if not others_are_elementwise(func, [form.ranks, form.order]):
            return None
        lines = form.lines
        sizes = {"lines": lines.count, "length": lines.length, "count": form.n_wanted, "inner": side_by_side(lines)}
        return Anchor(form.order.name_hint, self.name, sizes, form)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "most_width": MOST_VECTORS * target.lanes("float32"), "most_kept": MOST_KEPT}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        length, count, lanes = anchor.sizes["length"], anchor.sizes["count"], target.lanes("float32")
        has_bound = _chunk(length, count) > 0
        if count <= MOST_KEPT and not (has_bound and anchor.sizes["lines"] < 2 * lanes):
            width = min(anchor.sizes["inner"], lanes * max(1, MOST_VECTORS // count))
            return Config(self.name, {"digit_bits": DIGIT_BITS[0][1], "selects": KEEPS, "width": width})
        selects = 2 if has_bound else int(4 * count <= length)
        sorted_length = min(length, 8 * count) if selects == 2 else length
        bits = next(bits for most, bits in DIGIT_BITS if sorted_length <= most)
        return Config(self.name, {"digit_bits": bits, "selects": selects, "width": 1})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        form = find_sort(func)
        assert form is not None, "apply is called on a function that matched"
        core = Core(func, [form.ranks.name_hint, form.order.name_hint], target)
        return _applied(core, form, int(config["digit_bits"]), int(config["selects"]), int(config.get("width", 1)))


def schedule_sort(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a function over symbols with one sort and what is element-wise around it; None for any other."""
    form = find_open_sort(func, OPEN_PLACE)
    if form is None or not others_are_elementwise(func, [form.ranks, form.order]):
        return None
    core = OpenCore(func, [form.ranks.name_hint, form.order.name_hint], target)
    count = form.count
    if count is None or form.lines.axis < len(form.lines.shape) - 1:
        applied = _applied(core, form, OPEN_DIGIT_BITS, int(count is not None))
    else:
        bits = next((bits for most, bits in DIGIT_BITS if 8 * count <= most), OPEN_DIGIT_BITS)
        applied = _applied(core, form, min(bits, OPEN_DIGIT_BITS), 2)
    return sized(func, applied.func, applied.trace)


def _applied(core: CoreNests, form: SortForm, digit_bits: int, selects: int, width: int = 1) -> Applied:
    values = sorted_values(form, core.left)
    if values is not None:
        core.names |= {values.name_hint}
    order = form.order.writes[0].buffer
    wants_order = order in core.func.buffers or any(
        r.buffer is order for b in core.left if b.name_hint not in core.names for r in b.reads)  # fmt: skip

    def element(line: PrimExpr, position: PrimExpr) -> PrimExpr:
        return core.value(BufferLoad(form.keys, typed(form.keys, form.lines.at(line, position))))

    def write(line: PrimExpr, rank: PrimExpr, position: PrimExpr) -> Stmt:
        at = form.lines.at(line, rank)
        stmts: list[Stmt] = []
        if wants_order:
            stmts.append(BufferStore(order, E.cast(order.dtype, position), typed(order, at)))
        if values is not None:
            out = values.writes[0].buffer
            stmts.append(BufferStore(out, element(line, position), typed(out, at)))
        return seq(*stmts)

    if selects == KEEPS:
        words = Words(form.keys.dtype, form.descending)

        def word(line: PrimExpr, position: PrimExpr) -> PrimExpr:
            return words.of(element(line, position))

        return core.applied(*keep_few(form.lines, form.n_wanted, width, words.dtype, word, write))
    sorter = _Sorter(form, digit_bits, selects)
    return core.applied(sorter.nest(element, write), sorter.buffers)


@dataclass(frozen=True)
class Words:
    """Elements of a type as unsigned numbers in the same order.

    dtype      of the numbers
    low, high  the bits in which they may differ
    """

    source: str
    descending: bool

    @property
    def dtype(self) -> str:
        return "uint64" if item_bytes(self.source) == 8 else "uint32"

    @property
    def low(self) -> int:
        return ZERO_BITS.get(self.source, 0)

    @property
    def high(self) -> int:
        return 32 if self.low else 8 * item_bytes(self.source)

    def of(self, x: PrimExpr) -> PrimExpr:
        """The number of an element; NaN is the highest, zeros of both signs are equal."""
        ones, sign = E.const((1 << self.high) - 1, self.dtype), E.const(1 << (self.high - 1), self.dtype)
        if is_float(self.source):
            x = E.cast("float32", x) if self.low else x
            zero = E.const(0.0, x.dtype)
            raw = reinterpret(self.dtype, E.select(E.compare(E.EQ, x, zero), zero, x))
            flipped = E.bitwise("bitwise_xor", raw, E.select(E.compare(E.GE, raw, sign), ones, sign))
            word = E.select(E.compare(E.NE, x, x), ones, flipped)
        elif self.source.startswith("int"):
            raw = reinterpret(self.dtype, E.cast(self.dtype[1:], x))
            word = E.bitwise("bitwise_and", E.bitwise("bitwise_xor", raw, sign), ones)
        else:
            word = E.cast(self.dtype, x)
        return E.bitwise("bitwise_xor", word, ones) if self.descending else word


class _Sorter:
    """The statements that sort each line."""

    def __init__(self, form: SortForm, digit_bits: int, selects: int):
        self.lines, self.selects = form.lines, selects
        self.place_type = OPEN_PLACE if form.lines.is_open else PLACE
        self.length = form.lines.extent
        self.count = self.length if form.count is None else E.const(form.count, self.place_type)
        self.words = Words(form.keys.dtype, form.descending)
        self.bins = 1 << digit_bits
        self.shifts = tuple(range(self.words.low, self.words.high, digit_bits))
        self.word, self.place = (Buffer(n, (index(2), self.length), t, scope="global")
                                 for n, t in (("words", self.words.dtype), ("places", self.place_type)))  # fmt: skip
        self.counts = one_of("counts", self.place_type, len(self.shifts), self.bins)
        self.own = one_of("word", self.words.dtype, 1)
        self.side, self.kept, self.sum, self.found, self.last = (
            one_of(n, self.place_type, 1) for n in ("side", "kept", "sum", "found", "last_digit"))  # fmt: skip
        chunks = CHUNKS if form.lines.is_open else (_chunk(form.lines.length, form.n_wanted),)
        self.chunks = tuple(n for n in chunks if n)
        self.n_lanes = LANES[self.words.dtype]
        self.lane_least = one_of("lane_least", self.words.dtype, self.n_lanes)
        self.lane_count = one_of("lane_count", self.place_type, self.n_lanes)
        self.bound = one_of("bound", self.words.dtype, 1)
        self.buffers = [self.lane_least, self.lane_count, self.bound]
        self.buffers += [self.word, self.place, self.counts, self.own, self.side, self.kept, self.sum, self.found,
                        self.last]  # fmt: skip

    def nest(self, element: Element, write: Write) -> Stmt:
        """The loop over lines. `element(line, position)` is what is sorted; `write(line, rank, position)` a result."""

        def of_line(line: Var) -> Stmt:
            return seq(
                (self.taken, self.selected, self.within_bound)[self.selects](line, element),
                store(self.side, index(0), 0),
                *map(self.distributed, range(len(self.shifts))),
                loop("rank", self.count, lambda rank: write(line, rank, load(self.place, load(self.side, 0), rank))),
            )

        return loop("line", self.lines.number, of_line, LoopKind.PARALLEL)

    # --- the words of a line, and how many have which digits ---------------------------------------------------------

    def taken(self, line: Var, element: Element) -> Stmt:
        """All words."""

        def take(i: Var) -> Stmt:
            return seq(
                store(self.own, self.words.of(element(line, i)), 0),
                store(self.word, load(self.own, 0), 0, i), store(self.place, i, 0, i), self.counted(),
            )  # fmt: skip

        return seq(
            self.cleared(), loop("i", self.length, take), store(self.kept, self.length, 0)
        )  # fmt: skip

    def selected(self, line: Var, element: Element) -> Stmt:
        """The words whose highest digit is not beyond that of the last one wanted."""
        top = len(self.shifts) - 1

        def own(i: Var) -> Stmt:
            return store(self.own, self.words.of(element(line, i)), 0)

        def find(digit: Var) -> Stmt:
            wanted = E.compare(E.LT, load(self.sum, 0), self.count)
            return seq(
                store(self.last, E.select(wanted, digit, load(self.last, 0)), 0),
                _add(self.sum, load(self.counts, top, digit), 0),
            )

        def take(i: Var) -> Stmt:
            is_wanted = E.compare(E.LE, self.digit(load(self.own, 0), top), load(self.last, 0))
            kept = load(self.kept, 0)
            return seq(own(i), IfThenElse(is_wanted, seq(
                store(self.word, load(self.own, 0), 0, kept), store(self.place, i, 0, kept), self.counted(),
                _add(self.kept, index(1), 0),
            )))  # fmt: skip

        return seq(
            self.cleared(), loop("i", self.length, lambda i: seq(own(i), self.counted([top]))),
            *(store(b, index(0), 0) for b in (self.sum, self.last, self.kept)),
            loop("digit", self.bins, find),
            self.cleared(), loop("i", self.length, take),
        )  # fmt: skip

    def n_chunks(self, chunk: int) -> PrimExpr:
        """How many chunks of so many words a line has; what is left is no chunk."""
        return E.floordiv(self.length, E.const(chunk, self.place_type))

    def rounded(self, n: PrimExpr) -> PrimExpr:
        """So many as whole vectors."""
        return E.mul(self.n_vectors(n), E.const(self.n_lanes, n.dtype))

    def n_vectors(self, n: PrimExpr) -> PrimExpr:
        return E.floordiv(E.add(n, E.const(self.n_lanes - 1, n.dtype)), E.const(self.n_lanes, n.dtype))

    def within_bound(self, line: Var, element: Element) -> Stmt:
        """The words up to a bound, from the largest chunks of which the line has enough; see `selected` for none."""
        assert self.chunks, "the space has no such choice where chunks are too few"
        if const_int(self.length) is not None:
            return self.bounded(self.chunks[0], line, element)
        found = self.selected(line, element)
        for chunk in reversed(self.chunks):
            enough = E.compare(E.GE, self.n_chunks(chunk), E.mul(E.const(2, self.place_type), self.count))
            found = IfThenElse(enough, self.bounded(chunk, line, element), found)
        return found

    def bounded(self, size: int, line: Var, element: Element) -> Stmt:
        """The words up to a bound that `count` of them are known not to exceed, by chunks of `size` words."""
        ones, lanes = E.const((1 << self.words.high) - 1, self.words.dtype), self.n_lanes
        n_chunks, n_vectors = self.n_chunks(size), self.n_vectors(self.n_chunks(size))
        least = (index(1),)  # the other side of `words` has the least word of each chunk until digits are distributed

        def word(i: PrimExpr) -> PrimExpr:
            return self.words.of(element(line, i))

        def least_of(chunk: Var) -> Stmt:
            def step(v: Var, lane: Var) -> Stmt:
                at = E.add(E.add(E.mul(chunk, index(size)), E.mul(v, index(lanes))), lane)
                return store(self.lane_least, _less(word(at), load(self.lane_least, lane)), lane)

            return seq(
                loop("lane", lanes, lambda lane: store(self.lane_least, ones, lane), LoopKind.VECTORIZED),
                loop("v", size // lanes,
                     lambda v: loop("lane", lanes, lambda lane: step(v, lane), LoopKind.VECTORIZED)),
                store(self.own, ones, 0),
                loop("lane", lanes, lambda lane: store(
                    self.own, _less(load(self.lane_least, lane), load(self.own, 0)), 0)),
                store(self.word, load(self.own, 0), *least, chunk),
            )  # fmt: skip

        def find(step: Var) -> Stmt:
            """One bit of the bound, the highest first: is it 0 in `count` of the least words, with those above?"""
            place = E.cast(self.words.dtype, E.sub(index(self.words.high - 1), step))
            bit = E.bitwise("shift_left", E.const(1, self.words.dtype), place)
            most = E.add(load(self.bound, 0), E.sub(bit, E.const(1, self.words.dtype)))

            def count(v: Var, lane: Var) -> Stmt:
                at = E.add(E.mul(v, index(lanes)), lane)
                is_within = E.compare(E.LE, load(self.word, *least, at), load(self.own, 0))
                return _add(self.lane_count, E.select(is_within, index(1), index(0)), lane)

            return seq(
                store(self.own, most, 0), store(self.sum, index(0), 0),
                loop("lane", lanes, lambda lane: store(self.lane_count, index(0), lane), LoopKind.VECTORIZED),
                loop("v", n_vectors,
                     lambda v: loop("lane", lanes, lambda lane: count(v, lane), LoopKind.VECTORIZED)),
                loop("lane", lanes, lambda lane: _add(self.sum, load(self.lane_count, lane), 0)),
                IfThenElse(E.compare(E.LT, load(self.sum, 0), self.count), _add(self.bound, bit, 0)),
            )  # fmt: skip

        def take(i: PrimExpr) -> Stmt:
            kept = load(self.kept, 0)
            return seq(store(self.own, word(i), 0), IfThenElse(
                E.compare(E.LE, load(self.own, 0), load(self.bound, 0)),
                seq(store(self.word, load(self.own, 0), 0, kept), store(self.place, i, 0, kept), self.counted(),
                    _add(self.kept, index(1), 0))))  # fmt: skip

        def take_chunk(chunk: Var) -> Stmt:
            first = E.mul(chunk, index(size))
            return IfThenElse(
                E.compare(E.LE, load(self.word, *least, chunk), load(self.bound, 0)),
                loop("i", size, lambda i: take(E.add(first, i))),
            )

        whole = E.mul(n_chunks, E.const(size, n_chunks.dtype))
        rest = E.sub(self.length, whole)
        stmts = [
            loop("chunk", self.rounded(n_chunks), lambda chunk: store(self.word, ones, *least, chunk)),
            loop("chunk", n_chunks, least_of),
            store(self.bound, E.const(0, self.words.dtype), 0),
            loop("step", self.words.high, find),
            self.cleared(), store(self.kept, index(0), 0),
            loop("chunk", n_chunks, take_chunk),
        ]  # fmt: skip
        if const_int(rest) != 0:
            stmts.append(loop("i", rest, lambda i: take(E.add(whole, i))))
        return seq(*stmts)

    def cleared(self) -> Stmt:
        return nested("d digit", (len(self.shifts), self.bins), lambda d, digit: store(self.counts, index(0), d, digit))

    def counted(self, digits: Sequence[int] | None = None) -> Stmt:
        """Count the digits of `own`."""
        found = [(d, self.digit(load(self.own, 0), d)) for d in (range(len(self.shifts)) if digits is None else digits)]
        return seq(*(_add(self.counts, index(1), index(d), digit) for d, digit in found))

    def digit(self, word: PrimExpr, d: int) -> PrimExpr:
        shifted = E.bitwise("shift_right", word, E.const(self.shifts[d], word.dtype)) if self.shifts[d] else word
        return E.cast(self.place_type, E.bitwise("bitwise_and", shifted, E.const(self.bins - 1, word.dtype)))

    # --- one digit ---------------------------------------------------------------------------------------------------

    def distributed(self, d: int) -> Stmt:
        """Bring words and places into the order of a digit, unless it is the same in all."""
        side, kept = load(self.side, 0), load(self.kept, 0)
        other = E.sub(index(1), side)

        def start(digit: Var) -> Stmt:
            return seq(
                store(self.found, load(self.counts, d, digit), 0),
                store(self.counts, load(self.sum, 0), d, digit),
                _add(self.sum, load(self.found, 0), 0),
            )

        def move(i: Var) -> Stmt:
            digit = self.digit(load(self.own, 0), d)
            return seq(
                store(self.own, load(self.word, side, i), 0),
                store(self.found, load(self.counts, d, digit), 0),
                store(self.counts, E.add(load(self.found, 0), index(1)), d, digit),
                store(self.word, load(self.own, 0), other, load(self.found, 0)),
                store(self.place, load(self.place, side, i), other, load(self.found, 0)),
            )

        shared = E.compare(E.EQ, load(self.counts, d, self.digit(load(self.word, side, 0), d)), kept)
        return IfThenElse(E.logical_not(shared), seq(
            store(self.sum, index(0), 0), loop("digit", self.bins, start),
            loop("i", kept, move), store(self.side, other, 0),
        ))  # fmt: skip


def _add(buffer: Buffer, value: PrimExpr, *at: PrimExpr | int) -> Stmt:
    return store(buffer, E.add(load(buffer, *at), value), *at)


def _less(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return E.select(E.compare(E.LT, a, b), a, b)


def _chunk(length: int, count: int) -> int:
    """The largest chunks of which there are enough; 0 where none are."""
    return next((n for n in CHUNKS if 2 * count <= length // n), 0)
