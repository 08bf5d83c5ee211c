"""Places barriers between the threads of a block that write shared memory and those that read it.

Before:  for k in 8: (A_shared[tx] = …), (… A_shared[0])
After:   for k in 8: barrier, (A_shared[tx] = …), barrier, (… A_shared[0])
The first barrier keeps a fast thread from writing what a slow one still reads in the iteration before.

An initialisation of an mbarrier is a write, its other uses are reads. Who reads what a bulk copy writes waits at an
mbarrier; a barrier only keeps the copy behind the reads before it. Where all threads arrive at an mbarrier once and
then wait there, as many as it counts, that is a barrier too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.codegen.lower.cross_thread import is_lane_reduction
from autosched.codegen.lower.instructions import (
    BULK,
    COPY,
    MBARRIER_ARRIVE,
    MBARRIER_COPIES,
    MBARRIER_EXPECT,
    MBARRIER_INIT,
    MBARRIER_INVAL,
    MBARRIER_TEST,
    MBARRIER_WAIT,
    MBARRIERS,
    WAIT,
)
from autosched.errors import CodegenError
from autosched.ir.node import Node, preorder
from autosched.tir.atomic import ATOMIC_ADD, added
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, FloorMod, IntImm, Let, PrimExpr, StringImm, Var, const_int
from autosched.tir.functor import free_vars
from autosched.tir.simplify import Analyzer, form_key
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    seq,
)  # fmt: skip

MBARRIER_BYTES = 8
_WRITING = (COPY, BULK, MBARRIER_INIT, MBARRIER_INVAL)  # their first argument is what they write
_WAITS = (WAIT, MBARRIER_WAIT, MBARRIER_TEST)
SYNC = "tvm_storage_sync"  # TVM's name of the barrier: its argument is the scope


def barrier() -> Stmt:
    """All threads of the block wait for each other; what they have written to shared memory is seen by all."""
    return Evaluate(Call(SYNC, (StringImm("shared"),), "int32"))


def is_barrier(stmt: Stmt) -> bool:
    """Whether the statement is a barrier of the block."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) and stmt.value.op == SYNC


@dataclass(frozen=True, slots=True)
class Access:
    """A use of bytes [start, end) of a memory that a block's threads share."""

    memory: object  # the block's shared memory, or a buffer
    start: int
    end: int
    writes: bool
    store: BufferStore | BufferLoad | None = None  # which wrote, where its other writes since are to other elements
    version: tuple[Var, int, int] | None = None  # (v, c, n): part (v + c) % n of the memory alone
    adds: bool = False  # it adds at once, whatever the order
    lands: bool = False  # a bulk copy, for which others wait at its mbarrier

    def conflicts(self, other: Access) -> bool:
        """Whether the order of the two matters."""
        if self.store is not None and self.store is other.store:
            return False  # a cooperative copy writes each element once
        if self.adds and other.adds:
            return False
        if self.version is not None and other.version is not None and self.version != other.version:
            if self.version[0] is other.version[0] and self.version[2] == other.version[2]:
                return False
        return (
            self.memory == other.memory
            and (self.writes or other.writes)
            and self.start < other.end
            and other.start < self.end
        )


MEMORY_NODES = (Call, BufferLoad, BufferStore)
MemoryNode = Call | BufferLoad | BufferStore
Pending = frozenset[Access]
Ranges = Mapping[Buffer, tuple[object, int, int]]  # where a shared buffer lies: (memory, first byte, end)


def place_barriers(body: Stmt, ranges: Ranges, divergent: frozenset[Var], threads: int = 0) -> Stmt:
    """The statement with the barriers that its shared memory needs.

    ranges     the buffers that threads of a block share; those that overlap are one memory
    divergent  variables that differ between the threads of a block
    threads    of a block; 0 where that is not known
    Raises     CodegenError where one is needed under a condition, or in a loop, that threads do not go through together
    """
    placer = _Placer(ranges, divergent)
    placer.mbarriers = mbarriers_in(body)
    placer.meetings = _meetings(body, threads)
    copies = [x.args[0] for x in preorder(body) if isinstance(x, Call) and x.op == COPY]
    targets = dict.fromkeys(x.buffer for x in copies if isinstance(x, BufferLoad) and x.buffer in ranges)
    placer.landing = frozenset(Access(*ranges[b], True) for b in targets)
    return placer.visit(body, frozenset())[0]


def _operation(stmt: Stmt) -> Call | None:
    """The instruction that a statement is."""
    return stmt.value if isinstance(stmt, Evaluate) and isinstance(stmt.value, Call) else None


def mbarriers_in(body: Stmt) -> frozenset[Buffer]:
    """The buffers of mbarriers."""
    first = (x.args[0] for x in preorder(body) if isinstance(x, Call) and x.op in MBARRIERS)
    return frozenset(x.buffer for x in first if isinstance(x, BufferLoad))


def guarded_by_mbarriers(body: Stmt) -> frozenset[Buffer]:
    """The buffers of mbarriers, and those that bulk copies write."""
    targets = (x.args[0] for x in preorder(body) if isinstance(x, Call) and x.op == BULK)
    return mbarriers_in(body) | {x.buffer for x in targets if isinstance(x, BufferLoad)}


def _meetings(body: Stmt, threads: int) -> frozenset[Hashable]:
    """The mbarriers that count each thread of the block once, at one statement."""
    counts: dict[Hashable, set[int | None]] = {}
    arrivals: Counter[Hashable] = Counter()
    for x in (x for x in preorder(body) if isinstance(x, Call)):
        if x.op == MBARRIER_INIT:
            counts.setdefault(form_key(x.args[0]), set()).add(const_int(x.args[1]))
        elif x.op in (MBARRIER_ARRIVE, MBARRIER_EXPECT):
            arrivals[form_key(x.args[0])] += 1
    return frozenset(key for key, found in counts.items() if found == {threads} and arrivals[key] == 1)


@dataclass(slots=True)
class _Placer:
    ranges: Ranges
    divergent: frozenset[Var]
    mbarriers: frozenset[Buffer] = frozenset()
    meetings: frozenset[Hashable] = frozenset()
    landing: Pending = frozenset()  # what asynchronous copies write, seen by others after a wait and a barrier
    found: dict[int, tuple[Node, list[MemoryNode]]] = field(default_factory=dict)  # by identity, which the node keeps

    def memory_nodes(self, node: Node) -> list[MemoryNode]:
        """The calls, loads and stores below a node; asked for again and again where statements are in each other."""
        if id(node) not in self.found:
            self.found[id(node)] = node, [x for x in preorder(node) if isinstance(x, MEMORY_NODES)]
        return self.found[id(node)][1]

    def accesses(self, node: Stmt | PrimExpr, waits: bool = True) -> Pending:
        """What a statement, or an expression, uses; with what copies have written where it `waits` for them."""
        found = set()
        nodes = self.memory_nodes(node)
        calls = [x for x in nodes if isinstance(x, Call)]
        copied = {id(x.args[0]) for x in calls if x.op in _WRITING}
        landing = {id(x.args[0]) for x in calls if x.op == BULK}
        sums = {id(x.args[0]) for x in calls if x.op == ATOMIC_ADD}
        for x in nodes:
            if id(x) in sums:
                continue  # the sum's own element is read with the store
            if isinstance(x, BufferLoad | BufferStore) and x.buffer in self.ranges:
                store = x if isinstance(x, BufferStore) or id(x) in copied else None
                lands = id(x) in landing
                found.add(Access(*self.place(x), store is not None, store, _version(x), _adds(x), lands))
            elif waits and isinstance(x, Call) and x.op in _WAITS:
                found |= self.landing
        return frozenset(found)

    def place(self, x: BufferLoad | BufferStore) -> tuple[object, int, int]:
        """Where an access lies: (memory, first byte, end)."""
        memory, start, end = self.ranges[x.buffer]
        if x.buffer in self.mbarriers and (n := const_int(x.indices[0])) is not None:
            return memory, start + n * MBARRIER_BYTES, start + (n + 1) * MBARRIER_BYTES
        return memory, start, end

    def visit(self, stmt: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """(the statement with barriers, uses since the last barrier at its end)."""
        if is_barrier(stmt):
            return stmt, frozenset()
        operation = _operation(stmt)
        if operation is not None and operation.op in _WAITS:
            new, pending = self.whole(stmt, pending)
            return new, pending | self.landing
        match stmt:
            case SeqStmt():
                parts: list[Stmt] = []
                for i, s in enumerate(stmt.seq):
                    new, pending = self.visit(s, pending)
                    pending = pending if (since := self.since_meeting(stmt.seq[: i + 1])) is None else since
                    parts.append(new)
                return seq(*parts), pending
            case For() if stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLLED) and self.is_uniform(stmt):
                return self.loop(stmt, pending)
            case IfThenElse() if not self.diverges(stmt.condition):
                if _conflict(pending, self.accesses(stmt)):
                    new, pending = self.visit(stmt, frozenset())
                    return seq(barrier(), new), pending
                pending |= self.accesses(stmt.condition)
                then, after = self.visit(stmt.then_case, pending)
                other, after_other = (None, pending) if stmt.else_case is None else self.visit(stmt.else_case, pending)
                return replace(stmt, then_case=then, else_case=other), after | after_other
            case Allocate() | AssertStmt():
                body, pending = self.visit(stmt.body, pending)
                return replace(stmt, body=body), pending
            case LetStmt() if not self.accesses(stmt.value):
                if self.diverges(stmt.value):
                    self.divergent |= {stmt.var}
                body, pending = self.visit(stmt.body, pending)
                return replace(stmt, body=body), pending
            case IfThenElse() if stmt.else_case is None and self.needs_barrier_inside(stmt):
                if not isinstance(apart := self.inward(stmt.condition, stmt.then_case), IfThenElse):
                    return self.visit(apart, pending)
        return self.whole(stmt, pending)

    def since_meeting(self, parts: Sequence[Stmt]) -> Pending | None:
        """Where the last of some statements waits for all threads of the block: what is used since they arrived."""
        wait = _operation(parts[-1])
        if wait is None or wait.op not in (MBARRIER_WAIT, MBARRIER_TEST):
            return None
        key = form_key(wait.args[0])
        if key not in self.meetings:
            return None
        before = list(parts[:-1])
        since: Pending = frozenset()
        while before:
            last = before.pop()
            if _is_at(last, (MBARRIER_ARRIVE, MBARRIER_EXPECT), key):
                break
            since |= self.accesses(last)
        else:
            return None
        while self.landing and before:  # the copies under way are to have arrived too
            last = before.pop()
            if _is_at(last, (MBARRIER_COPIES,), key):
                return _lasting(since)
            if any(isinstance(x, Call) and x.op == COPY for x in preorder(last)):
                break
        return None if self.landing else _lasting(since)

    def inward(self, condition: PrimExpr, stmt: Stmt) -> Stmt:
        """`if condition: stmt`, with the condition at each of its statements: barriers can stand between them."""
        if not any(isinstance(x, BufferLoad) for x in preorder(condition)):  # else a statement may change it
            match stmt:
                case SeqStmt():
                    return seq(*(self.inward(condition, s) for s in stmt.seq))
                case For() if stmt.kind in (LoopKind.SERIAL, LoopKind.UNROLLED) and self.is_uniform(stmt):
                    return replace(stmt, body=self.inward(condition, stmt.body))
                case Allocate():
                    return replace(stmt, body=self.inward(condition, stmt.body))
        return IfThenElse(condition, stmt)

    def whole(self, stmt: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """A statement that no barrier may stand in."""
        used = self.accesses(stmt, waits=not isinstance(stmt, Evaluate))
        if any(isinstance(x, Stmt) and is_barrier(x) for x in preorder(stmt)):
            raise CodegenError(
                "a barrier of the block stands under a condition, or in a loop, that its threads do not go through "
                "together",
                hint="move it out, or make the condition the same for the whole block",
            )
        if not isinstance(stmt, BufferStore) and any(is_lane_reduction(x) for x in preorder(stmt)):
            raise CodegenError(
                "a reduction that threads share stands under a condition, or in a loop, that they do not go through "
                "together",
                hint="give all loops of the launch that are bound to one thread axis the same extent",
            )
        if self.needs_barrier_inside(stmt):
            where = f"'{stmt.loop_var.name}'" if isinstance(stmt, For) else "a condition"
            raise CodegenError(
                f"shared memory is written and read under {where}, which the threads of a block do not go through "
                "together, so that no barrier can stand there",
                hint="move the condition into the statements, or make it the same for the whole block",
            )
        if _conflict(pending, used):
            return seq(barrier(), stmt), _lasting(used)
        return stmt, pending | _lasting(used)

    def needs_barrier_inside(self, stmt: Stmt) -> bool:
        """Whether threads would have to wait for each other within the statement: one reads what another writes.

        An element that is read where it is written is the thread's own.
        """
        if isinstance(stmt, BufferStore | Evaluate) or (isinstance(stmt, For) and stmt.kind == LoopKind.VECTORIZED):
            return False
        nodes = self.memory_nodes(stmt)
        copied = {id(x.args[0]) for x in nodes if isinstance(x, Call) and x.op == COPY}
        landing = {id(x.args[0]) for x in nodes if isinstance(x, Call) and x.op == BULK}
        guarded = self.ranges.keys() - self.mbarriers
        used = [n for n in nodes if isinstance(n, BufferStore | BufferLoad) and n.buffer in guarded]
        used = [n for n in used if id(n) not in landing]
        stores = [n for n in used if isinstance(n, BufferStore) or id(n) in copied]
        loads = [n for n in used if isinstance(n, BufferLoad) and id(n) not in copied]
        return any(
            Access(*self.ranges[x.buffer], True).conflicts(Access(*self.ranges[y.buffer], False))
            and not (x.buffer is y.buffer and list(map(form_key, x.indices)) == list(map(form_key, y.indices)))
            for x in stores
            for y in loads
        )

    def loop(self, loop: For, pending: Pending) -> tuple[Stmt, Pending]:
        """Iterations see what the one before left, and no barrier inside waits for what stands before the loop."""
        if _conflict(pending, self.accesses(loop)):
            new, after = self.loop(loop, frozenset())
            return seq(barrier(), new), after
        body, entry = loop.body, pending
        while True:
            inside, after = self.visit(body, entry)
            carried = frozenset(_in_next_iteration(a, loop) for a in after)
            if carried <= entry:
                break
            entry |= carried
        after = frozenset(_after(a, loop) for a in after)
        return replace(loop, body=inside), after if const_int(loop.extent) else after | pending

    def is_uniform(self, loop: For) -> bool:
        """Whether all threads of the block run the same iterations."""
        return not (self.diverges(loop.start) or self.diverges(loop.extent))

    def diverges(self, e: PrimExpr) -> bool:
        """Whether threads of a block may have different values."""
        if any(isinstance(x, BufferLoad | Let) for x in preorder(e)):
            return True
        return bool(free_vars(e) & self.divergent)


def _lasting(used: Pending) -> Pending:
    """What others may have to wait for at a barrier."""
    return frozenset(a for a in used if not a.lands)


def _is_at(stmt: Stmt, names: Sequence[str], key: Hashable) -> bool:
    """Whether a statement is one of these instructions at an mbarrier."""
    operation = _operation(stmt)
    return operation is not None and operation.op in names and form_key(operation.args[0]) == key


def _adds(x: BufferLoad | BufferStore) -> bool:
    return isinstance(x, BufferStore) and added(x) is not None


def _in_next_iteration(access: Access, loop: For) -> Access:
    """The access as the next iteration finds it: a store at the same index again is one to other elements no longer."""
    if access.version is not None and access.version[0] is loop.loop_var:
        var, c, n = access.version
        access = replace(access, version=(var, (c - 1) % n, n))
    store = access.store
    if store is None or any(loop.loop_var in free_vars(i) for i in store.indices):
        return access
    return replace(access, store=None)


def _after(access: Access, loop: For) -> Access:
    """The access as what follows a loop finds it."""
    if access.version is not None and access.version[0] is loop.loop_var:
        return replace(access, version=None)
    return access


def _version(access: BufferLoad | BufferStore) -> tuple[Var, int, int] | None:
    """Which of several versions of a buffer is used, where the first index is (v + c) % n."""
    first = access.indices[0] if len(access.indices) > 1 else None  # the only index is one of elements
    if not isinstance(first, FloorMod) or not isinstance(first.b, IntImm):
        return None
    form = Analyzer().linear(first.a)
    if len(form.terms) != 1:
        return None
    ((factor, atom),) = form.terms.values()
    return (atom, form.const % first.b.value, first.b.value) if factor == 1 and isinstance(atom, Var) else None


def _conflict(pending: Pending, used: Pending) -> bool:
    return any(a.conflicts(b) for a in pending for b in used)
