"""The quick way of a call in machine code: finds the compiled function for arguments of a kind that was seen before.

The functions are compiled by `codegen.cpu.front_end`, never run by Python. Addresses are int64 counted in bytes. The
caller holds the interpreter's lock, so nothing changes what is read here before the compiled function is called.

A state is a tuple whose first item is an array of words, in the order of `call_abi.CELL`. The first of them is the
address of the kinds, 0 where none are known: their number of arguments, how many kinds there are, then the kinds. A
kind is the number of its words, its compiled function, then each argument: its class and 0, or for an array its class,
its dtype, its number of dimensions, how many of their extents count, and these.
"""

from __future__ import annotations

from llvmlite import ir

from autosched.codegen.cpu.front_end import Intrinsic
from autosched.codegen.cpu.types import I64
from autosched.codegen.native.intrinsics import load_word, store_word
from autosched.own.call_abi import CELL, CLASS, DATA, DTYPE, EXTENTS, ITEMS, NDIM, SIZE

KINDS, CALL, USUAL, GET, BLOCKS, ENTERED, DROP = (8 * number for number in range(len(CELL)))
_INT = 0xFFFFFFFF  # a C int, whose place has the width of a word


def _call_of(n_words: int) -> Intrinsic:
    """A call of the C function at the first word, with `n_words` more."""
    kind = ir.FunctionType(I64, [I64] * n_words)
    return Intrinsic((I64,) * (n_words + 1), I64, lambda b, f, *words: b.call(b.inttoptr(f, kind.as_pointer()), words))


call_1, call_3 = _call_of(1), _call_of(3)


def call(state: int, args: int, words: int) -> int:
    """A method of Python: the positional arguments as a tuple, those by name as a dict or 0."""
    cell = load_word(load_word(state + ITEMS) + DATA)
    if words == 0 and load_word(cell + KINDS) != 0:
        found = find(load_word(cell + KINDS), args)
        if found != 0 and is_outside(cell):
            return call_3(load_word(cell + CALL), found, args, 0)
    return call_3(load_word(cell + CALL), load_word(cell + USUAL), args, words)


def is_outside(cell: int) -> bool:
    """Whether no block says which configurations are used."""
    store_word(cell + ENTERED, 0)
    call_3(load_word(cell + GET), load_word(cell + BLOCKS), 0, cell + ENTERED)
    entered = load_word(cell + ENTERED)
    if entered == 0:
        return False
    n = load_word(entered + SIZE)
    call_1(load_word(cell + DROP), entered)
    return n == 0


def find(kinds: int, args: int) -> int:
    """The compiled function for these arguments; 0 for none."""
    if load_word(args + SIZE) != load_word(kinds):
        return 0
    kind = kinds + 16
    for _ in range(load_word(kinds + 8)):
        if fits(kind + 16, args, load_word(kinds)):
            return load_word(kind + 8)
        kind += 8 * load_word(kind)
    return 0


def fits(at: int, args: int, n: int) -> bool:
    """Whether arguments are of the kind whose first argument is described at an address."""
    for i in range(n):
        value = load_word(args + ITEMS + 8 * i)
        if load_word(value + CLASS) != load_word(at):
            return False
        dtype = load_word(at + 8)
        at += 16
        if dtype != 0:
            if load_word(value + DTYPE) != dtype or load_word(value + NDIM) & _INT != load_word(at):
                return False
            extents, n_extents = load_word(value + EXTENTS), load_word(at + 8)
            at += 16
            for d in range(n_extents):
                if load_word(extents + 8 * d) != load_word(at + 8 * d):
                    return False
            at += 8 * n_extents
    return True
