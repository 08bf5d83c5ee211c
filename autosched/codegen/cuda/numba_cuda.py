"""All that we know of the insides of numba-cuda: its front end, its entry functions, and how libnvvm is called."""

from __future__ import annotations

import contextlib
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, TypeAlias

from llvmlite import ir as llvm
from numba import types

from autosched.errors import CodegenError, DeviceError

try:  # Numba alone has an older `numba.cuda`, without what is used here
    from numba import cuda
    from numba.cuda import dispatcher as numba_dispatcher
    from numba.cuda.compiler import compile_cuda, kernel_fixup
    from numba.cuda.core.compiler_lock import global_compiler_lock
    from numba.cuda.cudadrv import nvvm
    from numba.cuda.extending import intrinsic
except ImportError:
    raise DeviceError(
        "the package numba-cuda is missing, by which code for GPUs is made", hint="pip install 'autosched[cuda]'"
    ) from None

if TYPE_CHECKING:
    from llvmlite import ir
    from numba.core.base import BaseContext


_FRONT_END_CC = (7, 5)  # the front end's code is the same for all architectures; libnvvm specialises it
_LIBDEVICE_CALL = "__nv_"
_FAST = {"ftz": True, "fma": True, "prec_div": False, "prec_sqrt": False}  # libnvvm's part of fastmath
# Exact division and roots call functions, beside which the assembler lets products of warpgroups wait for each other;
# those in their place are off by 2 units in the last place of a float32.
_WITHOUT_CALLS = {"prec_div": False, "prec_sqrt": False}


def begin_module(name: str) -> llvm.Module:
    """An empty module of NVVM IR."""
    module = llvm.Module(name)
    module.triple, module.data_layout = "nvptx64-nvidia-cuda", nvvm.NVVM().data_layout
    nvvm.add_ir_version(module)
    return module


def mark_kernel(entry: llvm.Function, bounds: Sequence[int]) -> None:
    """Say of the module's only kernel that it is one.

    bounds   threads of a block, least number of blocks that a multiprocessor is to hold; 0 for none
    """
    nvvm.set_cuda_kernel(entry)
    nvvm.set_launch_bounds(entry, tuple(b for b in bounds if b))


def _access(name: str, result: types.Type, load: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> object:
    """The function that generated source calls to read a number at (an array's address, which element)."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return load(builder, *args)

    def at(typingctx, pointer, index):  # type: ignore[no-untyped-def]
        return result(types.voidptr, types.int64), codegen

    at.__name__ = name
    return intrinsic(at)


def _element(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value, kind: ir.Type) -> ir.Value:
    return builder.load(builder.gep(builder.bitcast(pointer, kind.as_pointer()), [index]))


def _plain(kind: ir.Type) -> Callable[..., ir.Value]:
    return lambda builder, pointer, index: _element(builder, pointer, index, kind)


def _widened(kind: ir.Type) -> Callable[..., ir.Value]:
    return lambda builder, pointer, index: builder.fpext(_element(builder, pointer, index, kind), llvm.DoubleType())


def _bfloat16(builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value) -> ir.Value:
    """It is the upper half of a float32."""
    upper = builder.zext(_element(builder, pointer, index, llvm.IntType(16)), llvm.IntType(32))
    return builder.fpext(builder.bitcast(builder.shl(upper, llvm.IntType(32)(16)), llvm.FloatType()), llvm.DoubleType())


@intrinsic
def add_int32(typingctx, pointer, value):  # type: ignore[no-untyped-def]
    """Add a number to what is at an address, as one step for all threads."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        kind = llvm.IntType(32)
        builder.atomic_rmw(
            "add", builder.bitcast(args[0], kind.as_pointer()), builder.trunc(args[1], kind), "monotonic"
        )
        return context.get_dummy_value()

    return types.void(types.voidptr, types.int64), codegen


# What sources written by hand read arrays with, floats as float64, and count with.
ACCESSES: Mapping[str, object] = {
    "int32_at": _access("int32_at", types.int32, _plain(llvm.IntType(32))),
    "float16_at": _access("float16_at", types.float64, _widened(llvm.HalfType())),
    "bfloat16_at": _access("bfloat16_at", types.float64, _bfloat16),
    "float32_at": _access("float32_at", types.float64, _widened(llvm.FloatType())),
    "float64_at": _access("float64_at", types.float64, _plain(llvm.DoubleType())),
    "add_int32": add_int32,
}


def lower_kernels(
    source: str,
    functions: Sequence[str],
    symbols: Sequence[str],
    pointers: Sequence[int],
    bounds: Sequence[tuple[int, int]],
    names: Mapping[str, object],
    file_name: str,
    n_sizes: int = 0,
) -> list[str]:
    """The NVVM IR text of each of the source's `functions`, whose entry is called by its symbol.

    pointers  parameters of each function
    bounds    (threads of a block, least number of blocks that a multiprocessor is to hold) of each
    n_sizes   integers of 32 bits, which each takes behind the pointers
    """
    linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    scope = dict(names, cuda=cuda, int64=types.int64, __name__="autosched.generated")
    exec(compile(source, file_name, "exec"), scope)
    return [
        _lower_kernel(scope[function], symbol, [types.voidptr] * count + [types.int32] * n_sizes, bound)
        for function, symbol, count, bound in zip(functions, symbols, pointers, bounds, strict=True)
    ]


def _lower_kernel(
    function: Callable[..., None], symbol: str, arguments: Sequence[types.Type], bounds: tuple[int, int]
) -> str:
    result = compile_cuda(function, types.void, tuple(arguments), cc=_FRONT_END_CC, nvvm_options={"opt": 3})
    library, mangled = result.library, result.fndesc.llvm_func_name
    kernel = library.get_function(mangled)
    kernel_fixup(kernel, False)
    nvvm.set_launch_bounds(kernel, tuple(b for b in bounds if b))
    texts = library.llvm_strs
    if len(texts) != 1:
        raise CodegenError(f"Numba made {len(texts)} modules of one kernel, expected one")
    text = texts[0].replace(f'"{mangled}"', mangled).replace(mangled, symbol)
    return re.sub(r"@(\"?_ZN08NumbaEnv[^\s\"]*\"?) = common global", r"@\1 = internal global", text)


def lower_user_kernel(
    function: Callable[..., object], arguments: Sequence[object], symbol: str, bounds: Sequence[int], *, fastmath: bool
) -> list[str]:
    """The NVVM IR texts of a user's kernel, its entry called by a symbol, and of the device functions that it calls.

    arguments  Numba's types
    bounds     as `launch_bounds` of `numba.cuda.jit`; () for none
    Raises     CodegenError with what Numba says
    """
    options = {"opt": 3, "fastmath": fastmath}
    try:
        with global_compiler_lock, _any_device():
            result = compile_cuda(
                function, types.void, tuple(arguments), cc=_FRONT_END_CC, fastmath=fastmath, nvvm_options=options
            )
    except Exception as error:  # of the user's function: Numba's errors have no common type
        raise CodegenError(f"Numba does not compile {function.__name__}: {error}") from error
    library, mangled = result.library, result.fndesc.llvm_func_name
    kernel = library.get_function(mangled)
    kernel_fixup(kernel, False)
    if bounds:
        nvvm.set_launch_bounds(kernel, tuple(bounds))
    texts = [text.replace(f'"{mangled}"', mangled).replace(mangled, symbol) for text in library.llvm_strs]
    return [re.sub(r"@(\"?_ZN08NumbaEnv[^\s\"]*\"?) = common global", r"@\1 = internal global", t) for t in texts]


@contextlib.contextmanager
def _any_device() -> Iterator[None]:
    """Let device functions be compiled without a GPU: Numba asks the current one for its compute capability."""
    kept = numba_dispatcher.get_current_device
    numba_dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=_FRONT_END_CC)
    try:
        yield
    finally:
        numba_dispatcher.get_current_device = kept


# What a kernel takes for an argument: "array", a dtype, or those of a tuple's parts.
Plan: TypeAlias = "str | tuple[Plan, ...]"


def parameter_plan(kind: object) -> Plan:
    """What a kernel takes for an argument of one of Numba's types: "array", a dtype, or a tuple of those.

    An array is seven words and more: two null pointers, elements, bytes of an element, the address, extents, strides.
    Raises CodegenError for a type that no kernel takes.
    """
    if isinstance(kind, types.Array):
        return "array"
    if isinstance(kind, types.BaseTuple):
        return tuple(parameter_plan(part) for part in kind)
    if isinstance(kind, types.Boolean | types.Integer | types.Float | types.Complex):
        return str(kind)
    raise CodegenError(f"a CUDA kernel takes no argument of type {kind}", hint="give arrays and numbers")


def to_ptx(
    texts: Sequence[str], arch: str, by_value: Mapping[str, range] | None = None, *, fastmath: bool = False
) -> str:
    """PTX of NVVM IR texts as one module, for an architecture ("compute_90a"). Raises CodegenError with the log.

    by_value  by symbol the parameters that are tensor maps themselves, which the IR knows as pointers to them
    """
    try:
        return _to_ptx(texts, arch, by_value, fastmath)
    except CodegenError as error:
        apart = [_HALF_ACCESS.sub(r"\1 volatile half\2, half addrspace(3)*", text) for text in texts]
        if _UNSELECTED not in str(error) or apart == list(texts):
            raise
        return _to_ptx(apart, arch, by_value, fastmath)


# Before sm_100 libnvvm joins neighbouring halves in shared memory to vectors that it then has no instruction for (nine
# loads in a row, for instance). Volatile accesses it leaves alone.
_UNSELECTED = "unsupported operation"
_HALF_ACCESS = re.compile(r"(load|store) half( [^\s,]+)?, half addrspace\(3\)\*")


def _to_ptx(texts: Sequence[str], arch: str, by_value: Mapping[str, range] | None, fastmath: bool) -> str:
    options = _FAST if fastmath else _WITHOUT_CALLS if any("wgmma." in text for text in texts) else {}
    unit = nvvm.CompilationUnit({"opt": 3, "arch": arch} | options)
    for text in texts:
        unit.add_module(nvvm.llvm_replace(text).encode())
    try:
        unit.verify()
        if any(_LIBDEVICE_CALL in text for text in texts):
            unit.driver._binding.lazy_add_module_to_program(unit._handle, *_libdevice(), "libdevice")
        ptx = str(unit.compile().decode().strip("\x00").strip())
    except Exception as error:
        raise CodegenError(f"libnvvm refuses the code for {arch}: {unit.get_log() or error}") from error
    for symbol, numbers in (by_value or {}).items():
        for number in numbers:
            ptx = _by_value(ptx, f"{symbol}_param_{number}")
    return ptx


def _by_value(ptx: str, parameter: str) -> str:
    """Let a parameter be 128 bytes, and what was loaded from it be its address."""
    name = re.escape(parameter)
    ptx = re.sub(rf"\.param \.u64 (?:\.ptr \.align \d+ )?{name}\b", f".param .align 64 .b8 {parameter}[128]", ptx)
    address = rf"mov.b64 \t\1, {parameter};\n\tcvta.param.u64 \t\1, \1;"
    return re.sub(rf"ld\.param\.u64 \t(%\w+), \[{name}\];", address, ptx)


def _libdevice() -> tuple[bytes, int]:
    code = nvvm.LibDevice().get()
    return code, len(code)
