"""Names that do not repeat, as TVM numbers them: lv, lv1, lv2 …"""

from __future__ import annotations

from collections.abc import Iterable


class UniqueNames:
    """Gives each name once, then with a number behind it."""

    def __init__(self, taken: Iterable[str] = ()):
        self.taken = set(taken)
        self._next: dict[str, int] = {}

    def __call__(self, name: str) -> str:
        if name not in self.taken:
            self.taken.add(name)
            return name
        base = name.rstrip("0123456789") or name
        n = self._next.get(base, 1)
        while f"{base}{n}" in self.taken:
            n += 1
        self._next[base] = n + 1
        self.taken.add(f"{base}{n}")
        return f"{base}{n}"
