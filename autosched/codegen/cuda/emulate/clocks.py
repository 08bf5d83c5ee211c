"""Vector clocks: what each thread has waited for. In the language of words.py; memory.py says what they are for."""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.memory import put, word
from autosched.codegen.cuda.emulate.words import load32, store32


def know_row(thread: int, block: int) -> int:
    """The address of the row of clocks that `thread` has waited for, valid."""
    count = word(block, at.N_CLOCKS)
    me = word(thread, at.INDEX)
    row = word(block, at.CLOCKS) + me * count * 4
    if word(thread, at.KNOWS) != word(block, at.GENERATION):
        base = word(block, at.BASE)
        for k in range(count):
            store32(row + k * 4, base)
        put(thread, at.KNOWS, word(block, at.GENERATION))
    store32(row + me * 4, word(thread, at.CLOCK))
    return row


def take_row(target: int, source: int, count: int) -> int:
    """Let `target` know all that `source` knows."""
    for k in range(count):
        theirs = load32(source + k * 4)
        if theirs > load32(target + k * 4):
            store32(target + k * 4, theirs)
    return 0


def pass_time(thread: int) -> int:
    put(thread, at.CLOCK, word(thread, at.CLOCK) + 1)
    return 0


def warp_sync(block: int, first: int, mask: int) -> int:
    """Lanes of one warp wait for each other, and see each other's memory."""
    if word(block, at.CHECK_RACES) == 0:
        return 0
    stride, count = word(block, at.STRIDE), word(block, at.N_CLOCKS)
    common = word(block, at.SCRATCH)
    for k in range(count):
        store32(common + k * 4, 0)
    for lane in range(32):
        if mask >> lane & 1:
            take_row(common, know_row(first + lane * stride, block), count)
    for lane in range(32):
        if mask >> lane & 1:
            thread = first + lane * stride
            take_row(know_row(thread, block), common, count)
            pass_time(thread)
    return 0


FUNCTIONS = (know_row, take_row, pass_time, warp_sync)
INLINED = (take_row, pass_time)
