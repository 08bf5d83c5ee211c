"""wgmma: matrix products of a warpgroup."""

from __future__ import annotations

import re

from autosched.codegen.cuda.emulate import collective as on
from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.ptx.parse import Immediate, Instruction, Operand, Vector
from autosched.codegen.cuda.emulate.ptx.state import Assembly, ptx

_KINDS = {"f16": on.F16, "bf16": on.BF16, "tf32": on.TF32, "s8": on.S8, "u8": on.U8, "e4m3": on.E4M3, "e5m2": on.E5M2}
_SUMS = {"f16": on.F16, "f32": on.F32, "s32": on.S32}
_DEPTHS = {"f16": 16, "bf16": 16, "tf32": 8, "s8": 32, "u8": 32, "e4m3": 32, "e5m2": 32}


@ptx("wgmma")
def _wgmma(state: Assembly, instruction: Instruction) -> None:
    """The product is done where it is asked for: its registers cannot be seen to come late, only be used too early.

    fence, commit_group and wait_group order it on the device and have nothing to do here.
    """
    parts, body = instruction.opcode[1:], state.body
    if parts in (("fence", "sync", "aligned"), ("commit_group", "sync", "aligned"), ("wait_group", "sync", "aligned")):
        return
    if parts[:3] != ("mma_async", "sync", "aligned") or len(parts) != 7:
        raise state.refuse(f"instruction `{instruction.text}`")
    shape, sums, kind_a, kind_b = parts[3:]
    match = re.fullmatch(r"m64n(\d+)k(\d+)", shape)
    if (
        match is None
        or kind_a != kind_b
        or kind_a not in _KINDS
        or sums not in _SUMS
        or int(match[2]) != _DEPTHS[kind_a]
    ):
        raise state.refuse(f"instruction `{instruction.text}`")
    n = int(match[1])
    target, a, b, keeps, *signs = instruction.operands
    items = state.items(target)
    if len(items) != n // (4 if sums == "f16" else 2) or n % 8 or n > 256:
        raise state.refuse(f"instruction `{instruction.text}` with {len(items)} registers")
    scale_a, scale_b, along_a, along_b = (*(_constant(state, sign) for sign in signs), *(1, 1, 0, 0)[len(signs) :])
    in_registers = isinstance(a, Vector)
    if in_registers and len(signs) == 3:  # A has no direction there
        along_a, along_b = 0, along_a
    operands = [str(n), match[2], str(_KINDS[kind_a]), str(_SUMS[sums]), str(int(in_registers)), state.word(keeps, 1)]
    operands += [str(scale_a), str(scale_b), str(along_a), str(along_b), "0", "0"]
    operands += [state.word(item) for item in items]
    operands += [state.word(item) for item in a.items] if isinstance(a, Vector) else [state.word(a, 64)]
    operands.append(state.word(b, 64))
    body.wait(at.WGMMA, state.site, operands, 0)
    for k, item in enumerate(items):
        state.write_word(item, 32, body.load(at.ARGS + 12 + k))


def _constant(state: Assembly, operand: Operand) -> int:
    if not isinstance(operand, Immediate):
        raise state.refuse("instruction wgmma with signs or directions that are no constants")
    return operand.value
