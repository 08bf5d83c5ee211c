"""Values joined at the places that positions name: scatter_elements, scatter_nd, sums by segment.

Such a result is the combination, over all updates, of those whose target it is, which would be work for every pair of
a result and an update. Here each update goes to its target, one after the other, so that the result is the same each
time; what has targets of its own, or lies beside the target, is done in parallel:

    for slice in parallel:                      # `width` neighbours along the last axis, where that names no places
        for place in places: out[slice, place] = start
        for k in updates: out[slice, target[k]] = combine(out[slice, target[k]], value[k])

Where one element-wise block joins the updates with what they are written over, its result is that without any update
first, and then the updates go there: no place without one is read again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from autosched.codegen.lower.half import HALVES
from autosched.ir.node import preorder
from autosched.space import Config, ConfigSpace, load_space
from autosched.target import Target
from autosched.templates.base import Anchor, Applied
from autosched.templates.classify import blocks_of, extents, is_reduction, spatial
from autosched.templates.core_nests import indices_of, load, one_of, others_are_elementwise, store, typed
from autosched.templates.cpu.core_nests import Core, OpenCore
from autosched.templates.cpu.sized import sized
from autosched.templates.nests import index, loop, nested
from autosched.templates.scatter_form import ScatterForm, scatter_of
from autosched.tir import Block, PrimFunc, Var
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr
from autosched.tir.function import make_root
from autosched.tir.functor import loads, rewrite, substitute
from autosched.tir.schedule.inline import with_regions
from autosched.tir.simplify import simplify
from autosched.tir.stmt import BufferStore, IfThenElse, LoopKind, SeqStmt, Stmt, seq

MOST_ELEMENTS = 1 << 30  # whose numbers fit 32 bits
MOST_WIDTH = 64  # slices side by side


class Scatter:
    """One scatter and what is element-wise around it."""

    name = "scatter"

    def match(self, func: PrimFunc, target: Target) -> Anchor | None:
        reductions = [b for b in blocks_of(func) if is_reduction(b)]
        form = scatter_of(reductions[0]) if len(reductions) == 1 else None
        if form is None or not others_are_elementwise(func, [form.block]):
            return None
        n_updates = extents((form.updates,))[0]
        if max(math.prod(form.shape), math.prod(form.shape[d] for d in form.lines) * n_updates) > MOST_ELEMENTS:
            return None
        if form.block.writes[0].buffer.dtype in HALVES:  # their sums would be rounded at every step
            return None
        inner = 1 if len(form.shape) - 1 in form.places else form.shape[-1]
        sizes = {"results": math.prod(form.shape), "updates": n_updates, "inner": inner}
        return Anchor(form.block.name_hint, self.name, sizes, form)

    def space(self, anchor: Anchor, target: Target) -> ConfigSpace:
        values = {**anchor.sizes, "most_width": MOST_WIDTH}
        return load_space(target.backend, self.name, values).with_default(self.default(anchor, target))

    def default(self, anchor: Anchor, target: Target) -> Config:
        inner = anchor.sizes["inner"]
        return Config(self.name, {"width": _width(inner)})

    def apply(self, func: PrimFunc, config: Config, target: Target) -> Applied:
        anchor = self.match(func, target)
        assert anchor is not None, "apply is called on a function that matched"
        form: ScatterForm = anchor.details
        return _written(func, form, int(config["width"]), target, Core)


def _join_of(core: Core, form: ScatterForm) -> Block | None:
    """The block that alone reads the scatter's results, each at its own place, and into whose result updates may go."""
    results = form.block.writes[0].buffer
    readers = [b for b in core.left if b.name_hint not in core.names and any(r.buffer is results for r in b.reads)]
    if results in core.func.buffers or len(readers) != 1 or not isinstance(readers[0].body, BufferStore):
        return None
    store, own = readers[0].body, [iv.var for iv in readers[0].iter_vars]
    reads = [x for x in loads(store.value) if x.buffer is results]
    accesses: list[BufferLoad | BufferStore] = [*reads, store]
    if any([*map(id, x.indices)] != [*map(id, own)] for x in accesses):
        return None
    is_step = type(store.value) is type(form.step) and store.value.b is reads[0] and len(reads) == 1
    return readers[0] if form.takes_last or is_step else None


def _joined(form: ScatterForm, value: PrimExpr, last: PrimExpr) -> PrimExpr:
    """What the join computes for an element whose last update has that number."""
    results = form.block.writes[0].buffer

    def step(x: object) -> object:
        return E.cast(results.dtype, last) if isinstance(x, BufferLoad) and x.buffer is results else x

    found: PrimExpr = rewrite(value, step)
    return simplify(found)


def _join_first(core: Core, form: ScatterForm, join: Block) -> PrimFunc:
    """The function with the scatter behind the join, which computes what is there without updates."""
    root, store = core.schedule.func.root, join.body
    assert isinstance(root.body, SeqStmt) and isinstance(store, BufferStore), "both are nests"
    if form.takes_last:
        value = _joined(form, store.value, form.start)
    else:
        assert isinstance(store.value, E.BinaryOp), "the join is a step of the scatter"
        value = store.value.a
    plain = with_regions(replace(join, body=replace(store, value=value)))

    def has(nest: Stmt, name: str) -> bool:
        return any(isinstance(x, Block) and x.name_hint == name for x in preorder(nest))

    (scatter,) = (n for n in root.body.seq if has(n, form.block.name_hint))
    nests: list[Stmt] = []
    for nest in root.body.seq:
        if has(nest, join.name_hint):
            nests += [rewrite(nest, lambda x: plain if x is join else x), scatter]
        elif nest is not scatter:
            nests.append(nest)
    return core.schedule.func.with_body(make_root(seq(*nests), root.alloc_buffers, root.annotations))


def schedule_scatter(func: PrimFunc, target: Target) -> Applied | None:
    """Schedule a function over symbols with one scatter and what is element-wise around it; None for any other."""
    reductions = [b for b in blocks_of(func) if is_reduction(b)]
    form = scatter_of(reductions[0]) if len(reductions) == 1 else None
    if form is None or not others_are_elementwise(func, [form.block]):
        return None
    if form.block.writes[0].buffer.dtype in HALVES:
        return None
    inner = form.sizes[-2]
    is_wide = isinstance(inner, int) and len(form.sizes) - 2 not in form.places
    width = _width(inner) if is_wide and isinstance(inner, int) else 1
    applied = _written(func, form, width, target, OpenCore)
    return sized(func, applied.func, applied.trace, [form.block.name_hint])


def _written(func: PrimFunc, form: ScatterForm, width: int, target: Target, kind: type[Core]) -> Applied:
    """The function with the scatter's loops written out."""
    core = kind(func, [form.block.name_hint], target)
    join = _join_of(core, form)
    writer = _Writer(form, core, width, join)
    if join is not None:
        core = kind(_join_first(core, form, join), [form.block.name_hint], target)
    return core.applied(writer.nest(), [writer.target])


def _width(inner: int) -> int:
    """Slices side by side."""
    return next(w for w in range(min(MOST_WIDTH, inner), 0, -1) if inner % w == 0)


def _product(sizes: Sequence[int | PrimExpr]) -> int | PrimExpr:
    found: int | PrimExpr = 1
    for size in sizes:
        both_known = isinstance(size, int) and isinstance(found, int)
        found = size * found if both_known else E.mul(E.to_expr(found, "int64"), E.to_expr(size, "int64"))
    return found


class _Writer:
    """The statements that bring updates to their targets.

    join  the block into whose result they go, which is there already
    """

    def __init__(self, form: ScatterForm, core: Core, width: int, join: Block | None):
        self.form, self.core, self.width, self.join = form, core, width, join
        self.out = (join or form.block).writes[0].buffer
        self.target = one_of("target", "int64", 1)
        self.rank = len(spatial(form.block))
        self.last = self.rank - 1
        self.slices = [d for d in range(self.rank) if d not in form.places]
        self.sizes = [form.sizes[d] for d in form.places]
        self.counts = [form.sizes[d] for d in self.slices]
        if width > 1:
            self.counts[-1] = E.as_int(self.counts[-1]) // width
        self.has_own_targets = self.last in form.lines and width > 1

    def nest(self) -> Stmt:
        def of_slice(task: Var) -> Stmt:
            updates = loop("update", self.form.sizes[-1], lambda k: self.joined(task, k))
            return updates if self.join else seq(self.started(task), updates)

        return loop("slice", _product(self.counts), of_slice, LoopKind.PARALLEL)

    def at(self, task: PrimExpr, lane: PrimExpr, places: list[PrimExpr]) -> list[PrimExpr]:
        """Indices of a result."""
        found: list[PrimExpr] = [index(0)] * self.rank
        for d, i in zip(self.slices, indices_of(task, self.counts), strict=True):
            found[d] = E.add(E.mul(i, index(self.width)), lane) if d == self.last and self.width > 1 else i
        for d, i in zip(self.form.places, places, strict=True):
            found[d] = i
        return found

    def of_update(self, e: PrimExpr, at: list[PrimExpr], update: PrimExpr) -> PrimExpr:
        """An expression of the block for an element of the result and an update."""
        axes = [*(iv.var for iv in spatial(self.form.block)), self.form.updates.var]
        values = {v: E.cast(v.dtype, i) for v, i in zip(axes, (*at, update), strict=True)}
        return self.core.value(substitute(e, values))

    def lanes(self, body: Callable[..., Stmt], kind: LoopKind) -> Stmt:
        return loop("lane", self.width, body, kind) if self.width > 1 else body(index(0))

    def started(self, task: Var) -> Stmt:
        """Every result of a slice as it is without an update."""
        sizes = self.sizes

        def of_place(*places: Var) -> Stmt:
            return self.lanes(
                lambda lane: BufferStore(self.out, self.form.start, typed(self.out, self.at(task, lane, [*places]))),
                LoopKind.VECTORIZED,
            )

        return nested(" ".join(f"place_{d}" for d in self.form.places), sizes, of_place)

    def joined(self, task: Var, k: Var) -> Stmt:
        """One update of all lanes."""
        form, sizes = self.form, self.sizes
        zeros: list[PrimExpr] = [index(0)] * len(sizes)
        target = load(self.target, 0)

        def find(lane: PrimExpr) -> Stmt:
            at = self.at(task, lane, zeros)
            found = E.cast("int64", self.of_update(form.target, at, k))
            conditions = [self.of_update(c, at, k) for c in form.conditions]
            nowhere = E.const(-1, "int64")
            return store(self.target, E.select(E.all_of(*conditions), found, nowhere) if conditions else found, 0)

        def write(lane: PrimExpr) -> Stmt:
            at = self.at(task, lane, indices_of(target, sizes))
            place = typed(self.out, at)
            if self.join and form.takes_last:
                assert isinstance(self.join.body, BufferStore), "the caller looked"
                axes = {iv.var: E.cast(iv.var.dtype, i) for iv, i in zip(self.join.iter_vars, place, strict=True)}
                return BufferStore(self.out, substitute(_joined(form, self.join.body.value, k), axes), place)
            value = self.of_update(form.value, at, k)
            return BufferStore(self.out, form.combined(BufferLoad(self.out, place), value), place)

        def inside(stmt: Stmt) -> Stmt:
            limit = E.cast("int64", E.to_expr(_product(sizes), "int64"))
            both = E.all_of(E.compare(E.GE, target, E.const(0, "int64")), E.compare(E.LT, target, limit))
            return IfThenElse(both, stmt)

        if self.has_own_targets:
            return self.lanes(lambda lane: seq(find(lane), inside(write(lane))), LoopKind.SERIAL)
        return seq(find(index(0)), inside(self.lanes(write, LoopKind.VECTORIZED)))
