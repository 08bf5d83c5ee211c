"""NVVM's intrinsics (`llvm.nvvm.*`) that touch more than numbers, and Numba's atomic functions, for the host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.emit import Body
from autosched.codegen.cuda.emulate.registers import special_register
from autosched.errors import CodegenError

_BARRIERS = {"": 0, ".popc": 0, ".and": 1, ".or": 2}
_FULL_MASK = str(0xFFFFFFFF)
_REDUX = {"add": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5, "umin": 6, "umax": 7}


def barrier(body: Body, site: int, number: str, count: str, *, goes_on: bool = False, aligned: bool = True) -> None:
    """`bar.sync` or `bar.arrive`; `number` and `count` (0: all threads) are i64."""
    body.wait(at.BARRIER, site, [number, count, str(int(goes_on)), "0", "0", str(int(aligned))], 0)


def intrinsic(name: str, kind: str, types: Sequence[str], function: str, site: int, where: str) -> str:
    """The definition of `function`, which does what `nvvm.<name>` does for one instruction of the kernel.

    Raises CodegenError, with the name, for an intrinsic that the emulator does not know.
    """
    body = Body()
    parameters = [f"%p{k}" for k in range(len(types))]

    def words() -> list[str]:
        return [body.to_word(t, p) for t, p in zip(types, parameters, strict=True)]

    def give(values: Sequence[str]) -> str:
        """Finish with the results, which are i64."""
        if kind == "void":
            body.add("ret void")
            return body.function(kind, function, types)
        members = [m.strip() for m in kind[1:-1].split(",")] if kind.startswith("{") else [kind]
        typed = [(m, body.from_word(m, v)) for m, v in zip(members, values, strict=True)]
        body.add(f"ret {kind} {body.pack(kind, typed)}")
        return body.function(kind, function, types)

    if name.startswith("read.ptx.sreg."):
        register = name.removeprefix("read.ptx.sreg.").replace("cluster.", "cluster_").replace("lanemask.", "lanemask_")
        return give([special_register(body, register, where)])
    if match := re.fullmatch(r"barrier0(|\.popc|\.and|\.or)|barrier\.cta\.sync\.aligned\.all", name):
        if kind == "void":
            barrier(body, site, words()[0] if types else "0", "0")
            return give([])
        predicate = words()[0]
        operands = ["0", "0", "0", predicate, str(_BARRIERS[match[1] or ""]), "1"]
        return give(body.wait(at.BARRIER, site, operands, 1))
    if name in ("barrier", "barrier.cta.sync.aligned.count", "barrier.n", "bar.sync"):
        number, count = [*words(), "0"][:2]
        barrier(body, site, number, count)
        return give([])
    if name in ("bar.warp.sync", "barrier.sync"):
        if name == "barrier.sync":
            barrier(body, site, words()[0], "0", aligned=False)
        else:
            body.wait(at.WARP_SYNC, site, words(), 0)
        return give([])
    if name.startswith("membar.") or name.startswith("fence."):
        if not name.endswith(".cta"):
            body.store(at.FENCED, "1")
        return give([])
    if name == "shfl.sync.i32":
        mask, mode, value, lane, clamp = words()
        return give(body.wait(at.SHUFFLE, site, [mask, mode, value, lane, clamp], 2))
    if name == "vote.sync":
        return give(body.wait(at.VOTE, site, words(), 2))
    if match := re.fullmatch(r"match\.(any|all)\.sync\.i(32|64)p?", name):
        operation = at.MATCH_ANY if match[1] == "any" else at.MATCH_ALL
        return give(body.wait(operation, site, words(), 2 if kind.startswith("{") else 1))
    if match := re.fullmatch(r"redux\.sync\.(\w+)", name):
        value, mask = words()
        return give(body.wait(at.REDUCE, site, [mask, str(_REDUX[match[1]]), value], 1))
    if name in ("activemask",):
        return give(body.wait(at.ACTIVE, site, [_FULL_MASK], 1))
    if match := re.fullmatch(r"atomic\.load\.(add|inc|dec)\.(?:f32|f64|32|64)\.p0\w*", name):
        return _atomic(body, match[1], kind, types, function, site)
    raise CodegenError(f"the emulator does not know the intrinsic llvm.nvvm.{name}", where=where)


def numba_atomic(name: str, kind: str, types: Sequence[str], function: str, site: int, where: str) -> str:
    """The functions `___numba_atomic_<type>_<operation>`, which Numba defines just before it calls libnvvm."""
    match = re.fullmatch(r"___numba_atomic_(?:i32|u64|float|double)_(\w+)", name)
    if match is None:
        raise CodegenError(f"the emulator does not know the function {name}", where=where)
    return _atomic(Body(), match[1], kind, types, function, site)


def _atomic(body: Body, operation: str, kind: str, types: Sequence[str], function: str, site: int) -> str:
    """An update in one step. No other thread runs during it, so a load and a store do."""
    size = {"float": 4, "double": 8, "i32": 4, "i64": 8}[kind]
    address = body.to_word(types[0], "%p0")
    host = body.host(address, str(size), size, at.WRITE | at.ATOMIC, site)
    old = body.new(f"load {kind}, ptr {host}")
    new = combine(body, operation, kind, old, "%p1")
    body.add(f"store {kind} {new}, ptr {host}")
    body.add(f"ret {kind} {old}")
    return body.function(kind, function, types)


def combine(body: Body, operation: str, kind: str, old: str, value: str) -> str:
    """What an atomic operation leaves in memory."""
    floating = not kind.startswith("i")
    suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
    if floating:
        if operation in ("add", "sub"):
            return body.new(f"f{operation} {kind} {old}, {value}")
        if operation in ("max", "min", "nanmax", "nanmin"):
            # max and min of Numba keep the old value where the new one is no number; nanmax takes a number over a NaN.
            return body.new(
                f"call {kind} @llvm.{operation.removeprefix('nan')}num.{suffix}({kind} {old}, {kind} {value})"
            )
    elif operation in ("add", "sub", "and", "or", "xor"):
        return body.new(f"{operation} {kind} {old}, {value}")
    elif operation in ("max", "min", "umax", "umin"):
        signed = operation if operation.startswith("u") else "s" + operation
        return body.new(f"call {kind} @llvm.{signed}.{kind}({kind} {old}, {kind} {value})")
    elif operation == "inc":
        wraps = body.new(f"icmp uge {kind} {old}, {value}")
        more = body.new(f"add {kind} {old}, 1")
        return body.new(f"select i1 {wraps}, {kind} 0, {kind} {more}")
    elif operation == "dec":
        zero = body.new(f"icmp eq {kind} {old}, 0")
        above = body.new(f"icmp ugt {kind} {old}, {value}")
        wraps = body.new(f"or i1 {zero}, {above}")
        less = body.new(f"sub {kind} {old}, 1")
        return body.new(f"select i1 {wraps}, {kind} {value}, {kind} {less}")
    if operation in ("exch", "xchg"):
        return value
    raise CodegenError(f"the emulator does not know the atomic operation {operation} of {kind}")
