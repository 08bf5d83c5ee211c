"""Names of variables in the text: legal, and unique among those that are visible."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from autosched.ir.node import Node

_ILLEGAL = re.compile(r"\W")


def legal(hint: str) -> str:
    """A Python identifier as near to `hint` as possible: `fc1.weight` becomes `fc1_weight`."""
    name = _ILLEGAL.sub("_", hint)
    if not name or name[0].isdigit():
        name = f"v_{name}"
    return f"{name}_" if keyword.iskeyword(name) else name


class Names:
    """Which node has which name, in nested frames: what a frame defined is free again after it."""

    def __init__(self, reserved: Iterable[str] = ()):
        self._taken = set(reserved)
        self._names: dict[int, str] = {}
        self._frames: list[list[Node]] = [[]]

    def reserve(self, name: str) -> None:
        """Keep a name from being given to anything."""
        self._taken.add(name)

    def find(self, node: Node) -> str | None:
        """The node's name, or None where it has none yet."""
        return self._names.get(id(node))

    def define(self, node: Node, hint: str, *, outermost: bool = False) -> str:
        """Name a node for as long as the current (or the outermost) frame lasts."""
        if (known := self.find(node)) is not None:
            return known
        base = legal(hint)
        name, n = base, 0
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._taken.add(name)
        self._names[id(node)] = name
        self._frames[0 if outermost else -1].append(node)
        return name

    @contextmanager
    def frame(self) -> Iterator[None]:
        """A scope: the names defined inside end with it."""
        self._frames.append([])
        try:
            yield
        finally:
            for node in self._frames.pop():
                self._taken.discard(self._names.pop(id(node)))
