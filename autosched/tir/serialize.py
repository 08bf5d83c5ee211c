"""PrimFuncs as JSON: what an artifact carries so that another machine can build its kernels again.

The document is a list of nodes, children before parents, each `[class, {field: value}]`; a node that occurs twice
is stored once, so identity survives. Reading makes only the classes named here and runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autosched.errors import InvalidValueError
from autosched.ir.node import FrozenDict, Node, form_fields
from autosched.tir import axis, buffer, expr, function, stmt

CLASSES: Mapping[str, type] = {
    name: kind
    for module in (expr, buffer, axis, stmt, function)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Node) and kind not in (Node, buffer.ProducerLoad)
}


class _Writer:
    def __init__(self) -> None:
        self.index: dict[int, int] = {}
        self.nodes: list[list[object]] = []
        self.keep: list[Node] = []  # an id is only unique while its object lives

    def value(self, x: object) -> object:
        if isinstance(x, stmt.LoopKind):
            return x.word
        if isinstance(x, Node):
            return {"node": self.node(x)}
        if isinstance(x, tuple | list):
            return {"tuple": [self.value(v) for v in x]}
        if isinstance(x, Mapping):
            return {"map": [[self.value(k), self.value(v)] for k, v in x.items()]}
        if x is None or isinstance(x, bool | int | float | str):
            return x
        raise InvalidValueError(f"cannot store a {type(x).__name__} as JSON")

    def node(self, x: Node) -> int:
        if id(x) not in self.index:
            fields = {name: self.value(getattr(x, name)) for name, _ in form_fields(type(x))}
            self.nodes.append([type(x).__name__, fields])
            self.keep.append(x)
            self.index[id(x)] = len(self.nodes) - 1
        return self.index[id(x)]


def to_json(func: function.PrimFunc) -> str:
    """The function as JSON text."""
    writer = _Writer()
    writer.node(func)
    return json.dumps(writer.nodes, separators=(",", ":"))


def _read(x: object, nodes: list[object]) -> Any:
    if not isinstance(x, dict):
        return x
    if "node" in x:
        return nodes[x["node"]]
    if "tuple" in x:
        return tuple(_read(v, nodes) for v in x["tuple"])
    return FrozenDict({_read(k, nodes): _read(v, nodes) for k, v in x["map"]})


def from_json(text: str) -> function.PrimFunc:
    """Read what `to_json` wrote. Raises ValueError for anything else."""
    nodes: list[object] = []
    try:
        for name, fields in json.loads(text):
            values = {key: _read(value, nodes) for key, value in fields.items()}
            if "kind" in values and name == "For":
                values["kind"] = stmt.LoopKind(values["kind"])
            nodes.append(CLASSES[name](**values))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidValueError(f"not a stored function: {type(error).__name__} {error}") from None
    if not nodes or not isinstance(nodes[-1], function.PrimFunc):
        raise InvalidValueError("not a stored function: it does not end with one")
    return nodes[-1]
