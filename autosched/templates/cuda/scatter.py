"""Values joined at the places that positions name: scatter_elements, scatter_nd, sums by segment.

Such a result is the combination, over all updates, of those whose target it is, which would be work for every pair of
a result and an update. Here the updates are sorted by target, equal ones in order, and a result joins the stretch of
its own:

    keys_sorted, places_sorted = updates by target                  # launches of `sort.Sorter`
    for result in blockIdx, threadIdx:
        first, end = where its target begins and ends in keys_sorted, by binary search
        for update in places_sorted[first:end]: out = combine(out, value[update])

Updates of one result are joined in order, so that the result is the same each time. Of updates that overwrite each
other the last one is known at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

from autosched.codegen.lower.half import HALVES, WIDE, widened
from autosched.errors import ScheduleError
from autosched.space import Config, ConfigSpace
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, extents, is_reduction, spatial
from autosched.templates.core_nests import indices_of, load, one_of, others_are_elementwise, row_major, store
from autosched.templates.cuda.core_nests import Core
from autosched.templates.cuda.nests import block, bound
from autosched.templates.cuda.sort import PLACE, PLACE_BYTES, Sorter, default_knobs
from autosched.templates.cuda.sort_sized import OpenSorter, doublings
from autosched.templates.cuda.spaces import device_space
from autosched.templates.cuda.threads import BLOCK_X, THREAD_X
from autosched.templates.nests import index, loop
from autosched.templates.scatter_form import NOWHERE, ScatterForm, scatter_of
from autosched.tir import PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, const_int
from autosched.tir.functor import substitute
from autosched.tir.stmt import IfThenElse, Stmt, seq

KEY = "int32"  # of targets; NOWHERE for updates that have none
MOST_ELEMENTS = 1 << 30
MOST_TO_ONE = 64  # updates of a result on average: above, threads better share the sum of each
DEFAULT_THREADS = 256


class Scatter:
    """One scatter and what is element-wise around it."""

    name = "scatter"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        reductions = [b for b in blocks_of(func) if is_reduction(b)]
        form = scatter_of(reductions[0]) if len(reductions) == 1 else None
        if form is None or not others_are_elementwise(func, [form.block]):
            return None
        n_updates, places = extents((form.updates,))[0], math.prod(form.shape[d] for d in form.places)
        n_lines = math.prod(form.shape[d] for d in form.lines)
        if max(math.prod(form.shape), n_lines * n_updates, places) > MOST_ELEMENTS:
            return None
        if n_updates > MOST_TO_ONE * places and not form.takes_last:
            return None
        sizes = {
            "lines": n_lines, "length": n_updates, "count": n_updates, "results": math.prod(form.shape),
            "bytes": 4 + PLACE_BYTES,
        }  # fmt: skip
        return Anchor(form.block.name_hint, "scatter", sizes, form)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        return device_space(self, anchor, target)

    def default(self, anchor: Anchor, target: Target) -> Config:
        return Config(self.name, {**default_knobs(anchor.sizes, target), "block_size": DEFAULT_THREADS})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        n_lines, n_updates = anchor.sizes["lines"], anchor.sizes["length"]
        sorter = Sorter(KEY, False, n_lines, n_updates, n_updates, config)
        results = _Results(func, anchor.details)
        sort = sorter.launches(results.key, results.write_sorted, down=n_lines > 1)
        return results.applied(sort, sorter.buffers, config["block_size"])


def schedule_open_scatter(func: PrimFunc) -> Applied | None:
    """The same where the number of updates comes with the call; None for any other function.

    Few places whose updates are combined are left to sums that threads share. Raises ScheduleError for many beside
    another sum: each result would be compared with all updates.
    """
    form = next((f for f in map(scatter_of, blocks_of(func)) if f is not None), None)
    if form is None or isinstance(form.sizes[-1], int):
        return None
    places = const_int(_product([E.to_expr(form.sizes[d], KEY) for d in form.places]))
    if places is not None and places <= MOST_TO_ONE and not form.takes_last:
        return None
    if not others_are_elementwise(func, [form.block]):
        raise ScheduleError("each result would be compared with all of an open number of updates")
    results = _Results(func, form)
    sorter = OpenSorter(KEY, False, results.n_lines, results.n_updates, None)
    return results.applied(sorter.launches(results.key, results.write_sorted), sorter.buffers, DEFAULT_THREADS)


def _product(sizes: Sequence[PrimExpr]) -> PrimExpr:
    return reduce(E.mul, sizes, E.const(1, KEY))


class _Results:
    """The launch that joins what is sorted."""

    def __init__(self, func: PrimFunc, form: ScatterForm):
        self.form, self.out = form, form.block.writes[0].buffer
        self.core = Core(func, [form.block.name_hint], [self.out])
        *self.shape, self.n_updates = (E.cast(KEY, E.to_expr(n, KEY)) for n in form.sizes)
        self.n_lines = _product([self.shape[d] for d in form.lines])
        self.keys, self.places = (
            Buffer(n, (self.n_lines, self.n_updates), t, scope="global")
            for n, t in (("keys_sorted", KEY), ("places_sorted", PLACE))
        )
        self.wide = WIDE if self.out.dtype in HALVES else self.out.dtype
        self.first, self.end = one_of("first", PLACE, 1), one_of("end", PLACE, 1)
        self.joined = one_of("joined", self.wide, 1)
        self.buffers = [self.keys, self.places, self.first, self.end, self.joined]

    def applied(self, sort: Stmt, buffers: Sequence[Buffer], threads: int) -> Applied:
        """The scheduled function, from the statements that sort the updates."""
        return self.core.applied(seq(sort, self.launch(threads)), [*buffers, *self.buffers])

    def write_sorted(self, line: PrimExpr, rank: PrimExpr, key: PrimExpr, place: PrimExpr) -> Stmt:
        """Leave an update at its rank."""
        return seq(store(self.keys, key, line, rank), store(self.places, place, line, rank))

    def of_update(self, e: PrimExpr, at: Sequence[PrimExpr], update: PrimExpr) -> PrimExpr:
        """An expression of the block for an element of the result and an update."""
        axes = [*(iv.var for iv in spatial(self.form.block)), self.form.updates.var]
        values = {v: E.cast(v.dtype, i) for v, i in zip(axes, (*at, update), strict=True)}
        return self.core.value(substitute(e, values))

    def key(self, line: PrimExpr, update: PrimExpr) -> PrimExpr:
        """The target of an update; NOWHERE where it has none."""
        at: list[PrimExpr] = [index(0)] * len(self.shape)
        for d, i in zip(self.form.lines, indices_of(line, [self.shape[d] for d in self.form.lines]), strict=True):
            at[d] = i
        target = E.cast(KEY, self.of_update(self.form.target, at, update))
        conditions = [self.of_update(c, at, update) for c in self.form.conditions]
        return E.select(E.all_of(*conditions), target, E.const(NOWHERE, KEY)) if conditions else target

    def launch(self, threads: int) -> Stmt:
        """A result for each thread."""
        total = _product(self.shape)
        known = const_int(total)
        threads = threads if known is None else min(threads, known)
        divides = known is not None and known % threads == 0

        def of_thread(bx: Var, tx: Var) -> Stmt:
            flat = E.add(E.mul(bx, index(threads)), tx)
            at = indices_of(flat if divides else E.minimum(flat, E.sub(total, index(1))), self.shape)
            value = E.cast(self.out.dtype, load(self.joined, 0))
            end = self.core.result(self.out, value, at)
            if not divides:
                end = IfThenElse(E.compare(E.LT, flat, total), end)
            return block("scatter", seq(self.result(at), end))

        blocks = E.floordiv(E.add(total, index(threads - 1)), index(threads))
        return bound(((BLOCK_X, blocks), (THREAD_X, threads)), of_thread)

    def result(self, at: Sequence[PrimExpr]) -> Stmt:
        """Set `joined` for one element."""
        form = self.form
        line, place = (row_major([at[d] for d in dims], [self.shape[d] for d in dims])
                       for dims in (form.lines, form.places))  # fmt: skip
        if form.takes_last:
            last = E.maximum(E.sub(load(self.end, 0), index(1)), index(0))
            is_hit = E.all_of(E.compare(E.GT, load(self.end, 0), index(0)),
                              E.compare(E.EQ, load(self.keys, line, last), place))  # fmt: skip
            value = E.cast(self.wide, load(self.places, line, last))
            return seq(*self.search(self.end, line, E.add(place, index(1))),
                       store(self.joined, E.select(is_hit, value, E.cast(self.wide, form.start)), 0))  # fmt: skip

        def join(step: Var) -> Stmt:
            update = load(self.places, line, E.add(load(self.first, 0), step))
            value = self.of_update(form.value, at, update)
            value = widened(value, set()) if self.wide != self.out.dtype else value
            return store(self.joined, form.combined(load(self.joined, 0), value), 0)

        return seq(
            *self.search(self.first, line, place),
            *self.search(self.end, line, E.add(place, index(1))),
            store(self.joined, E.cast(self.wide, form.start), 0),
            loop("update", E.sub(load(self.end, 0), load(self.first, 0)), join),
        )

    def search(self, found: Buffer, line: PrimExpr, place: PrimExpr) -> list[Stmt]:
        """How many sorted targets of a line are below a place."""
        steps = doublings(E.add(self.n_updates, index(1)), 0, MOST_ELEMENTS.bit_length())

        def probe(step: Var) -> Stmt:
            size = E.bitwise("shift_left", index(1), E.sub(E.sub(steps, index(1)), step))
            last = E.sub(E.add(load(found, 0), size), index(1))
            below = E.compare(E.LT, load(self.keys, line, E.minimum(last, E.sub(self.n_updates, index(1)))), place)
            taken = E.all_of(E.compare(E.LT, last, self.n_updates), below)
            return store(found, E.add(load(found, 0), E.select(taken, size, index(0))), 0)

        return [store(found, index(0), 0), loop("step", steps, probe)]
