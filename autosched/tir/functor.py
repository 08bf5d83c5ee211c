"""Visitors and rewrites of the loop level, built on the generic ones of `ir.node`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from autosched.ir.node import Node, PerType, form_fields, map_children, preorder
from autosched.tir.buffer import Buffer, BufferLoad
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.stmt import Block, BufferStore

N = TypeVar("N", bound=Node)


def rewrite(node: N, f: Callable[[Node], object]) -> N:
    """Rebuild bottom-up: `f` sees each node after its children and returns it or its replacement.

    A buffer is a leaf: its shape is not entered, since rebuilding it would lose its identity. A scalar expression that
    is shared is rebuilt once and stays shared, so what `f` makes of it must not depend on where it stands.
    """
    made: dict[int, object] = {}

    def visit(x: Node) -> object:
        if not x.is_scalar:
            return f(x if isinstance(x, Buffer) else map_children(x, visit))
        new = made.get(id(x))
        if new is None:
            new = made[id(x)] = f(map_children(x, visit))
        return new

    return visit(node)  # type: ignore[return-value]


def rewrite_down(node: N, f: Callable[[Node], object]) -> N:
    """Rebuild top-down: where `f` returns a node, it stands (its children are not visited); on None, descend.

    A scalar expression that is shared is rebuilt once and stays shared.
    """
    made: dict[int, object] = {}

    def visit(x: Node) -> object:
        known = made.get(id(x)) if x.is_scalar else None
        if known is not None:
            return known
        new = f(x)
        if new is None:
            new = x if isinstance(x, Buffer) else map_children(x, visit)
        if x.is_scalar:
            made[id(x)] = new
        return new

    return visit(node)  # type: ignore[return-value]


def substitute(node: N, values: Mapping[Var, PrimExpr]) -> N:
    """Replace variables by expressions, folding constants on the way."""
    if not values:
        return node
    from autosched.tir.simplify import fold

    def step(x: object) -> object:
        if isinstance(x, Var):
            return values.get(x, x)
        return fold(x) if isinstance(x, PrimExpr) else x

    return rewrite(node, step)


def replace_buffers(node: N, buffers: Mapping[Buffer, Buffer]) -> N:
    """Replace buffers in loads, stores, regions and allocations."""

    def step(x: object) -> object:
        if isinstance(x, Buffer):
            return buffers.get(x, x)
        return x

    return rewrite(node, step) if buffers else node


def free_vars(expr: Node) -> set[Var]:
    """All variables that occur in an expression (or, bound ones included, in a statement)."""
    return {expr} if isinstance(expr, Var) else {x for x in preorder(expr) if isinstance(x, Var)}


def uses(node: Node, variables: set[Var] | frozenset[Var]) -> bool:
    """Whether one of the variables occurs below `node`."""
    return any(isinstance(x, Var) and x in variables for x in preorder(node))


def loads(node: Node) -> list[BufferLoad]:
    return [x for x in preorder(node) if isinstance(x, BufferLoad)]


def stores(node: Node) -> list[BufferStore]:
    return [x for x in statements(node) if isinstance(x, BufferStore)]


def _statement_fields(kind: type) -> tuple[str, ...]:
    """The fields of a node type that hold statements, by their declared types."""
    declared = {f.name: str(f.type) for f in dataclasses.fields(kind)}
    return tuple(name for name, _ in form_fields(kind) if "Stmt" in declared[name] or declared[name] == "Block")


_STATEMENT_FIELDS = PerType(_statement_fields)


def statements(node: Node) -> Iterator[Node]:
    """The node and all statements below it, parents first."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        for name in reversed(_STATEMENT_FIELDS[type(top)]):
            value = getattr(top, name)
            if isinstance(value, tuple):
                stack.extend(reversed(value))
            elif value is not None:
                stack.append(value)


def blocks(node: Node) -> list[Block]:
    """All blocks at or below `node`, parents first."""
    return [x for x in statements(node) if isinstance(x, Block)]


__all__ = [
    "blocks", "free_vars", "loads", "replace_buffers", "rewrite", "rewrite_down", "stores",
    "statements", "substitute", "uses",
]  # fmt: skip
