"""Products of warpgroups that follow on each other, as in attention, fed by a warp that copies boxes; for sm_90a.

A schedule says it by scopes and an annotation. Nothing is bound to threadIdx.x, warpgroups are bound to threadIdx.y:

    C  "wgmma.accumulator"  float32, a multiple of 64 rows and of 8 columns; several of them, one for each product
    A  "wgmma.matrix_a"     16-bit floats, filled from an accumulator: the first operand of a product
    R  "wmma.rows"          float32, a value for each row
    S  "shared"             boxes of arguments, copied by plain loops; what is copied once may be a first operand too
    annotate(loop, "warp_copied_stages", stages)   the loop that most of the boxes are copied in
    annotate(loop, "warpgroup_turns", 1)           warpgroups begin the products of an iteration in turns

Before:  S = q;  K = k[0];  C = 0;  C += S * K;  … C …
         for i in n:  K = k[i + 1];  V = v[i];  C = 0;  C += S * K;  O += A * V;  … C …;  … O …;  A = C
         V = v[n];  O += A * V
After:   if tx < 128 * warpgroups:
             mbarrier_wait(S_ready[0], 0);  mbarrier_wait(K_ready[0], 0);  begin C = S * K[0];  end;  … C …
             for i in n:
                 mbarrier_wait(K_ready[(i + 1) % stages], …);  begin C = S * K[(i + 1) % stages]
                 mbarrier_wait(V_ready[i % stages], …);        begin O += A * V[i % stages]
                 end of the first;   mbarrier_arrive(K_free[(i + 1) % stages], tx % 32 == 0);  … C …
                 end of the second;  mbarrier_arrive(V_free[i % stages], tx % 32 == 0);        … O …;  A = C
             …
         elif tx == 128 * warpgroups:
             the copies in the same order, each after mbarrier_wait(…_free[…], …)

Products end in their order. One is waited for in front of the first statement that uses what it writes, or writes what
it reads; all of them at both ends of a loop. So a statement that stands behind a later product runs beside it.

With turns a warpgroup begins its products when the one before it has begun its own: named barrier 1 + w says so to
warpgroup w, and the last one to the first. So one multiplies while another one does what is between products.

What a box in the loop brings is read by one product. A sum that is set to 0 right before its product begins there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from autosched.codegen.lower.barriers import barrier
from autosched.codegen.lower.fragments import (
    COLUMNS,
    GROUP_ACCUMULATOR,
    GROUP_MATRIX_A,
    ROW_VALUES,
    Nest,
    Place,
    is_fragment,
)
from autosched.codegen.lower.launches import LoweredLaunch, ThreadAxis
from autosched.codegen.lower.loops import COPIED_STAGES
from autosched.codegen.lower.partition import KEEP_WHOLE
from autosched.codegen.lower.shared_memory import is_shared
from autosched.codegen.lower.software_pipeline import ROLLED
from autosched.codegen.lower.warpgroups import (
    GROUP,
    KINDS,
    MBARRIER_ARRIVE,
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_WAIT,
    MOST_COLUMNS,
    ROWS,
    WARP,
    Accumulators,
    BoxCopy,
    Boxes,
    box_bytes,
    call_op,
    multiplied,
)
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import IntImm, PrimExpr, StringImm, Var, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.stmt import Allocate, BufferStore, For, IfThenElse, LoopKind, SeqStmt, Stmt, seq

TURNS = "warpgroup_turns"  # another annotation of the loop
WGMMA_BEGIN, WGMMA_END = "wgmma_begin", "wgmma_end"
NAMED_ARRIVE, NAMED_WAIT = "named_barrier_arrive", "named_barrier_wait"
CHAIN_OPERATIONS = (WGMMA_BEGIN, WGMMA_END, NAMED_ARRIVE, NAMED_WAIT)
STEP = 16  # terms of one instruction
_HALVES = ("float16", "uint16")


def lower_warpgroup_chain(body: Stmt, launch: LoweredLaunch, arguments: Sequence[Buffer]) -> Stmt:
    """The statement shared between a warp that copies and warpgroups that do all else.

    The launch gets its threads, tensor maps and the buffers that mbarriers guard. Raises CodegenError for what has no
    such form.
    """
    loops = [n for n in preorder(body) if isinstance(n, For) and COPIED_STAGES in n.annotations]
    if not loops and not any(isinstance(n, BufferStore) and n.buffer.scope == GROUP_MATRIX_A for n in preorder(body)):
        return body
    threads = [a for a in launch.axes if a.tag.startswith("threadIdx") and a.extent > 1]
    if len(loops) > 1 or any(a.tag != "threadIdx.y" for a in threads) or launch.cluster != (1, 1, 1):
        raise CodegenError(
            f"a launch with '{COPIED_STAGES}' has {len(loops)} such loops and is bound to "
            f"{', '.join(a.tag for a in launch.axes)}",
            hint="annotate one loop, bind warpgroups to threadIdx.y, and nothing to threadIdx.x and clusters",
        )
    return _Chain(launch, list(arguments), loop=loops[0] if loops else None).run(body)


@dataclass(frozen=True, slots=True)
class _Site:
    """A copy where it stands; `turn` counts the copies into its buffer before it."""

    copy: BoxCopy
    turn: PrimExpr


@dataclass(frozen=True, slots=True)
class _Begun:
    """A product that may still run.

    registers   that it uses, and `fragments` which these are
    came        waits for its box, which has come
    at_end      what to do when it has ended
    """

    registers: tuple[BufferLoad, ...]
    fragments: frozenset[Buffer]
    came: Stmt
    at_end: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class _Product:
    """C[i, j] += A[i, k] * B[k, j], the statement `store`; `along`: the columns of the box B are those of C."""

    store: BufferStore
    a: BufferLoad
    b: BufferLoad
    along: bool


class _Registers(Accumulators):
    """Fragments of a warpgroup, each with the registers that its shape says."""

    __slots__ = ()
    matrix_a = GROUP_MATRIX_A
    turns = False

    def declare(self, buffer: Buffer, body: Stmt) -> Place:
        shape = [const_int(s) or 0 for s in buffer.shape]
        if buffer.scope == ROW_VALUES:
            return self.declare_rows(buffer, shape)
        is_sum = buffer.scope == self.accumulator
        width = COLUMNS if is_sum else STEP
        known = buffer.dtype == "float32" if is_sum else buffer.scope == self.matrix_a and buffer.dtype in _HALVES
        if not known or len(shape) < 2 or any(s != 1 for s in shape[:-2]) or shape[-2] % ROWS or shape[-1] % width:
            raise CodegenError(
                f"no warpgroup holds the fragment '{buffer.name}' of scope \"{buffer.scope}\", {buffer.dtype} {shape}",
                hint=f"let it have multiples of {ROWS} rows and of {width} columns",
            )
        tiles = shape[-2] // ROWS, shape[-1] // width
        registers = Buffer(
            buffer.name, (*(IntImm(n) for n in tiles), IntImm(4)), "float32" if is_sum else "uint32", scope="local"
        )
        self.places[buffer] = Place(registers, tiles, (ROWS, width), 1 if is_sum else 2)
        return self.places[buffer]

    def first(self, buffer: Buffer) -> BufferLoad:
        """The first register of a fragment."""
        registers = self.places[buffer].registers
        return BufferLoad(registers, (IntImm(0),) * registers.ndim)


@dataclass(slots=True)
class _Chain(Boxes):
    loop: For | None = field(kw_only=True)  # None where it had one iteration at most
    sites: dict[int, _Site] = field(default_factory=dict)  # by the statement
    copied: dict[Buffer, PrimExpr] = field(default_factory=dict)  # how many boxes have come into a buffer
    versions: dict[Buffer, Buffer] = field(default_factory=dict)
    ready: dict[Buffer, Buffer] = field(default_factory=dict)
    free: dict[Buffer, Buffer] = field(default_factory=dict)  # of the buffers that are copied into again
    held: dict[Buffer, tuple[PrimExpr, Stmt]] = field(default_factory=dict)  # stages with boxes, and the waits for them
    begun: list[_Begun] = field(default_factory=list)
    beside: bool = False  # whether statements stand behind the last product that has begun
    cleared: dict[Buffer, Stmt] = field(default_factory=dict)  # sums that begin at 0, and what sets them to it
    registers: _Registers = field(init=False)
    group: ThreadAxis | None = None
    in_turn: int = 0  # products of an iteration, which begin in one turn
    left: int = 0  # those of them that are still to come

    def run(self, body: Stmt) -> Stmt:
        group = next((a for a in self.launch.axes if a.tag == "threadIdx.y"), None)
        self.group = group
        threads = (group.extent if group is not None else 1) * GROUP
        blocks = tuple(a for a in self.launch.axes if not a.tag.startswith("threadIdx"))
        self.launch.axes = (*blocks, ThreadAxis("threadIdx.x", self.thread, threads + WARP))
        self.analyzer = self.launch.analyzer()
        if group is not None:
            self.analyzer.bind(group.var, (0, group.extent))
        self.registers = _Registers(self.thread, self.analyzer)
        stages = self.stages({a.var for a in blocks})
        again = self.collect(body, group)
        targets = list(dict.fromkeys(s.copy.target for s in self.sites.values()))
        for s in self.sites.values():
            count = stages if s.copy.target in again else 1
            self.versions[s.copy.target] = self.with_stages(s.copy, count)
        for b in targets:
            count = const_int(self.versions[b].shape[0]) or 1
            self.ready[b] = Buffer(f"{b.name}_ready", (IntImm(count),), "uint64", scope="shared")
            if b in again:
                self.free[b] = Buffer(f"{b.name}_free", (IntImm(count),), "uint64", scope="shared")
        barriers = (*self.ready.values(), *self.free.values())
        self.launch.by_mbarrier = frozenset((*self.versions.values(), *barriers))
        consume = seq(self.consume(body), *self.end(None))
        if group is not None:
            consume = substitute(consume, {group.var: E.floordiv(self.thread, GROUP)})
        fetch = self.fetch(body)
        assert fetch is not None, "there are copies"
        start = seq(
            *(
                call_op(MBARRIER_INIT, BufferLoad(b, (IntImm(i),)), IntImm(arrivals))
                for kind, arrivals in ((self.ready, 1), (self.free, threads // WARP))
                for b in kind.values()
                for i in range(const_int(b.shape[0]) or 1)
            ),
            call_op(MBARRIER_FENCE),
        )
        limit = E.const(threads, "int32")
        return seq(
            IfThenElse(E.compare(E.EQ, self.thread, E.const(0, "int32")), start),
            barrier(),
            IfThenElse(
                E.compare(E.LT, self.thread, limit),
                consume,
                IfThenElse(E.compare(E.EQ, self.thread, limit), fetch),
            ),
        )

    def stages(self, of_block: set[Var]) -> int:
        """The stages of what is copied more than once."""
        if self.loop is None:
            return 2
        loop, stages = self.loop, int(self.loop.annotations[COPIED_STAGES])
        if stages < 1 or free_vars(loop.extent) - of_block or const_int(loop.start) or loop.kind != LoopKind.SERIAL:
            raise CodegenError(
                f"the loop '{loop.loop_var.name}' with {stages} stages does not begin at 0, or its extent is not the "
                "same for all threads of a block"
            )
        return stages

    # --- copies -------------------------------------------------------------------------------------------------

    def collect(self, stmt: Stmt, group: ThreadAxis | None) -> set[Buffer]:
        """Note the copies in order; the buffers that the loop, or more than one statement, copies into."""
        again: set[Buffer] = set()

        def visit(s: Stmt, inside: set[Buffer] | None) -> None:
            if _is_copy(s):
                made = self.copy(s, group)
                count = self.copied.get(made.target, E.const(0, "int32"))
                if inside is not None and self.loop is not None:
                    if made.target in inside:
                        raise CodegenError(f"the loop copies into '{made.target.name}' more than once")
                    inside.add(made.target)
                    turn = E.add(count, E.cast("int32", self.loop.loop_var))
                else:
                    turn = count
                    self.copied[made.target] = E.add(count, 1)
                again.update({made.target} if inside is not None or const_int(count) != 0 else ())
                self.sites[id(s)] = _Site(made, self.analyzer.simplify(turn))
            elif isinstance(s, For) and s is self.loop:
                new: set[Buffer] = set()
                visit(s.body, new)
                for b in new:
                    count = self.copied.get(b, E.const(0, "int32"))
                    self.copied[b] = E.add(count, E.cast("int32", s.extent))
            else:
                if isinstance(s, For | IfThenElse) and any(_is_copy(x) for x in preorder(s)):
                    raise CodegenError(f"a box is copied in a loop without '{COPIED_STAGES}', or under a condition")
                for part in _parts(s):
                    visit(part, inside)

        visit(stmt, None)
        return again

    def at_stage(self, site: _Site) -> tuple[PrimExpr, PrimExpr]:
        """(the stage that a copy comes into, how often it was used before)."""
        stages = const_int(self.versions[site.copy.target].shape[0]) or 1
        turn = site.turn
        return self.analyzer.simplify(E.floormod(turn, stages)), self.analyzer.simplify(E.floordiv(turn, stages))

    def fetch(self, stmt: Stmt) -> Stmt | None:
        """What the warp that copies does of a statement."""
        if id(stmt) in self.sites:
            site = self.sites[id(stmt)]
            target, (stage, round_) = site.copy.target, self.at_stage(site)
            parts: list[Stmt] = []
            if target in self.free:
                waited = BufferLoad(self.free[target], (stage,))
                parts.append(call_op(MBARRIER_WAIT, waited, E.floormod(round_ + 1, 2)))
            ready = self.ready[target]
            parts.append(call_op(MBARRIER_EXPECT, BufferLoad(ready, (stage,)), IntImm(box_bytes(target))))
            return seq(*parts, *self.boxes(site.copy, self.versions[target], stage, ready))
        if isinstance(stmt, For) and stmt is self.loop:
            body = self.fetch(stmt.body)
            return None if body is None else _rolled(stmt, body)
        found = [x for part in _parts(stmt) if (x := self.fetch(part)) is not None]
        return seq(*found) if found else None

    # --- what the warpgroups do -----------------------------------------------------------------------------------

    def consume(self, stmt: Stmt) -> Stmt:
        if id(stmt) in self.sites:
            return self.arrived(self.sites[id(stmt)])
        if isinstance(stmt, Allocate):
            if not is_fragment(stmt.buffer):
                body = self.consume(stmt.body)
                return body if is_shared(stmt.buffer) else dataclasses.replace(stmt, body=body)
            place = self.registers.declare(stmt.buffer, stmt.body)
            return Allocate(place.registers, seq(self.consume(stmt.body), *self.end({stmt.buffer})))
        if isinstance(stmt, SeqStmt):
            return seq(*map(self.consume, stmt.seq))
        if isinstance(stmt, For) and stmt is self.loop:
            before = self.end(None)
            self.require_read()
            if stmt.annotations.get(TURNS):
                self.left = self.in_turn = len(_products(stmt.body))
            first, last = self.turns()
            body = seq(self.consume(stmt.body), *self.end(None))
            self.require_read()
            return seq(*before, *first, _rolled(stmt, body), *last)
        touched = _touched(stmt)
        if isinstance(stmt, IfThenElse):
            if any(isinstance(x, BufferLoad) and is_shared(x.buffer) for x in preorder(stmt)):
                raise CodegenError("a product of a warpgroup stands under a condition")
            before = self.end(touched)
            self.beside = bool(self.begun)
            then = seq(self.consume(stmt.then_case), *self.end(touched))
            other = None if stmt.else_case is None else seq(self.consume(stmt.else_case), *self.end(touched))
            return seq(*before, IfThenElse(stmt.condition, then, other))
        nest = Nest.of(stmt)
        if nest is None or not touched:
            if touched:
                raise CodegenError(f"a loop around several statements on the fragment '{next(iter(touched)).name}'")
            return stmt
        if self.is_clearing(nest):
            before = self.end({nest.store.buffer})
            self.cleared[nest.store.buffer] = stmt
            return seq(*before)
        if _is_product(nest.store):
            return self.begin(self.product(nest))
        before = self.end(touched)
        self.beside = bool(self.begun)
        return seq(*before, self.registers.lower(nest))

    def turns(self) -> tuple[list[Stmt], list[Stmt]]:
        """What begins the first turn, and what takes the last one's end."""
        if not self.left or self.group is None or self.group.extent == 1:
            self.left = 0
            return [], []
        var = self.group.var
        is_last, is_first = (E.compare(E.EQ, var, E.const(i, var.dtype)) for i in (self.group.extent - 1, 0))
        zero = E.const(0, var.dtype)
        return [IfThenElse(is_last, _named(NAMED_ARRIVE, zero))], [IfThenElse(is_first, _named(NAMED_WAIT, zero))]

    def arrived(self, site: _Site) -> Stmt:
        """Wait for a box."""
        target, (stage, round_) = site.copy.target, self.at_stage(site)
        if target in self.held:
            raise CodegenError(f"no product reads a box that is copied into '{target.name}'")
        wait = call_op(MBARRIER_WAIT, BufferLoad(self.ready[target], (stage,)), E.floormod(round_, 2))
        self.held[target] = (stage, wait)
        return wait

    def require_read(self) -> None:
        """Refuse boxes that outlive an end of the loop."""
        for b in self.held.keys() & self.free.keys():
            raise CodegenError(f"a box in '{b.name}' is copied in front of the loop, or at its end, and read elsewhere")

    def end(self, fragments: Iterable[Buffer] | None) -> list[Stmt]:
        """What has to be done before a statement uses these fragments; None: all there are."""
        known = None if fragments is None else set(fragments)
        made: list[Stmt] = []
        for b in [b for b in self.cleared if known is None or b in known]:
            nest = Nest.of(self.cleared.pop(b))
            assert nest is not None, "it was one"
            made.append(self.registers.lower(nest))
        concerned = [i for i, x in enumerate(self.begun) if known is None or x.fragments & known]
        if concerned:
            count = concerned[-1] + 1
            ended, self.begun = self.begun[:count], self.begun[count:]
            registers = dict.fromkeys(r.buffer for x in ended for r in x.registers)
            firsts = [BufferLoad(b, (IntImm(0),) * b.ndim) for b in registers]
            # the assembler takes a wait to the beginning of its piece of straight code: another piece begins here
            apart = [ended[-1].came] if self.beside else []
            end = call_op(WGMMA_END, IntImm(len(self.begun)), *firsts)
            made = [*apart, end, *(s for x in ended for s in x.at_end), *made]
        return made

    def is_clearing(self, nest: Nest) -> bool:
        """Whether a statement sets a whole accumulator to 0."""
        store = nest.store
        value = store.value
        if store.buffer.scope != GROUP_ACCUMULATOR or not isinstance(value, E.FloatImm) or value.value != 0:
            return False
        counts = [self.registers.inverse(i, nest.loops)[1] for i in store.indices[-2:]]
        return not nest.conditions and counts == [const_int(s) for s in store.buffer.shape[-2:]]

    def product(self, nest: Nest) -> _Product:
        """What C[i, j] += A[i, k] * B[k, j] multiplies. Raises CodegenError where it is no product of warpgroups."""
        store = nest.store
        loads = multiplied(store) if store.buffer.scope == GROUP_ACCUMULATOR else []
        what = f"the statement on '{store.buffer.name}'"
        columns = free_vars(store.indices[-1]) & {x.loop_var for x in nest.loops}
        second = [x for x in loads if x.buffer in self.held and any(free_vars(i) & columns for i in x.indices[-2:])]
        if len(second) != 1 or nest.conditions or loads[0].buffer is loads[1].buffer:
            raise CodegenError(f"{what} is no product of a box that has come: C[i, j] += A[i, k] * B[k, j]")
        (b,) = second
        (a,) = (x for x in loads if x is not b)
        if a.buffer.scope != GROUP_MATRIX_A and (a.buffer not in self.held or a.buffer in self.free):
            raise CodegenError(f"{what}: '{a.buffer.name}' is neither registers nor a box that stays")
        if a.buffer.dtype not in _HALVES or b.buffer.dtype != a.buffer.dtype:
            raise CodegenError(f"{what} multiplies {a.buffer.dtype} and {b.buffer.dtype}", hint="use 16-bit floats")
        found = _Product(store, a, b, bool(free_vars(b.indices[-1]) & columns))
        self.require_whole(found, nest.loops)
        return found

    def require_whole(self, product: _Product, loops: Sequence[For]) -> None:
        """Refuse a product of parts of its operands, or whose indices differ between them."""
        store, a, b = product.store, product.a, product.b
        what = f"the statement on '{store.buffer.name}'"
        at_j, at_k = (-1, -2) if product.along else (-2, -1)
        j, k = b.indices[at_j], b.indices[at_k]
        for x, y in ((store.indices[-1], j), (a.indices[-1], k)):
            if const_int(self.analyzer.simplify(E.sub(x, y))) != 0:
                raise CodegenError(f"the indices {x} and {y} of a product of a warpgroup differ")
        parts = [self.registers.inverse(i, loops) for i in (*store.indices[-2:], k)]
        shape = [const_int(s) or 0 for s in store.buffer.shape[-2:]]
        (_, rows, first_row), (_, width, first), (_, depth, first_k) = parts
        is_whole = [rows, width] == shape and const_int(b.buffer.shape[at_j]) == width
        if first_row or first or first_k or not is_whole or depth != const_int(a.buffer.shape[-1]) or depth % STEP:
            raise CodegenError(f"{what} leaves parts of its operands out")
        if depth != const_int(b.buffer.shape[at_k]) or width > MOST_COLUMNS:
            raise CodegenError(f"{what} has {width} columns of {depth} terms", hint=f"at most {MOST_COLUMNS} columns")

    def begin(self, product: _Product) -> Stmt:
        """Begin a product: B is a box [k, j] or [j, k], A one [i, k] or registers."""
        sums, a, b = product.store.buffer, product.a, product.b
        row, zero = self.analyzer.simplify(E.sub(a.indices[-2], product.store.indices[-2])), IntImm(0)
        before: list[Stmt] = []
        fragments = [sums]
        registers = [self.registers.first(sums)]
        if a.buffer.scope == GROUP_MATRIX_A:
            if const_int(row) != 0:
                raise CodegenError(
                    f"the statement on '{sums.name}' takes rows of '{a.buffer.name}' that other threads have"
                )
            before = self.end({a.buffer} & set(self.cleared))
            fragments.append(a.buffer)
            first_a = self.registers.first(a.buffer)
            registers.append(first_a)
        else:
            first_a = BufferLoad(self.versions[a.buffer], (self.held[a.buffer][0], zero, E.cast("int32", row), zero))
        fresh = self.cleared.pop(sums, None) is not None
        stage, came = self.held[b.buffer]
        at_end: tuple[Stmt, ...] = ()
        if b.buffer in self.free:
            del self.held[b.buffer]
            is_first_lane = E.compare(E.EQ, E.floormod(self.thread, WARP), E.const(0, "int32"))
            at_end = (call_op(MBARRIER_ARRIVE, BufferLoad(self.free[b.buffer], (stage,)), is_first_lane),)
        self.begun.append(_Begun(tuple(registers), frozenset(fragments), came, at_end))
        self.beside = False
        call = call_op(
            WGMMA_BEGIN,
            StringImm(KINDS[a.buffer.dtype][1]),
            registers[0],
            first_a,
            BufferLoad(self.versions[b.buffer], (stage, zero, zero, zero)),
            IntImm(int(product.along), "bool"),
            IntImm(int(fresh), "bool"),
        )
        return seq(*before, *self.in_its_turn(call))

    def in_its_turn(self, call: Stmt) -> list[Stmt]:
        """The begin of a product, with what begins and ends the turn of its warpgroup."""
        if not self.left:
            return [call]
        assert self.group is not None, "it takes turns with others"
        self.left -= 1
        var, count = self.group.var, self.group.extent
        is_first = self.left + 1 == self.in_turn
        before = [_named(NAMED_WAIT, var)] if is_first else []
        after = [] if self.left else [_named(NAMED_ARRIVE, E.floormod(E.add(var, 1), count))]
        return [*before, call, *after]


def _rolled(loop: For, body: Stmt) -> Stmt:
    """The loop with another body, and no part of it apart."""
    notes = {k: v for k, v in loop.annotations.items() if k != COPIED_STAGES}
    return dataclasses.replace(loop, body=body, annotations=FrozenDict({**notes, KEEP_WHOLE: True, ROLLED: True}))


def _is_copy(stmt: object) -> bool:
    nest = Nest.of(stmt) if isinstance(stmt, Stmt) else None
    return nest is not None and is_shared(nest.store.buffer)


def _parts(stmt: Stmt) -> tuple[Stmt, ...]:
    match stmt:
        case SeqStmt():
            return tuple(stmt.seq)
        case Allocate() | For():
            return (stmt.body,)
        case IfThenElse():
            return (stmt.then_case,) if stmt.else_case is None else (stmt.then_case, stmt.else_case)
    return ()


def _named(op: str, group: PrimExpr) -> Stmt:
    """An operation on the barrier by which one warpgroup gives the turn to another."""
    return call_op(op, E.cast("int32", E.add(group, 1)), IntImm(2 * GROUP))


def _products(stmt: Stmt) -> list[BufferStore]:
    """The stores that products are."""
    stores = [x for x in preorder(stmt) if isinstance(x, BufferStore) and x.buffer.scope == GROUP_ACCUMULATOR]
    return [x for x in stores if _is_product(x)]


def _is_product(store: BufferStore) -> bool:
    return any(b.scope == GROUP_MATRIX_A or is_shared(b) for b in _loaded(store))


def _touched(stmt: Stmt) -> set[Buffer]:
    """The fragments of a statement."""
    return {x.buffer for x in preorder(stmt) if isinstance(x, BufferLoad | BufferStore) and is_fragment(x.buffer)}


def _loaded(store: BufferStore) -> set[Buffer]:
    return {x.buffer for x in preorder(store.value) if isinstance(x, BufferLoad)}
