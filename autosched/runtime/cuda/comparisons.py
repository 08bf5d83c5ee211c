"""Comparing arrays where they are: on the device, which gives the host nothing but numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autosched.runtime.cuda.driver import Driver, Memory
from autosched.runtime.cuda.kernel import MOST_ELEMENTS, CudaKernel
from autosched.runtime.kernel import ArgSpec

THREADS, MOST_BLOCKS = 256, 256  # of a block, and of a launch
_BOUND_BYTES = 16
WORD = "word"  # four bytes, compared bit by bit
# What `codegen.cuda.comparisons` has an entry for, in their order: words, and floats against float64.
KINDS = (WORD, "float16", "bfloat16", "float32", "float64")


class Comparisons:
    """Counts in which places arrays on a device differ.

    kernel  as `codegen.cuda.comparisons.compile_comparisons` has made it
    """

    def __init__(self, driver: Driver, kernel: CudaKernel):
        self.driver, self._kernel = driver, kernel
        self._memory: Memory = driver.allocate(_BOUND_BYTES + 8)  # the bound, whether NaN is unknown, the count

    @staticmethod
    def can_count(size: int) -> bool:
        """Whether arrays may have so many elements."""
        return 0 < size < MOST_ELEMENTS

    def n_different(self, found: int, expected: int, n_words: int) -> int:
        """How many words of 4 bytes at two addresses are not the same."""
        return self._count(WORD, found, expected, n_words, 0.0, False)

    def n_wrong(self, dtype: str, found: int, expected: int, size: int, bound: float, *, is_part: bool) -> int:
        """How many floats at an address are not as those of float64 at another one.

        bound    the largest difference that is allowed; infinities are to be the same, and so is NaN
        is_part  NaN says instead that the value is not known: any finite one may be there
        """
        return self._count(dtype, found, expected, size, bound, is_part)

    def _count(self, kind: str, found: int, expected: int, size: int, bound: float, is_part: bool) -> int:
        assert self.can_count(size), "asked before"
        blocks = min(MOST_BLOCKS, -(-size // THREADS))
        kernel, number = kernel_at(self._kernel, kind, size, blocks), KINDS.index(kind)
        self.driver.copy_in(self._memory.address, np.array([bound, float(is_part), 0.0]))
        entries, count_at = self.driver.load(kernel), self._memory.address + _BOUND_BYTES
        addresses = [found, expected, self._memory.address, count_at, 0]
        self.driver.launch(entries[number], kernel.launches[number], [*addresses, *kernel.size_arguments])
        count = np.empty(1, np.int32)
        self.driver.copy_out(count, count_at)
        return int(count[0])


_STORED: Mapping[str, str] = {WORD: "int32"}


def kernel_at(kernel: CudaKernel, kind: str, size: int, blocks: int) -> CudaKernel:
    """The kernel for arrays of so many elements of a kind, as the emulator has to know them."""
    found, expected = (_STORED.get(kind, kind), "int32" if kind == WORD else "float64")
    threads = THREADS * blocks
    args = (
        ArgSpec("found", "input", found, (size,)),
        ArgSpec("expected", "input", expected, (size,)),
        ArgSpec("limits", "input", "float64", (2,)),
        ArgSpec("count", "output", "int32", (1,)),
    )
    launches = tuple(replace(launch, grid=(blocks, 1, 1)) for launch in kernel.launches)
    return replace(kernel, args=args, launches=launches, numbers=(size, threads))
