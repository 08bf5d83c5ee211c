"""Shared expressions as let bindings: a value that Python code uses again and again is computed once.

    x = a + b;  y = x * x   ->   (let shared_0 = a + b in shared_0 * shared_0)

In Python a shared value is one node below many parents; written out as a tree, `x = x + x` sixty times has 2^60
leaves. Bound to variables it is as long as the Python code that made it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from autosched.ir.node import children, map_children
from autosched.tir import expr as E
from autosched.tir.axis import Reduce
from autosched.tir.buffer import BufferLoad, ProducerLoad
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import rewrite
from autosched.tir.stmt import BufferStore, Stmt

S = TypeVar("S", bound=Stmt)
# Below this a value stays a tree: proofs of bounds read through it, and LLVM finds what is common. Transforms of
# Winograd have some thousand nodes; what grows with every use passes any limit soon.
MOST_AS_TREE = 32_768
_LEAVES = (Var, E.IntImm, E.FloatImm, E.StringImm, BufferLoad, ProducerLoad, Reduce)


def bind_shared(value: PrimExpr, limit: int = MOST_AS_TREE) -> PrimExpr:
    """The value with what it shares bound to variables, if it has more than `limit` nodes as a tree; else as it is.

    A value that only the branches of if_then_else use is bound inside of each: it may read where others must not.
    """
    if isinstance(value, Reduce):
        return replace(value, source=tuple(bind_shared(s, limit) for s in value.source))
    return _bound(value, {}) if _is_larger(value, limit) else value


def bind_shared_values(stmt: S) -> S:
    """A statement with what its stores share bound; the stored element itself, of an update, is read outside."""

    def step(x: object) -> object:
        return replace(x, value=_bind_update(x)) if isinstance(x, BufferStore) and _is_larger(x.value) else x

    return rewrite(stmt, step)


def _bind_update(store: BufferStore) -> PrimExpr:
    value = store.value
    if isinstance(value, E.BinaryOp):
        a, b = (isinstance(x, BufferLoad) and x.buffer is store.buffer for x in (value.a, value.b))
        if a != b:
            return replace(value, a=value.a if a else bind_shared(value.a), b=value.b if b else bind_shared(value.b))
    return bind_shared(value)


def _is_larger(value: PrimExpr, limit: int = MOST_AS_TREE) -> bool:
    """Whether a value has more than `limit` nodes, loads as one each; no more than that are looked at."""
    stack, count = [value], 0
    while stack and count <= limit:
        x = stack.pop()
        count += 1
        stack += _parts(x)
    return count > limit


def _parts(x: Any) -> list[Any]:
    return [] if isinstance(x, _LEAVES) else children(x)


def _here(x: object) -> Iterable[Any]:
    """The parts of an operation that are evaluated whenever it is."""
    if isinstance(x, E.Call) and x.op == "if_then_else":
        return x.args[:1]
    return () if isinstance(x, E.Let) else _parts(x)


def _bound(root: PrimExpr, outer: Mapping[int, Var]) -> PrimExpr:
    """An expression with what is evaluated whenever it is, and used twice in it, bound around it.

    outer  variables that nodes are bound to already, by id
    """
    order = list(_distinct(root, outer, _parts))
    parents = Counter(id(child) for x in order for child in _parts(x))
    own = {id(x) for x in _distinct(root, outer, _here)}
    variables, made, lets = dict(outer), dict[int, PrimExpr](), []

    def part(x: Any) -> Any:
        if id(x) in variables:
            return variables[id(x)]
        if id(x) not in made and not isinstance(x, _LEAVES):
            made[id(x)] = _bound(x, variables)
        return made.get(id(x), x)

    for x in order:
        if isinstance(x, _LEAVES) or id(x) not in own:
            continue
        new = made[id(x)] = map_children(x, part)
        if parents[id(x)] > 1 and x is not root:
            variables[id(x)] = Var(f"shared_{len(variables)}", x.dtype)
            lets.append((variables[id(x)], new))
    result = made.get(id(root), root)
    for var, value in reversed(lets):
        result = E.Let(var, value, result)
    return result


def _distinct(root: PrimExpr, outer: Mapping[int, Var], parts: Callable[[Any], Iterable[Any]]) -> Iterable[Any]:
    """The nodes below an expression that `outer` does not bind, each once, behind its parts."""
    done: set[int] = set()
    stack: list[object] = [root]
    while stack:
        top = stack[-1]
        missing = [] if id(top) in done else [x for x in parts(top) if id(x) not in done and id(x) not in outer]
        if missing:
            stack += missing
            continue
        stack.pop()
        if id(top) not in done:
            done.add(id(top))
            yield top
