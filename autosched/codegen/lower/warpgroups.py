"""Products of warpgroups (wgmma), fed by a warp that does nothing but copy boxes of tensors; for sm_90a.

A schedule says it by a scope and an annotation. Nothing is bound to threadIdx.x, warpgroups are bound to threadIdx.y:

    C  set_scope(…, "wgmma.accumulator")  float32 (int32 for int8); a warpgroup's part has a multiple of 64 rows and at
                                          most 256 columns
    A  cache_read(…, "shared")            compute_at the loop over tiles of the reduction, as it stands: [rows, k]
    B  cache_read(…, "shared")            the same: [columns, k], or [k, columns] for 16-bit elements
    annotate(k_tile, "warp_specialized_stages", stages)

Before:  for k in n: (A_shared[…] = A[…]), (B_shared[…] = B[…]), (C[…] += A_shared[…] * B_shared[…])
After:   if tx == 128 * warpgroups: tensor_ahead(A_map), tensor_ahead(B_map)
         if tx < 128 * warpgroups:
             for k in n:
                 mbarrier_wait(ready[k % stages], k // stages % 2)
                 wgmma(C, A_shared[k % stages], B_shared[k % stages])         one product is left in flight
                 mbarrier_arrive(free[(k - 1) % stages], tx % 32 == 0 and k > 0)
             wgmma_wait(C)
             … what follows …
         elif tx == 128 * warpgroups:
             for k in n:
                 mbarrier_wait(free[k % stages], (k // stages + 1) % 2)
                 mbarrier_expect(ready[k % stages], bytes)
                 tensor_copy(A_shared[k % stages], A_map, …), tensor_copy(B_shared[k % stages], B_map, …)

Where loops are bound to clusterCtaIdx, what blocks of a cluster read alike is copied once: each brings a part of it
to all of them (multicast). A block copies into a stage again when the warps of all blocks of the cluster have done with
it, and stays until the others no longer tell it so.

How many iterations the loop has may differ from block to block, though not within a cluster.

Serial loops around are those of a block that computes several tiles: the copies of the next one begin while the results
of the one before are stored. Stages and phases are counted through all of them.

The innermost dimension of a tile is a multiple of 128 bytes. It lies in shared memory as slabs of 128 bytes a row,
whose 16-byte pieces are permuted by the row's number: neither the copy nor the product meets a bank twice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from autosched.codegen.lower.barriers import barrier
from autosched.codegen.lower.fragments import COLUMNS, GROUP_ACCUMULATOR, Fragments, Nest, Place, stripped, whole_tiles
from autosched.codegen.lower.instructions import (
    MBARRIER_ARRIVE,
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_WAIT,
    MBARRIERS,
)
from autosched.codegen.lower.launches import LoweredLaunch, ThreadAxis
from autosched.codegen.lower.loops import WARP_STAGES
from autosched.codegen.lower.partition import KEEP_WHOLE
from autosched.codegen.lower.shared_memory import is_shared
from autosched.codegen.lower.software_pipeline import ROLLED
from autosched.codegen.lower.tidy import difference
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, map_children, preorder
from autosched.runtime.cuda.kernel import MOST_BOX, TensorMap
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, IntImm, PrimExpr, StringImm, Var, all_of, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import Analyzer, Linear, form_key, split_conditions
from autosched.tir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LoopKind, SeqStmt, Stmt, seq

WGMMA, WGMMA_WAIT, TENSOR_COPY, TENSOR_AHEAD = "wgmma", "wgmma_wait", "tensor_copy", "tensor_ahead"
CLUSTER_ARRIVE, CLUSTER_WAIT = "cluster_arrive", "cluster_wait"
OPERATIONS = (WGMMA, WGMMA_WAIT, TENSOR_COPY, TENSOR_AHEAD, CLUSTER_ARRIVE, CLUSTER_WAIT, MBARRIER_FENCE, *MBARRIERS)
GROUP, WARP, ROWS = 128, 32, 64  # threads of a warpgroup and of a warp, rows of one instruction
SLAB_BYTES = 128  # of a row in shared memory
MOST_COLUMNS = 256

# by the element's dtype: (bytes, name of the instruction's operands)
KINDS = {"float16": (2, "f16"), "uint16": (2, "bf16"), "float32": (4, "tf32"), "int8": (1, "s8")}


def lower_warpgroups(body: Stmt, launch: LoweredLaunch, arguments: Sequence[Buffer]) -> Stmt:
    """The statement with an annotated loop shared between warps that copy and warps that multiply.

    arguments  what boxes can be cut from: the function's arguments, and what earlier launches leave; tensor maps count
               them in this order

    The launch gets its threads, tensor maps and the buffers that mbarriers guard. Raises CodegenError for what has no
    such form.
    """
    loops = [n for n in preorder(body) if isinstance(n, For) and WARP_STAGES in n.annotations]
    if not loops:
        return body
    if len(loops) > 1:
        raise CodegenError("a launch has several loops whose copies a warp of its own makes", hint="use one of them")
    threads = [a for a in launch.axes if a.tag.startswith("threadIdx") and a.extent > 1]
    if any(a.tag != "threadIdx.y" for a in threads):
        raise CodegenError(
            f"a loop with '{WARP_STAGES}' is in a launch with threads along {', '.join(a.tag for a in threads)}",
            hint="bind warpgroups to threadIdx.y, and nothing to the other axes",
        )
    return _Specializer(launch, list(arguments), loop=loops[0]).run(body)


@dataclass(frozen=True, slots=True)
class BoxCopy:
    """A box of an argument that becomes a shared buffer.

    base    index of the box' first element
    rows    the argument's dimensions whose places in the box are the buffer's rows, the slowest first; their extents
    columns the argument's dimension along the buffer's rows
    shared  axes of the cluster whose blocks read the same box
    """

    target: Buffer
    source: Buffer
    base: tuple[PrimExpr, ...]
    rows: tuple[tuple[int, int], ...]
    columns: int
    shared: tuple[ThreadAxis, ...] = ()


class Accumulators(Fragments):
    """Registers of a warpgroup: lane 32 w + l holds rows 16 w + l / 4 and eight below of each 64."""

    __slots__ = ()
    accumulator = GROUP_ACCUMULATOR
    rows = ROWS
    turns = True

    def first_row(self) -> PrimExpr:
        thread = E.floormod(self.lane, GROUP)
        return E.floordiv(thread, WARP) * 16 + E.floordiv(E.floormod(self.lane, WARP), 4)

    def declare(self, buffer: Buffer, body: Stmt) -> Place:
        if buffer not in self.places:
            raise CodegenError(f"the accumulator '{buffer.name}' is not computed in the loop with '{WARP_STAGES}'")
        return self.places[buffer]


@dataclass(slots=True)
class Boxes:
    """Copies of a launch as boxes of its arguments."""

    launch: LoweredLaunch
    arguments: list[Buffer]
    analyzer: Analyzer = field(default_factory=Analyzer)
    thread: Var = field(default_factory=lambda: Var("tx", "int32"))
    around: tuple[For, ...] = ()  # loops over the tiles of a block, the outermost first
    guards: dict[Hashable, PrimExpr] = field(default_factory=dict)  # conditions that say whether a block has a tile

    @property
    def cluster(self) -> tuple[ThreadAxis, ...]:
        """The axes of the cluster; a block's rank counts along the first one first."""
        return tuple(a for a in self.launch.axes if a.tag.startswith("clusterCtaIdx") and a.extent > 1)

    @property
    def n_ctas(self) -> int:
        """Blocks of a cluster."""
        return math.prod(self.launch.cluster)

    def is_guard(self, condition: PrimExpr) -> bool:
        """Whether a condition says that a block has one more tile: false in its last turns alone."""
        form, loops = difference(condition, self.analyzer), {x.loop_var for x in self.around}
        used = free_vars(condition)
        if form is None or not used & loops:
            return False
        block_vars = {a.var for a in self.launch.axes if a.tag.startswith("blockIdx")}
        grows = all(factor > 0 for factor, atom in form.terms.values() if free_vars(atom) & loops)
        if not grows or not used <= loops | block_vars:
            return False
        self.guards[form_key(condition)] = condition
        return True

    def copy(self, part: Stmt, group: ThreadAxis | None) -> BoxCopy:
        """A statement of the loop as a copy of a box."""
        nest = Nest.of(part)
        if nest is None or not is_shared(nest.store.buffer):
            raise CodegenError("a statement before the product is no copy into a shared buffer")
        store, value = nest.store, nest.store.value
        conditions = list(nest.conditions)
        if isinstance(value, Call) and value.op == "if_then_else" and _is_zero(value.args[2]):
            conditions += split_conditions(value.args[0])
            value = value.args[1]
        name = store.buffer.name
        if not isinstance(value, BufferLoad) or value.buffer not in self.arguments:
            raise CodegenError(
                f"the shared buffer '{name}' is no plain copy of an argument",
                hint="compute what feeds the product first",
            )
        value = BufferLoad(value.buffer, tuple(map(_as_narrow, value.indices)))
        zero = {x.loop_var: E.const(0, x.loop_var.dtype) for x in nest.loops}
        base = tuple(self.analyzer.simplify(substitute(i, zero)) for i in value.indices)
        wanted = [self.steps(i, zero) for i in store.indices[-2:]]
        found = [self.steps(i, zero) for i in value.indices]
        columns = [d for d, x in enumerate(found) if wanted[1] and x == wanted[1]]
        rows = self.rows(nest, wanted[0], {d: x for d, x in enumerate(found) if x and d not in columns})
        sizes = [const_int(s) or 0 for s in store.buffer.shape]
        covered = [1 + sum(c * (_extent(nest, v) - 1) for v, c in w.items()) for w in wanted]
        if (
            not rows or columns != [value.buffer.ndim - 1] or covered != sizes[-2:]
            or any(s != 1 for s in sizes[:-2])
        ):  # fmt: skip
            raise CodegenError(
                f"the copy into the shared buffer '{name}' is no box of '{value.buffer.name}'",
                hint="leave its loops as compute_at makes them, and choose tiles that are no larger than the argument",
            )
        used = {v for i in base for v in free_vars(i)}
        alike = tuple(a for a in self.cluster if a.var not in used)
        made = BoxCopy(store.buffer, value.buffer, base, rows, columns[0], alike)
        for c in conditions:
            is_one_thread = isinstance(c, E.EQ) and group is not None and c.a is group.var
            if (
                not is_one_thread
                and not any(self.is_bound(c, value.indices[d], value.buffer.shape[d]) for d in range(value.buffer.ndim))
                and not self.is_guard(c)
            ):
                raise CodegenError(f"the copy into the shared buffer '{name}' has the condition {c}")
        self.check_box(made)
        return made

    def rows(
        self, nest: Nest, wanted: dict[Var, int], found: dict[int, dict[Var, int]]
    ) -> tuple[tuple[int, int], ...]:  # fmt: skip
        """The dimensions whose places a row's number counts, with how many there are; () where it counts others.

        wanted, found  how the number of the row, and the index of each dimension, move with the loops
        """
        if len(found) == 1:
            ((d, steps),) = found.items()
            return ((d, 1 + sum(c * (_extent(nest, v) - 1) for v, c in steps.items())),) if steps == wanted else ()
        rows: list[tuple[int, int]] = []
        counted: dict[Var, int] = {}
        places = 1
        for d, steps in sorted(found.items(), reverse=True):
            (v, step), *more = steps.items()
            if step != 1 or more or v in counted:
                return ()
            counted[v] = places
            rows.insert(0, (d, _extent(nest, v)))
            places *= _extent(nest, v)
        return tuple(rows) if counted == wanted else ()

    def steps(self, index: PrimExpr, zero: dict[Var, PrimExpr]) -> dict[Var, int]:
        """How an index moves with each loop; other atoms with a loop in them are refused."""
        found: dict[Var, int] = {}
        for factor, atom in self.analyzer.linear(index).terms.values():
            if isinstance(atom, Var) and atom in zero:
                found[atom] = factor
            elif free_vars(atom) & zero.keys():
                raise CodegenError(f"the index {index} of a copy is no sum of loop variables")
        return found

    def is_bound(self, condition: PrimExpr, index: PrimExpr, size: PrimExpr) -> bool:
        """Whether a condition says that an index is below a size."""
        form = difference(condition, self.analyzer)
        if form is None or const_int(size) is None:
            return False
        rest = Linear().add(form).add(self.analyzer.linear(index), -1)
        return not rest.terms and rest.const == 1 - (const_int(size) or 0)

    def check_box(self, c: BoxCopy) -> None:
        item = item_bytes_of(c.target)
        outer, inner = (const_int(s) or 0 for s in c.target.shape[-2:])
        shape = [const_int(s) or 0 for s in c.source.shape]
        most = max(extent for _, extent in c.rows)
        if inner * item % SLAB_BYTES or outer % 8 or most > MOST_BOX or not 2 <= len(shape) <= 5:
            raise CodegenError(
                f"the shared buffer '{c.target.name}' of {outer} x {inner} elements is no box that one copy can bring",
                hint=f"let rows have a multiple of {SLAB_BYTES} bytes, and tiles a multiple of 8, {MOST_BOX} at most",
            )
        if 0 in shape or shape[-1] * item % 16 or c.source.strides:
            raise CodegenError(
                f"rows of '{c.source.name}' do not begin at multiples of 16 bytes, as copies of boxes want it"
            )

    def with_stages(self, c: BoxCopy, stages: int) -> Buffer:
        """The buffer as the copies leave it: stages, slabs of the innermost dimension, rows, elements of a row."""
        outer, inner = (const_int(s) or 0 for s in c.target.shape[-2:])
        span = SLAB_BYTES // item_bytes_of(c.target)
        shape = tuple(IntImm(n) for n in (stages, inner // span, outer, span))
        return Buffer(c.target.name, shape, c.target.dtype, scope="shared.dyn")

    def boxes(self, c: BoxCopy, target: Buffer, stage: PrimExpr, ready: Buffer) -> list[Stmt]:
        """The copies of one iteration, a slab each: of whole slabs, or of a part of the rows of all, in a cluster."""
        _, slabs, outer, span = (const_int(s) or 0 for s in target.shape)
        box_rows = dict(c.rows)
        rank = c.source.ndim
        parts = math.prod(a.extent for a in c.shared)
        own: PrimExpr = IntImm(0)
        for a in reversed(c.shared):
            own = E.add(E.mul(own, a.extent), E.cast("int32", a.var))
        first_slab: PrimExpr = IntImm(0)
        first_row: PrimExpr = IntImm(0)
        if slabs % parts == 0:
            slabs //= parts
            first_slab = self.analyzer.simplify(E.mul(own, slabs))
        elif outer % (8 * parts) == 0 and len(c.rows) == 1:
            box_rows = {c.rows[0][0]: outer // parts}
            first_row = self.analyzer.simplify(E.mul(own, outer // parts))
        else:
            raise CodegenError(
                f"{parts} blocks cannot share the copy of {outer} rows into '{target.name}'",
                hint="use a tile of which each block of the cluster copies a multiple of 8 rows",
            )
        mask, first = self.receivers(c)
        box = tuple(span if d == c.columns else box_rows.get(d, 1) for d in range(rank))
        shape = tuple(const_int(s) or 0 for s in c.source.shape)
        wanted = TensorMap(self.arguments.index(c.source), item_bytes_of(target), shape, box)
        place = next((b for b, m in self.launch.tensor_maps.items() if m == wanted), None)
        if place is None:
            place = Buffer(f"{c.source.name}_map", (IntImm(128),), "uint8")
            self.launch.tensor_maps[place] = wanted
        made = []
        for slab in range(slabs):
            at_slab = self.analyzer.simplify(E.add(first_slab, slab))
            steps = {c.rows[0][0]: first_row, c.columns: E.mul(at_slab, span)}
            at = [self.analyzer.simplify(E.add(i, steps[d])) if d in steps else i for d, i in enumerate(c.base)]
            zero = IntImm(0)
            made.append(
                call_op(
                    TENSOR_COPY,
                    BufferLoad(target, (stage, at_slab, first_row, zero)),
                    BufferLoad(place, (zero,)),
                    BufferLoad(ready, (stage,)),
                    IntImm(mask),
                    first,
                    *(E.cast("int32", i) for i in at),
                )
            )
        return made

    def receivers(self, c: BoxCopy) -> tuple[int, PrimExpr]:
        """The blocks of a cluster that get a copy: (a bit for the rank of each, by how much the bits move).

        (0, 0) where it is the block's own.
        """
        ranks, first, step = [0], E.const(0, "int32"), 1
        for a in self.cluster:
            if a in c.shared:
                ranks = [r + step * i for r in ranks for i in range(a.extent)]
            else:
                first = E.add(first, E.mul(E.cast("int32", a.var), step))
            step *= a.extent
        if not c.shared:
            return 0, E.const(0, "int32")
        return sum(1 << r for r in ranks), self.analyzer.simplify(first)


@dataclass(slots=True)
class _Specializer(Boxes):
    loop: For = field(kw_only=True)

    def run(self, body: Stmt) -> Stmt:
        group = next((a for a in self.launch.axes if a.tag == "threadIdx.y"), None)
        groups = group.extent if group is not None else 1
        threads = groups * GROUP
        blocks = tuple(a for a in self.launch.axes if not a.tag.startswith("threadIdx"))
        self.launch.axes = (*blocks, ThreadAxis("threadIdx.x", self.thread, threads + WARP))
        self.analyzer = self.launch.analyzer()
        loops = (n for n in preorder(body) if isinstance(n, For))
        self.around = tuple(n for n in loops if any(x is self.loop for x in preorder(n.body)))
        turn, stages = self.turns({a.var for a in blocks})
        shared, parts = _unwrapped(self.loop.body)
        copies = [self.copy(part, group) for part in parts[:-1]]
        if {c.target for c in copies} != set(shared) or len(copies) != 2:
            raise CodegenError("the loop's statements are no two copies into shared buffers of its own and a product")
        versions = {c.target: self.with_stages(c, stages) for c in copies}
        ready, free = (Buffer(n, (IntImm(stages),), "uint64", scope="shared") for n in ("ready", "free"))
        self.launch.by_mbarrier = frozenset((*versions.values(), ready, free))
        stage, round_ = E.floormod(turn, stages), E.floordiv(turn, stages)

        accumulators = Accumulators(self.thread, self.analyzer)
        product, result = self.product(parts[-1], copies, versions, stage, accumulators)
        last = E.floormod(turn + (stages - 1), stages)
        is_first_lane = E.compare(E.EQ, E.floormod(self.thread, WARP), E.const(0, "int32"))
        is_telling = E.And(is_first_lane, E.compare(E.GT, turn, E.const(0, turn.dtype)))
        ranks: list[tuple[PrimExpr, ...]] = [(IntImm(i),) for i in range(self.n_ctas)] if self.n_ctas > 1 else [()]
        multiply = self.like_loop(
            call_op(MBARRIER_WAIT, BufferLoad(ready, (stage,)), E.floormod(round_, 2)),
            product,
            *(call_op(MBARRIER_ARRIVE, BufferLoad(free, (last,)), is_telling, *rank) for rank in ranks),
        )
        multiply = self.guarded(seq(multiply, call_op(WGMMA_WAIT, result)))
        first = E.floordiv(self.thread, GROUP)
        consumer = accumulators.visit(self.replaced(body, multiply, {group.var: first} if group else {}))
        size = sum(box_bytes(c.target) for c in copies)
        fetch = self.like_loop(
            call_op(MBARRIER_WAIT, BufferLoad(free, (stage,)), E.floormod(round_ + 1, 2)),
            call_op(MBARRIER_EXPECT, BufferLoad(ready, (stage,)), IntImm(size)),
            *(s for c in copies for s in self.boxes(c, versions[c.target], stage, ready)),
        )
        fetch = self.guarded(fetch)
        for x in reversed(self.around):
            fetch = dataclasses.replace(x, body=fetch, annotations=FrozenDict({**x.annotations, KEEP_WHOLE: True}))
        return self.shared_out(threads, consumer, fetch, ready, free)

    def turns(self, of_block: set[Var]) -> tuple[PrimExpr, int]:
        """(iterations of the loop before this one, those of earlier tiles among them, its stages)."""
        count, stages = const_int(self.loop.extent), int(self.loop.annotations[WARP_STAGES])
        if free_vars(self.loop.extent) - of_block or const_int(self.loop.start) != 0 or stages < 1:
            raise CodegenError(
                f"the loop '{self.loop.loop_var.name}' with {stages} stages does not begin at 0, or its extent is not "
                "the same for all threads of a block"
            )
        var = self.loop.loop_var
        turn: PrimExpr = E.const(0, var.dtype)
        for x in (*self.around, self.loop):
            known = const_int(x.extent) is not None or not self.around
            if not known or const_int(x.start) != 0 or x.kind != LoopKind.SERIAL:
                raise CodegenError(f"the loop '{var.name}' runs inside of '{x.loop_var.name}', no loop over tiles")
            turn = E.add(E.mul(turn, x.extent), E.cast(var.dtype, x.loop_var))
        turns = stages if count is None else count * math.prod(const_int(x.extent) or 0 for x in self.around)
        stages = min(stages, turns)
        if stages < min(2, turns):
            raise CodegenError(f"the loop '{var.name}' has one stage", hint="copies need two to run ahead")
        return self.analyzer.simplify(turn), stages

    def shared_out(self, threads: int, consumer: Stmt, fetch: Stmt, ready: Buffer, free: Buffer) -> Stmt:
        """What each thread does: `threads` of them multiply, the one behind them copies."""
        arrivals = threads // WARP * self.n_ctas
        stages = const_int(ready.shape[0]) or 1
        start = seq(
            *(call_op(MBARRIER_INIT, BufferLoad(ready, (IntImm(i),)), IntImm(1)) for i in range(stages)),
            *(call_op(MBARRIER_INIT, BufferLoad(free, (IntImm(i),)), IntImm(arrivals)) for i in range(stages)),
            call_op(MBARRIER_FENCE),
        )
        ahead = seq(*(call_op(TENSOR_AHEAD, BufferLoad(b, (IntImm(0),))) for b in self.launch.tensor_maps))
        together = [call_op(CLUSTER_ARRIVE), call_op(CLUSTER_WAIT)] if self.n_ctas > 1 else []
        limit = E.const(threads, "int32")
        copies = E.compare(E.EQ, self.thread, limit)
        return seq(
            IfThenElse(copies, ahead),
            IfThenElse(E.compare(E.EQ, self.thread, E.const(0, "int32")), start),
            *(together or [barrier()]),
            IfThenElse(E.compare(E.LT, self.thread, limit), consumer, IfThenElse(copies, fetch)),
            *together,
        )

    def replaced(self, body: Stmt, new: Stmt, values: dict[Var, PrimExpr]) -> Stmt:
        """The statement with another one in place of the loop, and other values of variables elsewhere."""

        def visit(s: Stmt) -> Stmt:
            if s is self.loop:
                return new
            made = map_children(s, lambda c: visit(c) if isinstance(c, Stmt) else c)
            if s in self.around and isinstance(made, For):
                return dataclasses.replace(made, annotations=FrozenDict({**made.annotations, KEEP_WHOLE: True}))
            return made

        whole = visit(body)
        return substitute(whole, values) if values else whole

    def guarded(self, stmt: Stmt) -> Stmt:
        """The statement for blocks that have a tile in this turn."""
        return IfThenElse(all_of(*self.guards.values()), stmt) if self.guards else stmt

    def like_loop(self, *parts: Stmt) -> Stmt:
        """The loop with another body; its first iterations stay part of it."""
        notes = {k: v for k, v in self.loop.annotations.items() if k != WARP_STAGES}
        rolled = {} if const_int(self.loop.extent) else {ROLLED: True}  # no rest, between whose products others wait
        new = FrozenDict({**notes, KEEP_WHOLE: True, **rolled})
        return dataclasses.replace(self.loop, body=seq(*parts), kind=LoopKind.SERIAL, annotations=new)

    # --- the product --------------------------------------------------------------------------------------------

    def product(
        self, part: Stmt, copies: list[BoxCopy], versions: dict[Buffer, Buffer], stage: PrimExpr, acc: Accumulators
    ) -> tuple[Stmt, PrimExpr]:
        """(the instructions of one iteration, the first register of the result)."""
        nest = Nest.of(part)
        store = nest.store if nest is not None else None
        if nest is None or store is None or store.buffer.scope != GROUP_ACCUMULATOR:
            raise CodegenError(f'the last statement of the loop computes no buffer of scope "{GROUP_ACCUMULATOR}"')
        by_buffer = {x.buffer: x for x in multiplied(store)}
        if by_buffer.keys() != versions.keys():
            raise CodegenError(f"the statement on '{store.buffer.name}' is no C[i, j] += A[i, k] * B[j, k]")
        rows, columns = (free_vars(i) & {x.loop_var for x in nest.loops} for i in store.indices[-2:])
        a = next((x for x in by_buffer.values() if free_vars(x.indices[-2]) & rows), None)
        b = next((x for x in by_buffer.values() if x is not a), None)
        if a is None or b is None or a.buffer.dtype != b.buffer.dtype or a.buffer.dtype not in KINDS:
            raise CodegenError(f"no warpgroup multiplies the operands of '{store.buffer.name}'")
        along = bool(free_vars(b.indices[-1]) & columns)
        if along and item_bytes_of(b.buffer) != 2:
            raise CodegenError(f"elements of '{b.buffer.name}' are to lie side by side along the reduction")
        j, k = (b.indices[-1], b.indices[-2]) if along else (b.indices[-2], b.indices[-1])
        for x, y in ((store.indices[-1], j), (a.indices[-1], k)):
            if const_int(self.analyzer.simplify(E.sub(x, y))) != 0:
                raise CodegenError(f"the indices {x} and {y} of a product of a warpgroup differ")
        (_, n_rows, first_row), (_, n_columns, first), (_, depth, first_k) = (
            acc.inverse(i, nest.loops) for i in (*store.indices[-2:], a.indices[-1])
        )
        whole_tiles(n_rows, ROWS, first_row)
        if (
            first
            or first_k
            or depth != const_int(a.buffer.shape[-1])
            or n_columns != const_int(b.buffer.shape[-1 if along else -2])
        ):
            raise CodegenError(f"the product on '{store.buffer.name}' leaves parts of its operands out")
        if n_columns % COLUMNS or n_columns > MOST_COLUMNS or (a.buffer.dtype == "int8" and n_columns % 16):
            raise CodegenError(
                f"no warpgroup multiplies {n_columns} columns at once", hint="use a multiple of 16 up to 256"
            )
        for c in nest.conditions:  # elements beyond the end of an argument are zeros
            if not any(
                self.is_bound(c, E.add(copy.base[d], load.indices[-2 + i]), copy.source.shape[d])
                for copy in copies if len(copy.rows) == 1
                for load in (by_buffer[copy.target],) for i, d in enumerate((copy.rows[0][0], copy.columns))
            ) and not self.is_guard(c):  # fmt: skip
                raise CodegenError(f"the product on '{store.buffer.name}' has the condition {c}")
        registers = _declare(store.buffer, n_columns, acc)
        row, zero = self.analyzer.simplify(E.sub(a.indices[-2], store.indices[-2])), IntImm(0)
        result = BufferLoad(registers, (zero, zero, zero))
        call = call_op(
            WGMMA,
            StringImm(KINDS[a.buffer.dtype][1]),
            result,
            BufferLoad(versions[a.buffer], (stage, zero, E.cast("int32", row), zero)),
            BufferLoad(versions[b.buffer], (stage, zero, zero, zero)),
            IntImm(int(along), "bool"),
        )
        return call, result


def multiplied(store: BufferStore) -> list[BufferLoad]:
    """The two factors of a statement C[i, j] += A[i, k] * B[j, k]; none where it is no such."""
    match store.value:
        case E.Add(a=BufferLoad(buffer=own), b=product) if own is store.buffer:
            product = product.value if isinstance(product, E.Cast) else product
            sides = [stripped(f) for f in (product.a, product.b)] if isinstance(product, E.Mul) else []
            loads = [x for x in sides if isinstance(x, BufferLoad)]
            return loads if len(loads) == 2 else []
    return []


def call_op(op: str, *args: PrimExpr) -> Stmt:
    return Evaluate(Call(op, args, "handle"))


def _as_narrow(index: PrimExpr) -> PrimExpr:
    """An index as a sum of 32 bits, where it is one that has been widened."""
    is_widened = isinstance(index, E.Cast) and index.dtype == "int64" and index.value.dtype == "int32"
    return index.value if is_widened else index  # type: ignore[attr-defined, no-any-return]


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, E.FloatImm | IntImm) and e.value == 0


def _extent(nest: Nest, var: Var) -> int:
    return next(const_int(x.extent) or 0 for x in nest.loops if x.loop_var is var)


def item_bytes_of(buffer: Buffer) -> int:
    if buffer.dtype not in KINDS:
        raise CodegenError(f"no warpgroup multiplies {buffer.dtype} ('{buffer.name}')")
    return KINDS[buffer.dtype][0]


def box_bytes(buffer: Buffer) -> int:
    outer, inner = (const_int(s) or 0 for s in buffer.shape[-2:])
    return outer * inner * item_bytes_of(buffer)


def _unwrapped(stmt: Stmt) -> tuple[list[Buffer], Sequence[Stmt]]:
    """The buffers allocated around a sequence, and its statements."""
    buffers = []
    while isinstance(stmt, Allocate):
        buffers.append(stmt.buffer)
        stmt = stmt.body
    return buffers, stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def _declare(buffer: Buffer, n_columns: int, acc: Accumulators) -> Buffer:
    """The registers of the accumulator in each thread."""
    shape = [const_int(s) or 0 for s in buffer.shape]
    rows, columns = shape[-2:]
    if any(s != 1 for s in shape[:-2]) or rows % ROWS or columns != n_columns:
        raise CodegenError(
            f"the accumulator '{buffer.name}' is {rows} x {columns}, expected a multiple of {ROWS} rows",
            hint="choose the tile of a warpgroup as a multiple of 64 rows",
        )
    if buffer.dtype not in ("float32", "int32"):
        raise CodegenError(f"the accumulator '{buffer.name}' is {buffer.dtype}", hint="sum in float32 or int32")
    tiles = rows // ROWS, columns // COLUMNS
    registers = Buffer(buffer.name, (*(IntImm(n) for n in tiles), IntImm(4)), buffer.dtype, scope="local")
    acc.places[buffer] = Place(registers, tiles, (ROWS, COLUMNS))
    return registers
