"""`CompiledKernel`: a kernel with what became of it on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from autosched.codegen.cpu.report import AsmReport, read_assembly
from autosched.runtime.kernel import Kernel
from autosched.target import Target


@dataclass(slots=True)
class CompiledKernel:
    """kernel: what runs; `source`: the readable Numba source; `llvm`: its optimised LLVM text; `asm`: its assembly."""

    kernel: Kernel
    llvm: str = field(repr=False)
    from_cache: bool = False
    _asm: str = field(default="", repr=False)

    @property
    def source(self) -> str:
        return self.kernel.source

    @property
    def asm(self) -> str:
        """The assembly text, made from the LLVM text when asked for."""
        if not self._asm:
            self._asm = _assemble(self.llvm, Target(self.kernel.target))
        return self._asm

    def report(self) -> AsmReport:
        """What the assembly shows: vector width, multiply-adds, register spills in loops with multiply-adds."""
        return read_assembly(self.asm)

    features_report = report


def _assemble(text: str, target: Target) -> str:
    import llvmlite.binding as llvm

    from autosched.codegen.cpu.machine import Machine

    machine: Any = Machine.of(target).llvm
    return str(machine.emit_assembly(llvm.parse_assembly(text)))
