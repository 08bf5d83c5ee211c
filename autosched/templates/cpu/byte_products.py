"""How bytes are multiplied: without an instruction for it as 16-bit integers, in pairs."""

from __future__ import annotations

from autosched.codegen.cpu.types import Isa
from autosched.target import Target


def widens_bytes(target: Target) -> bool:
    """Whether bytes are multiplied faster as 16-bit integers: on x86-64 without dot products of bytes."""
    isa = Isa.of(target)
    return isa.pair_bits > 0 and not isa.has_byte_dots


def sums_columns(target: Target) -> bool:
    """Whether depthwise windows of bytes are summed up fastest in words of their rows: see `codegen.cpu.column_dot`."""
    isa = Isa.of(target)
    return isa.has_byte_dots and isa.permutes_bytes and isa.vector_bits == 512
