"""`Device`: where an array lies, as a type and a number."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from autosched.errors import InvalidTypeError, InvalidValueError, TVMError
from autosched.target.cuda_host import cuda_attribute, cuda_device_count, cuda_name, cuda_total_memory, cuda_version

if TYPE_CHECKING:
    from autosched.runtime.cuda.driver import Driver

RPC_SESS_MASK = 128  # a remote device's type is its own plus this, times the session's number
CPU, CUDA = 1, 2

_NAMES = {
    **dict.fromkeys(("cpu", "llvm", "stackvm", "c", "hybrid", "composite"), CPU),
    **dict.fromkeys(("cuda", "nvptx"), CUDA),
    **dict.fromkeys(("opencl", "cl", "sdaccel"), 4),
    **{"vulkan": 7, "metal": 8, "vpi": 9, "rocm": 10, "ext_dev": 12, "hexagon": 14, "webgpu": 15},
}
_NAME_OF = {code: name for name, code in reversed(list(_NAMES.items()))}  # of several names the first


@dataclass(frozen=True, slots=True)
class Device:
    """A handle on a device; it can be made without the hardware.

    device_type  DLPack's code: cpu 1, cuda 2, …
    device_id    the number of the device among those of its type
    """

    device_type: int
    device_id: int = 0

    def __str__(self) -> str:
        code = self.device_type
        remote = f"remote[{code // RPC_SESS_MASK - 1}]:" if code >= RPC_SESS_MASK else ""
        name = _NAME_OF.get(code % RPC_SESS_MASK, f"device{code}")
        return f"{remote}{name}:{self.device_id}"

    __repr__ = __str__

    @property
    def type(self) -> str:
        """The name of the type, such as "cpu"."""
        return _NAME_OF.get(self.device_type % RPC_SESS_MASK, str(self.device_type))

    @property
    def index(self) -> int:
        """The same as `device_id`."""
        return self.device_id

    @property
    def exist(self) -> bool:
        """Whether this process can see the device."""
        if self.device_type == CPU:
            return self.device_id == 0
        if self.device_type != CUDA:
            return False
        return self._stand_in is not None or self.device_id < cuda_device_count()

    @property
    def _stand_in(self) -> Driver | None:
        """What stands for a CUDA device now, for tests."""
        from autosched.runtime.cuda.devices import stand_in

        return stand_in(self.device_id) if self.device_type == CUDA else None

    def sync(self, stream: object = None) -> None:
        """Wait until the device has finished; a CPU's work is finished when a call returns.

        stream  on a CUDA device: a handle or a stream object; None: the current one
        """
        if self.device_type == CUDA and self.exist:
            from autosched.runtime.cuda.devices import driver_of
            from autosched.runtime.cuda.pending import check_runs

            driver = driver_of(self.device_id)
            with contextlib.nullcontext() if stream is None else driver.on_stream(stream):
                driver.synchronize()
            check_runs(self.device_id)

    def on_stream(self, stream: object) -> AbstractContextManager[None]:
        """Give this device its work on a caller's stream meanwhile.

        stream  a handle, or an object with `__cuda_stream__` or `cuda_stream` (PyTorch's)
        Raises  TVMError for a device that has no streams.

            with autosched.cuda(0).on_stream(torch.cuda.current_stream()):
                executor.run()
        """
        if self.device_type != CUDA:
            raise TVMError(f"{self} has no streams", hint="a CPU's work is finished when a call returns")
        from autosched.runtime.cuda.devices import driver_of

        return driver_of(self.device_id).on_stream(stream)

    # What the driver says; None for a CPU and for a device that does not exist.

    def _attribute(self, name: str) -> int | None:
        if (other := self._stand_in) is not None:
            return other.attribute(name)
        return cuda_attribute(self.device_id, name) if self.device_type == CUDA and self.exist else None

    @property
    def device_name(self) -> str | None:
        """The product's name."""
        if (other := self._stand_in) is not None:
            return other.name
        return cuda_name(self.device_id) if self.device_type == CUDA and self.exist else None

    @property
    def compute_version(self) -> str | None:
        """The compute capability, such as "9.0"."""
        major, minor = self._attribute("compute_major"), self._attribute("compute_minor")
        return None if major is None else f"{major}.{minor}"

    @property
    def max_threads_per_block(self) -> int | None:
        """Threads in a block."""
        return self._attribute("max_threads_per_block")

    @property
    def max_shared_memory_per_block(self) -> int | None:
        """Bytes of shared memory in a block."""
        return self._attribute("max_shared_memory_per_block")

    @property
    def max_thread_dimensions(self) -> tuple[int, int, int] | None:
        """Extents of a block in x, y and z."""
        extents = [self._attribute(f"max_block_dim_{axis}") for axis in "xyz"]
        x, y, z = extents
        return None if x is None or y is None or z is None else (x, y, z)

    @property
    def multi_processor_count(self) -> int | None:
        """Number of streaming multiprocessors."""
        return self._attribute("multi_processor_count")

    @property
    def warp_size(self) -> int | None:
        """Threads in a warp."""
        return self._attribute("warp_size")

    @property
    def max_clock_rate(self) -> int | None:
        """Clock in kHz."""
        return self._attribute("clock_rate")

    @property
    def total_global_memory(self) -> int | None:
        """Bytes of device memory."""
        if (other := self._stand_in) is not None:
            return other.free_bytes()[1]
        return cuda_total_memory(self.device_id) if self.device_type == CUDA and self.exist else None

    @property
    def api_version(self) -> int | None:
        """Version of the driver's interface, such as 12080."""
        return cuda_version() if self.device_type == CUDA and self.exist else None

    driver_version = api_version


@runtime_checkable
class RemotePlace(Protocol):
    """A device of another process, which makes arrays there."""

    def empty(self, shape: tuple[int, ...], dtype: object) -> Any:
        """An array on the device with undefined contents."""
        ...


def device(dev: object, index: int = 0) -> Device:
    """Make a device of its name, of a target's text (its first word counts) or of a target.

    Raises InvalidValueError (a ValueError) if the name is unknown.
    """
    if not hasattr(index, "__index__"):
        raise InvalidTypeError(f"device: the index is a {type(index).__name__}, not an int")
    if int(index) < 0:
        raise InvalidValueError(f"device: the index is {index}, at least 0 is needed")
    if isinstance(dev, int):
        return Device(dev, index)
    if dev is None:
        raise InvalidTypeError("device: a device is named by a text, got None")
    words = str(dev).split()
    if not words or words[0] not in _NAMES:
        raise InvalidValueError(f"unknown device '{dev}'", hint=f"known are {', '.join(_NAMES)}")
    return Device(_NAMES[words[0]], index)


def _maker(name: str) -> Callable[..., Device]:
    def make(index: int = 0) -> Device:
        if not hasattr(index, "__index__"):
            raise InvalidTypeError(f"{name}: the index is a {type(index).__name__}, not an int")
        return Device(_NAMES[name], index)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Make the handle of {name} device `index`."
    return make


cpu, cuda, rocm, opencl, metal = (_maker(name) for name in ("cpu", "cuda", "rocm", "opencl", "metal"))
vulkan, vpi, hexagon, ext_dev, webgpu = (_maker(name) for name in ("vulkan", "vpi", "hexagon", "ext_dev", "webgpu"))
