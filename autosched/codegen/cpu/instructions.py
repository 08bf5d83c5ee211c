"""How many instructions of which kind a compiled kernel has: known when it is built, before it runs.

The hot loop is the innermost loop with the most multiply-adds, which is the whole register tile: tails have fewer. A
kernel without multiply-adds has the loop with the most vector instructions, and one without loops has all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from autosched.codegen.cpu.assembly import Assembly, Instruction

# What multiplies, that of most products first: tiles, dot products, pairs, multiply-adds, multiplications.
_PRODUCTS = (
    "tdp",
    "vpdp",
    "vdpbf16",
    "vpmadd",
    "pmadd",
    "vfmadd",
    "vfnmadd",
    "vfmsub",
    "fmla",
    "mla",
    "vmulp",
    "mulp",
    "fmul",
)

KINDS = ("fmas", "arithmetic", "loads", "stores", "shuffles", "scalars", "spills")
COUNTS = (*(f"hot_{kind}" for kind in KINDS), *KINDS, "instructions")


def count_instructions(asm: str) -> tuple[int, ...]:
    """Counts of the hot loop and of the whole text, in the order of `COUNTS`.

    loads and stores  of vectors, folded operands included; spills are those of them that reach the stack alone
    arithmetic        what works on vectors and is no multiply-add, load, store or shuffle
    scalars           everything that works on no vector: addresses, jumps, prefetches
    """
    read = Assembly.read(asm)
    hot = max((read.body(loop) for loop in read.innermost), key=_heat, default=read.instructions)
    return (*count_kinds(hot), *count_kinds(read.instructions), len(read.instructions))


def _heat(body: Sequence[Instruction]) -> tuple[int, int]:
    return sum(one.is_fma and one.is_packed for one in body), sum(one.is_vector for one in body)


def count_kinds(body: Sequence[Instruction]) -> tuple[int, ...]:
    """How many instructions of each of `KINDS` there are."""
    found = dict.fromkeys(KINDS, 0)
    for one in body:
        for kind in _kinds(one):
            found[kind] += 1
    return tuple(found.values())


def _kinds(one: Instruction) -> Sequence[str]:
    """What an instruction counts as: a folded operand counts beside what is done with it."""
    if not one.is_vector:
        return ("scalars",)
    if one.on_stack:
        moved = ["spills"]
    elif one.stores:
        moved = ["stores"]
    else:
        moved = ["loads"] if one.loads else []
    if one.is_fma:
        return ("fmas", *moved)
    if one.is_shuffle:
        return ("shuffles", *moved)
    if one.is_move or one.stores or one.name.startswith(("vbroadcast", "vpbroadcast", "vmask", "vgather")):
        return moved
    return ("arithmetic", *moved)


def product_instruction(asm: str) -> str:
    """The instruction by which a kernel multiplies, without its order of operands: "tdpbusd", "vfmadd…ps"; "" for none.

    Of several kinds it is the one that does most at once, wherever it stands.
    """
    names = Counter(one.name for one in Assembly.read(asm).instructions)
    for start in _PRODUCTS:
        found = Counter({name: count for name, count in names.items() if name.startswith(start)})
        if found:
            return re.sub(r"\d{3}(?=[ps][sd]$)", "…", found.most_common(1)[0][0])
    return ""
