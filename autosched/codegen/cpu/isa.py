"""What tiles need to know of the CPU they are made for."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.codegen.cpu.types import item_bytes
from autosched.target import Target


@dataclass(frozen=True, slots=True)
class Isa:
    """Vector width in bits, and whether a * b + c is one instruction."""

    vector_bits: int
    has_fma: bool
    num_registers: int

    @staticmethod
    def of(target: Target) -> Isa:
        return Isa(target.vector_bits, target.has_fma, target.num_registers)

    def lanes(self, dtype: str) -> int:
        """Values of a dtype in one vector register."""
        return max(1, self.vector_bits // (8 * item_bytes(dtype)))
