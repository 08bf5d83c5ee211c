"""Cuts a function into launches and gives every thread axis of a launch one variable.

Before:  for by in blockIdx.y(8): for ty in threadIdx.y(4): A_shared[ty] = …
                                  for ty_1 in threadIdx.y(2): … A_shared[ty_1]
After:   A_shared[ty] = …                      with by and ty given by the launch, ty in [0, 4)
         if ty < 2: … A_shared[ty]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autosched.codegen.lower.asserts import ASSERT
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, map_children, preorder
from autosched.runtime.cuda.kernel import MOST_CLUSTER, TensorMap
from autosched.tir import expr as E
from autosched.tir.atomic import added
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, PrimExpr, Var, all_of, const_int
from autosched.tir.functor import free_vars, substitute, uses
from autosched.tir.schedule.iter_map import is_injective
from autosched.tir.simplify import Analyzer, form_key, split_conditions
from autosched.tir.stmt import (
    AssertStmt,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    SeqStmt,
    Stmt,
    While,
)

AXES = ("x", "y", "z")
LAUNCHED = "launched_each_time"  # annotation of a loop at the top: each iteration of it launches the nests inside
TURN = "turn"
MIN_BLOCKS = "min_blocks_per_sm"  # attribute of a function: so many fit a multiprocessor, unless registers spill
_NAMES = {"blockIdx": "b", "threadIdx": "t", "clusterCtaIdx": "c"}


@dataclass(frozen=True, slots=True)
class ThreadAxis:
    """A hardware index: `tag` ("threadIdx.x"), the variable that stands for it, how many values it has.

    size   of blocks whose number comes with the call: that number; `extent` is the most that it can be
    """

    tag: str
    var: Var
    extent: int
    size: PrimExpr | None = None


@dataclass(slots=True)
class LoweredLaunch:
    """`body` is what one thread does; shared buffers lie at their offsets (bytes) in the block's shared memory."""

    body: Stmt
    axes: tuple[ThreadAxis, ...]
    shared: Mapping[Buffer, int] = field(default_factory=dict)
    shared_bytes: int = 0
    wants_dynamic: bool = False  # a buffer of scope "shared.dyn" asks for memory that is sized at the launch
    tensor_maps: dict[Buffer, TensorMap] = field(
        default_factory=dict
    )  # parameters, by what stands for them in the body
    by_mbarrier: frozenset[Buffer] = frozenset()  # shared buffers whose accesses are ordered by mbarriers
    # What comes with the call: sizes, the turn of a launch that is repeated; (the least, how many values) of each.
    sizes: Mapping[Var, tuple[int, int]] = field(default_factory=dict)
    tensor_flops: int = 0  # of a launch that uses tensor cores: they are no longer in the body

    def _size(self, kind: str) -> tuple[int, int, int]:
        extents = {a.tag: a.extent for a in self.axes}
        x, y, z = (extents.get(f"{kind}.{axis}", 1) for axis in AXES)
        return x, y, z

    @property
    def cluster(self) -> tuple[int, int, int]:
        """Blocks of a cluster along x, y and z."""
        return self._size("clusterCtaIdx")

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along x, y and z: where there are clusters, loops bound to blockIdx count these."""
        x, y, z = (n * each for n, each in zip(self._size("blockIdx"), self.cluster, strict=True))
        return x, y, z

    @property
    def grid_sizes(self) -> tuple[PrimExpr | int, ...]:
        """Blocks along x, y and z, by the sizes that come with the call."""
        given = {a.tag: a.extent if a.size is None else a.size for a in self.axes}
        found = zip((given.get(f"blockIdx.{axis}", 1) for axis in AXES), self.cluster, strict=True)
        return tuple(n * each if isinstance(n, int) else E.mul(n, each) for n, each in found)

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block along x, y and z."""
        return self._size("threadIdx")

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def block_vars(self) -> frozenset[Var]:
        """The variables that have one value for all threads of a block."""
        return frozenset((*(a.var for a in self.axes if not a.tag.startswith("threadIdx")), *self.sizes))

    @property
    def thread_vars(self) -> frozenset[Var]:
        """The variables that tell the threads of a block apart."""
        return frozenset(a.var for a in self.axes if a.tag.startswith("threadIdx"))

    @property
    def ranges(self) -> dict[Var, tuple[int, int]]:
        """(first value, number of values) of each thread axis' variable, and of the sizes."""
        return {**{a.var: (0, a.extent) for a in self.axes}, **self.sizes}

    def analyzer(self) -> Analyzer:
        """What is known of the thread axes and sizes."""
        return Analyzer(self.ranges)


def split_launches(
    body: Stmt, outside: frozenset[Buffer] = frozenset(), sizes: Mapping[Var, tuple[int, int]] | None = None
) -> list[LoweredLaunch]:
    """The launches of a function without blocks, in order. Raises CodegenError for a nest that no thread runs.

    outside   the buffers that outlive a launch
    sizes     variables whose values come with the call: (the least, how many)
    """
    return [bind_threads(nest, outside, sizes) for nest in nests(body)]


def nests(stmt: Stmt) -> Iterator[Stmt]:
    """The statements at the top of a function, and in loops there that launch them again and again: a launch each."""
    match stmt:
        case For() if LAUNCHED in stmt.annotations:
            yield from nests(stmt.body)
        case SeqStmt():
            for s in stmt.seq:
                yield from nests(s)
        case AssertStmt():
            yield from nests(stmt.body)
        case Evaluate(value=Call(op=op)) if op == ASSERT:
            raise CodegenError("T.Assert outside of a GPU's threads", hint="put it into the loops bound to threads")
        case Evaluate() if const_int(stmt.value) is not None:
            return
        case _:
            yield stmt


@dataclass(frozen=True, slots=True)
class Repeated:
    """Launches from `first` up to `end`, which are made `times` times."""

    first: int
    end: int
    times: PrimExpr


def repeats_of(stmt: Stmt) -> tuple[Repeated, ...]:
    """The loops at the top of a function that launch what is in them again and again."""
    found, count = [], 0
    for part in stmt.seq if isinstance(stmt, SeqStmt) else (stmt,):
        n = len(tuple(nests(part)))
        if isinstance(part, For) and LAUNCHED in part.annotations:
            found.append(Repeated(count, count + n, part.extent))
        count += n
    return tuple(found)


def with_turns(root: BlockRealize) -> tuple[BlockRealize, Var | None]:
    """(the root with the number of a launch's turn, from 1 on, for the variables of such loops, what stands for it).

    Raises CodegenError where one of them stands inside of another loop.
    """
    if not any(isinstance(x, For) and LAUNCHED in x.annotations for x in preorder(root)):
        return root, None
    turn, top = Var(TURN, "int64"), root.block.body
    parts: list[Stmt] = []
    for part in top.seq if isinstance(top, SeqStmt) else (top,):
        if isinstance(part, For) and LAUNCHED in part.annotations:
            value = E.cast(part.loop_var.dtype, E.sub(turn, E.const(1, turn.dtype)))
            part = replace(part, body=substitute(part.body, {part.loop_var: E.add(part.start, value)}))
        inside = part.body if isinstance(part, For) and LAUNCHED in part.annotations else part
        if any(isinstance(x, For) and LAUNCHED in x.annotations for x in preorder(inside)):
            raise CodegenError(f"a loop with the annotation '{LAUNCHED}' stands inside of another loop")
        parts.append(part)
    body = SeqStmt(tuple(parts)) if len(parts) > 1 else parts[0]
    return replace(root, block=replace(root.block, body=body)), turn


def bind_threads(
    nest: Stmt, outside: frozenset[Buffer] = frozenset(), sizes: Mapping[Var, tuple[int, int]] | None = None
) -> LoweredLaunch:
    """A launch of one nest. Raises CodegenError where no loop is bound, or an extent of threads is no constant.

    Loops over blocks may have extents of `sizes`, which come with the call; those along one axis then have the same.
    """
    loops = [n for n in preorder(nest) if isinstance(n, For) and n.kind == LoopKind.THREAD_BINDING]
    known = Analyzer(sizes)
    extents: dict[str, int] = {}
    by_size: dict[str, PrimExpr] = {}
    first: dict[str, For] = {}
    for loop in loops:
        if loop.thread.startswith(("vthread", "cthread")):
            continue
        extent = known.simplify(loop.extent)
        count = const_int(extent)
        if count is None and free_vars(extent) <= (sizes or {}).keys() and loop.thread.startswith("blockIdx"):
            count = known.bound(extent)[1]
            by_size.setdefault(loop.thread, extent)
        if count is None:
            raise CodegenError(
                f"the loop '{loop.loop_var.name}' is bound to {loop.thread} and its extent is no constant",
                hint="specialize the function for the sizes",
            )  # fmt: skip
        if loop.thread in by_size and form_key(by_size[loop.thread]) != form_key(extent):
            raise CodegenError(
                f"two loops that are bound to {loop.thread} have {by_size[loop.thread]} and {extent} iterations",
                hint="bind them to axes of their own, or give them the same extent",
            )
        extents[loop.thread] = max(extents.get(loop.thread, 1), count)
        first.setdefault(loop.thread, loop)
    if not extents:
        what = f"loop '{nest.loop_var.name}'" if isinstance(nest, For) else "statement"
        raise CodegenError(
            f"the {what} at the top of the function is bound to no threads",
            hint='bind its loops to "blockIdx.x" and "threadIdx.x", or apply dlight.gpu.Fallback()',
        )
    if math.prod(n for tag, n in extents.items() if tag.startswith("clusterCtaIdx")) > MOST_CLUSTER:
        raise CodegenError(
            f"a cluster has {MOST_CLUSTER} blocks at most", hint="split the loops bound to clusterCtaIdx"
        )
    axes = {
        tag: ThreadAxis(tag, Var(_name(tag), first[tag].loop_var.dtype), extents[tag], by_size.get(tag))
        for tag in sorted(extents, key=lambda t: (not t.startswith("block"), t))
    }
    threads = [a for a in axes.values() if a.tag.startswith("threadIdx") and a.extent > 1]
    extents_of = {n.loop_var: const_int(n.extent) or 0 for n in preorder(nest) if isinstance(n, For)}
    once = _Once(threads, outside, {**extents_of, **{a.var: a.extent for a in axes.values()}})
    nest = _added_once(nest, {tag: axis for tag, axis in axes.items() if axis in threads})
    path = _Path(ranges={a.var: (0, a.extent) for a in axes.values() if a.tag.startswith("threadIdx")})
    return LoweredLaunch(once.visit(_bound(nest, axes), path), tuple(axes.values()), sizes=dict(sizes or {}))


def _added_once(stmt: Stmt, others: Mapping[str, ThreadAxis]) -> Stmt:
    """Let what is added at once be added by one of the threads along axes that no loop around is bound to."""
    if isinstance(stmt, BufferStore) and added(stmt) is not None and others:
        is_first = (E.compare(E.EQ, a.var, E.const(0, a.var.dtype)) for a in others.values())
        return IfThenElse(all_of(*is_first), stmt)
    if isinstance(stmt, For) and stmt.thread in others:
        others = {tag: axis for tag, axis in others.items() if tag != stmt.thread}
    return map_children(stmt, lambda c: _added_once(c, others) if isinstance(c, Stmt) else c)


@dataclass(frozen=True, slots=True)
class _Path:
    """What stands around a statement.

    conditions   all of them hold there
    lets         which variables of threads those that stand for other values may depend on
    apart        variables of threads by which loops around have other bounds
    ranges       (first value, number of values) of the variables of threads, and of loops around where these are known
    """

    conditions: tuple[PrimExpr, ...] = ()
    lets: Mapping[Var, frozenset[Var]] = field(default_factory=dict)
    apart: frozenset[Var] = frozenset()
    ranges: Mapping[Var, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Once:
    """Lets one thread alone do stores whose indices do not depend on the others along an axis.

    All of them would store the same, or add up to the same element. It is the first one that comes there; where that is
    not known, all of them store. What is a thread's own, or a warp's together, stays as it is.

    outside   the buffers that others than the block read
    extents   those of loops and axes
    """

    threads: Sequence[ThreadAxis]
    outside: frozenset[Buffer]
    extents: Mapping[Var, int]

    def visit(self, stmt: Stmt, path: _Path = _Path()) -> Stmt:
        match stmt:
            case LetStmt():
                inside = replace(path, lets={**path.lets, stmt.var: self.depends(stmt.value, path)})
                return replace(stmt, body=self.visit(stmt.body, inside))
            case IfThenElse():
                parts = tuple(split_conditions(stmt.condition))
                then = self.visit(stmt.then_case, replace(path, conditions=(*path.conditions, *parts)))
                if stmt.else_case is None:
                    return replace(stmt, then_case=then)
                otherwise = replace(path, conditions=(*path.conditions, E.Not(stmt.condition)))
                return replace(stmt, then_case=then, else_case=self.visit(stmt.else_case, otherwise))
            case For() | While():
                bounds = (stmt.start, stmt.extent) if isinstance(stmt, For) else (stmt.condition,)
                apart = path.apart.union(*(self.depends(e, path) for e in bounds))
                ranges = dict(path.ranges)
                if isinstance(stmt, For):
                    start, extent = const_int(stmt.start), const_int(stmt.extent)
                    if start is not None and extent is not None:
                        ranges[stmt.loop_var] = start, extent
                return replace(stmt, body=self.visit(stmt.body, replace(path, apart=apart, ranges=ranges)))
            case BufferStore():
                return self.store(stmt, path)
        return map_children(stmt, lambda c: self.visit(c, path) if isinstance(c, Stmt) else c)

    def depends(self, e: PrimExpr, path: _Path) -> frozenset[Var]:
        """The variables of threads that a value may depend on."""
        if any(isinstance(x, BufferLoad) and x.buffer.scope == "local" for x in preorder(e)):
            return frozenset(a.var for a in self.threads)  # what a thread has is its own
        return frozenset(v for x in free_vars(e) for v in path.lets.get(x, (x,)))

    def store(self, stmt: BufferStore, path: _Path) -> Stmt:
        is_shared = stmt.buffer.scope.startswith("shared")
        used = {v for i in stmt.indices for v in free_vars(i)}
        if used & path.lets.keys() or not (is_shared or stmt.buffer in self.outside) or added(stmt) is not None:
            return stmt
        others = [a for a in self.threads if a.var not in used]
        if any(isinstance(x, BufferLoad) and x.buffer.scope.startswith("wmma") for x in preorder(stmt.value)):
            others = [a for a in others if a.tag != "threadIdx.x"]
        adds_up = any(isinstance(x, BufferLoad) and x.buffer is stmt.buffer for x in preorder(stmt.value))
        if is_shared and adds_up and len(others) < len(self.threads):
            self.require_own_elements(stmt, used)
        others = [a for a in others if not self.is_alone(a, path)]
        if any(a.var in free_vars(stmt.value) for a in others):
            raise CodegenError(
                f"several threads may write values of their own to one element of '{stmt.buffer.name}'",
                hint="combine them by a reduction with start values, or let a condition choose one thread",
            )
        first = {a: self.first(a, path) for a in others}
        if adds_up and None in first.values():
            raise CodegenError(
                f"several threads may add up to one element of '{stmt.buffer.name}', under a condition of theirs",
                hint="let the condition choose one thread, as in `if tx == 0:`",
            )
        chosen = [E.compare(E.EQ, a.var, E.const(n, a.var.dtype)) for a, n in first.items() if n is not None]
        return IfThenElse(all_of(*chosen), stmt) if chosen else stmt

    def about(self, axis: ThreadAxis, path: _Path) -> list[PrimExpr]:
        """The conditions around that may differ along an axis."""
        return [c for c in path.conditions if axis.var in self.depends(c, path)]

    def is_alone(self, axis: ThreadAxis, path: _Path) -> bool:
        """Whether conditions around let one thread through along an axis."""
        a = Analyzer(path.ranges)
        for c in self.about(axis, path):
            a.assume(c)
        low, high = a.bound(axis.var)
        return low is not None and low == high

    def first(self, axis: ThreadAxis, path: _Path) -> int | None:
        """The first thread along an axis that comes there; None if it may depend on more than the axis."""
        if axis.var in path.apart:
            return None
        conditions, known = self.about(axis, path), Analyzer()
        for n in range(axis.extent if conditions else 1):
            here = {axis.var: E.const(n, axis.var.dtype)}
            values = [const_int(known.simplify(substitute(c, here))) for c in conditions]
            if None in values:
                return None
            if all(values):
                return n
        return None

    def require_own_elements(self, store: BufferStore, used: set[Var]) -> None:
        """Refuse a sum in which threads may meet at one element of shared memory."""
        variables = {v: self.extents[v] for v in used if v in self.extents}
        if not is_injective(store.indices, variables, Analyzer({v: (0, n) for v, n in variables.items()})):
            raise CodegenError(
                f"several threads may add up to one element of the shared buffer '{store.buffer.name}'",
                hint="set_scope before compute_at, so that it computes what all threads need, and bind its loops",
            )


def _name(tag: str) -> str:
    kind, axis = tag.split(".")
    return _NAMES[kind] + axis


def _bound(stmt: Stmt, axes: Mapping[str, ThreadAxis], around: Mapping[str, int] = FrozenDict()) -> Stmt:
    """The statement with axes for bound loops. around: how many threads of each axis come to it."""
    if isinstance(stmt, For) and stmt.thread in axes:
        axis, extent = axes[stmt.thread], const_int(stmt.extent)
        if uses(stmt.body, {axis.var}):
            raise CodegenError(
                f"a statement depends on two loops, one inside of the other, that are bound to {stmt.thread}",
                hint='one of them is to have another axis, or what is copied is to be needed by all threads ("shared")',
            )
        if extent is not None and extent > around.get(stmt.thread, extent):
            raise CodegenError(
                f"the loop '{stmt.loop_var.name}' gives work to {extent} threads along {stmt.thread} and stands in a "
                f"loop that {around[stmt.thread]} of them run",
                hint="split it by the number of these, or compute_at its block above that loop",
            )
        value: PrimExpr = E.add(E.cast(stmt.loop_var.dtype, axis.var), stmt.start)
        inside = around if extent is None else {**around, stmt.thread: extent}
        body = _bound(substitute(stmt.body, {stmt.loop_var: value}), axes, inside)
        if extent == axis.extent or axis.size is not None:
            return body
        return IfThenElse(E.compare(E.LT, axis.var, E.cast(axis.var.dtype, stmt.extent)), body)
    return map_children(stmt, lambda c: _bound(c, axes, around) if isinstance(c, Stmt) else c)
