"""Attention of bfloat16 in tile registers (AMX), with scores, softmax and sums in float32.

    for (head, part) in parallel:
        keys[T / width, D / 2, width, 2], values[E / width, T / 2, width, 2] = pairs of k and v side by side
        for chunk of 16 * `chunk` queries:
            scores[queries, T] = q * keys                                              # tiles of sums
            for query: largest, weights = bfloat16(exp(scaled - largest)), their sum       # or bytes of their shares
            weighted[queries, E] = weights * values                                    # tiles of sums
            out = epilogue(weighted / sum)

Where the mask is causal, keys that no query of a chunk sees are not visited. Keys, elements and queries that fill up
the last tiles are zeros or are never read.

By vdpbf16ps the same takes twice as long as float32 does (Emerald Rapids): other CPUs compute such attention in that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from autosched.codegen.cpu.amx_nest import AMX, ROWS, WORDS
from autosched.codegen.cpu.cut import WHOLE_TILE
from autosched.codegen.cpu.math import EXP_BELOW
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.core_nests import load, one_of, store
from autosched.templates.cpu.amx_tile import has_tiles
from autosched.templates.flash import WIDE, Flash, Operand, find_parts, padded
from autosched.templates.nests import index, loop, nested
from autosched.templates.product import PAIR
from autosched.tir import PrimFunc
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import Call, PrimExpr, Var
from autosched.tir.function import make_root
from autosched.tir.schedule import Schedule
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, Stmt, seq

NARROW = "bfloat16"
STEP = PAIR * WORDS  # elements that a step of tiles adds up
LEAST_STEP = 64  # keys that the softmax takes at once: vectors whose powers go side by side
LEAST_TASKS = 8  # pieces of parallel work
FEW_KEYS = 1024  # of more, the scores of 32 queries leave the first-level cache, whatever is done
Element = Callable[[PrimExpr, PrimExpr], PrimExpr]


class AmxAttention:
    """Scaled dot-product attention of bfloat16 in float32."""

    name = "attention_amx"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        flash = find_parts(func) if has_tiles(PAIR, target) else None
        if flash is None or flash.found.scores.writes[0].buffer.dtype != WIDE:
            return None
        if any(x.load.buffer.dtype != NARROW for x in (flash.query, flash.key, flash.value)):
            return None
        if not _has_pairs(flash.key) or not _has_pairs(flash.value):
            return None
        return Anchor(flash.found.scores.name_hint, "attention", flash.sizes, flash)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "lanes": target.lanes(WIDE)}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        s, lanes = anchor.sizes, target.lanes(WIDE)
        chunk = 2 if s["M"] > ROWS and s["T"] <= FEW_KEYS else 1
        parts = 1
        while s["heads"] * parts < LEAST_TASKS and parts < 8 and s["M"] > 2 * parts * chunk * ROWS:
            parts *= 2
        knobs = {
            "chunk": chunk,
            "vectors": min(2, -(-s["T"] // lanes)),
            "value_vectors": min(2, -(-s["E"] // lanes)),
            "parts": parts,
        }
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        body, buffers = _Writer(anchor.details, config, target).function()
        whole = func.with_body(make_root(body, tuple(buffers)))
        return Applied(whole, (None,) * len(func.params), Schedule(func).trace.to_json_text())


def _has_pairs(x: Operand) -> bool:
    """Whether the elements of a row or of a column lie side by side."""
    return x.load.indices[-1] in (x.axes[x.columns].var, x.axes[x.rows].var)


class _Writer:
    """The statements of one configuration."""

    def __init__(self, flash: Flash, config: Config, target: Target):
        self.flash, self.s, lanes = flash, flash.sizes, target.lanes(WIDE)
        self.rows, self.parts = ROWS * int(config["chunk"]), int(config["parts"])
        self.key_width, self.value_width = (lanes * int(config[name]) for name in ("vectors", "value_vectors"))
        self.step = self.key_width * -(-LEAST_STEP // self.key_width)
        self.depth = padded(self.s["D"], STEP)
        self.length = padded(self.s["T"], math.lcm(self.key_width, STEP))
        self.width = padded(self.s["E"], self.value_width)
        self.query = one_of("query", NARROW, self.rows, self.depth, scope="global")
        panels = self.length // self.key_width, self.width // self.value_width
        self.keys = one_of("keys", NARROW, panels[0], self.depth // PAIR, self.key_width, PAIR, scope="global")
        self.values = one_of("values", NARROW, panels[1], self.length // PAIR, self.value_width, PAIR, scope="global")
        self.scores = one_of("scores", WIDE, self.rows, self.length, scope="global")
        self.weights = one_of("weights", NARROW, self.rows, self.length, scope="global")
        self.weighted = one_of("weighted", WIDE, self.rows, self.width, scope="global")
        self.totals = one_of("totals", WIDE, self.rows, scope="global")
        self.tops, self.sums = (one_of(name, WIDE, self.step) for name in ("tops", "sums"))
        self.top, self.total = (one_of(name, WIDE, 1) for name in ("top", "total"))

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """(the loops, the buffers between)."""
        s, flash = self.s, self.flash
        chunks = -(-s["M"] // self.rows)
        each = -(-chunks // self.parts)

        def task(head: Var, part: Var) -> Stmt:
            of_scores, of_result = flash.of_scores(head), flash.of_result(head)
            count: PrimExpr = index(each)
            if chunks % each:
                count = E.minimum(count, E.sub(index(chunks), E.mul(part, index(each))))

            def chunk(n: Var) -> Stmt:
                return self.chunk(head, E.mul(E.add(E.mul(part, index(each)), n), index(self.rows)))

            return seq(
                *_panels(self.keys, s["D"], s["T"], lambda d, t: flash.key.at(of_scores, t, d),
                         flash.key.is_contiguous),
                *_panels(self.values, s["T"], s["E"], lambda t, e: flash.value.at(of_result, t, e),
                         not flash.value.is_contiguous),
                loop("chunk", count, chunk),
            )  # fmt: skip

        body = nested("head part", (s["heads"], -(-chunks // each)), task, LoopKind.PARALLEL)
        return body, [b for b in vars(self).values() if isinstance(b, Buffer)]

    def chunk(self, head: Var, first: PrimExpr) -> Stmt:
        """The queries from `first` on."""
        s, flash = self.s, self.flash
        rows: PrimExpr = index(self.rows)
        if s["M"] % self.rows:
            rows = E.minimum(rows, E.sub(index(s["M"]), first))
        visited = self.visited(first)
        panels: PrimExpr = self.keys.shape[0]
        steps: PrimExpr = index(self.length // STEP)
        if visited is not None:
            panels = E.minimum(panels, E.mul(visited, index(self.step // self.key_width)))
            steps = E.minimum(steps, E.floordiv(E.mul(visited, index(self.step)), index(STEP)))
        query: Element = lambda i, d: load(self.query, i, d)  # noqa: E731
        copies: list[Stmt] = [self.copied(head, first, rows)]
        if s["M"] % self.rows == 0 and s["D"] == self.depth and flash.query.is_contiguous:
            query, copies = (lambda i, d: flash.query.at(flash.of_scores(head), E.add(first, i), d)), []
        return seq(
            *copies,
            loop("panel", panels, lambda n: self.products(
                self.scores, n, query, self.keys, index(self.depth // STEP)
            ), annotations={WHOLE_TILE: 1}),
            loop("row", rows, lambda i: self.softmax(head, first, i, visited), annotations={WHOLE_TILE: 1}),
            loop("panel", self.values.shape[0], lambda n: self.products(
                self.weighted, n, lambda i, t: load(self.weights, i, t), self.values, steps
            ), annotations={WHOLE_TILE: 1}),
            loop("row", rows, lambda i: loop(
                "e", s["E"], lambda e: self.result(head, first, i, e), LoopKind.VECTORIZED)),
        )  # fmt: skip

    def copied(self, head: Var, first: PrimExpr, rows: PrimExpr) -> Stmt:
        """A chunk's queries, filled up with zeros to whole steps; what is in rows behind the last is of no use."""
        s, at = self.s, self.flash.of_scores(head)

        def row(i: Var) -> Stmt:
            query = self.flash.query
            copy = loop(
                "d", s["D"], lambda d: store(self.query, query.at(at, E.add(first, i), d), i, d), LoopKind.VECTORIZED
            )
            rest = self.depth - s["D"]
            zero = E.const(0.0, NARROW)
            fill = loop("d", rest, lambda d: store(self.query, zero, i, E.add(d, index(s["D"]))), LoopKind.VECTORIZED)
            return seq(copy, fill) if rest else copy

        return loop("row", rows, row)

    def visited(self, first: PrimExpr) -> PrimExpr | None:
        """How many steps of keys a chunk's queries see, where the mask is causal; below 1: none."""
        if self.flash.shift is None:
            return None
        return self.flash.key_tiles(E.add(first, index(self.rows - 1)), self.step)

    def products(self, out: Buffer, panel: Var, rows: Element, columns: Buffer, steps: PrimExpr) -> Stmt:
        """out[rows, a panel] = rows * columns."""
        width = int(columns.shape[2].value)  # type: ignore[attr-defined]
        zero = E.const(0.0, WIDE)

        def at(i: Var, n: Var) -> tuple[PrimExpr, PrimExpr]:
            return i, E.add(E.mul(panel, index(width)), n)

        def step(k: Var) -> Stmt:
            def added(i: Var, n: Var, word: PrimExpr, g: Var) -> Stmt:
                pair = E.add(E.mul(k, index(WORDS)), word)
                row = E.cast(WIDE, rows(i, E.add(E.mul(pair, index(PAIR)), g)))
                product = E.mul(row, E.cast(WIDE, load(columns, panel, pair, n, g)))
                return store(out, E.add(load(out, *at(i, n)), product), *at(i, n))

            return _over(self.rows, width, lambda i, n: loop("word", WORDS, lambda word: loop(
                "g", PAIR, lambda g: added(i, n, word, g), LoopKind.UNROLLED), LoopKind.UNROLLED, annotations={AMX: 1}
            ))  # fmt: skip

        return seq(_over(self.rows, width, lambda i, n: store(out, zero, *at(i, n))), loop("k", steps, step))

    def softmax(self, head: Var, first: PrimExpr, i: Var, visited: PrimExpr | None) -> Stmt:
        """One row's weights and their sum."""
        flash, row = self.flash, E.add(first, i)
        is_shared = flash.found.weights is not None

        def scaled(at: PrimExpr, lane: Var) -> Stmt:
            t = E.add(at, lane)
            score = load(self.scores, i, t)
            return seq(
                store(self.scores, flash.score(head, row, t, score), i, t),
                store(self.tops, E.maximum(load(self.tops, lane), load(self.scores, i, t)), lane),
            )

        def powers(at: PrimExpr, lane: Var) -> Stmt:
            t = E.add(at, lane)
            power = flash.power(head, row, t, load(self.scores, i, t), load(self.top, 0))
            assert isinstance(power, Call), "find_parts looked"
            power = Call(EXP_BELOW, power.args, WIDE)  # no argument is larger than the largest one
            kept = store(self.scores, power, i, t) if is_shared else store(self.weights, E.cast(NARROW, power), i, t)
            return seq(store(self.sums, E.add(load(self.sums, lane), power), lane), kept)  # which may replace the score

        def shares(at: PrimExpr, lane: Var) -> Stmt:
            t = E.add(at, lane)
            share = flash.weight(head, row, t, load(self.scores, i, t), load(self.total, 0))
            return store(self.weights, E.cast(NARROW, share), i, t)

        rest = self.length - self.s["T"]
        lowest, zero, none = E.const(-math.inf, WIDE), E.const(0.0, WIDE), E.const(0.0, NARROW)
        at = index(self.s["T"])
        return seq(
            self.lanes(lambda lane: store(self.tops, lowest, lane)),
            *self.steps(visited, scaled),
            store(self.top, lowest, 0),
            self.reduced(lambda lane: store(self.top, E.maximum(load(self.top, 0), load(self.tops, lane)), 0)),
            self.lanes(lambda lane: store(self.sums, zero, lane)),
            *self.steps(visited, powers),
            store(self.total, zero, 0),
            self.reduced(lambda lane: store(self.total, E.add(load(self.total, 0), load(self.sums, lane)), 0)),
            store(self.totals, load(self.total, 0), i),
            *(self.steps(visited, shares) if is_shared else ()),
            *(
                [loop("t", rest, lambda t: store(self.weights, none, i, E.add(t, at)), LoopKind.VECTORIZED)]
                if rest
                else []
            ),
        )

    def lanes(self, body: Callable[[Var], Stmt]) -> Stmt:
        return loop("lane", self.step, body, LoopKind.VECTORIZED)

    def reduced(self, body: Callable[[Var], Stmt]) -> Stmt:
        return loop("lane", self.step, body, LoopKind.UNROLLED)

    def steps(self, visited: PrimExpr | None, body: Callable[[PrimExpr, Var], Stmt]) -> Iterator[Stmt]:
        """A row in vectors: whole steps, then what is left."""
        whole, rest = divmod(self.s["T"], self.step)
        if whole:
            count = index(whole) if visited is None else E.minimum(index(whole), visited)
            yield loop("step", count, lambda n: self.lanes(lambda lane: body(E.mul(n, index(self.step)), lane)))
        if rest:
            last = loop("lane", rest, lambda lane: body(index(whole * self.step), lane), LoopKind.VECTORIZED)
            yield last if visited is None else IfThenElse(E.compare(E.GT, visited, index(whole)), last)

    def result(self, head: Var, first: PrimExpr, i: Var, e: Var) -> Stmt:
        value, indices = self.flash.result(
            head, E.add(first, i), e, load(self.weighted, i, e), load(self.totals, i)
        )  # fmt: skip
        return BufferStore(self.flash.out, value, indices)


def _over(rows: int, width: int, body: Callable[[Var, Var], Stmt]) -> Stmt:
    """A tile: its rows unrolled, its columns in vectors."""
    return loop("i", rows, lambda i: loop("n", width, lambda n: body(i, n), LoopKind.VECTORIZED), LoopKind.UNROLLED)


def _panels(target: Buffer, depth: int, columns: int, element: Element, is_deep: bool) -> Iterator[Stmt]:
    """Statements that fill target[columns / width, depth / 2, width, 2], zeros beyond the depth.

    element  of (depth, column)
    is_deep  whether pairs lie side by side already: squares of words are turned; else rows of columns are interleaved
    """
    whole, words, width = (int(n.value) for n in target.shape[:3])  # type: ignore[attr-defined]
    zero = E.const(0.0, NARROW)

    def stored(panel: PrimExpr, word: PrimExpr, n: PrimExpr, g: PrimExpr) -> Stmt:
        at = E.add(E.mul(panel, index(width)), n)
        return store(target, element(E.add(E.mul(word, index(PAIR)), g), at), panel, word, n, g)

    def pairs(panel: PrimExpr, word: PrimExpr, n: PrimExpr) -> Stmt:
        return loop("g", PAIR, lambda g: stored(panel, word, n, g), LoopKind.UNROLLED)

    def turned(panel: PrimExpr, count: int) -> Iterator[Stmt]:
        tiles, full = count // WORDS, depth // PAIR // WORDS
        if tiles and full:
            yield nested("column word", (tiles, full), lambda c, w: loop("i", WORDS, lambda i: loop(
                "j", WORDS, lambda j: pairs(panel, E.add(E.mul(w, index(WORDS)), j), E.add(E.mul(c, index(WORDS)), i)),
                LoopKind.VECTORIZED), LoopKind.UNROLLED))  # fmt: skip
        for start, end, first in ((0, tiles * WORDS, full * WORDS), (tiles * WORDS, count, 0)):
            if end > start and depth // PAIR > first:
                yield nested("i j", (end - start, depth // PAIR - first), lambda i, j, start=start, first=first: pairs(
                    panel, E.add(j, index(first)), E.add(i, index(start))))  # fmt: skip

    def interleaved(panel: PrimExpr, count: int) -> Iterator[Stmt]:
        if depth // PAIR:
            yield loop("word", depth // PAIR, lambda w: loop(
                "n", count, lambda n: pairs(panel, w, n), LoopKind.VECTORIZED))  # fmt: skip

    def filled(panel: PrimExpr, count: int) -> Stmt:
        parts = list((turned if is_deep else interleaved)(panel, count))
        if depth % PAIR:
            last, first = index(depth // PAIR), index(0)
            parts.append(loop("n", count, lambda n: stored(panel, last, n, first)))
        return seq(*parts)

    if depth < words * PAIR:
        rest = words - depth // PAIR
        yield nested("panel word", (whole, rest), lambda panel, w: loop("n", width, lambda n: loop(
            "g", PAIR, lambda g: store(target, zero, panel, E.add(w, index(depth // PAIR)), n, g), LoopKind.UNROLLED),
            LoopKind.VECTORIZED))  # fmt: skip
    full, rest = divmod(columns, width)
    if full:
        yield loop("panel", full, lambda panel: filled(panel, width))
    if rest:
        yield filled(index(full), rest)


__all__ = ["AmxAttention"]
