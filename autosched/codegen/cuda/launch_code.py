"""From the source of a kernel's launches to NVVM IR, by the front end for generated source.

Numba compiles the same text to the same machine code, but for a few registers. It takes 10 to 70 ms longer over each
launch, since it infers types that are known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llvmlite import ir

from autosched.codegen.cpu.front_end import Compiler, Intrinsic, Signature
from autosched.codegen.cpu.types import BYTES, I32, I64, VOID, call_intrinsic
from autosched.codegen.cuda.numba_cuda import begin_module, mark_kernel
from autosched.codegen.cuda.nvvm_builder import NvvmBuilder
from autosched.codegen.cuda.tile import DeviceTile, define_device_tile

_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}


def lower_launches(
    source: str, functions: Sequence[str], symbols: Sequence[str], pointers: Sequence[int],
    bounds: Sequence[tuple[int, int]], tiles: Iterable[DeviceTile], n_numbers: int = 0,
) -> list[str]:  # fmt: skip
    """The NVVM IR text of each of the source's `functions`, whose entry is called by its symbol.

    pointers   parameters of each function
    bounds     (threads of a block, least number of blocks that a multiprocessor is to hold) of each
    n_numbers  integers of 32 bits, which each takes behind the pointers
    """
    callees = {**CALLEES} | {tile.name: run_tile(tile) for tile in tiles}
    texts = []
    for function, symbol, count, bound in zip(functions, symbols, pointers, bounds, strict=True):
        module = begin_module(function)
        compiler = Compiler(source, module, callees, make_builder=NvvmBuilder)
        entry = compiler.compile(function, Signature(symbol, (BYTES,) * count + (I32,) * n_numbers))
        mark_kernel(entry, bound)
        texts.append(str(module))
    return texts


def _axis(register: str) -> Intrinsic:
    def emit(builder: ir.IRBuilder) -> ir.Value:
        return builder.sext(call_intrinsic(builder, f"llvm.nvvm.read.ptx.sreg.{register}", I32, []), I64)

    return Intrinsic((), I64, emit)


def _synchronise(builder: ir.IRBuilder) -> None:
    """All threads of a block wait for each other."""
    call_intrinsic(builder, "llvm.nvvm.barrier0", VOID, [])


def _offset(builder: ir.IRBuilder, pointer: ir.Value, count: ir.Value) -> ir.Value:
    """The address `count` bytes after `pointer`."""
    return builder.gep(pointer, [count], inbounds=True)


def run_tile(tile: DeviceTile) -> Intrinsic:
    """What runs a tile: (buffers…, variables…, words of checks)."""

    def emit(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        numbers = (builder.trunc(a, I32) if a.type == I64 else a for a in arguments)
        builder.call(define_device_tile(builder.module, tile), [*numbers])

    status = (BYTES,) if tile.checks else ()
    return Intrinsic((BYTES,) * len(tile.buffers) + (I64,) * len(tile.variables) + status, VOID, emit)


CALLEES: Mapping[str, Intrinsic] = {
    "offset": Intrinsic((BYTES, I64), BYTES, _offset),
    "int64": Intrinsic((I64,), I64, lambda builder, number: number),  # as all numbers are
    "cuda.syncthreads": Intrinsic((), VOID, _synchronise),
    **{f"cuda.{name}.{axis}": _axis(f"{register}.{axis}") for name, register in _REGISTERS.items() for axis in "xyz"},
}
