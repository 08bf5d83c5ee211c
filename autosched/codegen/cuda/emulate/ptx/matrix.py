"""Matrix instructions of a warp: mma.sync, ldmatrix, stmatrix."""

from __future__ import annotations

import re

from autosched.codegen.cuda.emulate import collective as on
from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.ptx.parse import Instruction
from autosched.codegen.cuda.emulate.ptx.state import Assembly, only, ptx

_FULL = str(0xFFFFFFFF)
_KINDS = {
    "f16": on.F16, "bf16": on.BF16, "tf32": on.TF32, "s8": on.S8, "u8": on.U8, "e4m3": on.E4M3, "e5m2": on.E5M2,
    "f64": on.F64, "f32": on.F32, "s32": on.S32,
}  # fmt: skip
# Shapes by the type of A; those of PTX that the layout of `collective` covers.
_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "s8": ("m16n8k16", "m16n8k32"),
    "u8": ("m16n8k16", "m16n8k32"),
    "e4m3": ("m16n8k32",),
    "e5m2": ("m16n8k32",),
    "f64": ("m8n8k4",),
}


@ptx("mma")
def _mma(state: Assembly, instruction: Instruction) -> None:
    parts = instruction.opcode[1:]
    if parts[:2] != ("sync", "aligned") or parts[3:5] != ("row", "col") or len(parts) != 9:
        raise state.refuse(f"instruction `{instruction.text}`")
    shape, (kind_d, kind_a, kind_b, kind_c) = parts[2], parts[5:]
    integers = ("s8", "u8")
    fits = kind_a == kind_b or (kind_a in integers and kind_b in integers) or {kind_a, kind_b} <= {"e4m3", "e5m2"}
    sums = {"f16": ("f16", "f32"), "s8": ("s32",), "u8": ("s32",), "f64": ("f64",)}.get(kind_a, ("f32",))
    if shape not in _SHAPES.get(kind_a, ()) or not fits or kind_c != kind_d or kind_d not in sums:
        raise state.refuse(f"instruction `{instruction.text}`")
    match = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    assert match is not None
    target, *sources = instruction.operands
    bits = 64 if kind_a == "f64" else 32
    operands = [_FULL, *match.groups(), *(str(_KINDS[kind]) for kind in (kind_a, kind_b, kind_d)), "0"]
    for source in sources:
        operands += [state.word(item, bits) for item in state.items(source)]
    results = state.items(target)
    m, n, k = (int(part) for part in match.groups())
    expected = _registers(m, n, k, kind_a, kind_d)
    if [len(state.items(operand)) for operand in instruction.operands] != expected:
        raise state.refuse(f"instruction `{instruction.text}` with such numbers of registers; it has {expected}")
    for item, word in zip(results, state.body.wait(at.MMA, state.site, operands, len(results)), strict=True):
        state.write_word(item, bits, word)


def _registers(m: int, n: int, k: int, kind_a: str, kind_d: str) -> list[int]:
    """Registers of D, A, B and C."""
    packed = {"f16": 2, "bf16": 2, "tf32": 1, "f64": 1}.get(kind_a, 4)
    sums = m * n // 32 // (2 if kind_d == "f16" else 1)
    return [sums, m * k // 32 // packed, n * k // 32 // packed, sums]


@ptx("ldmatrix", "stmatrix")
def _matrices(state: Assembly, instruction: Instruction) -> None:
    known = frozenset(("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared__cta", "b16"))
    parts = only(state, instruction, known)
    count = next((int(part[1]) for part in parts if part in ("x1", "x2", "x4")), 1)
    loads = instruction.opcode[0] == "ldmatrix"
    registers, address = instruction.operands if loads else reversed(instruction.operands)
    items = state.items(registers)
    if len(items) != count:
        raise state.refuse(f"instruction `{instruction.text}` with {len(items)} registers")
    operands = [_FULL, str(count), str(int("trans" in parts)), state.address(address)]
    if loads:
        for item, word in zip(items, state.body.wait(at.LDMATRIX, state.site, operands, count), strict=True):
            state.write_word(item, 32, word)
    else:
        state.body.wait(at.STMATRIX, state.site, [*operands, *(state.word(item) for item in items)], 0)
