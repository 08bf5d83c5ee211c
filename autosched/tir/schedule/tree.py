"""A function under a schedule: its statements indexed by loop variable and block name, and edits that keep the rest.

Loops are known by their variable and blocks by their name: both are unique in a function and survive rebuilding the
nodes above and below, so a reference never has to be repaired after an edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property

from autosched.errors import ScheduleError
from autosched.tir.buffer import Buffer
from autosched.tir.expr import IntImm, PrimExpr, Var, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.simplify import Analyzer
from autosched.tir.stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)  # fmt: skip


def nothing() -> Stmt:
    """A statement that does nothing; a new one each time, since a tree holds each statement once."""
    return Evaluate(IntImm(0))


def child_stmts(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly below one; a block's init is not entered (it holds no loops of the schedule)."""
    match stmt:
        case For() | While() | LetStmt() | Allocate() | AssertStmt():
            return (stmt.body,)
        case SeqStmt():
            return stmt.seq
        case BlockRealize():
            return (stmt.block.body,)
        case IfThenElse():
            return (stmt.then_case,) if stmt.else_case is None else (stmt.then_case, stmt.else_case)
        case _:
            return ()


def with_children(stmt: Stmt, new: tuple[Stmt, ...]) -> Stmt:
    """`stmt` around other children (as many as it has; a sequence may have any number)."""
    match stmt:
        case For(loop_var=var, start=start, extent=extent, kind=kind, thread=thread, annotations=notes, span=span):
            return For(var, start, extent, kind, new[0], thread, notes, span)
        case SeqStmt():
            return seq(*new)
        case BlockRealize(iter_values=values, predicate=predicate, block=block):
            return BlockRealize(values, predicate, replace(block, body=new[0]))
        case IfThenElse():
            return replace(stmt, then_case=new[0], else_case=new[1] if len(new) > 1 else None)
        case _:
            return replace(stmt, body=new[0])  # type: ignore[type-var]


def rewrite_stmts(stmt: Stmt, f: Callable[[Stmt], Stmt], *, into_blocks: bool = False) -> Stmt:
    """Rebuild statements bottom-up, not expressions; the bodies of blocks only with `into_blocks`."""
    if isinstance(stmt, BlockRealize) and not into_blocks:
        return f(stmt)
    old = child_stmts(stmt)
    new = tuple([rewrite_stmts(s, f, into_blocks=into_blocks) for s in old])
    same = all(a is b for a, b in zip(old, new, strict=True))
    return f(stmt if same else with_children(stmt, new))


def realizes_below(stmt: Stmt) -> Iterator[BlockRealize]:
    """The blocks at or below a statement in program order, those inside of other blocks not included."""
    if isinstance(stmt, BlockRealize):
        yield stmt
        return
    for s in child_stmts(stmt):
        yield from realizes_below(s)


def all_realizes(stmt: Stmt) -> Iterator[BlockRealize]:
    """All blocks at or below a statement, parents first."""
    if isinstance(stmt, BlockRealize):
        yield stmt
    for s in child_stmts(stmt):
        yield from all_realizes(s)


class Tree:
    """A PrimFunc with an index of its loops and blocks. Immutable: edits return a new Tree.

    loops      loop variable -> For
    realizes   block name -> BlockRealize, in program order, "root" included
    parents    statement -> the statement around it

    draws_errors  whether messages about it show the function
    """

    def __init__(self, func: PrimFunc, *, draws_errors: bool = False):
        self.func = func
        self.draws_errors = draws_errors
        self.loops: dict[Var, For] = {}
        self.realizes: dict[str, BlockRealize] = {}
        self.parents: dict[Stmt, Stmt] = {}
        if not isinstance(func.body, BlockRealize):
            raise ScheduleError("the function has no root block", hint="lowered functions cannot be scheduled")
        self._index(func.body)

    def _index(self, root: Stmt) -> None:
        stack = [root]
        while stack:
            stmt = stack.pop()
            if isinstance(stmt, For):
                self.loops[stmt.loop_var] = stmt
            elif isinstance(stmt, BlockRealize):
                self.realizes[stmt.block.name_hint] = stmt
            below = child_stmts(stmt)
            for s in below:
                self.parents[s] = stmt
            stack.extend(reversed(below))

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def root(self) -> BlockRealize:
        assert isinstance(self.func.body, BlockRealize)
        return self.func.body

    def block(self, name: str) -> Block:
        return self.realizes[name].block

    def ancestors(self, stmt: Stmt) -> Iterator[Stmt]:
        """The statements around one, inner to outer."""
        while stmt in self.parents:
            stmt = self.parents[stmt]
            yield stmt

    def scope_of(self, stmt: Stmt) -> BlockRealize:
        """The nearest block around a statement (for the root block: itself)."""
        return next((s for s in self.ancestors(stmt) if isinstance(s, BlockRealize)), self.root)

    def loops_above(self, stmt: Stmt) -> list[For]:
        """The loops around a statement up to its scope, outer to inner."""
        found = []
        for s in self.ancestors(stmt):
            if isinstance(s, BlockRealize):
                break
            if isinstance(s, For):
                found.append(s)
        return found[::-1]

    def loops_of(self, block: str) -> list[For]:
        return self.loops_above(self.realizes[block])

    def is_below(self, stmt: Stmt, above: Stmt) -> bool:
        """Whether `stmt` lies at or below `above`."""
        return stmt is above or any(s is above for s in self.ancestors(stmt))

    def analyzer(self, stmt: Stmt) -> Analyzer:
        """Knows the ranges of all loops and blocks' variables around (and, for a loop, of itself); loops of one
        iteration stay visible."""
        analyzer = Analyzer(keep_units=True)
        for s in reversed(list(self.ancestors(stmt))):
            if isinstance(s, For):
                bind_loop(analyzer, s)
            elif isinstance(s, BlockRealize):
                for iv in s.block.iter_vars:
                    analyzer.bind(iv.var, iv.dom)
        if isinstance(stmt, For):
            bind_loop(analyzer, stmt)
        return analyzer

    @cached_property
    def leaf_names(self) -> list[str]:
        """The blocks that compute: all but the root and those around other blocks, in program order."""
        outer = {self.scope_of(r).block.name_hint for n, r in self.realizes.items() if n != self.root.block.name_hint}
        return [n for n in self.realizes if n not in outer and n != self.root.block.name_hint]

    def seen_from(self, scope: BlockRealize) -> Tree:
        """The tree in which each block directly inside of `scope` counts as one that computes, whatever is in it."""
        inside = list(realizes_below(scope.block.body))
        if all(r.block.name_hint in self.leaf_names for r in inside):
            return self
        view = copy(self)
        for name in ("writers", "readers"):
            view.__dict__.pop(name, None)
        hidden = {n.block.name_hint for r in inside for n in all_realizes(r.block.body)}
        shown = {*self.leaf_names, *(r.block.name_hint for r in inside)} - hidden
        view.leaf_names = [n for n in self.realizes if n in shown]
        return view

    @cached_property
    def writers(self) -> dict[Buffer, list[str]]:
        """Buffer -> the computing blocks that write it, in program order."""
        return self._users(lambda block: [w.buffer for w in block.writes])

    @cached_property
    def readers(self) -> dict[Buffer, list[str]]:
        return self._users(lambda block: [r.buffer for r in block.reads])

    def _users(self, buffers: Callable[[Block], Iterable[Buffer]]) -> dict[Buffer, list[str]]:
        table: dict[Buffer, list[str]] = {}
        for name in self.leaf_names:
            for b in dict.fromkeys(buffers(self.block(name))):
                table.setdefault(b, []).append(name)
        return table

    def producers(self, block: str) -> list[str]:
        """The blocks that write what `block` reads, in program order."""
        read = {r.buffer for r in self.block(block).reads}
        found = {w for b in read for w in self.writers.get(b, ())} - {block}
        return [n for n in self.leaf_names if n in found]

    def consumers(self, block: str) -> list[str]:
        written = {w.buffer for w in self.block(block).writes}
        found = {r for b in written for r in self.readers.get(b, ())} - {block}
        return [n for n in self.leaf_names if n in found]

    def position(self, block: str) -> int:
        return self.leaf_names.index(block)

    @cached_property
    def interface(self) -> frozenset[Buffer]:
        return frozenset(self.func.buffers)

    def unique_block_name(self, name: str) -> str:
        unique, n = name, 0
        while unique in self.realizes:
            n += 1
            unique = f"{name}_{n}"
        return unique

    def unique_buffer_name(self, name: str) -> str:
        taken = {b.name for b in self.func.buffers} | {
            b.name for r in self.realizes.values() for b in r.block.alloc_buffers
        }
        unique, n = name, 0
        while unique in taken:
            n += 1
            unique = f"{name}_{n}"
        return unique

    # --- editing --------------------------------------------------------------------------------------------------

    def with_root(self, root: Stmt) -> Tree:
        return self.with_func(self.func.with_body(root))

    def with_func(self, func: PrimFunc) -> Tree:
        """The tree of another function, with this one's settings."""
        return Tree(func, draws_errors=self.draws_errors)

    def replace(self, old: Stmt, new: Stmt | None) -> Tree:
        """The tree with one statement replaced, or taken away (with what becomes empty around it) where
        `new` is None."""
        while old in self.parents:
            parent = self.parents[old]
            old, new = parent, _put(parent, old, new)
        assert new is not None
        return self.with_root(new)

    def merge(self, name: str, into: Mapping[str, Block]) -> Tree:
        """The tree with the blocks `into` as given, and without the block `name` and its buffer: no other reads it."""
        now: dict[Stmt, Stmt | None] = {}  # what became of statements
        for n in (*into, name):  # a sequence may end with what is taken away
            realize = self.realizes[n]
            old: Stmt = realize
            made: Stmt | None = None if n == name else replace(realize, block=into[n])
            while old in self.parents:
                parent = self.parents[old]
                around, inner = now.get(parent) or parent, now.get(old) or old
                now[old] = made
                old, made = parent, _put(around, inner, made)
            now[old] = made
        root = now[self.root]
        assert isinstance(root, BlockRealize), "the root stays"
        gone = {w.buffer for w in self.block(name).writes}
        kept = tuple(b for b in root.block.alloc_buffers if b not in gone)
        return self.with_root(replace(root, block=replace(root.block, alloc_buffers=kept)))

    def map_root(self, f: Callable[[Block], Block]) -> Tree:
        """The tree with another root block node."""
        return self.with_root(replace(self.root, block=f(self.root.block)))

    def add_buffers(self, *buffers: Buffer) -> Tree:
        return self.map_root(lambda root: replace(root, alloc_buffers=root.alloc_buffers + buffers))

    def drop_unused_buffers(self) -> Tree:
        """Without the root's allocations that no block uses any more."""
        used = self.readers.keys() | self.writers.keys()
        kept = tuple(b for b in self.root.block.alloc_buffers if b in used)
        if len(kept) == len(self.root.block.alloc_buffers):
            return self
        return self.map_root(lambda root: replace(root, alloc_buffers=kept))


def _put(parent: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    below = child_stmts(parent)
    if new is None and isinstance(parent, SeqStmt):
        kept = tuple(s for s in below if s is not old)
        return seq(*kept) if kept else None
    if new is None and isinstance(parent, IfThenElse) and len(below) == 2:
        return with_children(parent, tuple(nothing() if s is old else s for s in below))
    if new is None and not isinstance(parent, BlockRealize):
        return None
    return with_children(parent, tuple((new or nothing()) if s is old else s for s in below))


def bind_loop(analyzer: Analyzer, loop: For) -> None:
    """Tell an analyzer a loop's range."""
    if isinstance(loop.start, IntImm) and isinstance(loop.extent, IntImm):
        analyzer.bounds[loop.loop_var] = (loop.start.value, loop.start.value + loop.extent.value - 1)
        return
    low, (_, high) = analyzer.bound(loop.start), analyzer.bound(loop.extent)
    analyzer.bounds[loop.loop_var] = (low[0], None if high is None or low[1] is None else low[1] + high - 1)
    if const_int(loop.start) == 0 and not isinstance(loop.extent, IntImm):
        analyzer.below[loop.loop_var] = loop.extent


def simplify_values(analyzer: Analyzer, values: Iterable[PrimExpr]) -> tuple[PrimExpr, ...]:
    return tuple([analyzer.simplify(v) for v in values])


def unique_names(func: PrimFunc) -> PrimFunc:
    """The function with block names made unique (x, x_1, …): a schedule knows blocks by name."""
    names: set[str] = set()
    repeated = False
    for r in all_realizes(func.body):
        repeated |= r.block.name_hint in names
        names.add(r.block.name_hint)
    if not repeated:
        return func
    seen: set[str] = set()

    def rename(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, BlockRealize):
            return stmt
        name, n = stmt.block.name_hint, 0
        while name in seen or (n and name in names):
            n += 1
            name = f"{stmt.block.name_hint}_{n}"
        seen.add(name)
        return stmt if name == stmt.block.name_hint else replace(stmt, block=replace(stmt.block, name_hint=name))

    return func.with_body(rewrite_stmts(func.body, rename, into_blocks=True))
