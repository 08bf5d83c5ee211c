"""TVM's visitors of statements, and rewrites by functions of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import Node, children, map_children
from autosched.tir import construct
from autosched.tir import functor as F
from autosched.tir.buffer import Buffer
from autosched.tir.expr import PrimExpr, Var, to_expr
from autosched.tir.function import PrimFunc
from autosched.tir.stmt import Evaluate, Stmt

Visit = Callable[[Any], object]


def _node(what: str, x: object) -> Node:
    if not isinstance(x, Node):
        raise InvalidTypeError(f"{what}: argument 'stmt' is a {type(x).__name__}, expected a statement or expression")
    return x


def _body(x: Node) -> Node:
    return x.body if isinstance(x, PrimFunc) else x


def post_order_visit(stmt: object, fvisit: Visit) -> None:
    """Call `fvisit` on everything at and below a statement or expression, children first; each node once."""
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if id(node) in seen or isinstance(node, Buffer):
            return
        for child in children(node):
            visit(child)
        seen.add(id(node))
        fvisit(node)

    visit(_body(_node("post_order_visit", stmt)))


def pre_order_visit(stmt: object, fvisit: Callable[[object], bool]) -> None:
    """Call `fvisit` on nodes, parents first; where it returns False, what lies below is left out.

    A shared expression is visited once.
    """
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if isinstance(node, Buffer) or id(node) in seen:
            return
        if isinstance(node, PrimExpr):
            seen.add(id(node))
        if fvisit(node) is False:
            return
        for child in children(node):
            visit(child)

    visit(_body(_node("pre_order_visit", stmt)))


def ir_transform(
    stmt: object, preorder: Visit | None, postorder: Visit | None, only_enable: Sequence[str] | None = None
) -> Any:
    """Rewrite a statement.

    preorder     called before a node's children: where it returns a node, that stands and is not entered
    postorder    called after them: it returns the replacement, or None to keep the node
    only_enable  names of the nodes that the two are called on, as "tir.For"; None: all statements and expressions
    Raises       ValueError for a name that no node has
    """
    kinds = None if only_enable is None else tuple(_kind(name) for name in only_enable)
    made: dict[int, object] = {}  # a shared expression is rebuilt once

    def visit(node: Node) -> object:
        if not isinstance(node, PrimExpr):
            return node if isinstance(node, Buffer) else changed(node)
        if id(node) not in made:
            made[id(node)] = changed(node)
        return made[id(node)]

    def changed(node: Node) -> object:
        asked = isinstance(node, Stmt | PrimExpr) if kinds is None else isinstance(node, kinds)
        if asked and preorder is not None and (found := preorder(node)) is not None:
            return _statement(node, found)
        new = map_children(node, visit)
        if asked and postorder is not None and (found := postorder(new)) is not None:
            return _statement(node, found)
        return new

    return visit(_node("ir_transform", stmt))


def _statement(old: object, new: object) -> object:
    return Evaluate(new) if isinstance(old, Stmt) and isinstance(new, PrimExpr) else new


def _kind(name: str) -> type:
    short = str(name).split(".")[-1]
    if short not in construct.CONSTRUCTORS:
        raise InvalidValueError(f"ir_transform: there is no node '{name}'", hint="names are such as 'tir.For'")
    return construct.CONSTRUCTORS[short].real


def substitute(node: object, vmap: Mapping[Var, object] | Mapping[Buffer, object]) -> Node:
    """Replace variables (or buffers) by expressions; numbers take the variable's dtype."""
    for key in vmap:
        if not isinstance(key, Var | Buffer):
            raise InvalidTypeError(f"substitute: a key of vmap is a {type(key).__name__}, expected a Var or a Buffer")
    buffers: dict[Any, Any] = {k: v for k, v in vmap.items() if isinstance(k, Buffer)}
    values = {k: to_expr(v, k.dtype) for k, v in vmap.items() if isinstance(k, Var)}
    return F.substitute(F.replace_buffers(_node("substitute", node), buffers), values)


def renew_defs(func: PrimFunc) -> PrimFunc:
    """A copy whose variables and buffers are new ones."""
    from autosched.tir.serialize import from_json, to_json

    copy = from_json(to_json(func))
    assert isinstance(copy, PrimFunc)
    return copy
