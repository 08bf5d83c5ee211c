"""`CompiledCpuKernel`: a CPU's kernel with what became of it on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.cpu.instructions import count_instructions
from autosched.codegen.cpu.report import AsmReport, read_assembly


@dataclass(slots=True)
class CompiledCpuKernel(CompiledKernel):
    """kernel: what runs; `source`: the readable Numba source; `llvm`: its optimised LLVM text; `asm`: its assembly."""

    _asm: str = field(default="", repr=False)

    @property
    def asm(self) -> str:
        """The assembly text, made from the LLVM text when first asked for."""
        if not self._asm:
            self._asm = self.kernel.asm
        return self._asm

    def report(self) -> AsmReport:
        """What the assembly shows: vector width, multiply-adds, register spills in loops with multiply-adds."""
        return read_assembly(self.asm)

    features_report = report

    def instructions(self) -> tuple[int, ...]:
        """How many instructions of each kind there are, in the order of `instructions.COUNTS`; the text is not kept."""
        return count_instructions(self._asm or self.kernel.asm)
