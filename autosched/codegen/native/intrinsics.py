"""Atomic operations and calls through addresses, for Numba functions that work on raw 64-bit words.

Every address is an int64 counted in bytes. Orderings are named for what they promise to the caller.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from autosched.target import architecture_of

if TYPE_CHECKING:
    from numba.core.base import BaseContext

_WORD = ir.IntType(64)
_BOOL = ir.IntType(1)


def _pointer(builder: ir.IRBuilder, address: ir.Value, to: ir.Type = _WORD) -> ir.Value:
    return builder.inttoptr(address, to.as_pointer())


@intrinsic
def load_word(typingctx, address):  # type: ignore[no-untyped-def]
    """Read a word that other threads may write; later reads may move before it."""

    def codegen(context: object, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return builder.load_atomic(_pointer(builder, args[0]), "monotonic", 8, typ=_WORD)

    return types.int64(types.int64), codegen


@intrinsic
def load_acquire(typingctx, address):  # type: ignore[no-untyped-def]
    """Read a word; what its writer wrote before is visible afterwards."""

    def codegen(context: object, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8, typ=_WORD)

    return types.int64(types.int64), codegen


@intrinsic
def store_word(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Write a word that other threads may read."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "monotonic", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def store_release(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Write a word; all that was written before is visible to who reads it with `load_acquire`."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def exchange(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Write a word and give what was there, as a full barrier."""

    def codegen(context: object, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return builder.atomic_rmw("xchg", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def fetch_add(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Add to a word and give what was there, as a full barrier."""

    def codegen(context: object, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def compare_and_swap(typingctx, address, old, new):  # type: ignore[no-untyped-def]
    """Write `new` if the word is `old`; tell whether it was."""

    def codegen(context: object, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "monotonic")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


# By architecture: LLVM's intrinsic that tells the core that this thread spins, and its argument (1 is `yield`).
_PAUSES = {"x86_64": ("llvm.x86.sse2.pause", None), "aarch64": ("llvm.aarch64.hint", 1)}
_HERE = _PAUSES.get(architecture_of(platform.machine()))


@intrinsic
def pause(typingctx):  # type: ignore[no-untyped-def]
    """Tell the core that this thread spins."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        if _HERE is not None:
            name, argument = _HERE
            hint = [] if argument is None else [ir.IntType(32)(argument)]
            function_type = ir.FunctionType(ir.VoidType(), [value.type for value in hint])
            builder.call(builder.module.declare_intrinsic(name, (), function_type), hint)
        return context.get_dummy_value()

    return types.void(), codegen


def pause_for(architecture: str, text: str) -> str:
    """LLVM text of this machine with the `pause` of another architecture."""
    if _HERE is None or _PAUSES[architecture] == _HERE:
        return text
    name, argument = _PAUSES[architecture]
    declared, given = ("", "") if argument is None else ("i32", f"i32 {argument}")
    text = re.sub(rf"declare void @{re.escape(_HERE[0])}\([^)]*\)", f"declare void @{name}({declared})", text)
    return re.sub(rf"call void @{re.escape(_HERE[0])}\([^)]*\)", f"call void @{name}({given})", text)


def _call_words(count: int, result: ir.Type) -> Callable[..., ir.Value]:
    """Make the code generator of a call of the function at args[0] with `count` words."""

    def codegen(context: BaseContext, builder: ir.IRBuilder, signature: object, args: Sequence[ir.Value]) -> ir.Value:
        function_type = ir.FunctionType(result, [_WORD] * count)
        value = builder.call(_pointer(builder, args[0], function_type), args[1:])
        return context.get_dummy_value() if isinstance(result, ir.VoidType) else value

    return codegen


@intrinsic
def call_body(typingctx, body, slots, first, last, worker):  # type: ignore[no-untyped-def]
    """Run pieces [first, last) of a phase: body(slots, first, last, worker)."""
    return types.void(*[types.int64] * 5), _call_words(4, ir.VoidType())


@intrinsic
def call_0(typingctx, function):  # type: ignore[no-untyped-def]
    """Call a C function without arguments."""
    return types.void(types.int64), _call_words(0, ir.VoidType())


@intrinsic
def call_2(typingctx, function, a, b):  # type: ignore[no-untyped-def]
    """Call a C function with two words."""
    return types.int64(*[types.int64] * 3), _call_words(2, _WORD)


@intrinsic
def call_7(typingctx, function, a, b, c, d, e, f, g):  # type: ignore[no-untyped-def]
    """Call a C function with seven words: `syscall` with its number and six arguments."""
    return types.int64(*[types.int64] * 8), _call_words(7, _WORD)
