"""PTX instructions that LLVM has no name for, as inline assembly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from autosched.codegen.cpu.types import I32

F32 = ir.FloatType()

# kind: (shape and types of the instruction, words of A, of B, type of a sum)
_PRODUCTS = {
    "f16": ("m16n8k16.row.col.f32.f16.f16.f32", F32),
    "bf16": ("m16n8k16.row.col.f32.bf16.bf16.f32", F32),
    "tf32": ("m16n8k8.row.col.f32.tf32.tf32.f32", F32),
    "s8": ("m16n8k32.row.col.s32.s8.s8.s32", I32),
}


def _assembly(builder: Any, text: str, results: Sequence[Any], constraints: str, args: Sequence[Any]) -> list[Any]:
    """The results of an instruction, which has effects beyond them: it is neither moved nor left out."""
    kind = results[0] if len(results) == 1 else ir.LiteralStructType(list(results)) if results else ir.VoidType()
    function_type = ir.FunctionType(kind, [a.type for a in args])
    value = builder.asm(function_type, text, constraints, list(args), side_effect=True)
    if len(results) <= 1:
        return [value]
    return [builder.extract_value(value, i) for i in range(len(results))]


def mma(builder: Any, kind: str, c: Sequence[Any], a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """c + a * b of a tile: four sums, four words of A and two of B in each lane."""
    name, element = _PRODUCTS[kind]
    letter = "f" if element is F32 else "r"
    text = f"mma.sync.aligned.{name} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
    constraints = ",".join([f"={letter}"] * 4 + ["r"] * 6 + [letter] * 4)
    return _assembly(builder, text, [element] * 4, constraints, [*a, *b, *c])


def ldmatrix(builder: Any, count: int, transposed: bool, address: Any) -> list[Any]:
    """`count` matrices of 8 rows of 16 bytes from shared memory; lane i gives row i % 8 of matrix i / 8."""
    names = ", ".join(f"${i}" for i in range(count))
    flag = ".trans" if transposed else ""
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{flag}.shared.b16 {{{names}}}, [${count}];"
    return _assembly(builder, text, [I32] * count, ",".join(["=r"] * count + ["r", "~{memory}"]), [address])


def to_tf32(builder: Any, word: Any) -> Any:
    """The bits of a float32 rounded to the 11 bits that tf32 keeps."""
    return _assembly(builder, "cvt.rna.tf32.f32 $0, $1;", [I32], "=r,f", [builder.bitcast(word, F32)])[0]


def cp_async(builder: Any, size: int, target: Any, source: Any, taken: Any = None) -> None:
    """Begin a copy of 4, 8 or 16 bytes from device to shared memory; of `taken` bytes, the rest becomes 0."""
    cache = "cg" if size == 16 else "ca"
    text = f"cp.async.{cache}.shared.global [$0], [$1], {size}"
    if taken is None:
        _assembly(builder, f"{text};", [], "r,l,~{memory}", [target, source])
    else:
        _assembly(builder, f"{text}, $2;", [], "r,l,r,~{memory}", [target, source, taken])


def cp_async_commit(builder: Any) -> None:
    """Make a group of the copies begun since the last one."""
    _assembly(builder, "cp.async.commit_group;", [], "~{memory}", [])


def cp_async_wait(builder: Any, groups: int) -> None:
    """Wait until at most the last `groups` groups of this thread's copies are under way."""
    _assembly(builder, f"cp.async.wait_group {groups};", [], "~{memory}", [])
