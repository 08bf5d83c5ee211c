"""`CompiledKernel`: a kernel with what became of it on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from autosched.codegen.cpu.instructions import count_instructions
from autosched.codegen.cpu.report import AsmReport, read_assembly
from autosched.runtime.kernel import Kernel


@dataclass(slots=True)
class CompiledKernel:
    """kernel: what runs; `source`: the readable Numba source; `llvm`: its optimised LLVM text; `asm`: its assembly."""

    kernel: Kernel
    from_cache: bool = False
    _asm: str = field(default="", repr=False)

    @property
    def source(self) -> str:
        return self.kernel.source

    @property
    def llvm(self) -> str:
        return self.kernel.llvm

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
