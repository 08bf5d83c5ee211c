"""`CompiledCpuKernel`: a CPU's kernel with what became of it on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from autosched.codegen.compiled import CompiledKernel
from autosched.codegen.cpu.assembly import Assembly
from autosched.codegen.cpu.instructions import count_instructions


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


@dataclass(frozen=True, slots=True)
class AsmReport:
    """vector_bits: the widest register used; fmas: multiply-add instructions; spills: stack moves of vector registers
    in loops with multiply-adds; loops: how many such loops there are; scalar_loops: those of them without a vector;
    sum_spills: spills in loops that only add up, which write no vector but to the stack."""

    vector_bits: int
    fmas: int
    spills: int
    loops: int
    scalar_loops: int = 0
    sum_spills: int = 0


def read_assembly(asm: str) -> AsmReport:
    """Count what the assembly text of x86-64 or AArch64 shows."""
    read = Assembly.read(asm)
    spilled: set[int] = set()
    sum_spilled: set[int] = set()
    loops = scalar_loops = 0
    for loop in read.innermost:
        body = read.body(loop)
        fmas = [one for one in body if one.is_fma]
        if not fmas:
            continue
        loops += 1
        scalar_loops += not any(one.is_packed for one in fmas)
        moved = {loop.start + k for k, one in enumerate(body) if one.on_stack and one.is_move and one.is_vector}
        spilled |= moved
        if not any(one.stores and not one.on_stack for one in body):
            sum_spilled |= moved
    return AsmReport(
        vector_bits=read.vector_bits,
        fmas=sum(one.is_fma for one in read.instructions),
        spills=len(spilled),
        loops=loops,
        scalar_loops=scalar_loops,
        sum_spills=len(sum_spilled),
    )
