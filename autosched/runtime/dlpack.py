"""DLPack for device memory and bfloat16, which NumPy cannot do: capsules changed and read through ctypes.

Source  dlpack.h of DLPack 0.8 (the unversioned `DLManagedTensor`, which every library reads).
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, Protocol

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime.bfloat16 import NAME as BFLOAT16
from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.device import CUDA, Device

_NAME, _USED = b"dltensor", b"used_dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
_BFLOAT = 4


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int), ("device_id", ctypes.c_int)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_is_valid, _pointer = ctypes.pythonapi.PyCapsule_IsValid, ctypes.pythonapi.PyCapsule_GetPointer
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
_rename = ctypes.pythonapi.PyCapsule_SetName
_rename.restype, _rename.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)


def _managed(capsule: object) -> Any:
    return ctypes.cast(_pointer(capsule, _NAME), ctypes.POINTER(_Managed))


class RowMajor(Protocol):
    """What a capsule takes of an array."""

    @property
    def address(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...

    @property
    def dtype(self) -> str: ...


class _Carrier:
    """What a NumPy array is made of that has an array's shape and keeps it alive; its memory is never touched."""

    def __init__(self, array: RowMajor):
        self.array, self.place = array, ctypes.c_int64()
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": "|i1",
            "data": (ctypes.addressof(self.place), False),
        }


def to_capsule(array: RowMajor, device: Device) -> object:
    """A DLPack capsule that shares the memory of an array on a device.

    It is NumPy's capsule of another array, with its tensor changed. What gives a tensor back may be called while an
    exception is on its way, when no Python function can run: NumPy's is written in C.
    """
    kind = np.dtype(array.dtype)
    code = _BFLOAT if kind.name == BFLOAT16 else _CODES[kind.kind]
    capsule = np.asarray(_Carrier(array)).__dlpack__()
    tensor = _managed(capsule).contents.tensor
    tensor.data, tensor.byte_offset = array.address, 0
    tensor.device = _DLDevice(device.device_type, device.device_id)
    tensor.dtype = _DLDataType(code, kind.itemsize * 8, 1)
    return capsule


class Taken:
    """Another library's tensor, given back to it when nothing holds it any more."""

    def __init__(self, managed: Any, address: int, size_bytes: int):
        self._managed, self.address, self.size_bytes = managed, address, size_bytes

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def device_type_of(capsule: object) -> int:
    """DLPack's code of the device that an unused capsule's memory is on; 0 for anything else."""
    return int(_managed(capsule).contents.tensor.device.device_type) if _is_valid(capsule, _NAME) else 0


def take_capsule(capsule: object) -> tuple[Taken, tuple[int, ...], str, Device]:
    """Take over a capsule of CUDA memory, which is used up; gives what owns the memory, shape, dtype and device.

    Raises InvalidTypeError for what is no unused capsule, InvalidValueError for what is not row-major or not on CUDA.
    """
    if not _is_valid(capsule, _NAME):
        raise InvalidTypeError("from_dlpack: the capsule is used up, or holds no tensor")
    managed = _managed(capsule)
    tensor = managed.contents.tensor
    if tensor.device.device_type != CUDA:
        raise InvalidValueError(f"from_dlpack: memory of device type {tensor.device.device_type}, not of CUDA's")
    shape = tuple(int(tensor.shape[i]) for i in range(tensor.ndim))
    strides = [int(tensor.strides[i]) for i in range(tensor.ndim)] if tensor.strides else None
    dtype = _dtype_of(tensor.dtype)
    if strides is not None and not _is_row_major(shape, strides):
        raise InvalidValueError("from_dlpack needs a row-major array", hint="copy it to a contiguous one first")
    _rename(capsule, _USED)
    size_bytes = math.prod(shape) * dtype.itemsize
    memory = Taken(managed, (tensor.data or 0) + int(tensor.byte_offset), size_bytes)
    return memory, shape, str(dtype), Device(CUDA, tensor.device.device_id)


def _dtype_of(kind: _DLDataType) -> np.dtype:
    """NumPy's dtype. Raises InvalidTypeError where it has none."""
    if (kind.code, kind.bits, kind.lanes) == (_BFLOAT, 16, 1):
        know_dtype(BFLOAT16)
        return np.dtype(BFLOAT16)
    letter = _KINDS.get(kind.code)
    if letter is None or kind.lanes != 1 or kind.bits % 8:
        raise InvalidTypeError(f"from_dlpack: elements of DLPack's type code {kind.code} are not supported")
    return np.dtype(f"{letter}{kind.bits // 8}")


def _is_row_major(shape: tuple[int, ...], strides: list[int]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected and math.prod(shape) > 0:
            return False
        expected *= extent
    return True
