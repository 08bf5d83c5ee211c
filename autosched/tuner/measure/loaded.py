"""A kernel in memory, with its arguments, ready to be called many times by the native loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from autosched.runtime import native_abi as abi
from autosched.runtime.cpu.kernel import as_cpu
from autosched.runtime.faults import Faults
from autosched.runtime.kernel import Kernel
from autosched.runtime.loader import load_objects
from autosched.runtime.pool import ThreadPool
from autosched.tuner.measure.memory import GuardedArray


class Placed(Protocol):
    """Something with an array whose memory stays where it is."""

    @property
    def array(self) -> np.ndarray: ...


class LoadedKernel:
    """One kernel with one or more sets of arguments, which its calls use in turn.

    sets     per set the arrays in the order of the kernel's arguments
    threads  that the pieces of a phase are divided over
    Raises ArtifactError if the object code cannot be loaded, MemoryError if there is no room for its scratch.
    """

    def __init__(self, kernel: Kernel, sets: Sequence[Sequence[Placed]], pool: ThreadPool, threads: int):
        self.kernel, self.threads, self.sets = as_cpu(kernel), threads, sets
        self._pool = pool
        self.scratch = GuardedArray((max(self.kernel.scratch_size(threads), 64),), "uint8")
        addresses, scratch = load_objects([self.kernel]), int(self.scratch.array.ctypes.data)
        self.faults = Faults([(kernel.name, kernel)])
        ends = [scratch, self.faults.address(0)]
        self._slots = np.array([[*(int(a.array.ctypes.data) for a in arrays), *ends] for arrays in sets], np.int64)
        first, step = int(self._slots.ctypes.data), self._slots.strides[0]
        rows = [
            (addresses[phase.symbol], first + number * step, phase.n_tasks, threads)
            for number in range(len(sets))
            for phase in self.kernel.phases
        ]
        self._table = np.array(rows, np.int64).reshape(len(rows), abi.ROW_WORDS)
        self._next = 0  # the set that the next call uses
        if threads > 1:
            pool.ensure(threads)

    def run(self, number: int = 1) -> None:
        """Call the kernel `number` times."""
        n_sets = len(self.sets)
        if n_sets == 1:
            return self._call(0, 1, number)
        while number > 0:
            laps = number // n_sets if self._next == 0 else 0
            count = n_sets if laps else min(number, n_sets - self._next)
            self._call(self._next, count, max(laps, 1))
            self._next = (self._next + count) % n_sets
            number -= count * max(laps, 1)

    def _call(self, first: int, count: int, times: int) -> None:
        n_phases = len(self.kernel.phases)
        address = int(self._table.ctypes.data) + first * n_phases * self._table.strides[0]
        self._pool.run(address, count * n_phases, self._pool.address, self.threads, times, 0)
        self.faults.check()
