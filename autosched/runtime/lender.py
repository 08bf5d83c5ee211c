"""`Lender`: memory of arrays that are gone, for new ones: it is mapped already, so writing it takes no page faults.

A new page costs a quarter of a microsecond when it is first written, which is several times as long as writing it.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from autosched.runtime.memory import ALIGNMENT, empty_aligned, empty_block

LEAST_LENT = 1 << 16  # bytes: smaller arrays are new ones, whose memory the C library has at hand
MOST_SPARE = 2  # times what an array needs: a larger block is given back to the system
ROOM = 8  # a block in place of one that was too small has an eighth more, as sizes may grow one by one


class Lender:
    """Lends one block at a time or more to arrays, and keeps one of those that came back.

    A block comes back when no array, view or other library holds anything of it, in whatever thread that happens.
    """

    def __init__(self) -> None:
        self._idle: deque[np.ndarray] = deque(maxlen=1)  # its methods are atomic
        self._largest = 0

    def empty(self, shape: Sequence[int], dtype: str | np.dtype[np.generic]) -> np.ndarray:
        """Make a row-major array that begins at a multiple of 64 bytes; its contents are undefined.

        Raises OutOfMemoryError.
        """
        kind = np.dtype(dtype)
        size_bytes = math.prod(shape) * kind.itemsize
        if size_bytes < LEAST_LENT:
            return empty_aligned(shape, kind)
        block = self._block(size_bytes)
        # Arrays hold what they are made of as it is where that is no array. NumPy's stubs lack both ways of buffers.
        loan = (ctypes.c_char * len(block)).from_buffer(block)  # type: ignore[arg-type]
        weakref.finalize(loan, self._idle.append, block).atexit = False
        return np.ndarray(shape, kind, loan)  # type: ignore[arg-type]

    def _block(self, size_bytes: int) -> np.ndarray:
        try:
            block = self._idle.pop()
            if size_bytes <= len(block) <= MOST_SPARE * size_bytes:
                return block
        except IndexError:
            pass
        room = size_bytes // ROOM if 0 < self._largest < size_bytes else 0
        self._largest = max(self._largest, size_bytes)
        return empty_block(size_bytes + room)


class Copies:
    """Aligned copies of one row-major array, made again and again; small ones are cut out of one block.

    Asking for the address of each one's own block costs 1.5 us, the next part of an array 0.1. For one thread at a
    time. A copy keeps its block alive.
    """

    _BLOCK_BYTES, _MOST_BYTES, _LEAST_COPIES = 16384, 16384, 8

    def __init__(self, data: np.ndarray):
        self._data = data
        self._left: Iterator[np.ndarray] = iter(())
        self._lender = Lender()
        self._is_small, self._is_number = data.nbytes <= self._MOST_BYTES, not data.ndim

    def make(self) -> np.ndarray:
        """Give a copy of what the array holds now."""
        if not self._is_small:
            large = self.empty()
            np.copyto(large, self._data)
            return large
        result: np.ndarray | None = next(self._left, None)
        if result is None:
            self._left = self._parts()
            result = next(self._left)
        if self._is_number:
            result = result.reshape(())
        result[...] = self._data
        return result

    def empty(self) -> np.ndarray:
        """Give memory for a copy of a large array."""
        return self._lender.empty(self._data.shape, self._data.dtype)

    def _parts(self) -> Iterator[np.ndarray]:
        """Memory for several copies."""
        data = self._data
        shape, strides = (data.shape, data.strides) if data.ndim else ((1,), (data.itemsize,))
        step = max(data.nbytes + -data.nbytes % ALIGNMENT, ALIGNMENT)
        count = max(self._BLOCK_BYTES // step, self._LEAST_COPIES)
        block = empty_aligned((count * step,), "uint8")
        return iter(np.ndarray((count, *shape), data.dtype, block, 0, (step, *strides)))
