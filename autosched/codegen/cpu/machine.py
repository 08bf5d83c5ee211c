"""From generated source to an optimised LLVM module, by our own target machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm
from llvmlite import ir

from autosched.codegen.cpu.front_end import Compiler, Intrinsic, Signature
from autosched.codegen.cpu.types import BYTES, I64
from autosched.runtime.cpu.machine import target_machine
from autosched.target import Target


@dataclass(frozen=True, slots=True)
class Machine:
    """LLVM's target machine for a system, a CPU name and its features."""

    triple: str
    mcpu: str
    features: str

    @staticmethod
    def of(target: Target) -> Machine:
        return Machine(target.triple, target.mcpu, target.llvm_features)

    @property
    def llvm(self) -> llvm.TargetMachine:
        return target_machine(self.triple, self.mcpu, self.features)


def lower_source(
    source: str, functions: Sequence[str], symbols: Sequence[str], callees: Mapping[str, Intrinsic]
) -> list[str]:
    """The LLVM text of the source's `functions`, each a C function (slots, first, last, worker) with its symbol."""
    module = ir.Module("kernel")
    compiler = Compiler(source, module, callees)
    for function, symbol in zip(functions, symbols, strict=True):
        compiler.compile(function, Signature(symbol, (BYTES.as_pointer(), I64, I64, I64)))
    return [str(module)]


def optimise(texts: list[str], machine: Machine) -> llvm.ModuleRef:
    """One optimised LLVM module of all texts."""
    module = None
    for text in texts:
        part = llvm.parse_assembly(text)
        part.verify()
        if module is None:
            module = part
        else:
            module.link_in(part)
    assert module is not None, "a kernel has at least one phase"
    module.triple = machine.triple
    module.data_layout = str(machine.llvm.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine.llvm, options)
    builder.getModulePassManager().run(module, builder)
    return module
