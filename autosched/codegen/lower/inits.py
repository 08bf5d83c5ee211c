"""Places the start values of reductions: before the outermost reduction loop where that is right, else under a test.

Before:  for k: for j: C[j] = (init 0) C[j] + A[k, j]       After:  for j: C[j] = 0
                                                                    for k: for j: C[j] = C[j] + A[k, j]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from autosched.codegen.lower.loops import guarded
from autosched.ir.node import Node, children, map_children, preorder
from autosched.tir.axis import REDUCE
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import EQ as EQUAL
from autosched.tir.expr import PrimExpr, Var, all_of, compare
from autosched.tir.functor import free_vars, stores, substitute
from autosched.tir.simplify import split_conditions
from autosched.tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, LoopKind, SeqStmt, Stmt, seq


def lower_inits(body: BlockRealize) -> BlockRealize:
    """The root with no `init` in any block."""
    before: dict[int, list[Stmt]] = {}
    tested: set[int] = set()
    for path in _reductions(body, []):
        realize = path[-1]
        assert isinstance(realize, BlockRealize), "paths end at a block"
        at = _place(path)
        if at is None:
            tested.add(id(realize))
        else:
            before.setdefault(id(path[at]), []).append(_init_nest(path[at:-1], realize))
    if not before and not tested:
        return body
    return _rebuild(body, before, tested)  # type: ignore[return-value]


def _reductions(node: Node, path: list[Node]) -> Iterator[list[Node]]:
    here = [*path, node]
    if isinstance(node, BlockRealize) and node.block.init is not None:
        yield here
    for child in children(node):
        if isinstance(child, Stmt):
            yield from _reductions(child, here)


def _place(path: list[Node]) -> int | None:
    """The position in the path of the loop before which the start values can stand; None: nowhere."""
    realize = path[-1]
    assert isinstance(realize, BlockRealize), "paths end at a block"
    reduce_vars: set[Var] = set()
    spatial_vars: set[Var] = set()
    for iter_var, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (reduce_vars if iter_var.kind == REDUCE else spatial_vars).update(free_vars(value))
    for condition in split_conditions(realize.predicate):
        used = free_vars(condition)
        if used & reduce_vars and used - reduce_vars:
            return None
    if reduce_vars & spatial_vars:
        return None
    at = next((i for i, n in enumerate(path) if isinstance(n, For) and n.loop_var in reduce_vars), None)
    if at is None:  # no loop reduces: the start values stand right before the update
        return None
    between = path[at:-1]
    if not all(isinstance(n, For | SeqStmt) for n in between):
        return None
    if any(isinstance(n, For) and n.kind == LoopKind.PARALLEL for n in between):
        return None
    written = {s.buffer for s in stores(realize.block.body)}
    for parent, child in zip(between, path[at + 1 :], strict=True):
        siblings = parent.seq if isinstance(parent, SeqStmt) else ()
        if any(s is not child and _touches(s, written) for s in siblings):
            return None
    return at


def _touches(stmt: Stmt, buffers: set[Buffer]) -> bool:
    return any(isinstance(n, BufferLoad | BufferStore) and n.buffer in buffers for n in preorder(stmt))


def _init_nest(loops: list[Node], realize: BlockRealize) -> Stmt:
    block = realize.block
    assert block.init is not None, "only blocks with start values come here"
    values = {iv.var: v for iv, v in zip(block.iter_vars, realize.iter_values, strict=True)}
    spatial: set[Var] = set()
    reduced: set[Var] = set()
    for iter_var, value in zip(block.iter_vars, realize.iter_values, strict=True):
        (reduced if iter_var.kind == REDUCE else spatial).update(free_vars(value))
    conditions = [c for c in split_conditions(realize.predicate) if not free_vars(c) & reduced]
    spatial.update(v for c in conditions for v in free_vars(c))  # a loop may be bound nowhere but in a condition
    stmt = guarded(all_of(*conditions), substitute(block.init, values))
    for loop in reversed(loops):
        if isinstance(loop, For) and loop.loop_var in spatial:
            stmt = dataclasses.replace(loop, body=stmt)
    return stmt


def _rebuild(node: Stmt, before: dict[int, list[Stmt]], tested: set[int]) -> Stmt:
    new = map_children(node, lambda c: _rebuild(c, before, tested) if isinstance(c, Stmt) else c)
    if isinstance(new, BlockRealize) and new.block.init is not None:
        new = dataclasses.replace(new, block=_without_init(new.block, id(node) in tested))
    return seq(*before[id(node)], new) if id(node) in before else new


def _without_init(block: Block, tested: bool) -> Block:
    body = block.body
    if tested:
        assert block.init is not None, "only blocks with start values come here"
        at_start: list[PrimExpr] = [compare(EQUAL, iv.var, iv.dom.min) for iv in block.iter_vars if iv.kind == REDUCE]
        body = seq(_tested(all_of(*at_start), block.init), body)
    return dataclasses.replace(block, init=None, body=body)


def _tested(condition: PrimExpr, init: Stmt) -> Stmt:
    stmt = guarded(condition, init)
    return stmt if isinstance(stmt, IfThenElse) else init
