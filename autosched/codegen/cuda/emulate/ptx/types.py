"""The types of PTX instructions: how many bits, which kind of number."""

from __future__ import annotations

import re

from autosched.errors import CodegenError

_SPECIAL = {
    "pred": 1,
    "f16x2": 32,
    "bf16x2": 32,
    "tf32": 32,
    "bf16": 16,
    "e4m3": 8,
    "e5m2": 8,
    "e4m3x2": 16,
    "e5m2x2": 16,
}


# the types that most instructions take
COMMON = frozenset((
    "pred", "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "f32", "f64",
    "bf16", "f16x2", "bf16x2",
))  # fmt: skip


def width(kind: str) -> int:
    """Bits of a PTX type.

    Raises CodegenError for a name that is no type.
    """
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    match = re.fullmatch(r"[busf](\d+)", kind)
    if match is None:
        raise CodegenError(f"the emulator does not know the PTX type .{kind}")
    return int(match[1])


def is_type(part: str) -> bool:
    return part in _SPECIAL or re.fullmatch(r"[bus](8|16|32|64|128)|f(16|32|64)", part) is not None


def llvm_float(kind: str) -> str | None:
    """LLVM's type of a floating-point PTX type that the host computes with, or None."""
    return {"f32": "float", "f64": "double", "f16": "half"}.get(kind)
