"""Arguments of own kernels: arrays of the host and of the device, and how Numba and the tuner see them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import UsageError
from autosched.runtime.array import from_dlpack
from autosched.runtime.cuda.array import DeviceArray, from_interface
from autosched.runtime.cuda.driver import Region
from autosched.runtime.device import CUDA, Device

if TYPE_CHECKING:
    from numba import types

    from autosched.codegen.cuda.numba_cuda import Plan


def is_device_array(value: object) -> bool:
    """Whether a value lies in a GPU's memory: ours, PyTorch's, CuPy's, Numba's."""
    if isinstance(value, np.ndarray | np.generic):
        return False
    where = getattr(value, "__dlpack_device__", None)
    return int(where()[0]) == CUDA if callable(where) else hasattr(value, "__cuda_array_interface__")


def as_device(value: object) -> DeviceArray:
    """A device array of any library as ours, without a copy. Raises InvalidValueError where it is not row-major."""
    if isinstance(value, DeviceArray):
        return value
    if hasattr(value, "__dlpack__"):
        shared = from_dlpack(value)
        assert isinstance(shared, DeviceArray), "it lies on a device"
        return shared
    return from_interface(value, Device(CUDA, 0))


def stand_in(value: object) -> object:
    """A value with a host array of the same shape and dtype in the place of a device array; it has no memory to it."""
    if isinstance(value, tuple):
        return tuple(stand_in(part) for part in value)
    if not is_device_array(value):
        return value
    found = as_device(value)
    return np.lib.stride_tricks.as_strided(np.zeros(1, found.dtype), found.shape, (0,) * found.ndim, writeable=False)


def host_value(value: object) -> object:
    """What `grid=` and its like see of an argument: arrays have shape, size and dtype."""
    return stand_in(value)


def host_copies(named: Mapping[str, object]) -> dict[str, object]:
    """The arguments with device arrays copied to the host; one array twice stays one.

    Raises UsageError for device arrays that share a part of their memory.
    """
    copies: dict[tuple[int, int], np.ndarray] = {}

    def copied(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(copied(part) for part in value)
        if not is_device_array(value):
            return value
        found = as_device(value)
        place = found.address, found.size_bytes
        if place not in copies:
            copies[place] = found.numpy()
        return copies[place].view(found.dtype).reshape(found.shape)

    made = {name: copied(value) for name, value in named.items()}
    for (a, a_size), (b, b_size) in itertools.combinations(copies, 2):
        if a < b + b_size and b < a + a_size:
            raise UsageError("two arguments on the device share a part of their memory, which tuning cannot copy")
    return made


def numba_types(values: Sequence[object]) -> tuple[types.Type, ...]:
    """Numba's types of arguments. Raises UsageError naming a value that Numba has no type for."""
    return tuple(_type_of(value) for value in values)


def _type_of(value: object) -> object:
    import numba

    if isinstance(value, tuple):
        return numba.types.Tuple(tuple(_type_of(part) for part in value))
    if is_device_array(value):
        found = as_device(value)
        return numba.types.Array(numba.from_dtype(np.dtype(found.dtype)), found.ndim, "C")
    if isinstance(value, np.ndarray):  # one type for what may and for what may not be written
        layout = "C" if value.flags.c_contiguous else "F" if value.flags.f_contiguous else "A"
        return numba.types.Array(numba.from_dtype(value.dtype), value.ndim, layout)
    try:
        return numba.typeof(value)
    except (ValueError, TypeError, numba.core.errors.NumbaError) as error:
        raise UsageError(f"Numba has no type for a {type(value).__name__}: {error}") from error


class Placed:
    """An array in device memory, with strides: what a kernel is given of it."""

    __slots__ = ("address", "dtype", "shape", "strides")

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype):
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype

    def region(self) -> Region:
        """The memory from the address on that its elements are in."""
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)) + self.dtype.itemsize
        return Region(self.address, reach if all(self.shape) else 0, self.dtype.itemsize)


def flatten(plan: Plan, value: Any) -> list[Any]:
    """What a kernel is given for an argument, by its plan (see `UserKernel`); arrays are `Placed` or device arrays."""
    if isinstance(plan, tuple):
        return [word for part, one in zip(plan, value, strict=True) for word in flatten(part, one)]
    if plan != "array":
        number = np.dtype(plan).type(value)
        return [number.real, number.imag] if number.dtype.kind == "c" else [number]
    placed = value if isinstance(value, Placed) else place_of(as_device(value))
    size = int(np.prod(placed.shape, dtype=np.int64))
    return [0, 0, size, placed.dtype.itemsize, placed.region(), *placed.shape, *placed.strides]


def place_of(array: DeviceArray) -> Placed:
    """Where a device array lies."""
    dtype = np.dtype(array.dtype)
    strides = np.empty(0).strides if array.ndim == 0 else _row_major(array.shape, dtype.itemsize)
    return Placed(array.address, array.shape, strides[: array.ndim], dtype)


def _row_major(shape: tuple[int, ...], item_bytes: int) -> tuple[int, ...]:
    strides = [item_bytes]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return tuple(strides)
