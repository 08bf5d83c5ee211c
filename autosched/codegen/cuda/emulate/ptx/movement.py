"""Moves, loads, stores, atomic updates, addresses, branches."""

from __future__ import annotations

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.intrinsics import combine
from autosched.codegen.cuda.emulate.ptx.arithmetic import pack, unpack
from autosched.codegen.cuda.emulate.ptx.parse import Instruction, Register, Vector
from autosched.codegen.cuda.emulate.ptx.state import Assembly, only, ptx
from autosched.codegen.cuda.emulate.ptx.types import COMMON, llvm_float, width

_TYPES = COMMON | {"b128"}
_SPACES = {"global": at.IN_GLOBAL, "shared": at.IN_SHARED, "shared__cta": at.IN_SHARED, "shared__cluster": at.IN_SHARED}
_SPACES |= {"local": at.IN_LOCAL, "const": 0}
_CACHE = frozenset(
    [
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
        "nc",
        "L1__no_allocate",
        "L1__evict_last",
        "L1__evict_first",
        "L2__128B",
        "L2__256B",
        "L2__64B",
        "L2__cache_hint",
    ]
)
_ORDER = frozenset(("relaxed", "acquire", "release", "acq_rel", "volatile", "weak", "cta", "gpu", "sys", "cluster"))


def space_of(parts: tuple[str, ...]) -> int:
    """Flags of the address space that an opcode names; none for generic addresses."""
    return next((_SPACES[part] for part in parts if part in _SPACES), 0)


@ptx("mov")
def _mov(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, _TYPES)
    bits, body = width(parts[0]), state.body
    target, source = instruction.operands
    if isinstance(target, Vector):
        value, part = state.read(source, bits), bits // len(target.items)
        for k, item in enumerate(target.items):
            moved = body.new(f"lshr i{bits} {value}, {k * part}")
            state.write(item, part, body.new(f"trunc i{bits} {moved} to i{part}"))
    elif isinstance(source, Vector):
        part, result = bits // len(source.items), "0"
        for k, item in enumerate(source.items):
            wide = body.new(f"zext i{part} {state.read(item, part)} to i{bits}")
            result = body.new(f"or i{bits} {result}, {body.new(f'shl i{bits} {wide}, {k * part}')}")
        state.write(target, bits, result)
    else:
        state.write(target, bits, state.read(source, bits))


@ptx("cvta")
def _cvta(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, frozenset(("to", "u32", "u64")) | frozenset(_SPACES))
    target, source = instruction.operands
    bits = width(parts[-1])
    word = state.word(source, bits)
    if "shared" in "".join(parts):
        word = state.body.new(f"{'sub' if 'to' in parts else 'add'} i64 {word}, {at.GENERIC_SHARED}")
    state.write_word(target, bits, word)


@ptx("ld")
def _ld(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, _TYPES | frozenset(_SPACES) | _CACHE | _ORDER | {"v2", "v4", "v8"})
    target, address, *_ = instruction.operands
    kind = parts[-1]
    items = state.items(target)
    size = width(kind) // 8 * len(items)
    flags = space_of(parts) | (at.ATOMIC if {"volatile", "relaxed", "acquire"} & set(parts) else 0)
    body = state.body
    if flags & at.ATOMIC:
        pause(state)
    host = body.host(state.address(address), str(size), size, flags, state.site)
    bits = width(kind)
    for k, item in enumerate(items):
        place = body.new(f"getelementptr i8, ptr {host}, i64 {k * bits // 8}")
        value = body.new(f"load i{bits}, ptr {place}, align 1")
        if kind.startswith("s") and isinstance(item, Register) and state.registers.get(item.name, bits) > bits:
            held = state.registers[item.name]
            state.write(item, held, body.new(f"sext i{bits} {value} to i{held}"))
        else:
            state.write(item, bits, value)


def pause(state: Assembly) -> None:
    """Let other threads go on, so that a loop that waits for one of them ends."""
    state.body.store(at.OP, str(at.PAUSE))
    state.body.add("call void @emu.yield(ptr %ctx)")


@ptx("st")
def _st(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, _TYPES | frozenset(_SPACES) | _CACHE | _ORDER | {"v2", "v4", "v8"})
    address, source, *_ = instruction.operands
    items = state.items(source)
    bits = width(parts[-1])
    size = bits // 8 * len(items)
    flags = space_of(parts) | at.WRITE
    flags |= at.ATOMIC if {"volatile", "relaxed", "release"} & set(parts) else at.COMPARED
    body = state.body
    if "release" in parts:
        body.store(at.FENCED, "1")
    values = [state.read(item, bits) for item in items]
    host = body.host(state.address(address), str(size), size, flags, state.site)
    for k, value in enumerate(values):
        place = body.new(f"getelementptr i8, ptr {host}, i64 {k * bits // 8}")
        body.add(f"store i{bits} {value}, ptr {place}, align 1")
    body.add("call void @emu.stored(ptr %ctx)")


_OPERATIONS = frozenset(("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec", "noftz"))


@ptx("atom", "red")
def _atom(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, _TYPES | frozenset(_SPACES) | _CACHE | _ORDER | _OPERATIONS | {"v2", "v4"})
    kind = parts[-1]
    body, bits = state.body, width(kind)
    operands = list(instruction.operands)
    target = operands.pop(0) if instruction.opcode[0] == "atom" else Register("_")
    address, *sources = operands
    if isinstance(sources[0], Vector) or isinstance(target, Vector):
        raise state.refuse(f"instruction `{instruction.text}`, for its vector")
    if {"release", "acq_rel"} & set(parts):
        body.store(at.FENCED, "1")
    operation = next(part for part in parts if part in _OPERATIONS and part != "noftz")
    if operation == "cas":
        pause(state)
    values = [state.read(source, bits) for source in sources]
    flags = space_of(parts) | at.WRITE | at.ATOMIC
    host = body.host(state.address(address), str(bits // 8), bits // 8, flags, state.site)
    old = body.new(f"load i{bits}, ptr {host}, align 1")
    if operation == "cas":
        same = body.new(f"icmp eq i{bits} {old}, {values[0]}")
        new = body.new(f"select i1 {same}, i{bits} {values[1]}, i{bits} {old}")
    elif kind in ("f16", "bf16", "f16x2", "bf16x2"):
        if operation != "add":
            raise state.refuse(f"instruction `{instruction.text}`")
        state.declare("%old", bits)
        state.declare("%new", bits)
        state.write(Register("%old"), bits, old)
        pairs = zip(unpack(state, Register("%old"), kind), unpack(state, sources[0], kind))
        pack(state, Register("%new"), kind, [body.new(f"fadd float {x}, {y}") for x, y in pairs])
        new = state.read(Register("%new"), bits)
    elif floating := llvm_float(kind):
        first, second = (body.new(f"bitcast i{bits} {value} to {floating}") for value in (old, values[0]))
        new = body.new(f"bitcast {floating} {combine(body, operation, floating, first, second)} to i{bits}")
    else:
        prefix = "u" if kind.startswith("u") and operation in ("min", "max") else ""
        new = combine(body, prefix + operation, f"i{bits}", old, values[0])
    body.add(f"store i{bits} {new}, ptr {host}, align 1")
    state.write(target, bits, old)


@ptx("bra")
def _bra(state: Assembly, instruction: Instruction) -> None:
    only(state, instruction, frozenset(("uni",)))
    (target,) = instruction.operands
    assert isinstance(target, Register)
    state.body.add(f'br label %"label.{target.name}"')
    state.body.label(state.new_label())


@ptx("trap", "exit", "brkpt")
def _trap(state: Assembly, instruction: Instruction) -> None:
    if instruction.opcode[0] != "trap":
        raise state.refuse(f"instruction `{instruction.text}`")
    state.body.add("call void @emu.fail(ptr %ctx)")


@ptx("prefetch", "prefetchu", "discard", "applypriority")
def _prefetch(state: Assembly, instruction: Instruction) -> None:
    """Hints that change no value. The address is not read, so it is not checked; the device does not either."""


@ptx("isspacep")
def _isspacep(state: Assembly, instruction: Instruction) -> None:
    raise state.refuse(f"instruction `{instruction.text}`")


@ptx("mapa")
def _mapa(state: Assembly, instruction: Instruction) -> None:
    parts = only(state, instruction, frozenset(("u32", "u64")) | frozenset(_SPACES))
    target, source, rank = instruction.operands
    bits, body = width(parts[-1]), state.body
    generic = not any(part in _SPACES for part in parts)
    word = state.word(source, bits)
    if generic:
        word = body.new(f"sub i64 {word}, {at.GENERIC_SHARED}")
    offset = body.new(f"urem i64 {word}, {at.SHARED_WINDOW}")
    window = body.new(f"mul i64 {body.new(f'add i64 {state.word(rank)}, 1')}, {at.SHARED_WINDOW}")
    result = body.new(f"add i64 {window}, {offset}")
    if generic:
        result = body.new(f"add i64 {result}, {at.GENERIC_SHARED}")
    state.write_word(target, bits, result)
