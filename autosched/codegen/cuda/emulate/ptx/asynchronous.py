"""Copies that a thread begins and waits for: cp.async."""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.ptx.parse import Address, Immediate, Instruction
from autosched.codegen.cuda.emulate.ptx.state import Assembly, only, ptx

_CACHE = frozenset(("ca", "cg", "L2__64B", "L2__128B", "L2__256B"))


@ptx("cp")
def _cp(state: Assembly, instruction: Instruction) -> None:
    parts, body = instruction.opcode[1:], state.body
    if parts[:1] != ("async",):
        raise state.refuse(f"instruction `{instruction.text}`")
    if parts[:2] == ("async", "mbarrier"):
        _arrive(state, instruction)
    elif parts[:3] == ("async", "bulk", "tensor"):
        _tensor(state, instruction)
    elif parts[:2] == ("async", "bulk"):
        _bulk(state, instruction)
    elif parts == ("async", "commit_group"):
        body.store(at.GROUP, body.new(f"add i64 {body.load(at.GROUP)}, 1"))
    elif parts == ("async", "wait_group"):
        body.add(f"call i64 @emu.wait_copies(ptr %ctx, i64 {state.word(instruction.operands[0])})")
    elif parts == ("async", "wait_all"):
        body.add("call i64 @emu.wait_copies(ptr %ctx, i64 -1)")
    else:
        only(state, instruction, _CACHE | {"async", "shared", "shared__cta", "global"})
        target, source, size, *taken = instruction.operands
        if not isinstance(size, Immediate) or size.value not in (4, 8, 16) or ("cg" in parts and size.value != 16):
            raise state.refuse(f"instruction `{instruction.text}`, for its size")
        count = str(size.value)
        amount = state.word(taken[0]) if taken else count
        places = f"i64 {state.address(target)}, i64 {state.address(source)}"
        body.check(body.new(f"call i64 @emu.copy(ptr %ctx, {places}, i64 {count}, i64 {amount}, i64 {state.site})"))


_ARRIVE = frozenset(("async", "mbarrier", "arrive", "noinc", "shared", "shared__cta", "b64"))


def _arrive(state: Assembly, instruction: Instruction) -> None:
    """An arrival when the copies before have ended."""
    parts = only(state, instruction, _ARRIVE)
    if not any(part.startswith("shared") for part in parts):
        raise state.refuse(f"instruction `{instruction.text}` on a generic address")
    address = state.address(instruction.operands[0])
    arguments = f"i64 {address}, i64 {int('noinc' in parts)}, i64 {state.site}"
    state.body.check(state.body.new(f"call i64 @emu.copies_arrive(ptr %ctx, {arguments})"))


_BULK = frozenset(("async", "bulk", "shared__cluster", "shared__cta", "global", "mbarrier__complete_tx__bytes"))


def _bulk(state: Assembly, instruction: Instruction) -> None:
    """A copy of one row of bytes that an mbarrier counts."""
    parts, body = only(state, instruction, _BULK), state.body
    if parts[2:] not in (
        ("shared__cluster", "global", "mbarrier__complete_tx__bytes"),
        ("shared__cta", "global", "mbarrier__complete_tx__bytes"),
    ):
        raise state.refuse(f"instruction `{instruction.text}`")
    target, source, size, barrier = instruction.operands
    places = f"i64 {state.address(target)}, i64 {state.address(source)}, i64 {state.word(size)}"
    arguments = f"{places}, i64 {state.address(barrier)}, i64 {state.site}"
    body.check(body.new(f"call i64 @emu.bulk_copy(ptr %ctx, {arguments})"))


_TENSOR = (
    ("shared__cluster", "global", "mbarrier__complete_tx__bytes"),
    ("shared__cluster", "global", "tile", "mbarrier__complete_tx__bytes"),
    ("shared__cta", "global", "tile", "mbarrier__complete_tx__bytes"),
)


def _tensor(state: Assembly, instruction: Instruction) -> None:
    """A copy of a box of a tensor, which a map describes, to shared memory."""
    parts, body = instruction.opcode[4:], state.body
    rank = int(parts[0][0]) if parts and parts[0] in ("1d", "2d", "3d", "4d", "5d") else 0
    in_cluster = parts[-1] == "multicast__cluster"
    kind = parts[1:-1] if in_cluster else parts[1:]
    if not rank or kind not in _TENSOR or len(instruction.operands) != 3 + in_cluster:
        raise state.refuse(f"instruction `{instruction.text}`")
    target, source, barrier, *blocks = instruction.operands
    if not isinstance(source, Address) or len(source.coordinates) != rank:
        raise state.refuse(f"instruction `{instruction.text}`, for its coordinates")
    coordinates = [state.word(c) for c in source.coordinates] + ["0"] * (5 - rank)
    words = [state.address(target), state.address(source), str(rank), *coordinates, state.address(barrier)]
    words.append(state.word(blocks[0], 16) if blocks else "0")
    arguments = ", ".join(f"i64 {word}" for word in (*words, str(state.site)))
    body.check(body.new(f"call i64 @emu.tensor_copy(ptr %ctx, {arguments})"))
