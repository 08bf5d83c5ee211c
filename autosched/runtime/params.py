"""Parameter files: named arrays in TVM's binary format (NDArray lists), little endian."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from autosched.errors import ArtifactError, InvalidTypeError
from autosched.runtime.array import NDArray, array, as_numpy

_LIST_MAGIC = 0xF7E58D4F05049CB7
_ARRAY_MAGIC = 0xDD5E40F096B4A13F
_CODES = {"i": 0, "u": 1, "f": 2}  # DLPack's type codes by NumPy's kinds
_NAMES = {0: "int", 1: "uint", 2: "float"}


def save_param_dict(params: Mapping[str, NDArray | npt.ArrayLike]) -> bytes:
    """Write named arrays as bytes that `load_param_dict` and TVM read."""
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise InvalidTypeError("save_param_dict takes a mapping from names to arrays")
    parts = [struct.pack("<QQQ", _LIST_MAGIC, 0, len(params))]
    for name in params:
        text = name.encode()
        parts.append(struct.pack("<Q", len(text)) + text)
    parts.append(struct.pack("<Q", len(params)))
    parts += [_pack_array(_plain(name, value)) for name, value in params.items()]
    return b"".join(parts)


def load_param_dict(data: bytes | bytearray) -> dict[str, NDArray]:
    """Read what `save_param_dict` or TVM wrote.

    Raises ArtifactError if the bytes are no parameter file, are cut short, or hold an unknown dtype.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidTypeError(f"load_param_dict takes bytes, not {type(data).__name__}")
    reader = _Reader(bytes(data))
    magic, _ = reader.take("<QQ")
    if magic != _LIST_MAGIC:
        raise ArtifactError("load_param_dict: the data is no parameter file")
    (n_names,) = reader.take("<Q")
    names = [reader.text() for _ in range(reader.plausible(n_names))]
    (n_arrays,) = reader.take("<Q")
    if n_arrays != n_names:
        raise ArtifactError(f"parameter file has {n_names} names for {n_arrays} arrays")
    return {name: reader.array() for name in names}


def save_param_dict_to_file(params: Mapping[str, NDArray | npt.ArrayLike], path: str | Path) -> None:
    """Write named arrays to a file."""
    Path(path).write_bytes(save_param_dict(params))


def load_param_dict_from_file(path: str | Path) -> dict[str, NDArray]:
    """Read what `save_param_dict_to_file` or TVM wrote."""
    return load_param_dict(Path(path).read_bytes())


def _plain(name: str, value: NDArray | npt.ArrayLike) -> np.ndarray:
    try:
        return np.asarray(as_numpy(value), order="C")  # ascontiguousarray would give a scalar a dimension
    except InvalidTypeError:
        raise InvalidTypeError(f"parameter '{name}' is a {type(value).__name__}, no array of numbers") from None


def _pack_array(data: np.ndarray) -> bytes:
    if data.dtype.kind == "b":
        code, bits = 1, 1  # DLPack of that time: bool is an unsigned integer of one bit
    else:
        code, bits = _CODES[data.dtype.kind], data.dtype.itemsize * 8
    header = struct.pack("<QQiii", _ARRAY_MAGIC, 0, 1, 0, data.ndim) + struct.pack("<BBH", code, bits, 1)
    shape = struct.pack(f"<{data.ndim}q", *data.shape)
    raw = data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
    return header + shape + struct.pack("<q", len(raw)) + raw


class _Reader:
    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def bytes(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if count < 0 or len(part) != count:
            raise ArtifactError("load_param_dict: the parameter file is cut short")
        self._at += count
        return part

    def take(self, layout: str) -> tuple[int, ...]:
        return struct.unpack(layout, self.bytes(struct.calcsize(layout)))

    def plausible(self, count: int) -> int:
        """Refuse a count that the rest of the file cannot hold: damaged bytes must not cost memory."""
        if count > len(self._data) - self._at:
            raise ArtifactError("load_param_dict: the parameter file is cut short")
        return count

    def text(self) -> str:
        try:
            return self.bytes(self.take("<Q")[0]).decode()
        except UnicodeDecodeError:
            raise ArtifactError("parameter file is damaged: a name is no text") from None

    def array(self) -> NDArray:
        magic, _, _, _, ndim = self.take("<QQiii")
        code, bits, lanes = self.take("<BBH")
        if magic != _ARRAY_MAGIC or lanes != 1 or not 0 <= ndim <= 32:
            raise ArtifactError("parameter file is damaged: an array's header is wrong")
        shape = self.take(f"<{ndim}q")
        (size_bytes,) = self.take("<q")
        name = "bool" if (code, bits) == (1, 1) else f"{_NAMES.get(code, 'unknown')}{bits}"
        try:
            kind = np.dtype(name)
        except TypeError:
            raise ArtifactError(f"parameter file holds the unsupported dtype code {code}, {bits} bits") from None
        if any(extent < 0 for extent in shape) or int(np.prod(shape, dtype=object)) * kind.itemsize != size_bytes:
            raise ArtifactError("parameter file is damaged: an array's size does not fit its shape")
        return array(np.frombuffer(self.bytes(size_bytes), kind.newbyteorder("<")).reshape(shape).astype(kind))
