"""Names of scalar types."""

from __future__ import annotations

import functools

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError


@functools.cache
def is_int(dtype: str) -> bool:
    """Whether `dtype` is a signed or unsigned integer or bool."""
    return dtype.startswith(("int", "uint", "bool"))


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


@functools.lru_cache(maxsize=64)
def item_bytes(dtype: str) -> int:
    """Bytes of one value."""
    if dtype == "bool":
        return 1
    return int("".join(c for c in dtype if c.isdigit())) // 8


def largest_finite(dtype: str) -> float:
    """The largest finite value of a float type; its negative is the smallest."""
    return (2.0 - 2.0**-7) * 2.0**127 if dtype == "bfloat16" else float(np.finfo(dtype).max)


DTYPES = frozenset((
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
    "bfloat16",
))  # fmt: skip


# (smallest, largest) of each integer type
INT_RANGES: dict[str, tuple[int, int]] = {"bool": (0, 1)} | {
    f"{sign}int{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("", "u") for bits in (8, 16, 32, 64)
}  # fmt: skip


def fits(value: int, dtype: str) -> bool:
    """Whether an integer type has a value."""
    low, high = INT_RANGES[dtype]
    return low <= value <= high


def wrapped(value: int, dtype: str) -> int:
    """What an integer type keeps of a result: its lowest bits. Of "bool": whether it is not zero."""
    low, high = INT_RANGES[dtype]
    if low <= value <= high:
        return value
    return int(value != 0) if dtype == "bool" else (value - low) % (high - low + 1) + low


def check_dtype(dtype: object, what: str, *also: str) -> str:
    """The name of a dtype. Raises InvalidTypeError for what is no name, InvalidValueError for an unknown one."""
    if not isinstance(dtype, str):
        name = getattr(dtype, "__name__", None) or getattr(dtype, "name", None)  # np.float32, np.dtype
        if not isinstance(name, str) or name not in DTYPES:
            raise InvalidTypeError(f"{what}: a dtype is a string such as 'float32', got {dtype!r}")
        return name
    if dtype in DTYPES or dtype in also:
        return str(dtype)
    if dtype in ("int", "float"):
        return f"{dtype}32"
    raise InvalidValueError(f"{what}: unknown dtype '{dtype}'", hint=f"one of {', '.join(sorted(DTYPES))}")
