"""Reads assembly: how wide the vectors are, and whether loops of multiply-adds move registers to the stack."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^(\.L\w+|[\w$.\"]+):")
_JUMP = re.compile(r"^\s+j\w+\s+(\.L\w+)")
_FMA = re.compile(r"^\s+vfn?m(?:add|sub)\w*")
_SCALAR_FMA = re.compile(r"^\s+vfn?m(?:add|sub)\w*s[sd]\s")
_STACK = re.compile(r"\(%rsp")
_STACK_BY_FRAME = re.compile(r"\(%r[sb]p")
_FRAME = re.compile(r"^\s+movq\s+%rsp, %rbp")  # without this, %rbp is a register like any other
_STORE = re.compile(r"^\s+v(?:mov|ext|mask|comp|scat)\w*\s.*\(%\w+[^)]*\)(?:\s*\{.*\})?$")  # memory as the last operand
_MOVE = re.compile(r"^\s+v?mov\w*\s")
_VECTOR = re.compile(r"%([xyz])mm\d+")
_BITS = {"x": 128, "y": 256, "z": 512}


@dataclass(frozen=True, slots=True)
class AsmReport:
    """vector_bits: the widest register used; fmas: multiply-add instructions; spills: stack moves of vector registers
    in loops with multiply-adds; loops: how many such loops there are; scalar_loops: those of them without a vector;
    sum_spills: spills in loops that only add up, which write no vector but to the stack."""

    vector_bits: int
    fmas: int
    spills: int
    loops: int
    scalar_loops: int = 0
    sum_spills: int = 0


def read_assembly(asm: str) -> AsmReport:
    """Count what the assembly text of x86-64 shows; other machines give zeros."""
    lines = asm.splitlines()
    widths = {m for line in lines for m in _VECTOR.findall(line)}
    labels = {m[1]: i for i, line in enumerate(lines) if (m := _LABEL.match(line))}
    stack = _STACK_BY_FRAME if any(_FRAME.match(line) for line in lines) else _STACK
    spilled: set[int] = set()
    sum_spilled: set[int] = set()
    loops = scalar_loops = 0
    for i, line in enumerate(lines):
        jump = _JUMP.match(line)
        start = labels.get(jump[1]) if jump else None
        if start is None or start > i:
            continue
        body = range(start, i + 1)
        fmas = [k for k in body if _FMA.match(lines[k])]
        if not fmas or _has_inner_loop(lines, labels, start, i):
            continue
        loops += 1
        scalar_loops += all(_SCALAR_FMA.match(lines[k]) for k in fmas)
        moved = {k for k in body if stack.search(lines[k]) and _MOVE.match(lines[k]) and _VECTOR.search(lines[k])}
        spilled |= moved
        if not any(_STORE.match(lines[k]) and not stack.search(lines[k]) for k in body):
            sum_spilled |= moved
    return AsmReport(
        vector_bits=max((_BITS[w] for w in widths), default=0),
        fmas=sum(1 for line in lines if _FMA.match(line)),
        spills=len(spilled),
        loops=loops,
        scalar_loops=scalar_loops,
        sum_spills=len(sum_spilled),
    )


def _has_inner_loop(lines: list[str], labels: dict[str, int], start: int, end: int) -> bool:
    for k in range(start, end):
        jump = _JUMP.match(lines[k])
        at = labels.get(jump[1]) if jump else None
        if at is not None and start < at <= k:
            return True
    return False
