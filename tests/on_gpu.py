"""`pytest -p tests.on_gpu`: kernels that tests run on the emulator run on the first GPU, and so do emulated devices.

Tests of what the emulator alone sees (accesses, planted faults) are skipped, and kernels for other devices are.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import pytest

from autosched.codegen.cuda import emulate
from autosched.codegen.cuda.emulate import driver, kernel
from autosched.errors import DeviceError
from autosched.runtime.cuda.core import CoreDriver
from autosched.runtime.cuda.kernel import CudaKernel, choose_image
from autosched.runtime.faults import Faults

_drivers: list[CoreDriver] = []  # of this process


def device() -> CoreDriver:
    """The first device."""
    if not _drivers:
        _drivers.append(CoreDriver(0))
    return _drivers[0]


def run_kernel(kernel: CudaKernel, arrays: Sequence[np.ndarray], *, traces: Sequence[object] = (), **_: object) -> None:
    """What `emulate.run_kernel` does, on the GPU. What lies between launches begins as NaNs here too."""
    gpu = device()
    if traces:
        pytest.skip("looks at the emulator's traces")
    if choose_image(dict.fromkeys(kernel.archs, b""), gpu.compute_capability) is None:
        pytest.skip(f"is for {', '.join(kernel.archs)}")
    assert len(arrays) == len(kernel.args)
    places = {id(array): gpu.allocate(array.nbytes) for array in arrays}
    for array in arrays:
        gpu.copy_in(places[id(array)].address, np.ascontiguousarray(array))
    scratch = gpu.allocate(max(kernel.scratch_bytes, 1))
    gpu.fill(scratch.address, 0xFF, kernel.scratch_bytes)
    faults = Faults([(kernel.name, kernel)])
    words = gpu.allocate(faults.words.nbytes or 1)
    gpu.fill(words.address, 0, faults.words.nbytes)
    given = [*(places[id(array)].address for array in arrays), scratch.address]
    given += [words.address] if faults else []
    for entry, launch in zip(gpu.load(kernel), kernel.launches, strict=True):
        gpu.launch(entry, launch, [*given, *kernel.size_arguments])
    gpu.synchronize()
    for array in arrays:
        found = np.empty(array.shape, array.dtype)
        gpu.copy_out(found, places[id(array)].address)
        array[...] = found
    if faults:
        gpu.copy_out(faults.words, words.address)
    faults.check()


def no_launch(*_: object, **__: object) -> None:
    """In place of one emulated launch of a text, which no GPU takes."""
    pytest.skip("runs on the emulator alone")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Planted faults are for the emulator: on a device they damage what comes after them."""
    for item in items:
        function = getattr(item, "function", None)
        is_emulated = item.get_closest_marker("emulated") is not None
        if is_emulated or (function is not None and "EmulationError" in inspect.getsource(function)):
            item.add_marker(pytest.mark.skip(reason="is of emulated devices alone"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):  # type: ignore[no-untyped-def]
    """An error of the device ends what runs in this process: nothing after it would be right."""
    try:
        return (yield)
    except DeviceError as error:
        if "not its own" in str(error):
            pytest.exit(f"{item.nodeid}: {error}", 3)
        raise


kernel.run_kernel = emulate.run_kernel = run_kernel  # type: ignore[assignment]
kernel.run_launch = emulate.run_launch = no_launch  # type: ignore[assignment]
driver.EmulatorDriver = emulate.EmulatorDriver = CoreDriver  # type: ignore[assignment, misc]
