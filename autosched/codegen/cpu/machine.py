"""From Numba source to object code: Numba's front end once, then LLVM once with our own target machine."""

from __future__ import annotations

import functools
import linecache
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types
from numba.core import codegen as numba_codegen
from numba.core import compiler, registry
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    AnnotateTypes,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import FixupArgs, IRProcessing, ReconstructSSA, TranslateByteCode

from autosched.codegen.cpu.types import BYTES, I32, I64, VOID
from autosched.errors import CodegenError
from autosched.runtime.cpu.machine import target_machine
from autosched.target import Target

_ARGUMENTS = (types.CPointer(types.voidptr), types.int64, types.int64, types.int64)


class _Listener(numba_codegen.CodeLibrary):  # type: ignore[misc]
    """Takes the LLVM text that Numba lowers and does nothing with it: no optimising, no linking, no execution."""

    def __init__(self, codegen: numba_codegen.Codegen, name: str):
        super().__init__(codegen, name)
        self.texts: list[str] = []

    def add_ir_module(self, ir_module: object) -> None:
        self.texts.append(str(ir_module))

    def add_linking_library(self, library: object) -> None:
        """Numba's own runtime is offered to every function; ours need none of it."""

    def finalize(self) -> None:
        self._finalized = True

    def get_function(self, name: str) -> NoReturn:
        raise CodegenError("Numba asked for a compiled function while lowering")

    def get_llvm_str(self) -> str:
        return "\n".join(self.texts)

    def get_asm_str(self) -> str:
        return ""


class _Pipeline(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's passes without those that generated source has no use for: closures, inlining, rewrites, literals."""

    def define_pipelines(self) -> list[PassManager]:
        passes = PassManager("autosched")
        for step in (TranslateByteCode, FixupArgs, IRProcessing, ReconstructSSA, NopythonTypeInference):
            passes.add_pass(step, step.__name__)
        for step in (PreLowerStripPhis, AnnotateTypes, NativeLowering, NoPythonBackend):
            passes.add_pass(step, step.__name__)
        passes.finalize()
        return [passes]


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


@functools.cache
def _flags() -> compiler.Flags:
    flags = compiler.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.enable_pyobject = flags.nrt = False
    flags.error_model = "numpy"
    return flags


def lower_source(
    source: str, functions: list[str], symbols: list[str], names: Mapping[str, object], file_name: str
) -> list[str]:
    """The LLVM text of each of the source's `functions`, with a C function named by `symbols` around it."""
    linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    scope = dict(names, __name__="autosched.generated")
    exec(compile(source, file_name, "exec"), scope)
    return [_lower_function(scope[f], symbol) for f, symbol in zip(functions, symbols, strict=True)]


def _lower_function(function: object, symbol: str) -> str:
    cpu = registry.cpu_target
    context = cpu.target_context
    library = _Listener(context.codegen(), symbol)
    with global_compiler_lock:
        result = compiler.compile_extra(
            cpu.typing_context, context, function, _ARGUMENTS, types.void, _flags(), {}, library, _Pipeline
        )
    inner = result.fndesc.llvm_func_name
    text = library.get_llvm_str() + _entry_text(symbol, inner)
    text = re.sub(r"@(\"?_ZN08NumbaEnv[^\s\"]*\"?) = common global", r"@\1 = internal global", text)
    return text.replace(f'define i32 @"{inner}"', f'define internal i32 @"{inner}"')


def _entry_text(symbol: str, inner: str) -> str:
    """A C function that calls a Numba function and drops its status: nothing in it can raise."""
    module = ir.Module()
    slots = BYTES.as_pointer()
    error = ir.LiteralStructType([BYTES, I32, BYTES, BYTES, I32]).as_pointer()
    arguments = [slots, I64, I64, I64]
    called = ir.Function(module, ir.FunctionType(I32, [slots, error.as_pointer(), *arguments]), inner)
    entry = ir.Function(module, ir.FunctionType(VOID, arguments), symbol)
    entry.attributes.add("nounwind")
    b = ir.IRBuilder(entry.append_basic_block("entry"))
    b.call(called, [b.alloca(BYTES), b.alloca(error), *entry.args])
    b.ret_void()
    return "\n" + str(entry) + "\n"


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
