"""Atomic operations and calls through addresses, for functions that work on raw 64-bit words.

Every address is an int64 counted in bytes. Orderings are named for what they promise to the caller.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from autosched.codegen.cpu.front_end import Intrinsic
from autosched.codegen.cpu.types import I1, I32, I64, VOID, call_intrinsic


def _at(builder: ir.IRBuilder, address: ir.Value, to: ir.Type = I64) -> ir.Value:
    return builder.inttoptr(address, to.as_pointer())


def _load(ordering: str) -> Callable[..., ir.Value]:
    return lambda b, address: b.load_atomic(_at(b, address), ordering, 8, typ=I64)


def _store(ordering: str) -> Callable[..., ir.Value]:
    return lambda b, address, value: b.store_atomic(value, _at(b, address), ordering, 8)


def _update(operation: str) -> Callable[..., ir.Value]:
    return lambda b, address, value: b.atomic_rmw(operation, _at(b, address), value, "seq_cst")


def _swap(b: ir.IRBuilder, address: ir.Value, old: ir.Value, new: ir.Value) -> ir.Value:
    return b.extract_value(b.cmpxchg(_at(b, address), old, new, "seq_cst", "monotonic"), 1)


def _pause(b: ir.IRBuilder) -> ir.Value:
    if b.module.triple.startswith("aarch64"):
        return call_intrinsic(b, "llvm.aarch64.hint", VOID, [I32(1)])  # 1 is `yield`
    return call_intrinsic(b, "llvm.x86.sse2.pause", VOID, [])


def _call(n_words: int, result: ir.Type = I64) -> Intrinsic:
    """A call of the function at the first word, with `n_words` more."""
    kind = ir.FunctionType(result, [I64] * n_words)
    return Intrinsic((I64,) * (n_words + 1), result, lambda b, f, *words: b.call(_at(b, f, kind), words))


load_word = Intrinsic((I64,), I64, _load("monotonic"))  # later reads may move before it
load_acquire = Intrinsic((I64,), I64, _load("acquire"))  # what the word's writer wrote before is visible afterwards
store_word = Intrinsic((I64, I64), VOID, _store("monotonic"))
store_release = Intrinsic((I64, I64), VOID, _store("release"))  # all written before is visible to `load_acquire`
exchange = Intrinsic((I64, I64), I64, _update("xchg"))  # writes a word and gives what was there, as a full barrier
fetch_add = Intrinsic((I64, I64), I64, _update("add"))  # adds to a word and gives what was there, as a full barrier
compare_and_swap = Intrinsic((I64, I64, I64), I1, _swap)  # (address, old, new): writes if it is `old`; was it?
pause = Intrinsic((), VOID, _pause)  # tells the core that this thread spins
call_body = _call(4, VOID)  # (body, slots, first, last, worker): runs pieces [first, last) of a phase
call_0 = _call(0, VOID)  # a C function without arguments
call_2 = _call(2)
call_7 = _call(7)  # `syscall` with its number and six arguments
