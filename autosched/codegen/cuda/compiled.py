"""`CompiledCudaKernel`: a GPU's kernel with what became of it on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autosched.codegen.compiled import CompiledKernel
from autosched.runtime.cuda.kernel import CudaKernel, Resources

RESOURCES = "resources"  # the name of its features
LINKED_MODULE = "\n; ---- linked to it ----\n"  # between the NVVM IR texts of one launch: a user's device functions

# Patterns of PTX instructions, each at the beginning of a line.
_LINE = r"^\s*(?:@!?%p\d+\s+)?"
KINDS: Mapping[str, str] = {
    "tensor": _LINE + r"(?:mma|wgmma)\.",
    "fma": _LINE + r"fma\.",
    "arithmetic": _LINE + r"(?:add|sub|mul|mad|div|min|max)\.",
    "global loads": _LINE + r"ld\.(?:weak\.)?global",
    "shared loads": _LINE + r"(?:ld\.(?:weak\.)?shared|ldmatrix)",
    "global stores": _LINE + r"st\.(?:weak\.)?global",
    "shared stores": _LINE + r"st\.(?:weak\.)?shared",
    "copies": _LINE + r"cp\.async",
    "barriers": _LINE + r"(?:bar|barrier)\.",
}


@dataclass(slots=True)
class CompiledCudaKernel(CompiledKernel):
    """kernel: what runs; `source`: the readable numba.cuda source; `llvm`: its NVVM IR; `asm`: its PTX."""

    def report(self) -> Resources:
        """Registers, shared memory, stack and spills as the assembler reports them, and the occupancy."""
        assert isinstance(self.kernel, CudaKernel), "a compiled CUDA kernel holds one"
        return self.kernel.resources

    def instructions(self) -> tuple[int, ...]:
        """How many instructions of each of `KINDS` the PTX has, wherever they stand."""
        text = self.kernel.asm
        return tuple(len(re.findall(pattern, text, re.MULTILINE)) for pattern in KINDS.values())

    def features(self) -> Mapping[str, tuple[float, ...]]:
        """Registers, shared memory and occupancy of the worst launch, threads of a block, then the instructions."""
        used = self.report()
        assert isinstance(self.kernel, CudaKernel), "a compiled CUDA kernel holds one"
        threads = max((launch.threads for launch in self.kernel.launches), default=0)
        numbers = (used.registers, used.shared_bytes, used.occupancy, threads)
        return {RESOURCES: (*map(float, numbers), *map(float, self.instructions()))}
