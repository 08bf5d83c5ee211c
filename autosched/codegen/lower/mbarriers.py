"""TVM's calls of mbarriers in a script, as the instructions that the emitter knows.

    T.create_barriers(n)                          n mbarriers: a buffer in shared memory
    T.ptx_init_barrier_thread_count(i, count)     if t == 0: mbarrier_init(barriers[i], count)
    T.ptx_arrive_barrier(i)                       mbarrier_arrive(barriers[i])
    T.ptx_arrive_barrier_expect_tx(i, bytes)      mbarrier_expect(barriers[i], bytes)
    T.ptx_cp_async_barrier(i)                     mbarrier_copies(barriers[i])
    T.ptx_cp_async_bulk(…, bytes, i)              bulk_copy(S[…], A[…], elements, barriers[i])
    T.ptx_wait_barrier(i)                         mbarrier_wait(barriers[i], 0)

TVM's wait is for the phase of parity 0: the first one since the initialisation. A second phase would not be waited for,
so that it is refused; an mbarrier that is initialised again, as in each iteration of a loop, begins with its first one.
Refused are also arrivals that no initialisation stands before, and reads of what a bulk copy may still write.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from autosched.codegen.lower.barriers import is_barrier
from autosched.codegen.lower.instructions import (
    BULK,
    COPY,
    MBARRIER_ARRIVE,
    MBARRIER_COPIES,
    MBARRIER_EXPECT,
    MBARRIER_FENCE,
    MBARRIER_INIT,
    MBARRIER_INVAL,
    MBARRIER_TEST,
    MBARRIER_WAIT,
    MBARRIERS,
)
from autosched.codegen.lower.loops import enter
from autosched.errors import CodegenError
from autosched.ir.node import map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, IntImm, PrimExpr, Var, all_of, const_int
from autosched.tir.functor import free_vars, substitute
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import AssertStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, LoopKind, SeqStmt, Stmt, seq

CREATE = "create_barriers"
NUMBERS = {  # TVM's names: which argument is the mbarrier's number
    "ptx_init_barrier_thread_count": 0, "ptx_arrive_barrier": 0, "ptx_arrive_barrier_expect_tx": 0,
    "ptx_cp_async_barrier": 0, "ptx_wait_barrier": 0, "ptx_cp_async_bulk": 5,
}  # fmt: skip
MOST = (1 << 20) - 1  # arrivals, or bytes, that a phase can expect
_NEWER = ("ptx_cp_async_bulk", "ptx_arrive_barrier_expect_tx")  # what sm_90 is the first to have


def unroll_numbers(stmt: Stmt) -> Stmt:
    """The statement with those unrolled loops written out whose variables number mbarriers."""
    new = map_children(stmt, lambda c: unroll_numbers(c) if isinstance(c, Stmt) else c)
    if not isinstance(new, For) or new.kind != LoopKind.UNROLLED:
        return new
    start, extent = const_int(new.start), const_int(new.extent)
    calls = (x for x in preorder(new.body) if isinstance(x, Call) and x.op in NUMBERS)
    if start is None or extent is None or all(new.loop_var not in free_vars(x.args[NUMBERS[x.op]]) for x in calls):
        return new
    numbers = (E.const(i, new.loop_var.dtype) for i in range(start, start + extent))
    return seq(*(substitute(new.body, {new.loop_var: i}) for i in numbers))


@dataclass(slots=True)
class Around:
    """Where in a launch a statement stands.

    threads   the loops around that are bound to threadIdx
    parted    what the threads of a block part at on the way, from the outermost on
    serial    whether other loops, or conditions, are around
    analyzer  what is known here
    """

    threads: tuple[For, ...]
    parted: tuple[Hashable, ...]
    serial: bool
    analyzer: Analyzer


@dataclass(slots=True)
class Mbarriers:
    """The mbarriers of one launch, and the statements that calls of them are."""

    axes: frozenset[str]  # the axes of threads that the launch has
    waits_by: str  # MBARRIER_WAIT, or MBARRIER_TEST where all that the launch uses is on older devices too
    has_bulk: bool  # there are copies that have to see an initialisation
    buffer: Buffer | None = None
    initialised: dict[int, list[tuple[Hashable, ...]]] = field(default_factory=dict)  # by number: where threads part

    @classmethod
    def of(cls, nest: Stmt) -> Mbarriers:
        """Those of a nest at the top of a function."""
        nodes = list(preorder(nest))
        loops = (n for n in nodes if isinstance(n, For) and n.thread.startswith("threadIdx"))
        axes = frozenset(n.thread for n in loops if const_int(n.extent) != 1)
        used = {n.op for n in nodes if isinstance(n, Call)}
        waits_by = MBARRIER_WAIT if used & {*_NEWER} else MBARRIER_TEST
        return cls(axes, waits_by, "ptx_cp_async_bulk" in used)

    def create(self, e: Call, around: Around) -> Stmt:
        """Make the buffer: once in a launch."""
        count = number(e, 0, "the number of mbarriers")
        if not count:
            raise CodegenError(f"T.{CREATE} of none")
        if self.buffer is not None or around.serial:
            why = "in a loop or under a condition" if self.buffer is None else "a second time"
            raise CodegenError(f"T.{CREATE} stands {why}", hint="a launch creates its mbarriers once, at its beginning")
        self.buffer = Buffer("barriers", (IntImm(count),), "uint64", scope="shared")
        return SeqStmt(())

    def element(self, e: Call) -> tuple[int, BufferLoad]:
        """(the number, the mbarrier) that a call names."""
        if self.buffer is None:
            raise CodegenError(f"T.{e.op} stands before T.{CREATE}", hint=f"create the mbarriers with T.{CREATE}(n)")
        at = e.args[NUMBERS[e.op]]
        n, count = const_int(at), const_int(self.buffer.shape[0]) or 0
        if n is None:
            raise CodegenError(f"T.{e.op}: the mbarrier's number is {at}", hint="a constant, or of a loop T.unroll(…)")
        if not 0 <= n < count:
            raise CodegenError(f"T.{e.op}: mbarrier {n}, and T.{CREATE} makes {count}, numbered from 0")
        return n, BufferLoad(self.buffer, (IntImm(n),))

    def call(self, e: Call, around: Around) -> Stmt:
        """The statement that a call is, of those whose only memory is an mbarrier."""
        if e.op == "ptx_init_barrier_thread_count":
            return self.initialise(e, around)
        barrier = self.used(e, around)
        match e.op:
            case "ptx_arrive_barrier":
                return instruction(MBARRIER_ARRIVE, barrier, IntImm(1, "bool"))
            case "ptx_arrive_barrier_expect_tx":
                size = number(e, 1, "the number of bytes")
                if size > MOST:
                    raise CodegenError(f"T.{e.op} of {size} bytes", hint=f"a phase can expect {MOST} at most")
                return instruction(MBARRIER_EXPECT, barrier, IntImm(size))
            case "ptx_cp_async_barrier":
                return instruction(MBARRIER_COPIES, barrier)
        assert e.op == "ptx_wait_barrier", e.op
        more = (IntImm(0, "bool"),) if self.waits_by == MBARRIER_WAIT else ()
        return instruction(self.waits_by, barrier, IntImm(0), *more)

    def used(self, e: Call, around: Around) -> BufferLoad:
        """The mbarrier of a call. Refuses threads that cannot wait for its initialisation."""
        n, barrier = self.element(e)
        for place in self.initialised.get(n, ()):
            if place and around.parted[:1] == place[:1] and around.parted[: len(place)] != place:
                raise CodegenError(
                    f"T.{e.op} uses mbarrier {n}, which a thread initialises under the same condition, where others do "
                    "not wait for it",
                    hint="initialise it before, where all threads of the block come",
                )
        return barrier

    def initialise(self, e: Call, around: Around) -> Stmt:
        n, barrier = self.element(e)
        count = number(e, 1, "the number of arrivals")
        if not 1 <= count <= MOST:
            raise CodegenError(f"T.{e.op} of {count} arrivals", hint=f"from 1 to {MOST}")
        self.initialised.setdefault(n, []).append(around.parted)
        fence = (instruction(MBARRIER_FENCE),) if self.has_bulk else ()
        made = seq(instruction(MBARRIER_INIT, barrier, IntImm(count)), *fence)
        if not around.parted:
            return self.once(made, around.threads)
        bounds = [around.analyzer.bound(loop.loop_var) for loop in around.threads if loop.thread in self.axes]
        is_one = all(low is not None and low == high for low, high in bounds)
        if not is_one or not self.axes <= {loop.thread for loop in around.threads}:
            raise CodegenError(
                f"T.{e.op} stands under a condition that several threads may meet",
                hint="let one thread do it (`if tx == 0:`), or write it without a condition: one thread does it then",
            )
        return made

    def once(self, stmt: Stmt, threads: tuple[For, ...]) -> Stmt:
        """The statement, done by the first thread of the block alone."""
        first = [E.compare(E.EQ, x.loop_var, x.start) for x in threads if x.thread in self.axes]
        new = IfThenElse(all_of(*first), stmt) if first else stmt
        for axis in sorted(self.axes - {x.thread for x in threads}):
            var = Var("t", "int32")
            new = For(var, IntImm(0), IntImm(1), LoopKind.THREAD_BINDING, new, axis)
        return new

    def finish(self, nest: Stmt) -> Stmt:
        """The nest with its mbarriers given back where they are initialised again. Refuses what never waits."""
        if self.buffer is None:
            return nest
        stored = {n.buffer for n in preorder(nest) if isinstance(n, BufferStore)}
        stored |= {n.args[0].buffer for n in _calls(nest, COPY) if isinstance(n.args[0], BufferLoad)}
        for copy in _calls(nest, BULK):
            assert isinstance(copy.args[0], BufferLoad), "a place"
            if copy.args[0].buffer in stored:
                raise CodegenError(
                    f"'{copy.args[0].buffer.name}' gets elements from bulk copies and from other stores",
                    hint="use a buffer of its own for each: the two are ordered by other means than barriers",
                )
        count = const_int(self.buffer.shape[0]) or 0
        unset = _State(dict.fromkeys(range(count), frozenset((_UNSET,))))
        return _Phases(self).visit(nest, unset, _Here(Analyzer()))[0]


# --- phases ---------------------------------------------------------------------------------------------------------

_UNSET, _OPEN, _WAITED, _SECOND = "unset", "open", "waited", "second"  # what may have happened to an mbarrier


Part = tuple[Buffer, int, int]  # elements [start, end) of a buffer, as if it had one dimension
Flying = Mapping[Part, frozenset[int]]


@dataclass(frozen=True, slots=True)
class _State:
    """What may have happened: to each mbarrier, and which of them count copies that may be under way to a place."""

    barriers: Mapping[int, frozenset[str]]
    flying: Flying = field(default_factory=dict)

    def joined(self, other: _State) -> _State:
        """Either."""
        barriers = {n: s | other.barriers[n] for n, s in self.barriers.items()}
        return _State(barriers, _joined(self.flying, other.flying))

    def set(self, n: int, *what: str) -> _State:
        """With what has happened to an mbarrier."""
        return replace(self, barriers={**self.barriers, n: frozenset(what)})


def _joined(a: Flying, b: Flying) -> Flying:
    return {part: a.get(part, frozenset()) | b.get(part, frozenset()) for part in (*a, *b)}


@dataclass(frozen=True, slots=True)
class _Here:
    """Where a statement stands.

    threads    the loops around that are bound to threads
    is_plain   no conditions are around: all threads of the block come here
    """

    analyzer: Analyzer
    threads: tuple[For, ...] = ()
    is_plain: bool = True


@dataclass(frozen=True, slots=True)
class _Phases:
    """Follows mbarriers and bulk copies through a nest, in the order of the script."""

    owner: Mbarriers

    def visit(self, stmt: Stmt, state: _State, here: _Here) -> tuple[Stmt, _State]:
        """(the statement, what may have happened after it)."""
        match stmt:
            case SeqStmt():
                parts = []
                for s in stmt.seq:
                    new, state = self.visit(s, state, here)
                    parts.append(new)
                return seq(*parts), state
            case IfThenElse():
                return self.branch(stmt, state, here)
            case For():
                self.read(stmt.start, state, here.analyzer)
                self.read(stmt.extent, state, here.analyzer)
                inside = replace(here, analyzer=enter(here.analyzer, stmt))
                if stmt.thread:
                    body, after = self.visit(stmt.body, state, replace(inside, threads=(*here.threads, stmt)))
                    return replace(stmt, body=body), after
                return self.loop(stmt, state, inside)
            case LetStmt() | AssertStmt():
                self.read(stmt.value if isinstance(stmt, LetStmt) else stmt.condition, state, here.analyzer)
                inner = here.analyzer.copy()
                if isinstance(stmt, LetStmt):
                    inner.bind(stmt.var, stmt.value)
                body, after = self.visit(stmt.body, state, replace(here, analyzer=inner))
                return replace(stmt, body=body), after
            case Evaluate(value=Call() as e) if e.op in MBARRIERS or e.op == BULK:
                return self.call(stmt, e, state, here)
            case _ if is_barrier(stmt):
                return stmt, replace(state, flying=_landed(state))
        if any(True for op in (*MBARRIERS, BULK) for _ in _calls(stmt, op)):
            raise CodegenError(f"mbarriers are used within {type(stmt).__name__}", hint="use loops of known extents")
        self.read(stmt, state, here.analyzer)
        return stmt, state

    def branch(self, stmt: IfThenElse, state: _State, here: _Here) -> tuple[Stmt, _State]:
        self.read(stmt.condition, state, here.analyzer)
        inner = here.analyzer.copy()
        for condition in split_conditions(stmt.condition):
            inner.assume(condition)
        inside = replace(here, analyzer=inner, is_plain=False)
        if stmt.else_case is None:
            then, after = self.visit(stmt.then_case, state, inside)
            return replace(stmt, then_case=then), self.behind(stmt, state, after, here.threads)
        outside = replace(here, is_plain=False)
        # other threads may run the other case at the same time
        first = replace(state, flying=_joined(state.flying, _begun(stmt.else_case, here.analyzer)))
        second = replace(state, flying=_joined(state.flying, _begun(stmt.then_case, here.analyzer)))
        then, after = self.visit(stmt.then_case, first, inside)
        other, after_other = self.visit(stmt.else_case, second, outside)
        return replace(stmt, then_case=then, else_case=other), after.joined(after_other)

    def behind(self, stmt: IfThenElse, before: _State, after: _State, threads: tuple[For, ...]) -> _State:
        """What may have happened behind a condition: what one thread does under it alone has surely been done."""
        found = before.joined(after)
        names = {x.loop_var for x in threads if x.thread.startswith("threadIdx")}
        if free_vars(stmt.condition) <= names and not any(isinstance(x, BufferLoad) for x in preorder(stmt.condition)):
            for n in {_number(x.args[0]) for op in (MBARRIER_INIT, MBARRIER_INVAL) for x in _calls(stmt, op)}:
                found = found.set(n, *after.barriers[n])
        return found

    def loop(self, loop: For, state: _State, here: _Here) -> tuple[Stmt, _State]:
        body, after = self.visit(loop.body, state, here)
        again = [n for n, s in state.barriers.items() if s == {_UNSET} and _UNSET not in after.barriers[n]]
        if again and here.is_plain:  # each iteration gives back what it has initialised
            assert self.owner.buffer is not None, "it has mbarriers"
            places = (BufferLoad(self.owner.buffer, (IntImm(n),)) for n in again)
            ends = (instruction(MBARRIER_INVAL, place) for place in places)
            body = seq(body, self.owner.once(seq(*ends), here.threads))
            for n in again:
                after = after.set(n, _UNSET)
        while True:
            _, later = self.visit(body, state.joined(after), here)
            if (wider := after.joined(later)) == after:
                break
            after = wider
        return replace(loop, body=body), after if const_int(loop.extent) else state.joined(after)

    def call(self, stmt: Stmt, e: Call, state: _State, here: _Here) -> tuple[Stmt, _State]:
        place = e.args[3 if e.op == BULK else 0]
        n = _number(place)
        now = state.barriers[n]
        if e.op == MBARRIER_INVAL:
            return stmt, state.set(n, _UNSET)
        if e.op == MBARRIER_INIT:
            if _UNSET in now and len(now) > 1:
                raise CodegenError(
                    f"mbarrier {n} is initialised where it may have been before, or not",
                    hint="initialise it once, or in each iteration of a loop over which all threads go together",
                )
            return stmt if _UNSET in now else seq(instruction(MBARRIER_INVAL, place), stmt), state.set(n, _OPEN)
        if _UNSET in now:
            raise CodegenError(
                f"mbarrier {n} is used where it may not have been initialised",
                hint="call T.ptx_init_barrier_thread_count before",
            )
        if e.op in (MBARRIER_WAIT, MBARRIER_TEST):
            if _SECOND in now:
                raise CodegenError(
                    f"T.ptx_wait_barrier waits for the first phase of mbarrier {n}, and a second one may have begun",
                    hint="create one for each phase, or initialise it again in the loop",
                )
            flying = {part: kept for part, ns in state.flying.items() if (kept := ns - {n})}
            return stmt, replace(state.set(n, _WAITED), flying=flying)
        after = state.set(n, *(_SECOND if s == _WAITED else s for s in now))
        if e.op == BULK:
            after = replace(after, flying=_joined(after.flying, {_target(e, here.analyzer): frozenset((n,))}))
        return stmt, after

    def read(self, node: Stmt | PrimExpr, state: _State, a: Analyzer) -> None:
        """Refuse to read what a copy may still write."""
        for x in preorder(node) if state.flying else ():
            if not isinstance(x, BufferLoad):
                continue
            low, high = a.bound(_flat(x))
            for (buffer, start, end), barriers in state.flying.items():
                if buffer is x.buffer and (low is None or high is None or (low < end and start <= high)):
                    raise CodegenError(
                        f"'{buffer.name}' is read while a bulk copy may still write it",
                        hint=f"T.ptx_wait_barrier({min(barriers)}) is to stand before",
                    )


def _number(barrier: PrimExpr) -> int:
    assert isinstance(barrier, BufferLoad), "an mbarrier"
    return const_int(barrier.indices[0]) or 0


def _flat(x: BufferLoad) -> PrimExpr:
    """The element's number in its buffer."""
    found = x.indices[0]
    for index, size in zip(x.indices[1:], x.buffer.shape[1:], strict=True):
        found = E.add(E.mul(found, E.cast(found.dtype, size)), E.cast(found.dtype, index))
    return found


def _target(copy: Call, a: Analyzer) -> Part:
    """The elements that a bulk copy may write."""
    first = copy.args[0]
    assert isinstance(first, BufferLoad), "a place"
    low, high = a.bound(_flat(first))
    end = math.prod(const_int(n) or 0 for n in first.buffer.shape)
    return first.buffer, low or 0, end if high is None else high + (const_int(copy.args[2]) or 0)


def _begun(stmt: Stmt, a: Analyzer) -> Flying:
    """The copies that a statement begins before it waits for anything."""
    found: Flying = {}
    for x in preorder(stmt):
        if isinstance(x, For):
            a = enter(a, x)
        elif isinstance(x, Call) and x.op in (MBARRIER_WAIT, MBARRIER_TEST):
            break
        elif isinstance(x, Call) and x.op == BULK:
            found = _joined(found, {_target(x, a): frozenset((_number(x.args[3]),))})
    return found


def _landed(state: _State) -> Flying:
    """What may be under way behind a barrier of the block: some thread has waited for the others."""
    waited = {n for n, s in state.barriers.items() if _WAITED in s}
    return {part: kept for part, ns in state.flying.items() if (kept := ns - waited)}


# --- what both need -------------------------------------------------------------------------------------------------


def _calls(stmt: Stmt, op: str) -> list[Call]:
    return [x for x in preorder(stmt) if isinstance(x, Call) and x.op == op]


def instruction(op: str, *args: PrimExpr) -> Stmt:
    """An instruction as a statement."""
    return Evaluate(Call(op, args, "handle"))


def number(e: Call, at: int, what: str) -> int:
    """A constant argument of a call."""
    value = const_int(e.args[at])
    if value is None or value < 0:
        raise CodegenError(f"T.{e.op}: {what} is {e.args[at]}", hint="it is to be a constant")
    return value
