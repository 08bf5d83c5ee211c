"""Which driver a device has: NVIDIA's, or another implementation that stands for the devices meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

from autosched.runtime.cuda.core import CoreDriver
from autosched.runtime.cuda.driver import Driver
from autosched.runtime.cuda.kernel import choose_image
from autosched.target.cuda_host import cuda_capability

_lock = threading.Lock()
_drivers: dict[int, Driver] = {}
_makers: list[Callable[[int], Driver]] = []  # the last one is asked; empty: NVIDIA's driver


def driver_of(index: int) -> Driver:
    """The driver of a device, by its number.

    Raises DeviceError where there is no driver or no such device.
    """
    with _lock:
        if index not in _drivers:
            _drivers[index] = (_makers[-1] if _makers else CoreDriver)(index)
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


def stand_in(index: int) -> Driver | None:
    """What stands for a device now; None where NVIDIA's driver is asked."""
    return driver_of(index) if is_replaced() else None


def first_capability() -> tuple[int, int] | None:
    """The compute capability of the first device; None where there is none. Nothing but the driver is asked."""
    return driver_of(0).compute_capability if is_replaced() else cuda_capability(0)


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
