"""mbarriers in shared memory."""

from __future__ import annotations

from autosched.codegen.cuda.emulate.ptx.movement import pause
from autosched.codegen.cuda.emulate.ptx.parse import Address, Instruction, Register
from autosched.codegen.cuda.emulate.ptx.state import Assembly, only, ptx

_SPACES = frozenset(
    ("shared", "shared__cta", "shared__cluster", "b64", "release", "acquire", "relaxed", "cta", "cluster")
)


@ptx("mbarrier")
def _mbarrier(state: Assembly, instruction: Instruction) -> None:
    operation = instruction.opcode[1]
    parts = only(state, instruction, _SPACES | {operation, "expect_tx", "parity", "noComplete"})
    body, operands = state.body, list(instruction.operands)
    if not any(part.startswith("shared") for part in parts):
        raise state.refuse(f"instruction `{instruction.text}` on a generic address")
    if operation == "init":
        address, count = operands
        arguments = f"i64 {state.address(address)}, i64 {state.word(count)}, i64 {state.site}"
        body.check(body.new(f"call i64 @emu.mbarrier_init(ptr %ctx, {arguments})"))
    elif operation == "inval":
        arguments = f"i64 {state.address(operands[0])}, i64 {state.site}"
        body.check(body.new(f"call i64 @emu.mbarrier_inval(ptr %ctx, {arguments})"))
    elif operation in ("arrive", "expect_tx"):
        result = operands.pop(0) if not isinstance(operands[0], Address) else Register("_")
        address, *numbers = operands
        more = "0"
        arrivals = "0" if operation == "expect_tx" else "1"
        if "expect_tx" in parts:
            more = state.word(numbers[0])
        elif numbers:
            arrivals = state.word(numbers[0])
        arguments = f"i64 {state.address(address)}, i64 {arrivals}, i64 {more}, i64 {state.site}"
        token = body.new(f"call i64 @emu.mbarrier_arrive(ptr %ctx, {arguments})")
        body.check(token)
        state.write(result, 64, token)
    elif operation in ("test_wait", "try_wait"):
        target, address, phase, *_ = operands
        # The token of an arrival has the parity of its phase in bit 40.
        parity = state.word(phase) if "parity" in parts else body.new(f"lshr i64 {state.word(phase, 64)}, 40")
        arguments = f"i64 {state.address(address)}, i64 {parity}, i64 {state.site}"
        found = body.new(f"call i64 @emu.mbarrier_test(ptr %ctx, {arguments})")
        body.check(found)
        done = body.new(f"icmp eq i64 {found}, 2")
        state.write(target, 1, done)
        then, after = state.new_label(), state.new_label()
        body.add(f"br i1 {done}, label %{after}, label %{then}")
        body.label(then)
        pause(state)
        body.add(f"br label %{after}")
        body.label(after)
    else:
        raise state.refuse(f"instruction `{instruction.text}`")
