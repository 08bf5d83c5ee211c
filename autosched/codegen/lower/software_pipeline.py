"""Lets a loop copy what later iterations need while it computes: TVM's annotations of software pipelines.

    software_pipeline_stage         for each statement of the loop's body, how many iterations it runs behind
    software_pipeline_order         the order of the statements in the new body (without: as they stand)
    software_pipeline_async_stages  stages whose copies from device to shared memory are asynchronous

Before:  for k in 8: (A_shared[…] = A[k]), (… A_shared[…])                                    with stages [0, 2]
After:   for k in 10:
             cp_async_wait(1)
             if k < 8: A_shared[k % 3, …] = A[k], asynchronously
             cp_async_commit()
             if k >= 2: … A_shared[(k - 2) % 3, …]
Every buffer has as many versions as there are iterations between its writer and its last reader, and one more. One
barrier an iteration is enough.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence, Set

from autosched.codegen.lower.instructions import COMMIT, COPY, COPY_BYTES, WAIT
from autosched.codegen.lower.loops import guarded
from autosched.codegen.lower.shared_memory import constant_strides, is_shared
from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict, map_children, preorder
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import Call, FloatImm, IntImm, PrimExpr, Var, all_of, const_int
from autosched.tir.functor import free_vars, rewrite, substitute
from autosched.tir.simplify import Analyzer, split_conditions
from autosched.tir.stmt import Allocate, BufferStore, Evaluate, For, IfThenElse, LoopKind, SeqStmt, Stmt, seq

STAGE, ORDER, ASYNC = "software_pipeline_stage", "software_pipeline_order", "software_pipeline_async_stages"
ROLLED = "rolled"  # the annotation of a loop that stays one: several iterations at once would hold too many registers


def pipeline_loops(stmt: Stmt, item_bytes: Mapping[str, int], can_wait: bool = True) -> Stmt:
    """The statement with annotated loops as pipelines; without `can_wait` all copies are done at once.

    Raises CodegenError for annotations that do not fit.
    """
    new = map_children(stmt, lambda c: pipeline_loops(c, item_bytes, can_wait) if isinstance(c, Stmt) else c)
    if isinstance(new, For) and STAGE in new.annotations:
        return _pipelined(new, item_bytes, can_wait)
    return new


def _pipelined(loop: For, item_bytes: Mapping[str, int], can_wait: bool) -> Stmt:
    count = loop.extent
    buffers: list[Buffer] = []
    body = loop.body
    while isinstance(body, Allocate):
        buffers.append(body.buffer)
        body = body.body
    parts = body.seq if isinstance(body, SeqStmt) else (body,)
    stages = [int(x) for x in loop.annotations[STAGE]]
    order = [int(x) for x in loop.annotations.get(ORDER, range(len(stages)))]
    if len(parts) > len(stages) > 0:  # loops of one iteration are gone: what was inside of the last statement
        parts = (*parts[: len(stages) - 1], seq(*parts[len(stages) - 1 :]))
    asynchronous = {int(x) for x in loop.annotations.get(ASYNC, ())} if can_wait else set()
    if len(stages) != len(parts) or sorted(order) != list(range(len(parts))) or min(stages) != 0:
        raise CodegenError(
            f"the pipeline of loop '{loop.loop_var.name}' has stages {stages} in the order {order} for "
            f"{len(parts)} statements",
            hint="give each statement of the loop's body a stage from 0 and a place of its own",
        )
    if const_int(loop.start) != 0 or any(isinstance(x, BufferLoad) for x in preorder(count)):
        raise CodegenError(f"the pipelined loop '{loop.loop_var.name}' does not begin at 0, or ends where data say")
    _check_order(loop, parts, stages, order, {b for b in buffers if is_shared(b)})
    last = max(stages)
    versions = {b: n for b in buffers if is_shared(b) and (n := _versions(b, parts, stages)) > 1}
    wide = {b: _with_versions(b, n) for b, n in versions.items()}
    var = loop.loop_var
    waits = [s - a for a in asynchronous for s in stages if s > a]
    landing: set[Buffer] = set()
    new: list[Stmt] = [_evaluate(WAIT, min(waits) - 1)] if waits else []
    arranged = sorted(range(len(parts)), key=lambda i: order[i])
    to_commit = {i for i in arranged if stages[i] in asynchronous}
    for i in arranged:
        stage = stages[i]
        at = E.sub(var, stage) if stage else var
        part = _versioned(parts[i], wide, versions, var)
        if i in to_commit:
            others = [p for p, s in zip(parts, stages, strict=True) if s == stage]
            now = frozenset(wide.get(b, b) for b in _stored(parts[i]) if any(_uses(p, b, BufferLoad) for p in others))
            part = _asynchronous(part, item_bytes, now)
            copied = (x.args[0] for x in preorder(part) if isinstance(x, Call) and x.op == COPY)
            landing |= {x.buffer for x in copied if isinstance(x, BufferLoad)}
        part = substitute(part, {var: at}) if stage else part
        limits = []
        if stage:
            limits.append(E.compare(E.GE, var, E.const(stage, var.dtype)))
        if stage < last:
            limits.append(E.compare(E.LT, var, E.add(count, stage)))
        new.append(guarded(all_of(*limits), part) if limits else part)
        to_commit.discard(i)
        if not to_commit and stage in asynchronous:
            new.append(_evaluate(COMMIT))
    notes = {k: v for k, v in loop.annotations.items() if k not in (STAGE, ORDER, ASYNC)} | {ROLLED: True}
    extent = E.add(count, last)
    result: Stmt = dataclasses.replace(loop, extent=extent, body=seq(*new), annotations=FrozenDict(notes))
    for buffer in reversed(buffers):
        result = Allocate(wide.get(buffer, buffer), result)
    if landing - {wide.get(b, b) for b in buffers if any(_uses(p, b, BufferLoad) for p in parts)}:
        return seq(result, _evaluate(WAIT, 0))  # what follows reads it, or has its bytes
    return result


def _check_order(
    loop: For, parts: Sequence[Stmt], stages: Sequence[int], order: Sequence[int], versioned: Set[Buffer]
) -> None:
    """Refuse stages and orders by which a statement reads other values than it reads in the loop as it stands."""
    places = list(zip(stages, order, strict=True))
    for i, later in enumerate(parts):
        for j, earlier in enumerate(parts[:i]):
            shared = {b for b in _stored(earlier) if _uses(later, b, BufferLoad)}
            if shared and places[j] > places[i]:
                raise CodegenError(
                    f"the pipeline of loop '{loop.loop_var.name}' reads '{_name(shared)}' before it is written"
                )
            shared |= {b for b in _stored(later) if _uses(earlier, b, BufferLoad) or b in _stored(earlier)}
            if stages[j] != stages[i] and shared - versioned:
                raise CodegenError(
                    f"statements in two stages of the pipeline of loop '{loop.loop_var.name}' use "
                    f"'{_name(shared - versioned)}', which has no versions",
                    hint='only buffers of scope "shared" that each iteration writes anew have versions',
                )
            if shared and places[j] > places[i]:
                raise CodegenError(
                    f"the pipeline of loop '{loop.loop_var.name}' writes '{_name(shared)}' before it is read"
                )


def _stored(stmt: Stmt) -> set[Buffer]:
    return {n.buffer for n in preorder(stmt) if isinstance(n, BufferStore)}


def _name(buffers: Set[Buffer]) -> str:
    return min(b.name for b in buffers)


def _evaluate(op: str, *numbers: int) -> Stmt:
    return Evaluate(Call(op, tuple(IntImm(n) for n in numbers), "handle"))


def _versions(buffer: Buffer, parts: Sequence[Stmt], stages: Sequence[int]) -> int:
    """How many iterations' contents of a buffer there are at one time."""
    written = [s for p, s in zip(parts, stages, strict=True) if _uses(p, buffer, BufferStore)]
    read = [s for p, s in zip(parts, stages, strict=True) if _uses(p, buffer, BufferLoad)]
    if not written or not read:
        return 1
    if min(read) < max(written):
        raise CodegenError(f"the pipeline reads '{buffer.name}' before it is written")
    return max(read) - min(written) + 1


def _uses(stmt: Stmt, buffer: Buffer, kind: type[BufferLoad | BufferStore]) -> bool:
    return any(isinstance(n, kind) and n.buffer is buffer for n in preorder(stmt))


def _with_versions(buffer: Buffer, count: int) -> Buffer:
    dtype = buffer.shape[0].dtype
    strides: tuple[PrimExpr, ...] = ()
    if buffer.strides:
        sizes = [const_int(s) or 1 for s in buffer.shape]
        whole = max(n * s for n, s in zip(sizes, constant_strides(buffer), strict=True))
        strides = (IntImm(-(-whole // 16) * 16, dtype), *buffer.strides)
    return dataclasses.replace(buffer, shape=(IntImm(count, dtype), *buffer.shape), strides=strides)


def _versioned(stmt: Stmt, wide: Mapping[Buffer, Buffer], versions: Mapping[Buffer, int], var: Var) -> Stmt:
    def step(x: object) -> object:
        if isinstance(x, BufferLoad) and x.buffer in wide:
            return BufferLoad(wide[x.buffer], (E.floormod(var, versions[x.buffer]), *x.indices))
        if isinstance(x, BufferStore) and x.buffer in wide:
            return BufferStore(wide[x.buffer], x.value, (E.floormod(var, versions[x.buffer]), *x.indices))
        return x

    return rewrite(stmt, step)


# --- asynchronous copies ----------------------------------------------------------------------------------------------


def _asynchronous(stmt: Stmt, item_bytes: Mapping[str, int], now: Set[Buffer]) -> Stmt:
    """Copies of 4, 8 or 16 bytes from device to shared memory as asynchronous ones; others stay as they are.

    now   buffers that the same iteration reads
    """
    if isinstance(stmt, BufferStore | For) and _stored(stmt) & now:
        return stmt
    if isinstance(stmt, For) and stmt.kind == LoopKind.VECTORIZED:
        new = _copy(stmt, stmt.body, (), item_bytes)
        return stmt if new is None else new
    if isinstance(stmt, BufferStore):
        new = _copy(None, stmt, (), item_bytes)
        return stmt if new is None else new
    return map_children(stmt, lambda c: _asynchronous(c, item_bytes, now) if isinstance(c, Stmt) else c)


def _copy(
    lanes: For | None, body: Stmt, conditions: tuple[PrimExpr, ...], item_bytes: Mapping[str, int]
) -> Stmt | None:
    if isinstance(body, IfThenElse) and body.else_case is None:
        return _copy(lanes, body.then_case, (*conditions, *split_conditions(body.condition)), item_bytes)
    if not isinstance(body, BufferStore) or not is_shared(body.buffer):
        return None
    value: PrimExpr = body.value
    chosen: tuple[PrimExpr, ...] = ()
    if isinstance(value, Call) and value.op == "if_then_else" and _is_zero(value.args[2]):
        chosen, value = tuple(split_conditions(value.args[0])), value.args[1]
    if not isinstance(value, BufferLoad) or is_shared(value.buffer) or value.buffer.scope == "local":
        return None
    count = 1 if lanes is None else const_int(lanes.extent) or 0
    size = count * item_bytes[body.buffer.dtype]
    if size not in COPY_BYTES:
        return None
    first: Mapping[Var, PrimExpr] = {}
    if lanes is not None:
        v = lanes.loop_var
        first = {v: E.const(0, v.dtype)}
        if any(_step(x.buffer, x.indices, v, count) != 1 for x in (body, value)):
            return None
        narrowed = [_of_first_lane(c, v, count) for c in (*conditions, *chosen)]
        if any(c is None for c in narrowed):
            return None
        whole = [c for c in narrowed if c is not None]
        conditions, chosen = tuple(whole[: len(conditions)]), tuple(whole[len(conditions) :])
    target = BufferLoad(body.buffer, tuple(substitute(i, first) for i in body.indices))
    source = BufferLoad(value.buffer, tuple(substitute(i, first) for i in value.indices))
    condition = all_of(*chosen) if chosen else IntImm(1, "bool")
    copy: Stmt = Evaluate(Call(COPY, (target, source, IntImm(count), condition), "handle"))
    return guarded(all_of(*conditions), copy) if conditions else copy


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, FloatImm | IntImm) and e.value == 0


def _step(buffer: Buffer, indices: Sequence[PrimExpr], var: Var, count: int) -> int | None:
    """How many elements an access moves with each of so many values of a variable; None where that is no constant."""
    a = Analyzer({var: (0, count)})
    flat: PrimExpr = E.const(0, var.dtype)
    for index, stride in zip(indices, constant_strides(buffer), strict=True):
        flat = E.add(flat, E.mul(index, stride))
    total = 0
    for factor, atom in a.linear(flat).terms.values():
        if atom is var:
            total += factor
        elif var in free_vars(atom):
            return None
    return total


def _of_first_lane(condition: PrimExpr, var: Var, count: int) -> PrimExpr | None:
    """A condition of the first lane that says the same for all; None where it may part them."""
    from autosched.codegen.lower.tidy import difference

    if var not in free_vars(condition):
        return condition
    form = difference(condition, Analyzer())
    if form is None:
        return None
    factors = [c for c, atom in form.terms.values() if atom is not var]
    mine = next((c for c, atom in form.terms.values() if atom is var), 0)
    # v + rest <= 0 for all v below count exactly where rest <= 0, if rest is 1 more than a multiple of count
    if mine != 1 or any(var in free_vars(a) for _, a in form.terms.values() if a is not var):
        return None
    if math.gcd(form.const - 1, *factors) % count:
        return None
    return substitute(condition, {var: E.const(0, var.dtype)})
