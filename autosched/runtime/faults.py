"""What the checks of kernels found: words that kernels write, and the error that a run raises for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autosched.errors import AssertionFailedError, IndexOutOfRangeError
from autosched.runtime.graph import Node
from autosched.runtime.kernel import OPEN, Check, Kernel

WORDS = 2  # of each check: whether it failed, and the number that was out of range


def node_place(node: Node) -> str:
    """A node as messages name it."""
    names = node.origin.split(", ") if node.origin else [node.name]
    return f"node{'s' if len(names) > 1 else ''} {', '.join(repr(name) for name in names)}"


class Faults:
    """The words of the checks of some calls of kernels, each with the name of its node."""

    def __init__(self, calls: Sequence[tuple[str, Kernel]]):
        found = [(where, kernel, check) for where, kernel in calls for check in kernel.checks]
        self._where: list[tuple[str, Kernel, Check]] = found
        self._words = np.zeros((len(found), WORDS), np.int64)
        counts = [len(kernel.checks) for _, kernel in calls]
        self._first = [sum(counts[:i]) for i in range(len(calls))]

    def __bool__(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self._where)

    def offset(self, call: int) -> int:
        """Where a call's words begin, in bytes."""
        return int(self._first[call] * self._words.strides[0])

    def address(self, call: int) -> int:
        """The address of a call's words, which stay where they are."""
        return int(self._words.ctypes.data) + self.offset(call)

    @property
    def words(self) -> np.ndarray:
        """All words, row-major: those of a device are copied here before they are looked at."""
        return self._words

    def check(self) -> None:
        """Raise IndexOutOfRangeError (AssertionFailedError for T.Assert) for the first check that failed.

        It names the node. The words are cleared.
        """
        if not np.count_nonzero(self._words):
            return
        number = int(np.flatnonzero(self._words[:, 0])[0])
        value = int(self._words[number, 1])
        self._words[:] = 0
        where, kernel, check = self._where[number]
        if check.is_assert:
            raise AssertionFailedError(f"Assert fail: {check.what}", where=where)
        bounds = "" if check.high == OPEN else f" [{check.low}, {check.high})"
        text = f"{check.what}: index {value} is out of range{bounds}"
        if check.is_access:
            hint = f"kernel '{kernel.name}' with configuration {kernel.config or 'default'} stopped there"
        else:
            hint = 'give positions in range, or build with indices="clip"'
        raise IndexOutOfRangeError(text, where=where, hint=hint)
