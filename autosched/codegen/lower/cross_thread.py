"""Reductions that several threads share: each adds up its part, then they combine their sums.

Before:  for tx in threadIdx.x(128): for k in 8: (init Y[i] = 0)  Y[i] = Y[i] + X[i, k * 128 + tx]
After:   for tx in threadIdx.x(128):
             own = 0;  for k in 8: own = own + X[i, k * 128 + tx]
             own = lanes("add", own, 32)                      neighbours in a warp, by shuffles
             parts[tx // 32] = own                            one for each warp, in shared memory
             own = parts[0] + … + parts[3]                    of 32 and more, 8 threads make 8 before
             if tx == 0: Y[i] = own

Where other statements stand among the loops of the reduction, as copies of what it adds up, the loops stay: the sums
start in front of them and are combined behind.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autosched.codegen.lower.half import HALVES, WIDE, widened
from autosched.codegen.lower.loops import guarded
from autosched.errors import CodegenError
from autosched.ir.node import Node, map_children
from autosched.tir import expr as E
from autosched.tir.access import is_own
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, IntImm, PrimExpr, StringImm, Var, all_of, const_int
from autosched.tir.extrema import LastingMax, LastingMin, NumberMax
from autosched.tir.functor import free_vars, loads, rewrite, substitute
from autosched.tir.simplify import split_conditions
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, LoopKind, SeqStmt, Stmt, seq

LANES = "lanes"  # lanes(op, value, width): a value of `width` neighbours along threadIdx.x, combined
COMBINE: Mapping[str, type[E.BinaryOp]] = {
    "add": E.Add, "mul": E.Mul, "lasting max": LastingMax, "lasting min": LastingMin,
    "number max": NumberMax, "max": E.Max, "min": E.Min,
}  # fmt: skip
WARP = 32
MANY_PARTS, AT_LAST = 32, 8  # so many parts become so few before every thread combines those


def is_lane_reduction(e: Node) -> bool:
    """Whether the expression combines the values of neighbouring lanes."""
    return isinstance(e, Call) and e.op == LANES


def lower_cross_thread(root: BlockRealize, outside: frozenset[Buffer]) -> BlockRealize:
    """The root with reductions over threads spelled out. `outside` are the buffers that others than a thread read.

    Raises CodegenError for a reduction whose combination is none of a sum, a product, a maximum and a minimum.
    """
    state = _Lowering(outside)
    new = state.visit(root.block.body, ())
    if new is root.block.body:
        return root
    block = dataclasses.replace(root.block, body=new, alloc_buffers=(*root.block.alloc_buffers, *state.made))
    return dataclasses.replace(root, block=block)


@dataclass(slots=True)
class _Lowering:
    outside: frozenset[Buffer]
    made: list[Buffer] = field(default_factory=list)

    def visit(self, stmt: Stmt, around: tuple[For, ...]) -> Stmt:
        if isinstance(stmt, For):
            found = _shared_reduction(stmt)
            if found is not None:
                return self.expand(found, around)
            around = (*around, stmt)
        if isinstance(stmt, BlockRealize) and _thread_loops(stmt, around):
            name = stmt.block.name_hint
            raise CodegenError(
                f"the reduction '{name}' is shared by threads, and depends on a condition among its loops",
                hint="bind its reduction loop to no threads",
            )
        return map_children(stmt, lambda c: self.visit(c, around) if isinstance(c, Stmt) else c)

    def buffer(self, like: Buffer, shape: Sequence[int], scope: str, name: str) -> Buffer:
        """For sums of the elements of a buffer: those of 16-bit floats are float32."""
        index = like.shape[0].dtype if like.shape else "int32"
        dtype = WIDE if like.dtype in HALVES else like.dtype
        made = Buffer(f"{like.name}_{name}", tuple(E.const(n, index) for n in shape), dtype, scope=scope)
        self.made.append(made)
        return made

    def expand(self, found: _Reduction, around: tuple[For, ...]) -> Stmt:
        """The loops of the reduction, which threads share; `around` are those outside of them."""
        realize, store = found.realize, found.store
        values = {iv.var: v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
        threads = [x for x in found.loops if x.thread]
        serial = [x for x in found.loops if not x.thread]
        points = [x for x in serial if x.loop_var not in found.reduced]
        own = self.buffer(store.buffer, [_extent(x) for x in points] or [1], "local", "own")
        at: tuple[PrimExpr, ...] = tuple(E.sub(x.loop_var, x.start) for x in points) or (IntImm(0),)
        mine = BufferLoad(own, at)
        conditions = list(split_conditions(realize.predicate))
        spatial = [c for c in conditions if not free_vars(c) & found.reduced]

        def for_points(body: Stmt) -> Stmt:
            for x in reversed(points):
                body = dataclasses.replace(x, body=body, kind=LoopKind.UNROLLED)
            return body

        initial, term = (substitute(x, values) for x in (found.start, found.term))
        if own.dtype != store.buffer.dtype:
            initial, term = widened(initial, set()), widened(term, set())
        start = for_points(BufferStore(own, initial, at))
        update: Stmt = BufferStore(own, _combine(found.op, mine, term), at)
        update = guarded(all_of(*conditions), update) if conditions else update
        if not found.is_alone:
            whole = rewrite(found.loops[0], lambda x: update if x is realize else x)
            update = self.visit(whole, around)
        else:
            for x in reversed(serial):
                update = dataclasses.replace(x, body=update)
        sharing = [x for x in threads if x.loop_var in found.reduced]
        others = [
            x
            for x in (*around, *threads)
            if x not in sharing and not x.thread.startswith(("blockIdx", "clusterCtaIdx"))
        ]
        parts = self.together(found, own, at, sharing, [x for x in others if x.thread], for_points)
        if store.buffer in self.outside or store.buffer.scope.startswith("shared"):
            first = [E.compare(E.EQ, x.loop_var, x.start) for x in sharing]
            spatial = [*spatial, *first]
        value = E.cast(store.buffer.dtype, mine)
        result: Stmt = BufferStore(store.buffer, value, tuple(substitute(i, values) for i in store.indices))
        parts.append(for_points(guarded(all_of(*spatial), result) if spatial else result))

        def by_threads(*parts: Stmt) -> Stmt:
            body = seq(*parts)
            for x in reversed(threads):
                body = dataclasses.replace(x, body=body)
            return body

        if not found.is_alone:
            return seq(by_threads(start), update, by_threads(*parts))
        return by_threads(start, update, *parts)

    def together(
        self, found: _Reduction, own: Buffer, at: tuple[PrimExpr, ...], sharing: list[For], others: list[For],
        for_points: Callable[[Stmt], Stmt],
    ) -> list[Stmt]:  # fmt: skip
        """Statements after which `own` of every thread is what all that share the reduction have."""
        mine = BufferLoad(own, at)
        along_x = next((x for x in sharing if x.thread == "threadIdx.x"), None)
        width = 1 if along_x is None else math.gcd(_extent(along_x), WARP)
        steps: list[Stmt] = []
        if width > 1:
            combined = Call(LANES, (StringImm(found.op), mine, IntImm(width)), own.dtype)
            steps.append(for_points(BufferStore(own, combined, at)))
        counts = [_extent(x) // (width if x is along_x else 1) for x in sharing]
        if math.prod(counts) == 1:
            return steps
        # one part for each group of lanes: those that neighbouring threads write side by side
        place = [E.floordiv(E.sub(x.loop_var, x.start), width if x is along_x else 1) for x in sharing]
        others = sorted(others, key=lambda x: x.thread, reverse=True)
        points, sizes = [const_int(s) or 1 for s in own.shape], list(map(_extent, others))
        whose: list[PrimExpr] = [E.sub(x.loop_var, x.start) for x in others]

        def parts_of(name: str, counts: Sequence[int]) -> Callable[..., BufferLoad]:
            """Shared memory for so many parts of each result: an element of it."""
            shape = [*points, *counts, *sizes] if along_x is None else [*points, *sizes, *counts]
            made = self.buffer(found.store.buffer, shape, "shared", name)
            if along_x is None:
                return lambda *which: BufferLoad(made, (*at, *which, *whose))
            return lambda *which: BufferLoad(made, (*at, *whose, *which))

        writers = []
        if width > 1:
            assert along_x is not None, "neighbours lie along x"
            writers = [E.compare(E.EQ, E.floormod(along_x.loop_var, width), 0)]

        def write(target: BufferLoad, *conditions: PrimExpr) -> Stmt:
            stmt = BufferStore(target.buffer, mine, target.indices)
            return guarded(all_of(*conditions), stmt) if conditions else stmt

        part = parts_of("parts", counts)
        steps.append(for_points(write(part(*place), *writers)))
        if len(counts) == 1 and counts[0] >= MANY_PARTS and counts[0] % AT_LAST == 0:
            far = Var("far", sharing[0].loop_var.dtype)
            other = part(E.add(place[0], E.mul(far, AT_LAST)))
            update: Stmt = BufferStore(own, _combine(found.op, mine, other), at)
            one, count = E.const(1, far.dtype), E.const(counts[0] // AT_LAST - 1, far.dtype)
            update = For(far, one, count, LoopKind.SERIAL, update)
            conditions = (E.compare(E.LT, place[0], E.const(AT_LAST, far.dtype)), *writers)
            counts, part = [AT_LAST], parts_of("fewer_parts", [AT_LAST])
            steps.append(for_points(guarded(all_of(*conditions), update)))
            steps.append(for_points(write(part(*place), *conditions)))
        loops = [Var(f"part{i}" if i else "part", x.loop_var.dtype) for i, x in enumerate(sharing)]
        zeros = [E.const(0, v.dtype) for v in loops]
        steps.append(for_points(BufferStore(own, part(*zeros), at)))
        update = BufferStore(own, _combine(found.op, mine, part(*loops)), at)
        if len(counts) > 1:
            update = guarded(E.logical_not(all_of(*(E.compare(E.EQ, v, 0) for v in loops))), update)
        first = 1 if len(counts) == 1 else 0
        for v, n in zip(reversed(loops), reversed(counts), strict=True):
            update = For(v, E.const(first, v.dtype), E.const(n - first, v.dtype), LoopKind.SERIAL, update)
        steps.append(for_points(update))
        return steps


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A block that threads share: its loops from the outermost that reduces, what it adds to what."""

    realize: BlockRealize
    loops: tuple[For, ...]
    is_alone: bool  # whether nothing else stands in the loops
    reduced: frozenset[Var]
    store: BufferStore
    op: str
    start: PrimExpr
    term: PrimExpr


def _reduced_vars(realize: BlockRealize) -> frozenset[Var]:
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return frozenset(v for iv, value in pairs if iv.kind == REDUCE for v in free_vars(value))


def _thread_loops(realize: BlockRealize, loops: Sequence[For]) -> list[For]:
    """The loops over threads that a block with start values reduces over."""
    if realize.block.init is None:
        return []
    reduced = _reduced_vars(realize)
    return [x for x in loops if x.thread.startswith("threadIdx") and x.loop_var in reduced]


def _below(stmt: Stmt, loops: tuple[For, ...], is_alone: bool) -> Iterator[tuple[BlockRealize, tuple[For, ...], bool]]:
    """(block, the loops around it, whether nothing else stands in them) for each block below a statement."""
    match stmt:
        case BlockRealize():
            yield stmt, loops, is_alone
        case For():
            yield from _below(stmt.body, (*loops, stmt), is_alone)
        case SeqStmt():
            for child in stmt.seq:
                yield from _below(child, loops, False)


def _shared_reduction(top: For) -> _Reduction | None:
    """The reduction below a loop that is its outermost reducing one, if threads share it."""
    shared = (
        (realize, loops, is_alone)
        for realize, loops, is_alone in _below(top, (), True)
        if _thread_loops(realize, loops) and top.loop_var in _reduced_vars(realize)
    )
    stmt, loops, is_alone = next(shared, (None, (), True))
    if stmt is None:
        return None
    reduced, block = _reduced_vars(stmt), stmt.block
    pairs = zip(block.iter_vars, stmt.iter_values, strict=True)
    spatial = {v for iv, value in pairs if iv.kind != REDUCE for v in free_vars(value)}
    if both := [x.loop_var.name for x in loops if x.loop_var in reduced & spatial]:
        raise CodegenError(
            f"the reduction '{block.name_hint}' is shared by threads, and its loop '{both[0]}' counts results too",
            hint="let each of its loops count either results or what is added up",
        )
    if not isinstance(block.body, BufferStore) or not isinstance(block.init, BufferStore):
        raise CodegenError(
            f"the reduction '{block.name_hint}' has several results, which threads cannot share",
            hint="bind its reduction loop to no threads",
        )
    store = block.body
    op, term = _parts(store, block)
    return _Reduction(stmt, loops, is_alone, reduced, store, op, block.init.value, term)


def _parts(store: BufferStore, block: Block) -> tuple[str, PrimExpr]:
    """(how values are combined, what each iteration adds)."""
    value = store.value
    for name, kind in COMBINE.items():
        if isinstance(value, kind):
            for own, term in ((value.a, value.b), (value.b, value.a)):
                if is_own(own, store) and not any(x.buffer is store.buffer for x in loads(term)):
                    return name, term
    raise CodegenError(
        f"the reduction '{block.name_hint}' combines values in a way that threads cannot share",
        hint="sums, products, maxima and minima can be; bind its reduction loop to no threads",
    )


def _combine(op: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    return COMBINE[op](a, b)


def _extent(loop: For) -> int:
    count = const_int(loop.extent)
    if count is None:
        raise CodegenError(f"the extent of loop '{loop.loop_var.name}' is no constant")
    return count


def lanes_in_turn(stmt: BufferStore, group: Sequence[BufferLoad]) -> BufferStore:
    """A store of combined lanes, where the values of the lanes are the elements of `group`."""

    def step(x: object) -> object:
        if isinstance(x, Call) and x.op == LANES:
            op = x.args[0]
            assert isinstance(op, StringImm), "the name of the combination"
            total: PrimExpr = group[0]
            for other in group[1:]:
                total = _combine(op.value, total, other)
            return total
        return x

    return rewrite(stmt, step)
