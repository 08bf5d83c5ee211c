"""`NDArray`: a row-major array on a device, with TVM's names."""

from __future__ import annotations

import importlib
import operator
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.errors import AutoschedError, InvalidTypeError, InvalidValueError, ShapeError, TVMError, WrongInputError
from autosched.runtime.bfloat16 import NAME as BFLOAT16
from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.device import CPU, CUDA, RPC_SESS_MASK, Device, RemotePlace, cpu
from autosched.runtime.dlpack import device_type_of, to_capsule
from autosched.runtime.memory import aligned_copy, dtype_name, empty_aligned
from autosched.target.kinds import KINDS

_HOST = cpu()


class NDArray:
    """A row-major array of fixed shape and dtype.

    Compared by identity. Elements are not indexed: `numpy()` gives a copy to look into, `a[:] = x` fills it.
    """

    __slots__ = ("__weakref__", "_address", "_data", "device")

    def __init__(self, data: np.ndarray, device: Device | None = None):
        """Wrap a row-major NumPy array; it shares its memory. Users call `array` or `empty`."""
        assert data.flags.c_contiguous, "an NDArray is row-major"
        self._data = data
        self._address: int | None = None
        self.device = device or _HOST

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self._data.shape

    @property
    def dtype(self) -> str:
        """The name of the element type."""
        return dtype_name(self._data.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._data.ndim

    @property
    def address(self) -> int:
        """The address of the first element."""
        if self._address is None:
            self._address = int(self._data.ctypes.data)
        return self._address

    def view(self) -> np.ndarray:
        """Give a NumPy array that shares the memory."""
        return self._data

    def numpy(self) -> np.ndarray:
        """Give a fresh NumPy copy."""
        return self._data.copy()

    asnumpy = numpy

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._data, dtype, copy=copy)

    def to_dlpack(self) -> object:
        """Give a DLPack capsule that shares the memory."""
        return self.__dlpack__()

    def same_as(self, other: object) -> bool:
        """Tell whether both are one object."""
        return self is other

    def copyto(self, target: NDArray | Device) -> NDArray:
        """Copy into another array of the same shape, or into a new one on a device; gives that array."""
        if isinstance(target, NDArray):
            return target.copyfrom(self._data)
        if isinstance(target, Device):
            return array(self._data, target)
        raise InvalidTypeError(f"copyto takes an array or a device, not {type(target).__name__}")

    def copyfrom(self, source: NDArray | npt.ArrayLike) -> NDArray:
        """Fill from an array of the same shape, converting its dtype.

        Raises ShapeError (a ValueError) on another shape, InvalidTypeError (a TypeError) on data that is no array.
        """
        own = self._data
        data = source if type(source) is np.ndarray and source.dtype == own.dtype else as_numpy(source)
        if data.shape != own.shape:
            raise ShapeError(f"copyfrom: array of shape {data.shape} copied into one of shape {self.shape}")
        own[...] = data  # converts as `copyto` with casting="unsafe", in half the time
        return self

    def __getitem__(self, index: object) -> None:
        raise InvalidTypeError("an array's elements are not indexed", hint="use a.numpy()[index]")

    def __iter__(self) -> object:  # without it, Python would index
        raise InvalidTypeError("an array cannot be iterated", hint="use a.numpy()")

    def __setitem__(self, index: object, value: NDArray | npt.ArrayLike) -> None:
        if not (isinstance(index, slice) and index == slice(None)):
            raise InvalidValueError("an array is set as a whole", hint="use a[:] = value")
        if isinstance(value, (int, float, bool, np.generic)):
            self._data[...] = value
        else:
            self.copyfrom(value)

    def __repr__(self) -> str:
        return f"<autosched.NDArray shape={self.shape}, {self.device}>\n{self._data!r}"

    def __reduce__(self) -> tuple[object, ...]:
        return array, (self._data,)

    def __dlpack__(self, **options: Any) -> object:
        if self.dtype == BFLOAT16:  # which NumPy does not export
            return to_capsule(self, self.device)
        return self._data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


class ArrayElsewhere(NDArray):
    """An array whose elements are not in this process's memory."""

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: str, device: Device):
        self._shape, self._dtype, self._address, self.device = shape, np.dtype(dtype), None, device

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def dtype(self) -> str:
        return dtype_name(self._dtype)

    @property
    def ndim(self) -> int:
        return len(self._shape)


def as_numpy(source: object, what: str = "array") -> np.ndarray:
    """Give array data as NumPy without a copy where possible; `what` names it in errors.

    A tensor that requires gradients is taken without them.
    Raises InvalidTypeError (a TypeError) if it is no array of numbers, or of a kind that NumPy has not.
    """
    if isinstance(source, NDArray):
        return source.view() if source.device.device_type == CPU else source.numpy()
    try:
        data = source if type(source) is np.ndarray else np.asarray(detached(source))
    except ValueError as error:  # lists of different lengths
        raise InvalidValueError(f"{what}: {error}") from None
    except (TypeError, RuntimeError) as error:  # tensors that are sparse, conjugated, on no device, …
        raise InvalidTypeError(f"{what}: {_first_line(error)}") from None
    if data.dtype.kind not in "biuf" and data.dtype.name != BFLOAT16:
        raise InvalidTypeError(f"{what}: {type(source).__name__} is no array of numbers")
    return data


def detached(source: Any) -> Any:
    """A tensor of PyTorch that requires gradients without them, in the same memory; everything else as it is.

    One of bfloat16 in the host's memory becomes a NumPy array that shares it: PyTorch cannot give that itself.
    """
    source = source.detach() if getattr(source, "requires_grad", False) is True else source
    if (
        str(getattr(source, "dtype", "")) != "torch.bfloat16"
        or str(source.device) != "cpu"
        or "strided" not in str(source.layout)
    ):
        return source
    know_dtype(BFLOAT16)
    bits = source.view(importlib.import_module("torch").int16).numpy()
    return bits.view(np.dtype(BFLOAT16))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def array(source: NDArray | npt.ArrayLike, device: Device | None = None, mem_scope: str | None = None) -> NDArray:
    """Copy a NumPy array, list, scalar or array to a device; dtype as NumPy sees it.

    Raises InvalidTypeError (a TypeError) if it is no array of numbers.
    """
    is_here = device is None or (isinstance(device, Device) and device.device_type == CPU)
    if is_here and mem_scope is None:  # as `empty` and `copyfrom` do it, without their checks
        return NDArray(aligned_copy(as_numpy(source)), device)
    data = source if isinstance(source, NDArray) else as_numpy(source)
    result = empty(data.shape, data.dtype if isinstance(data.dtype, str) else dtype_name(data.dtype), device, mem_scope)
    return result.copyfrom(data)


def empty(
    shape: int | tuple[int, ...] | list[int],
    dtype: str = "float32",
    device: Device | None = None,
    mem_scope: str | None = None,
) -> NDArray:
    """Make an array with undefined contents."""
    device = cpu() if device is None else device
    if not isinstance(device, Device):
        raise InvalidTypeError(f"empty: device is a {type(device).__name__}, not a Device", hint="use autosched.cpu(0)")
    if mem_scope not in (None, "global"):
        raise InvalidValueError(f"memory scope '{mem_scope}' does not exist on {device}", hint="use None or 'global'")
    try:
        if isinstance(shape, str):
            raise TypeError
        extents = (int(shape),) if hasattr(shape, "__index__") else tuple(operator.index(extent) for extent in shape)
    except TypeError:
        raise InvalidTypeError(f"empty: the shape is {shape!r}, expected a tuple of integers") from None
    if any(extent < 0 for extent in extents):
        raise InvalidValueError(f"empty: shape {extents} has a negative extent")
    try:
        kind = np.dtype(dtype if isinstance(dtype, type | np.dtype) else str(dtype))
    except TypeError:
        raise WrongInputError(f"empty: unknown dtype '{dtype}'") from None
    if device.device_type == CPU:
        return NDArray(empty_aligned(extents, kind), device)
    if device.device_type >= RPC_SESS_MASK:
        there: NDArray = _remote(device).empty(extents, kind)
        return there
    made: NDArray = arrays_on(device.device_type).empty_on(device, extents, kind)
    return made


def _remote(device: Device) -> RemotePlace:
    if not isinstance(device, RemotePlace):
        raise InvalidValueError(f"{device} names a session by number alone", hint="use remote.cpu()")
    return device


class _Capsule:
    """A bare DLPack capsule in the form that NumPy reads."""

    def __init__(self, capsule: object):
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def from_dlpack(source: object) -> NDArray:
    """Wrap another library's row-major array, or a DLPack capsule; both share the memory.

    Raises InvalidTypeError (a TypeError) if it is neither, or of a kind that NumPy has not, InvalidValueError (a
    ValueError) if it is not row-major.
    """
    source = detached(source)
    if type(source).__name__ == "PyCapsule":
        if device_type_of(source) == CUDA:
            return _share_from(CUDA, source)
        source = _Capsule(source)
    elif not hasattr(source, "__dlpack__"):
        raise InvalidTypeError(f"from_dlpack: {type(source).__name__} has no __dlpack__")
    try:
        if hasattr(source, "__dlpack_device__") and int(source.__dlpack_device__()[0]) == CUDA:
            return _share_from(CUDA, source)
        data = source if isinstance(source, np.ndarray) else np.from_dlpack(source)
    except AutoschedError:
        raise
    except (TypeError, ValueError, RuntimeError, BufferError) as error:  # sparse, conjugated, on no device, …
        raise InvalidTypeError(f"from_dlpack: {_first_line(error)}") from None
    if not data.flags.c_contiguous:
        raise InvalidValueError("from_dlpack needs a row-major array", hint="copy it to a contiguous one first")
    return NDArray(data)


def arrays_on(device_type: int) -> ModuleType:
    """The module `array` of the back end for a type of device; raises TVMError where no back end is for it."""
    for kind in KINDS.values():
        if kind.backend and kind.device_type == device_type:
            return importlib.import_module(f"{__package__}.{kind.backend}.array")
    raise TVMError(f"no array can be placed on {Device(device_type)}", hint="arrays live on cpu and cuda devices")


def _share_from(device_type: int, source: object) -> NDArray:
    made: NDArray = arrays_on(device_type).from_dlpack(source)
    return made


def numpyasarray(source: np.ndarray) -> NDArray:
    """Wrap a row-major NumPy array; both share the memory."""
    return NDArray(as_numpy(source))
