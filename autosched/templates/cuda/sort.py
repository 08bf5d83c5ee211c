"""Sorting along an axis: sort, argsort, topk. Equal elements stay in order, NaN is the greatest.

A part of a line that fits into shared memory is sorted there by a bitonic network (Batcher 1968) whose comparators all
have the same direction, so that places beyond the last element take no part. Keys move with their positions, which
decide between equals: the order is total. Parts of a longer line are merged in pairs, a launch for each doubling; a
thread finds the place of its element by a binary search in the other part. Where only the first `count` are wanted, a
part keeps no more.

    for line, part in blockIdx:
        key_shared, place_shared = x of the part, positions
        for phase, step: threads order their pairs                      # log2(n) * (log2(n) + 1) / 2 steps
        first count of the part: out = key_shared, place_shared
    for doubling: for element in blockIdx, threadIdx: out[place + places before it in the other part] = element
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.core_nests import load, others_are_elementwise, store, typed
from autosched.templates.cuda.core_nests import Core
from autosched.templates.cuda.nests import block, bound, copy_tile, share_tile
from autosched.templates.cuda.sort_network import PLACE, PLACE_BYTES, SortNetwork
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X, THREAD_Y, power_of_two_above
from autosched.templates.nests import index, loop
from autosched.templates.sort_form import find_sort, is_sorted_key
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.dtypes import item_bytes
from autosched.tir.expr import PrimExpr
from autosched.tir.stmt import IfThenElse, Stmt, seq
from autosched.topi.sort import precedes

MOST_ELEMENTS = 1 << 30  # whose numbers fit 32 bits
MERGE_THREADS = 256
LEAST_THREADS = 128  # of a block: short lines share one

Element = Callable[[PrimExpr, PrimExpr], PrimExpr]
Write = Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt]  # of (line, rank, key, position)


class Sort:
    """One sort and what is element-wise around it."""

    name = "sort"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        form = find_sort(func)
        if form is None or form.lines.count * form.lines.length > MOST_ELEMENTS:
            return None
        if not others_are_elementwise(func, [form.ranks, form.order]):
            return None
        sizes = {
            "lines": form.lines.count, "length": form.lines.length, "count": form.n_wanted,
            "bytes": item_bytes(form.keys.dtype) + PLACE_BYTES,
        }  # fmt: skip
        return Anchor(form.order.name_hint, "sort", sizes, form)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, default_knobs(anchor.sizes, target))

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        form = find_sort(func)
        assert form is not None, "apply is called on a function that matched"
        order = form.order.writes[0].buffer
        core = Core(func, [form.ranks.name_hint, form.order.name_hint], [order], [form.keys])

        def key(line: PrimExpr, position: PrimExpr) -> PrimExpr:
            return core.value(BufferLoad(form.keys, typed(form.keys, form.lines.at(line, position))))

        def write(line: PrimExpr, rank: PrimExpr, value: PrimExpr, position: PrimExpr) -> Stmt:
            def known(x: BufferLoad, axes: Sequence[Var]) -> PrimExpr | None:
                return value if is_sorted_key(form, x, axes) else None

            return core.result(order, E.cast(order.dtype, position), form.lines.at(line, rank), known)

        sorter = Sorter(form.keys.dtype, form.descending, form.lines.count, form.lines.length, form.n_wanted, config)
        return core.applied(sorter.launches(key, write, not form.lines.is_contiguous), sorter.buffers)


def default_knobs(sizes: Mapping[str, int], target: Target) -> dict[str, int]:
    """A line at once while its pairs fit the threads of a block, parts of it where it is longer."""
    gpu, s = target.gpu, sizes
    most = 4 * gpu.max_threads_per_block
    while most * s["bytes"] > gpu.static_shared:
        most //= 2
    chunk = max(2, power_of_two_above(s["length"]))
    if chunk > most:
        chunk = most // 2
    along = min(max(1, chunk // 4), gpu.max_threads_per_block // 2)
    together = 1
    while along * together < LEAST_THREADS and s["lines"] > together * gpu.sm_count:
        together *= 2
    return {"chunk": chunk, "along": along, "together": together}


class Sorter(SortNetwork):
    """The statements that sort lines: `count` of `length` elements each."""

    def __init__(self, dtype: str, descending: bool, n_lines: int, length: int, count: int, config: Config):
        super().__init__(dtype, descending, along=int(config["along"]))
        self.n_lines, self.length, self.count = n_lines, length, count
        self.chunk, self.together = int(config["chunk"]), int(config["together"])
        self.parts = -(-length // self.chunk)

    def launches(self, key: Element, write: Write, down: bool = False) -> Stmt:
        """The launches. `down`: neighbouring elements in memory are those of neighbouring lines."""
        if self.parts == 1:
            return self.sort_parts(key, lambda line, part, rank, value, place: write(line, rank, value, place), down)
        kept, parts = min(self.count, self.chunk), self.parts
        keys, places = self._between(parts * kept)

        stmts, span = [self.sort_parts(key, _writer((keys, places), kept), down, kept)], self.chunk
        while parts > 1:
            more = min(self.count, 2 * kept)
            last = parts <= 2
            to = None if last else self._between(-(-parts // 2) * more)
            stmts.append(
                self.merge((keys, places), parts, span, kept, more, write if to is None else _writer(to, more))
            )
            keys, places = (keys, places) if to is None else to
            parts, span, kept = -(-parts // 2), 2 * span, more
        return seq(*stmts)

    def _between(self, size: int) -> tuple[Buffer, Buffer]:
        """Keys and positions that one launch leaves to the next."""
        return tuple(self.own(f"{n}_left", t, self.n_lines, size, scope="global")
                     for n, t in (("keys", self.dtype), ("places", PLACE)))  # type: ignore[return-value]  # fmt: skip

    # --- parts in shared memory -------------------------------------------------------------------------------------

    def sort_parts(
        self, key: Element, write: Callable[[PrimExpr, PrimExpr, PrimExpr, PrimExpr, PrimExpr], Stmt], down: bool,
        kept: int | None = None,
    ) -> Stmt:  # fmt: skip
        """A launch that sorts each part of each line and writes its first elements: (line, part, rank, key, place)."""
        columns = min(self.chunk, self.length)
        kept = min(columns, self.count) if kept is None else kept
        groups = -(-self.n_lines // self.together)
        keys, places = (self.own(f"{n}_shared", t, self.together, columns, scope="shared")
                        for n, t in (("key", self.dtype), ("place", PLACE)))  # fmt: skip
        whole = self.length % self.chunk == 0 or self.parts == 1
        phases = power_of_two_above(columns).bit_length() - 1

        def of_block(at: Var, ty: Var, tx: Var) -> Stmt:
            part = E.floormod(at, index(self.parts))
            first_line = E.mul(E.floordiv(at, index(self.parts)), index(self.together))
            first = E.mul(part, index(self.chunk))
            there: PrimExpr = index(columns) if whole else E.minimum(E.sub(index(self.length), first), index(columns))
            threads = ((ty, self.together), (tx, self.along))

            def line(row: PrimExpr) -> PrimExpr:
                found = E.add(first_line, row)
                return E.minimum(found, index(self.n_lines - 1)) if self.n_lines % self.together else found

            def read(row: PrimExpr, column: PrimExpr) -> PrimExpr:
                position = E.add(first, column)
                return key(line(row), position if whole else E.minimum(position, index(self.length - 1)))

            def result(row: PrimExpr, rank: PrimExpr) -> Stmt:
                stmt = write(E.add(first_line, row), part, rank, load(keys, row, rank), load(places, row, rank))
                limits = [] if whole else [E.compare(E.LT, rank, there)]
                if self.n_lines % self.together:
                    limits.append(E.compare(E.LT, E.add(first_line, row), index(self.n_lines)))
                return IfThenElse(E.all_of(*limits), stmt) if limits else stmt

            return block("sort", seq(
                copy_tile(keys, self.together, columns, read, threads, down=down),
                copy_tile(places, self.together, columns, lambda _, column: E.add(first, column), threads, down=down),
                loop("phase", phases, lambda phase: loop("step", E.add(phase, index(1)), lambda step: self.order_pairs(
                    keys, places, E.sub(phase, step), E.compare(E.EQ, step, index(0)), there, ty, tx))),
                share_tile(self.together, kept, result, threads, down=down),
            ))  # fmt: skip

        return bound(((BLOCK_X, groups * self.parts), (THREAD_Y, self.together), (THREAD_X, self.along)), of_block)

    # --- merging ----------------------------------------------------------------------------------------------------

    def merge(
        self, source: Sequence[Buffer], parts: int, span: int, kept: int, more: int, write: Callable[..., Stmt]
    ) -> Stmt:
        """A launch that merges neighbouring parts, of `span` elements each, whose first `kept` are there."""
        keys, places = source
        total = self.n_lines * parts * kept
        threads = min(MERGE_THREADS, total)
        before = self.own("before", PLACE, 1)
        steps = kept.bit_length()

        def there(part: PrimExpr) -> PrimExpr:
            left = E.sub(index(self.length), E.mul(part, index(span)))
            return E.maximum(E.minimum(left, index(min(kept, span))), index(0))

        def of_thread(bx: Var, tx: Var) -> Stmt:
            at = E.add(E.mul(bx, index(threads)), tx)
            inside = E.minimum(at, index(total - 1)) if total % threads else at
            line, rest = E.floordiv(inside, index(parts * kept)), E.floormod(inside, index(parts * kept))
            part, mine = E.floordiv(rest, index(kept)), E.floormod(rest, index(kept))
            pair = E.floordiv(part, index(2))
            other = E.sub(E.add(E.mul(pair, index(4)), index(1)), part)
            known = E.minimum(other, index(parts - 1)) if parts % 2 else other
            key, place = load(keys, line, rest), load(places, line, rest)

            def search(step: Var) -> Stmt:
                size = E.bitwise("shift_left", index(1), E.sub(index(steps - 1), step))
                probe = E.sub(E.add(load(before, 0), size), index(1))
                beyond = E.add(E.mul(known, index(kept)), E.minimum(probe, index(kept - 1)))
                is_before = precedes(load(keys, line, beyond), key, self.descending,
                                     E.compare(E.LT, load(places, line, beyond), place))  # fmt: skip
                taken = E.all_of(E.compare(E.LT, probe, there(other)), is_before)
                return store(before, E.add(load(before, 0), E.select(taken, size, index(0))), 0)

            rank = E.add(mine, load(before, 0))
            limits = [E.compare(E.LT, mine, there(part)), E.compare(E.LT, rank, index(more))]
            if total % threads:
                limits.append(E.compare(E.LT, at, index(total)))
            arguments = (line, rank, key, place) if parts <= 2 else (line, pair, rank, key, place)
            return block("merge", seq(
                store(before, index(0), 0), loop("step", steps, search),
                IfThenElse(E.all_of(*limits), write(*arguments)),
            ))  # fmt: skip

        return bound(((BLOCK_X, -(-total // threads)), (THREAD_X, threads)), of_thread)


def _writer(target: tuple[Buffer, Buffer], kept: int) -> Callable[..., Stmt]:
    """Writes an element of a part to what the next launch reads."""
    keys, places = target

    def write(line: PrimExpr, part: PrimExpr, rank: PrimExpr, key: PrimExpr, place: PrimExpr) -> Stmt:
        at = E.add(E.mul(part, index(kept)), rank)
        return seq(store(keys, key, line, at), store(places, place, line, at))

    return write
