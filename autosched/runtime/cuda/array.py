"""`DeviceArray`: a row-major array in a GPU's memory, shared with other libraries without a copy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autosched.errors import InvalidTypeError, InvalidValueError, ShapeError
from autosched.runtime.array import ArrayElsewhere, NDArray, array, as_numpy
from autosched.runtime.bfloat16 import NAME as BFLOAT16
from autosched.runtime.cuda.devices import driver_of
from autosched.runtime.cuda.driver import Driver, Memory
from autosched.runtime.cuda.pending import check_runs
from autosched.runtime.device import Device
from autosched.runtime.dlpack import take_capsule, to_capsule

if TYPE_CHECKING:
    from autosched.json_types import JsonObject


class DeviceArray(ArrayElsewhere):
    """An array on a GPU; `numpy()` copies it to the host.

    memory  owns the bytes, which begin `offset` bytes into it
    """

    __slots__ = ("_memory", "_offset", "driver")

    def __init__(self, memory: Memory, shape: tuple[int, ...], dtype: str, device: Device, offset: int = 0):
        super().__init__(shape, dtype, device)
        self._memory, self._offset = memory, offset
        self.driver: Driver = driver_of(device.device_id)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self._shape) * self._dtype.itemsize

    @property
    def memory(self) -> Memory:
        """What owns the bytes."""
        return self._memory

    @property
    def address(self) -> int:
        return self._memory.address + self._offset

    def view(self) -> np.ndarray:
        """Raises InvalidTypeError: the host cannot look into a device's memory."""
        raise InvalidTypeError(f"an array on {self.device} has no view on the host", hint="use a.numpy(), a copy")

    def numpy(self) -> np.ndarray:
        """Give a NumPy copy, after all work that was given to the device before.

        Raises IndexOutOfRangeError where one of the device's kernels has met a position out of range.
        """
        data = np.empty(self._shape, self._dtype)
        self.driver.copy_out(data, self.address)
        check_runs(self.device.device_id)
        return data

    asnumpy = numpy

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise InvalidValueError(f"an array on {self.device} is only copied to the host")
        return self.numpy().astype(dtype or self._dtype, copy=False)

    def copyto(self, target: NDArray | Device) -> NDArray:
        if isinstance(target, DeviceArray):
            return target.copyfrom(self)
        if isinstance(target, Device) and target == self.device:
            return empty_on(target, self._shape, self._dtype).copyfrom(self)
        return NDArray(self.numpy()).copyto(target)

    def copyfrom(self, source: NDArray | npt.ArrayLike) -> NDArray:
        shape = source.shape if isinstance(source, NDArray) else np.shape(source)
        if shape != self._shape:
            raise ShapeError(f"copyfrom: array of shape {shape} copied into one of shape {self._shape}")
        if isinstance(source, DeviceArray) and source.device == self.device and source._dtype == self._dtype:
            self.driver.copy_on(self.address, source.address, self.size_bytes)
        else:
            data = as_numpy(source)
            self.driver.copy_in(self.address, np.ascontiguousarray(data.astype(self._dtype, copy=False)))
        return self

    def __setitem__(self, index: object, value: NDArray | npt.ArrayLike) -> None:
        if isinstance(value, (int, float, bool, np.generic)):
            value = np.full(self._shape, value, self._dtype)
        if not (isinstance(index, slice) and index == slice(None)):
            raise InvalidValueError("an array is set as a whole", hint="use a[:] = value")
        self.copyfrom(value)

    def __repr__(self) -> str:
        return f"<autosched.NDArray shape={self.shape}, {self.device}>\n{self.numpy()!r}"

    def __reduce__(self) -> tuple[object, ...]:
        return array, (self.numpy(), self.device)

    # Other libraries

    @property
    def __cuda_array_interface__(self) -> JsonObject:
        """The array as other libraries take it, version 3: its work is on the stream that it names.

        Of bfloat16 there is none, since the interface has no name for it: other libraries then ask for DLPack.
        """
        if self.dtype == BFLOAT16:
            raise AttributeError("the CUDA array interface has no bfloat16; DLPack has")
        return {
            "shape": self._shape,
            "typestr": self._dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self.driver.stream_handle(),
        }

    def __dlpack__(  # type: ignore[override]
        self,
        *,
        stream: object = None,
        max_version: object = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A DLPack capsule that shares the memory.

        stream   the consumer's, which has to wait for our work: -1 says that it does so itself
        Raises   InvalidValueError where another device or a copy is asked for.
        """
        del max_version  # the unversioned form is what every version reads
        if copy or (dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__()):
            raise InvalidValueError("an array on a device is shared where it lies", hint="copy it with copyto first")
        if stream != -1 and (stream or 1) != self.driver.stream_handle():
            self.driver.synchronize()  # the consumer's is another stream than the one that our work is on
        return to_capsule(self, self.device)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.device_type, self.device.device_id


class Foreign:
    """Memory of another library, kept alive by what it came from."""

    def __init__(self, address: int, size_bytes: int, owner: object):
        self.address, self.size_bytes, self._owner = address, size_bytes, owner


def empty_on(device: Device, shape: tuple[int, ...], dtype: str | np.dtype) -> DeviceArray:
    """Make an array with undefined contents. Raises DeviceError where the device or the memory is not there."""
    kind = np.dtype(dtype)
    memory = driver_of(device.device_id).allocate(math.prod(shape) * kind.itemsize)
    return DeviceArray(memory, shape, str(kind), device)


def from_dlpack(source: Any) -> DeviceArray:
    """Wrap another library's array, or a capsule; both share the memory. See `take_capsule` for what it raises."""
    if type(source).__name__ != "PyCapsule":  # what shares memory with us has to have written it on our stream by then
        driver = driver_of(int(source.__dlpack_device__()[1]))
        source = source.__dlpack__(stream=driver.stream_handle())
    return DeviceArray(*take_capsule(source))


def from_interface(source: Any, device: Device) -> DeviceArray:
    """Wrap what has `__cuda_array_interface__`; both share the memory.

    Raises InvalidValueError for an array that is not row-major.
    """
    found = source.__cuda_array_interface__
    kind, shape = np.dtype(found["typestr"]), tuple(int(extent) for extent in found["shape"])
    strides, step = found.get("strides"), kind.itemsize
    expected: list[int] = []
    for extent in reversed(shape):
        expected.insert(0, step)
        step *= extent
    if strides is not None and tuple(strides) != tuple(expected) and math.prod(shape) > 1:
        raise InvalidValueError("an array on a device has to be row-major", hint="copy it to a contiguous one first")
    if found.get("mask") is not None:
        raise InvalidValueError("an array with a mask cannot be shared")
    address, _ = found["data"]
    return DeviceArray(Foreign(int(address), math.prod(shape) * kind.itemsize, source), shape, str(kind), device)
