"""Barriers, fences, and what the lanes of a warp tell each other."""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.intrinsics import barrier
from autosched.codegen.cuda.emulate.ptx.parse import Instruction, Pair, Register
from autosched.codegen.cuda.emulate.ptx.state import Assembly, only, ptx
from autosched.codegen.cuda.emulate.ptx.types import width

_FULL = str(0xFFFFFFFF)
_SHUFFLES = {"idx": 0, "up": 1, "down": 2, "bfly": 3}
_VOTES = {"all": 0, "any": 1, "uni": 2, "ballot": 3}
_REDUCTIONS = {"add": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5}


@ptx("bar", "barrier")
def _barrier(state: Assembly, instruction: Instruction) -> None:
    known = frozenset(
        ("sync", "arrive", "aligned", "cta", "warp", "cluster", "wait", "release", "relaxed", "acquire", "red")
    )
    parts = only(state, instruction, known | {"popc", "and", "or", "u32", "pred"})
    words = [state.word(operand) for operand in instruction.operands if "red" not in parts]
    if "cluster" in parts:
        operation = at.CLUSTER_ARRIVE if "arrive" in parts else at.CLUSTER_WAIT
        state.body.wait(operation, state.site, [], 0)
    elif "warp" in parts:
        state.body.wait(at.WARP_SYNC, state.site, words, 0)
    elif "red" in parts:
        raise state.refuse(f"instruction `{instruction.text}`")
    else:
        number, count = [*words, "0"][:2]
        aligned = instruction.opcode[0] == "bar" or "aligned" in parts
        barrier(state.body, state.site, number, count, goes_on="arrive" in parts, aligned=aligned)


@ptx("membar", "fence")
def _fence(state: Assembly, instruction: Instruction) -> None:
    known = "cta gl sys gpu cluster sc acq_rel acquire release proxy async alias shared__cta shared__cluster global"
    parts = only(state, instruction, frozenset((*known.split(), "mbarrier_init")))
    if "cta" not in parts:
        state.body.store(at.FENCED, "1")


@ptx("activemask")
def _activemask(state: Assembly, instruction: Instruction) -> None:
    (result,) = state.body.wait(at.ACTIVE, state.site, [_FULL], 1)
    state.write_word(instruction.operands[0], 32, result)


@ptx("shfl")
def _shfl(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, frozenset(_SHUFFLES) | {"sync", "b32"})
    target, value, lane, clamp, mask = instruction.operands
    mode = _SHUFFLES[next(part for part in parts if part in _SHUFFLES)]
    operands = [state.word(mask), str(mode), state.word(value), state.word(lane), state.word(clamp)]
    result, inside = state.body.wait(at.SHUFFLE, state.site, operands, 2)
    first = target.first if isinstance(target, Pair) else target
    state.write_word(first, 32, result)
    if isinstance(target, Pair):
        state.write_word(target.second, 1, inside)


@ptx("vote")
def _vote(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, frozenset(_VOTES) | {"sync", "pred", "b32"})
    target, predicate, mask = instruction.operands
    mode = _VOTES[next(part for part in parts if part in _VOTES)]
    operands = [state.word(mask), str(mode), state.word(predicate, 1)]
    ballot, result = state.body.wait(at.VOTE, state.site, operands, 2)
    if mode == 3:
        state.write_word(target, 32, ballot)
    else:
        state.write_word(target, 1, result)


@ptx("match")
def _match(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, frozenset(("any", "all", "sync", "b32", "b64")))
    target, value, mask = instruction.operands
    operation = at.MATCH_ANY if "any" in parts else at.MATCH_ALL
    lanes, same = state.body.wait(operation, state.site, [state.word(mask), state.word(value, width(parts[-1]))], 2)
    state.write_word(target.first if isinstance(target, Pair) else target, 32, lanes)
    if isinstance(target, Pair):
        state.write_word(target.second, 1, same)


@ptx("redux")
def _redux(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, frozenset(_REDUCTIONS) | {"sync", "b32", "u32", "s32"})
    target, value, mask = instruction.operands
    name = next(part for part in parts if part in _REDUCTIONS)
    kind = {"min": 6, "max": 7}.get(name, _REDUCTIONS[name]) if parts[-1] == "u32" else _REDUCTIONS[name]
    (result,) = state.body.wait(at.REDUCE, state.site, [state.word(mask), str(kind), state.word(value)], 1)
    state.write_word(target, 32, result)


@ptx("elect")
def _elect(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, frozenset(("sync",)))
    target, mask = instruction.operands
    leader, chosen = state.body.wait(at.ELECT, state.site, [state.word(mask)], 2)
    first, second = (target.first, target.second) if isinstance(target, Pair) else (Register("_"), target)
    state.write_word(first, 32, leader)
    state.write_word(second, 1, chosen)


@ptx("nanosleep")
def _nanosleep(state: Assembly, instruction: Instruction) -> None:
    state.body.store(at.OP, str(at.PAUSE))
    state.body.add("call void @emu.yield(ptr %ctx)")


@ptx("griddepcontrol", "setmaxnreg")
def _without_effect(state: Assembly, instruction: Instruction) -> None:
    """Launches are emulated one after the other, and registers are as many as are needed: nothing to do."""
    only(state, instruction, frozenset(("launch_dependents", "wait", "inc", "dec", "sync", "aligned", "u32")))
