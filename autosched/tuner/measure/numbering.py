"""Short keys for objects, by identity."""

from __future__ import annotations

from typing import Any


class Numbering:
    """Gives each object a key of its own; holds the objects, so that no other gets the same identity."""

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._keys: dict[int, tuple[str, Any]] = {}

    def key(self, thing: Any) -> str:
        """Give the key of an object."""
        if id(thing) not in self._keys:
            self._keys[id(thing)] = f"{self._prefix}{len(self._keys)}", thing
        return self._keys[id(thing)][0]
