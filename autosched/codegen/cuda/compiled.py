"""`CompiledCudaKernel`: a GPU's kernel with what became of it on the way."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.codegen.compiled import CompiledKernel
from autosched.runtime.cuda.kernel import CudaKernel, Resources


@dataclass(slots=True)
class CompiledCudaKernel(CompiledKernel):
    """kernel: what runs; `source`: the readable numba.cuda source; `llvm`: its NVVM IR; `asm`: its PTX."""

    def report(self) -> Resources:
        """Registers, shared memory, stack and spills as the assembler reports them, and the occupancy."""
        assert isinstance(self.kernel, CudaKernel), "a compiled CUDA kernel holds one"
        return self.kernel.resources

    def instructions(self) -> tuple[int, ...]:
        """Nothing: what a GPU's machine code consists of is not counted."""
        return ()
