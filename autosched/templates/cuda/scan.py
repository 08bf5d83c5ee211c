"""Running sums and products along an axis: cumsum, cumprod.

A thread combines some elements in a row, the threads of a line combine what they have through shared memory, and a
block goes along its part of the line:

    for line, part in blockIdx: for step:
        mine = combine(x[line, part, step, thread, :])
        before = what the threads before and the steps before have
        out[…] = combine(before, x[…])

Where there are few lines, several blocks share one: a launch writes what each part combines to (`totals`), a scan of
these gives what each part begins with (`starts`), and elements are read twice. Neighbouring threads read neighbours in
memory: elements of a line, or of neighbouring lines where those lie side by side. Where the length comes with the call,
so does the number of parts; a call whose lines have one part each makes one launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autosched.codegen.lower.half import HALVES, WIDE, widened
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, reduced, spatial
from autosched.templates.core_nests import load, one_of, others_are_elementwise, store
from autosched.templates.cuda.core_nests import Core
from autosched.templates.cuda.either import repeated
from autosched.templates.cuda.nests import block, bound
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, THREAD_Y, VECTOR_BYTES, power_of_two_above
from autosched.templates.lines import Lines, lines_of
from autosched.templates.nests import index, lanes, loop, unrolled
from autosched.templates.scan_form import COMBINE, IDENTITY, ScanForm, scan_of
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr, as_int, const_int
from autosched.tir.functor import substitute
from autosched.tir.stmt import IfThenElse, Stmt, seq

DEFAULT_THREADS = 256
BLOCKS_PER_SM = 2
TILES = 4  # of a line that is not shared


class Scan:
    """One scan and what is element-wise around it."""

    name = "scan"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        return self._anchor(func, False)

    def of_open_sizes(self, func: PrimFunc, target: Target) -> Anchor | None:
        """The same as `match` for a function some of whose sizes come with the call."""
        return self._anchor(func, True)

    def _anchor(self, func: PrimFunc, is_open: bool) -> Anchor | None:
        found = [s for s in (scan_of(b, is_open) for b in blocks_of(func)) if s is not None]
        if len(found) != 1 or not others_are_elementwise(func, [found[0].block]):
            return None
        (scan,) = found
        sizes = {
            "lines": scan.lines.count, "length": scan.lines.length, "contiguous": int(scan.lines.is_contiguous),
            "bytes": item_bytes(scan.block.writes[0].buffer.dtype),
        }  # fmt: skip
        return Anchor(scan.block.name_hint, "scan", sizes, scan)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        """Accesses of 16 bytes; as many threads as a line needs, and as many parts as the device wants blocks."""
        gpu, s = target.gpu, anchor.sizes
        if s["contiguous"]:
            items = max(2, VECTOR_BYTES // max(4, s["bytes"]))
            threads = min(DEFAULT_THREADS, power_of_two_above(-(-s["length"] // items)))
            together = min(max(1, DEFAULT_THREADS // 2 // threads), power_of_two_above(s["lines"]))
        else:
            items, together = 4, min(gpu.warp_size, power_of_two_above(s["lines"]))
            threads = min(DEFAULT_THREADS // together, power_of_two_above(-(-s["length"] // items)))
        tiles, groups = -(-s["length"] // (items * threads)), -(-s["lines"] // together)
        wanted = max(1, BLOCKS_PER_SM * gpu.sm_count // groups)
        parts = min(power_of_two_above(wanted), power_of_two_above(tiles)) if wanted > 1 and tiles > TILES else 1
        if anchor.details.lines.is_open:  # of all lines together at most: `_Lines` counts those of a line
            is_long = const_int(anchor.details.lines.extent) is None or tiles > TILES
            parts = BLOCKS_PER_SM * gpu.sm_count if is_long else 1
        knobs = {"along": threads, "together": together, "items": items, "parts": parts}
        return Config(self.name, knobs)

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.of_open_sizes(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        scan: ScanForm = anchor.details
        out = scan.block.writes[0].buffer
        core = Core(func, [scan.block.name_hint], [out])
        wide = WIDE if out.dtype in HALVES else out.dtype
        axes, k = [iv.var for iv in spatial(scan.block)], reduced(scan.block)[0].var

        def place(position: PrimExpr) -> PrimExpr:
            return E.sub(E.sub(scan.lines.extent, index(1)), position) if scan.reverse else position

        def element(line: PrimExpr, position: PrimExpr) -> PrimExpr:
            at = scan.lines.at(line, place(position))
            values = {v: E.cast(v.dtype, i) for v, i in zip((*axes, k), (*at, place(position)), strict=True)}
            made = core.value(substitute(scan.value, values))
            return made if wide == out.dtype else widened(made, set())

        def write(line: PrimExpr, position: PrimExpr, value: PrimExpr) -> Stmt:
            return core.result(out, E.cast(out.dtype, value), scan.lines.at(line, place(position)))

        whole = _Lines(scan, wide, element, write, config)
        if const_int(whole.parts) == 1:
            return core.applied(whole.launch(), whole.buffers)
        totals, starts = (
            Buffer(n, (whole.lines.number, whole.parts), wide, scope="global") for n in ("totals", "starts")
        )
        first, between = _Lines(scan, wide, element, write, config), whole.of_parts(totals, starts)
        launches = seq(first.sums(totals), between.launch(), whole.launch(starts))
        used = [totals, starts, *first.buffers, *between.buffers, *whole.buffers]
        if whole.is_open:
            alone = _Lines(scan, wide, element, write, config.with_knobs(parts=1))
            several = E.minimum(E.sub(whole.parts, index(1)), index(1))
            launches = seq(repeated(E.sub(index(1), several), alone.launch()), repeated(several, launches))
            used += alone.buffers
        return core.applied(launches, used)


def _divided(n: PrimExpr, each: PrimExpr | int) -> PrimExpr:
    """How many groups of `each` there are, the last one with fewer perhaps."""
    of_group = index(each) if isinstance(each, int) else each
    return E.floordiv(E.add(n, E.sub(of_group, index(1))), of_group)


class _Lines:
    """The statements that scan all lines."""

    def __init__(
        self, scan: ScanForm, dtype: str, element: Callable[[PrimExpr, PrimExpr], PrimExpr],
        write: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt], config: Config,
    ):  # fmt: skip
        self.scan, self.dtype, self.element, self.write = scan, dtype, element, write
        self.lines, self.n_lines, self.length = scan.lines, scan.lines.count, scan.lines.length
        self.threads, self.together = int(config["along"]), int(config["together"])
        self.items = int(config["items"])
        self.tile, self.is_open = self.threads * self.items, scan.lines.is_open
        self.most_parts = int(config["parts"])
        self.parts, self.steps = self._cut_open() if self.is_open else self._cut()
        self.is_ragged = self.is_open or self.length != as_int(self.parts) * as_int(self.steps) * self.tile
        self.is_contiguous = scan.lines.is_contiguous
        self.identity = E.const(IDENTITY[scan.combine], dtype)
        self.combine = COMBINE[scan.combine]
        self.mine = one_of("mine", dtype, self.items)
        self.sum, self.before, self.so_far = (one_of(n, dtype, 1) for n in ("sum", "before", "so_far"))
        self.shared = [one_of(f"{n}_shared", dtype, self.together, self.threads, scope="shared") for n in ("a", "b")]
        self.buffers: list[Buffer] = [self.mine, self.sum, self.before, self.so_far, *self.shared]

    def _cut(self) -> tuple[PrimExpr, PrimExpr]:
        """(parts of a line, tiles of a part)."""
        steps = -(-self.length // (self.tile * self.most_parts))
        return index(-(-self.length // (self.tile * steps))), index(steps)

    def _cut_open(self) -> tuple[PrimExpr, PrimExpr]:
        """The same for sizes that come with the call, where the parts of all lines together have a limit."""
        one, tiles = index(1), _divided(self.lines.extent, self.tile)
        if self.most_parts == 1:
            return one, tiles
        is_long = E.minimum(E.floordiv(E.sub(tiles, one), index(TILES)), one)
        share = E.floordiv(index(self.most_parts), _divided(self.lines.number, self.together))
        parts = E.maximum(E.mul(is_long, E.minimum(share, tiles)), one)
        return parts, _divided(tiles, parts)

    def of_parts(self, totals: Buffer, starts: Buffer) -> _Lines:
        """The scan of what the parts of each line combine to."""
        known = None if self.is_open else as_int(self.parts)
        lines = lines_of((self.lines.number, self.parts), 1) if known is None else Lines((self.n_lines, known), 1)
        most = self.most_parts if known is None else known
        threads = min(self.threads, power_of_two_above(-(-most // 4)))
        config = Config("scan", {"along": threads, "together": self.together, "items": 4, "parts": 1})
        return _Lines(
            replace(self.scan, lines=lines, exclusive=True, reverse=False), self.dtype, lambda *at: load(totals, *at),
            lambda line, part, value: store(starts, value, line, part), config,
        )  # fmt: skip

    def launch(self, starts: Buffer | None = None) -> Stmt:
        """Scan; each part begins with its element of `starts`."""

        def of_block(line: PrimExpr, part: PrimExpr, mine: Var, other: Var) -> Stmt:
            first = self.identity if starts is None else load(starts, self.inside(line), part)
            steps = loop("step", self.steps, lambda step: self.step(line, part, step, mine, other))
            return block("scan", seq(store(self.so_far, first, 0), steps))

        return self.bound(of_block)

    def sums(self, totals: Buffer) -> Stmt:
        """What each part of each line combines to."""

        def of_block(line: PrimExpr, part: PrimExpr, mine: Var, other: Var) -> Stmt:
            def step(number: Var) -> Stmt:
                first = self.position(part, number, mine)
                return seq(self.read(line, first), unrolled("item", (self.items,), lambda i: store(
                    self.sum, self.combine(load(self.sum, 0), load(self.mine, i)), 0)))  # fmt: skip

            across, last = self.across(mine, other)
            total = store(totals, load(last, other, self.threads - 1), line, part)
            is_there = E.compare(E.LT, line, self.lines.number)
            return block("sums", seq(
                store(self.sum, self.identity, 0), loop("step", self.steps, step), *across,
                IfThenElse(E.all_of(is_there, E.compare(E.EQ, mine, index(0))), total),
            ))  # fmt: skip

        return self.bound(of_block)

    def bound(self, of_block: Callable[[PrimExpr, PrimExpr, Var, Var], Stmt]) -> Stmt:
        """A launch; `of_block` takes a line, a part of it, the thread along the line and that across lines."""
        groups = E.mul(_divided(self.lines.number, self.together), self.parts)
        along, across = (THREAD_X, THREAD_Y) if self.is_contiguous else (THREAD_Y, THREAD_X)

        def inner(at: Var, mine: Var, other: Var) -> Stmt:
            line = E.add(E.mul(E.floordiv(at, self.parts), index(self.together)), other)
            return of_block(line, E.floormod(at, self.parts), mine, other)

        return bound(((BLOCK_X, groups), (along, self.threads), (across, self.together)), inner)

    def inside(self, line: PrimExpr) -> PrimExpr:
        """A line that there is: those beyond the last are read, but not written."""
        return E.minimum(line, E.sub(self.lines.number, index(1))) if self.has_last_group else line

    @property
    def has_last_group(self) -> bool:
        """Whether the last block may have fewer lines than the others."""
        return self.together > 1 if self.is_open else self.n_lines % self.together > 0

    def position(self, part: PrimExpr, step: PrimExpr, mine: PrimExpr) -> PrimExpr:
        """Where in the line a thread's elements of a step begin."""
        tile = E.add(E.mul(part, self.steps), step)
        return E.mul(E.add(E.mul(tile, index(self.threads)), mine), index(self.items))

    def is_there(self, position: PrimExpr) -> PrimExpr:
        return E.compare(E.LT, position, self.lines.extent)

    @property
    def vector(self) -> int:
        """Elements of one access."""
        is_whole = const_int(self.lines.extent) is not None and self.length % self.items == 0
        return self.items if self.is_contiguous and is_whole and not self.scan.reverse else 1

    def read(self, line: PrimExpr, first: PrimExpr) -> Stmt:
        """A thread's elements; what leaves a result alone, where there are none."""

        def one(item: PrimExpr) -> Stmt:
            value = self.element(self.inside(line), E.add(first, item))
            if self.is_ragged:
                value = E.if_then_else(self.is_there(E.add(first, item)), value, self.identity)
            return store(self.mine, value, item)

        return lanes(self.items, one) if self.vector > 1 else unrolled("item", (self.items,), one)

    def across(self, mine: Var, other: Var) -> tuple[list[Stmt], Buffer]:
        """(statements, the shared buffer that then has what the threads up to each combine to) for `sum`."""
        source, target = self.shared
        stmts, distance = [store(source, load(self.sum, 0), other, mine)], 1
        while distance < self.threads:
            own = load(source, other, mine)
            both = self.combine(load(source, other, E.sub(mine, index(distance))), own)
            value = E.if_then_else(E.compare(E.GE, mine, index(distance)), both, own)
            stmts.append(store(target, value, other, mine))
            source, target, distance = target, source, 2 * distance
        return stmts, source

    def step(self, line: PrimExpr, part: PrimExpr, number: Var, mine: Var, other: Var) -> Stmt:
        """A tile of the line: what each thread has of it, what stands before, the results."""
        first = self.position(part, number, mine)
        n = self.items
        across, last = self.across(mine, other)
        earlier = E.if_then_else(
            E.compare(E.GT, mine, index(0)), load(last, other, E.sub(mine, index(1))), self.identity)  # fmt: skip

        def combined(item: Var) -> Stmt:
            at = E.add(item, index(1))
            return store(self.mine, self.combine(load(self.mine, item), load(self.mine, at)), at)

        def shifted(item: Var) -> Stmt:
            at = E.sub(index(n - 1), item)
            return store(self.mine, load(self.mine, E.sub(at, index(1))), at)

        def write(item: PrimExpr) -> Stmt:
            return self.write(line, E.add(first, item), self.combine(load(self.before, 0), load(self.mine, item)))

        def checked(item: PrimExpr, stmt: Stmt) -> Stmt:
            limits = [E.compare(E.LT, line, self.lines.number)] if self.has_last_group else []
            if self.is_ragged:
                limits.append(self.is_there(E.add(first, item)))
            return IfThenElse(E.all_of(*limits), stmt) if limits else stmt

        return seq(
            self.read(line, first),
            unrolled("item", (n - 1,), combined),
            store(self.sum, load(self.mine, n - 1), 0),
            *across,
            store(self.before, self.combine(load(self.so_far, 0), earlier), 0),
            store(self.so_far, self.combine(load(self.so_far, 0), load(last, other, self.threads - 1)), 0),
            *([unrolled("item", (n - 1,), shifted), store(self.mine, self.identity, 0)] if self.scan.exclusive else []),
            checked(index(0), lanes(n, write)) if self.vector > 1
            else unrolled("item", (n,), lambda item: checked(item, write(item))),
        )  # fmt: skip
