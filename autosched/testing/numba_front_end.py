"""Numba's own compilation of generated source, of CPUs and GPUs, to compare `codegen.cpu.front_end` with."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import codegen as numba_codegen
from numba.core import compiler, registry
from numba.core.compiler_lock import global_compiler_lock
from numba.extending import intrinsic

from autosched.codegen.cpu.front_end import Intrinsic
from autosched.codegen.cpu.types import BYTES, I1, I32, I64, VOID
from autosched.errors import CodegenError

if TYPE_CHECKING:
    from autosched.codegen.cuda.tile import DeviceTile

_ARGUMENTS = (types.CPointer(types.voidptr), types.int64, types.int64, types.int64)
_TYPES = {BYTES: types.voidptr, I64: types.int64, I1: types.boolean, VOID: types.void}


class _Listener(numba_codegen.CodeLibrary):
    """Takes the LLVM text that Numba lowers and does nothing with it: no optimising, no linking, no execution."""

    def __init__(self, codegen: object, name: str):
        super().__init__(codegen, name)
        self.texts: list[str] = []

    def add_ir_module(self, ir_module: object) -> None:
        self.texts.append(str(ir_module))

    def add_linking_library(self, library: object) -> None:
        """Numba's own runtime is offered to every function; ours need none of it."""

    def finalize(self) -> None:
        self._finalized = True

    def get_function(self, name: str) -> object:
        raise CodegenError("Numba asked for a compiled function while lowering")

    def get_llvm_str(self) -> str:
        return "\n".join(self.texts)

    def get_asm_str(self) -> str:
        return ""


def lower_by_numba(
    source: str, functions: Sequence[str], symbols: Sequence[str], callees: Mapping[str, Intrinsic]
) -> list[str]:
    """What `codegen.cpu.machine.lower_source` gives, made by Numba: an LLVM text for each function."""
    file_name = f"<{symbols[0]}>"
    linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    scope: dict[str, object] = {name: _numba_intrinsic(name, x) for name, x in callees.items()}
    scope["__name__"] = "autosched.generated"
    exec(compile(source, file_name, "exec"), scope)
    return [_lower(scope[f], symbol) for f, symbol in zip(functions, symbols, strict=True)]


def launches_by_numba(
    source: str, functions: Sequence[str], symbols: Sequence[str], pointers: Sequence[int],
    bounds: Sequence[tuple[int, int]], tiles: Iterable[DeviceTile], n_numbers: int = 0,
) -> list[str]:  # fmt: skip
    """What `codegen.cuda.launch_code.lower_launches` gives, made by Numba."""
    from numba.cuda.extending import intrinsic as cuda_intrinsic

    from autosched.codegen.cuda.launch_code import CALLEES, run_tile
    from autosched.codegen.cuda.numba_cuda import lower_kernels

    callees = {"offset": CALLEES["offset"]} | {tile.name: run_tile(tile) for tile in tiles}
    names = {name: _numba_intrinsic(name, x, cuda_intrinsic) for name, x in callees.items()}
    return lower_kernels(source, functions, symbols, pointers, bounds, names, f"<{symbols[0]}>", n_numbers)


def _numba_intrinsic(name: str, ours: Intrinsic, declare: Callable[..., object] = intrinsic) -> object:
    def codegen(context: Any, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        result = ours.emit(builder, *args)
        return context.get_dummy_value() if ours.result == VOID else result

    signature = _TYPES[ours.result](*(_TYPES[kind] for kind in ours.arguments))
    scope: dict[str, Any] = {"signature": signature, "codegen": codegen}
    parameters = ", ".join(["typingctx", *(f"p{i}" for i in range(len(ours.arguments)))])  # Numba counts them
    exec(f"def {name}({parameters}):\n    return signature, codegen", scope)
    return declare(scope[name])


def _lower(function: object, symbol: str) -> str:
    flags = compiler.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.enable_pyobject = flags.nrt = False
    flags.error_model = "numpy"
    cpu = registry.cpu_target
    library = _Listener(cpu.target_context.codegen(), symbol)
    with global_compiler_lock:
        result = compiler.compile_extra(
            cpu.typing_context, cpu.target_context, function, _ARGUMENTS, types.void, flags, {}, library
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
    b = ir.IRBuilder(entry.append_basic_block("entry"))
    b.call(called, [b.alloca(BYTES), b.alloca(error), *entry.args])
    b.ret_void()
    return "\n" + str(entry) + "\n"
