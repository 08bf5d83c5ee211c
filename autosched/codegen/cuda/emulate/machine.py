"""The emulator's own machine code: memory checks, scheduler, the switch between stacks; compiled once per process."""

from __future__ import annotations

import ctypes
import platform
from dataclasses import dataclass
from functools import cache

from llvmlite import binding as llvm

from autosched.codegen.cuda.emulate import clocks, collective, mbarrier, memory, schedule, warpgroup, words
from autosched.errors import CodegenError

# `switch(save, next)` keeps the registers that a C function must keep on the running stack, notes its end in the first
# word of `save`, and goes on where the stack noted in the first word of `next` was left. `start` is where a new
# stack begins: it calls the function in rbx with the argument in r12.
_KEPT_REGISTERS = ("rbp", "rbx", "r12", "r13", "r14", "r15")
_SWITCH_STEPS = (
    *(f"pushq %{register}" for register in _KEPT_REGISTERS),
    "movq %rsp, (%rdi)",
    "movq (%rsi), %rsp",
    *(f"popq %{register}" for register in reversed(_KEPT_REGISTERS)),
    "retq",
)
_SWITCH_TEXT = r"\0A".join(_SWITCH_STEPS)
_SWITCH = rf"""
define void @switch(i64 %save, i64 %next) naked noinline {{
  call void asm sideeffect "{_SWITCH_TEXT}", ""()
  unreachable
}}
define void @start() naked noinline {{
  call void asm sideeffect "movq %r12, %rdi\0Acallq *%rbx\0Aud2", ""()
  unreachable
}}
"""
# The words of a new stack: r15 r14 r13 r12 rbx rbp, where `switch` returns to, and two that align the rest to 16 bytes.
STACK_ARGUMENT, STACK_FUNCTION, STACK_RETURN, STACK_DEPTH = 3, 4, 6, 9


@dataclass(frozen=True)
class Machine:
    """Addresses of the compiled functions, and what keeps them in memory."""

    addresses: dict[str, int]
    engine: llvm.ExecutionEngine

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of words."""
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * len(arguments))
        return int(kind(self.addresses[name])(*arguments))


@cache
def target_machine() -> llvm.TargetMachine:
    """The host's target machine, for code that runs here and now."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise CodegenError(
            f"the emulator of CUDA kernels switches stacks by x86-64 code, and this is {platform.machine()}",
            hint="run these checks on an x86-64 machine",
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return _new_target_machine()


def _new_target_machine() -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
    )


def optimise(module: llvm.ModuleRef, passes: tuple[str, ...]) -> None:
    """Run the named passes of LLVM over a module."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(target_machine(), options)
    manager = llvm.create_new_module_pass_manager()
    for name in passes:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)


def to_machine_code(module: llvm.ModuleRef) -> llvm.ExecutionEngine:
    """Compile a module in this process. The engine has to be kept as long as its code is used.

    An engine takes its target machine along when it goes, so each has one of its own.
    """
    target_machine()
    engine = llvm.create_mcjit_compiler(module, _new_target_machine())
    engine.finalize_object()
    return engine


@cache
def machine() -> Machine:
    families = (memory, clocks, collective, mbarrier, warpgroup, schedule)
    functions: list[words.Function] = [function for family in families for function in family.FUNCTIONS]
    host = target_machine()
    text = str(words.to_module(functions, "emulator")) + _SWITCH
    text = text.replace('target triple = "unknown-unknown-unknown"', f'target triple = "{host.triple}"')
    module = llvm.parse_assembly(text)
    module.verify()
    for function in (*memory.INLINED, *clocks.INLINED):
        module.get_function(function.__name__).add_function_attribute("alwaysinline")
    optimise(module, ("always_inliner", "sroa", "simplify_cfg", "instruction_combine", "new_gvn", "simplify_cfg"))
    engine = to_machine_code(module)
    names = [function.__name__ for function in functions] + ["switch", "start"]
    return Machine({name: engine.get_function_address(name) for name in names}, engine)
