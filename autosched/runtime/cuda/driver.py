"""`Driver`: what running needs of a GPU. NVIDIA's driver has it (`core`), and so has the emulator, for tests.

Memory is known by addresses. All work goes to the driver's current stream, in order; what copies to or from host
memory has finished when it returns, everything else may still run.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from autosched.errors import DeviceError
from autosched.runtime.cuda.kernel import CudaKernel, Launch
from autosched.target.cuda_host import cuda_capability


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

    def load(self, kernel: CudaKernel) -> tuple[Any, ...]:
        """The entries of a kernel's launches. Raises DeviceError for machine code of other devices."""

    def launch(self, entry: Any, launch: Launch, arguments: Sequence[int | np.generic | Region]) -> None:
        """Run an entry on addresses of its arguments and scratch; a user's kernel on regions, words and numbers."""

    def synchronize(self) -> None:
        """Wait for all work. Raises DeviceError for what has failed meanwhile."""

    def record(self) -> Any:
        """Mark this point of the stream."""

    def seconds_between(self, first: Any, last: Any) -> float:
        """Wait for the later mark and give the time between both on the device."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """What launches all that `work` launches at once (a CUDA graph); None where there is no such thing."""

    def on_stream(self, stream: Any) -> contextlib.AbstractContextManager[None]:
        """Use a caller's stream meanwhile: a handle, or an object with `__cuda_stream__` or `cuda_stream`.

        Its work comes after what was given to the device before, and before what is given to it afterwards.
        """

    def stream_handle(self) -> int:
        """The current stream as the array interface and DLPack name it: 1 is the default stream."""


_lock = threading.Lock()
_drivers: dict[int, Driver] = {}
_makers: list[Callable[[int], Driver]] = []  # the last one is asked; empty: NVIDIA's driver


def driver_of(index: int) -> Driver:
    """The driver of a device, by its number.

    Raises DeviceError where there is no driver or no such device.
    """
    with _lock:
        if index not in _drivers:
            if _makers:
                _drivers[index] = _makers[-1](index)
            else:
                from autosched.runtime.cuda.core import CoreDriver

                _drivers[index] = CoreDriver(index)
        return _drivers[index]


@contextlib.contextmanager
def use_driver(make: Callable[[int], Driver]) -> Iterator[None]:
    """Let another implementation stand for the devices meanwhile: `make` gives the driver of a number."""
    kept = dict(_drivers)
    with _lock:
        _makers.append(make)
        _drivers.clear()
    try:
        yield
    finally:
        with _lock:
            _makers.remove(make)
            _drivers.clear()
            _drivers.update(kept)


def is_replaced() -> bool:
    """Whether another implementation stands for the devices now."""
    return bool(_makers)


def first_capability() -> tuple[int, int] | None:
    """The compute capability of the first device; None where there is none. Nothing but the driver is asked."""
    return driver_of(0).compute_capability if is_replaced() else cuda_capability(0)


_CUBIN, _PTX = re.compile(r"sm_(\d+)(\d)([af]?)"), re.compile(r"compute_(\d+)(\d)([af]?)")


def choose_image(images: Mapping[str, bytes], capability: tuple[int, int]) -> str | None:
    """The best of a kernel's images for a device: machine code of its own, of its family, then the newest PTX.

    Machine code runs on later chips of the same major number; with the suffix "a" on its own chip alone, with "f" on
    its family. None where nothing runs.
    """
    major, minor = capability
    ranked: list[tuple[tuple[int, int, int], str]] = []
    for arch in images:
        if found := _CUBIN.fullmatch(arch):
            its, suffix = (int(found[1]), int(found[2])), found[3]
            if its == capability or (its[0] == major and its[1] < minor and suffix != "a"):
                ranked.append(((2, its[1], 1 if suffix else 0), arch))
        elif (found := _PTX.fullmatch(arch)) and (int(found[1]), int(found[2])) <= capability:
            its, suffix = (int(found[1]), int(found[2])), found[3]
            if not suffix or its == capability:
                ranked.append(((1, its[0] * 10 + its[1], 1 if suffix else 0), arch))
    return max(ranked)[1] if ranked else None


CANNOT_RUN = 1 << 20


def device_rank(kernels: Iterable[Sequence[str]]) -> tuple[int, int]:
    """How well code for these architectures suits the first device: less is better, and less than 0 what runs.

    kernels  of each the architectures that it has code for
    """
    capability = first_capability()
    if capability is None:
        return CANNOT_RUN, 0
    chosen = [choose_image(dict.fromkeys(archs, b""), capability) for archs in kernels]
    if not all(chosen):
        return CANNOT_RUN, 0
    n_exact = sum(str(arch).startswith(f"sm_{capability[0]}{capability[1]}") for arch in chosen)
    return -1 - (n_exact == len(chosen)), -sum(str(arch).endswith(("a", "f")) for arch in chosen)


def image_for(kernel: CudaKernel, device: str, capability: tuple[int, int]) -> tuple[str, bytes]:
    """(architecture, image) of a kernel for a device.

    Raises DeviceError naming what the kernel was built for.
    """
    chosen = choose_image(dict.fromkeys(kernel.archs, b""), capability)
    if chosen is None:
        here = f"sm_{capability[0]}{capability[1]}"
        raise DeviceError(
            f"kernel '{kernel.name}' was built for {', '.join(kernel.archs) or 'nothing'}, "
            f"and {device} has compute capability {capability[0]}.{capability[1]}",
            hint=f"build it for the target 'cuda -arch={here}'",
        )
    return chosen, kernel.images[chosen] if chosen in kernel.images else kernel.ptx.encode()
