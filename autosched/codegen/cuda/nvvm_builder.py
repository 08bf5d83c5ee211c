"""An LLVM builder that keeps to NVVM IR: libnvvm reads the language of LLVM 7 for all but the newest architectures."""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.types import constant


class NvvmBuilder(ir.IRBuilder):  # type: ignore[misc]
    """llvmlite's builder without instructions that came after LLVM 7."""

    def fneg(self, arg: ir.Value, name: str = "", flags: tuple[str, ...] = ()) -> ir.Value:
        """-arg; LLVM 7 writes it as -0.0 - arg."""
        return self.fsub(constant(arg.type, -0.0), arg, name=name)
