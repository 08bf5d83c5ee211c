"""`Driver`: what running needs of a GPU. NVIDIA's driver has it (`core`), and so has the emulator, for tests.

Memory is known by addresses. All work goes to the driver's current stream, in order; what copies to or from host
memory has finished when it returns, everything else may still run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autosched.runtime.cuda.kernel import CudaKernel, Launch


class Memory(Protocol):
    """A block of device memory; it is given back when nothing holds it any more."""

    @property
    def address(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that a user's kernel is given: where there is a check of accesses, they have to stay in it.

    item_bytes  of one element
    """

    address: int
    size_bytes: int
    item_bytes: int = 1


class Driver(Protocol):
    """One device."""

    index: int
    name: str
    compute_capability: tuple[int, int]

    def attribute(self, name: str) -> int | None:
        """What the device is, by the names of `target.cuda_host`; None for what is not known of it."""

    def allocate(self, size_bytes: int) -> Memory:
        """Raises DeviceError that says what was asked for and what is free."""

    def free_bytes(self) -> tuple[int, int]:
        """(free, all) bytes of the device's memory."""

    def copy_in(self, to: int, data: np.ndarray) -> None:
        """Copy a row-major host array to an address."""

    def copy_out(self, data: np.ndarray, source: int) -> None:
        """Fill a row-major host array from an address, after all work before it."""

    def copy_on(self, to: int, source: int, size_bytes: int) -> None:
        """Copy within the device."""

    def fill(self, to: int, byte: int, size_bytes: int) -> None:
        """Set bytes."""

    def load(self, kernel: CudaKernel) -> tuple[object, ...]:
        """The entries of a kernel's launches. Raises DeviceError for machine code of other devices."""

    def launch(self, entry: object, launch: Launch, arguments: Sequence[int | np.generic | Region]) -> None:
        """Run an entry on addresses of its arguments and scratch; a user's kernel on regions, words and numbers."""

    def synchronize(self) -> None:
        """Wait for all work. Raises DeviceError for what has failed meanwhile."""

    def record(self) -> Any:
        """Mark this point of the stream."""

    def seconds_between(self, first: object, last: object) -> float:
        """Wait for the later mark and give the time between both on the device."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What launches all that `work` launches at once (a CUDA graph); None where there is no such thing."""

    def capture_parts(self, works: Sequence[Callable[[], None]]) -> Callable[[], list[float]]:
        """What launches all that these launch at once, waits, and gives the seconds that each took on the device."""

    def on_stream(self, stream: object) -> contextlib.AbstractContextManager[None]:
        """Use a caller's stream meanwhile: a handle, or an object with `__cuda_stream__` or `cuda_stream`.

        Its work comes after what was given to the device before, and before what is given to it afterwards.
        """

    def stream_handle(self) -> int:
        """The current stream as the array interface and DLPack name it: 1 is the default stream."""
