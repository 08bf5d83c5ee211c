"""What the default makes of a call's arguments: which it writes, which of these it only writes, what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.own.compare import close_places, compare_arrays, compare_values, equal_places, same_bytes
from autosched.own.memory import Memory
from autosched.task import Status
from autosched.tuner.measure.base import CandidateError

PATTERNS = (0xFF, 0xA5)  # NaN for floats and -1 for integers; a tiny float and a large integer


@dataclass(frozen=True, slots=True)
class Expected:
    """What a run has to leave.

    arrays    per array of the arguments, in the order of `Memory.views`, its contents; None: as they were
    returned  the value that it returns
    start     per block the bytes that a run begins with: poison where only results are written
    is_reset  per block whether a second run needs the bytes of the beginning: it reads what the first has changed
    """

    arrays: tuple[np.ndarray | None, ...]
    returned: object
    start: tuple[np.ndarray, ...]
    is_reset: tuple[bool, ...]


def find_expected(call: Callable[..., object], memory: Memory, shares: Sequence[float], *, is_probed: bool) -> Expected:
    """Run the default on copies and see what it does.

    shares     of each array's largest value that rounding may change
    is_probed  whether arguments may be filled with patterns: not after a run that this has ended
    """
    return _Finder(call, memory, shares).find(is_probed)


class _Finder:
    def __init__(self, call: Callable[..., object], memory: Memory, shares: Sequence[float]):
        self.call, self.memory, self.shares = call, memory, shares
        self.set = memory.first
        self.start = [np.array(block) for block in memory.contents]
        self.after: list[np.ndarray] = []
        self.returned: object = None

    def find(self, is_probed: bool) -> Expected:
        memory = self.memory
        self.returned = self._run()
        self.after = [array.copy() for array in self.set.arrays]
        if is_probed and not self._agrees_but(-1, self._run()):
            raise CandidateError(Status.WRONG_RESULT, "two calls with equal arguments give different results")
        written = [not same_bytes(a, b) for a, b in zip(self.after, memory.originals, strict=True)]
        pure = [False] * len(written)
        for i, array in enumerate(self.set.arrays):
            if is_probed and array.flags.writeable and array.size and not self._is_shared(i):
                written[i] = written[i] or self._is_rewritten(i)
                pure[i] = written[i] and self._poison_where_pure(i)
        reset = [False] * len(self.start)
        for view, is_written, is_pure in zip(memory.views, written, pure, strict=True):
            reset[view.block] |= is_written and not is_pure
        arrays = tuple(a if w else None for a, w in zip(self.after, written, strict=True))
        return Expected(arrays, self.returned, tuple(self.start), tuple(reset))

    def _run(self, i: int = -1, values: np.ndarray | None = None) -> object:
        """One run from the beginning, with other values in array `i`."""
        self.set.fill(self.memory.contents)
        if values is not None:
            self.set.arrays[i][...] = values
        return freeze(self.call(*self.set.values))

    def _is_shared(self, i: int) -> bool:
        """Whether another argument is a view of the same block: no pattern is good for one of them alone."""
        block = self.memory.views[i].block
        return sum(view.block == block for view in self.memory.views) > 1

    def _is_rewritten(self, i: int) -> bool:
        """Whether an array that was left as it was is set to that whatever was there: an output that held its result.

        It begins with its own values in reverse order, which are as good as indices as they were before.
        """
        after = self.after[i]
        turned = after[tuple(slice(None, None, -1) for _ in after.shape)].copy()
        if same_bytes(turned, after):
            turned = _filled(after, PATTERNS[0] if after.dtype.kind in "fc" else 0)
        if same_bytes(turned, after):
            return False
        self._run(i, turned)
        return not same_bytes(self.set.arrays[i], turned)

    def _poison_where_pure(self, i: int) -> bool:
        """Let an array begin with poison where the default writes whatever was there; whether it reads none of it.

        Such a place has the same result after two patterns; one that keeps both patterns is never touched.
        """
        results, fills = [], [_filled(self.after[i], pattern) for pattern in PATTERNS]
        for fill in fills:
            returned = self._run(i, fill)
            if not self._agrees_but(i, returned):
                return False
            results.append(self.set.arrays[i].copy())
        kept = equal_places(results[0], fills[0]) & equal_places(results[1], fills[1])
        close = [close_places(result, self.after[i], self.shares[i]) for result in results]
        is_result = close[0] & close[1] & ~kept
        if not bool((is_result | kept).all()):
            return False
        self.memory.views[i].of(self.start)[is_result] = fills[0][is_result]
        return True

    def _agrees_but(self, i: int, returned: object) -> bool:
        """Whether all but array `i` is as after the first run."""
        share = max(self.shares, default=0.0)
        verdicts = [
            compare_arrays("", found, expected, share)
            for n, (found, expected) in enumerate(zip(self.set.arrays, self.after, strict=True))
            if n != i
        ]
        verdicts.append(compare_values("", returned, self.returned, share))
        return all(verdict.status is Status.OK for verdict in verdicts)


def freeze(value: Any) -> object:
    """A returned value that later runs do not change."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (tuple, list):
        return type(value)(freeze(part) for part in value)
    return value


def _filled(like: np.ndarray, pattern: int) -> np.ndarray:
    """An array of the same shape and dtype whose bytes are all the pattern; booleans are all True, or all False."""
    if like.dtype.kind == "b":
        return np.full(like.shape, pattern == PATTERNS[0])
    block = np.full(like.size * like.dtype.itemsize, pattern, np.uint8)
    return block.view(like.dtype).reshape(like.shape)
