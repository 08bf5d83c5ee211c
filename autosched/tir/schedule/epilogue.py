"""fuse_reduction_epilogue: a sum starts from what is added to it."""

from __future__ import annotations

from dataclasses import replace

from autosched.errors import ScheduleError
from autosched.ir.node import preorder
from autosched.tir import expr as E
from autosched.tir.buffer import BufferLoad
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import rewrite, substitute
from autosched.tir.schedule.check import require_complete, require_not_output, require_reduction
from autosched.tir.schedule.inline import inverse_of_read, with_regions
from autosched.tir.schedule.place import where_block
from autosched.tir.schedule.tree import Tree
from autosched.tir.stmt import BufferStore


def fuse_reduction_epilogue(tree: Tree, reduction: str, epilogue: str) -> Tree:
    """Start a sum from what an element-wise block adds to it, and take that block away.

    T[i] (init 0) += A[i, k];  D[i] = T[i] + C[i]   ->   D[i] (init C[i]) += A[i, k]
    """
    require_reduction(tree, reduction, "fuse_reduction_epilogue")
    require_complete(tree, epilogue, "fuse_reduction_epilogue")
    require_not_output(tree, reduction, "fuse_reduction_epilogue")
    where = where_block(tree, epilogue)
    block, tail = tree.block(reduction), tree.block(epilogue)
    update, init, store = block.body, block.init, tail.body
    if not all(isinstance(s, BufferStore) for s in (update, init, store)):
        raise ScheduleError("fuse_reduction_epilogue: each block must be one store", where=where)
    assert isinstance(update, BufferStore) and isinstance(init, BufferStore) and isinstance(store, BufferStore)
    if tree.consumers(reduction) != [epilogue]:
        raise ScheduleError(f"fuse_reduction_epilogue: '{epilogue}' is not the only reader of the sum", where=where)
    late = [p for p in tree.producers(epilogue) if p != reduction and tree.position(p) > tree.position(reduction)]
    if late:
        raise ScheduleError(f"fuse_reduction_epilogue: '{late[0]}' computes what is added after the sum", where=where)
    kind = type(update.value)
    if kind not in (E.Add, E.Max, E.Min) or type(store.value) is not kind:
        raise ScheduleError(
            "fuse_reduction_epilogue: the tail must combine the result as the reduction does (a sum plus a bias)",
            where=where,
        )
    assert isinstance(store.value, E.BinaryOp)
    sides = (store.value.a, store.value.b)
    own = [s for s in sides if isinstance(s, BufferLoad) and s.buffer is update.buffer]
    rest = [s for s in sides if not any(s is o for o in own)]
    uses = [x for x in preorder(store.value) if isinstance(x, BufferLoad) and x.buffer is update.buffer]
    if len(own) != 1 or len(rest) != 1 or len(uses) != 1:
        raise ScheduleError("fuse_reduction_epilogue: the tail must use the result once, as an operand", where=where)
    at = inverse_of_read(tree, epilogue, update.buffer)
    placed: dict[Var, PrimExpr] = {v: i for v, i in zip(at, init.indices, strict=True) if v is not None}
    placed |= {iv.var: iv.dom.min for iv in tail.iter_vars if iv.var not in placed}
    added = substitute(rest[0], placed)
    neutral = isinstance(init.value, E.IntImm | E.FloatImm) and (init.value.value == 0 if kind is E.Add else False)
    start = added if neutral else kind(init.value, added)
    target = tuple(substitute(i, placed) for i in store.indices)

    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer is update.buffer:
            return BufferLoad(store.buffer, target)
        return x

    body = BufferStore(store.buffer, rewrite(update.value, step), target)
    changed = with_regions(replace(block, body=body, init=BufferStore(store.buffer, start, target)))
    realize = tree.realizes[reduction]
    tree = tree.replace(realize, replace(realize, block=changed))
    return tree.replace(tree.realizes[epilogue], None).drop_unused_buffers()
