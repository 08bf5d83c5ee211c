"""What is wrong with an emulated kernel, said so that its writer finds the place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.program import Program
from autosched.errors import CodegenError


class EmulationError(CodegenError):
    """A kernel did what a GPU would not stand, or what gives no reliable result. `kind` names the fault in a word."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None, kind: str = "fault"):
        super().__init__(message, where=where, hint=hint)
        self.kind = kind

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.message, self.where, self.hint, self.kind)


def _rebuild(message: str, where: str | None, hint: str | None, kind: str) -> EmulationError:
    return EmulationError(message, where=where, hint=hint, kind=kind)


@dataclass(frozen=True)
class Allocation:
    """An array of device memory: its name and its virtual addresses."""

    name: str
    base: int
    size_bytes: int


@dataclass(frozen=True)
class Place:
    """A thread: threadIdx and blockIdx."""

    thread: tuple[int, int, int]
    block: tuple[int, int, int]

    def __str__(self) -> str:
        return f"thread {self.thread} of block {self.block}"


def describe(address: int, allocations: tuple[Allocation, ...], program: Program, shared_bytes: int) -> str:
    """A virtual address in words: the variable or array that it hits or comes nearest to."""
    if address < 1 << 32:
        return _shared_words(address, program, shared_bytes) if address >= 16 else "the null pointer"
    if at.GENERIC_SHARED <= address < at.GENERIC_SHARED + (1 << 30):
        return _shared_words(address - at.GENERIC_SHARED, program, shared_bytes)
    if at.LOCAL_BASE <= address < at.GENERIC_SHARED:
        slot, offset = divmod(address - at.LOCAL_BASE, at.LOCAL_SPACING)
        if slot < len(program.local):
            variable = program.local[slot]
            return f"local memory, offset {offset} of the {variable.size_bytes} bytes of {variable.name}"
        return "local memory where no variable is"
    if not allocations:
        return f"address {address:#x}, where nothing is"
    nearest = min(allocations, key=lambda a: max(a.base - address, address - a.base - a.size_bytes + 1, 0))
    return f"global memory, offset {address - nearest.base} of the {nearest.size_bytes} bytes of {nearest.name}"


def _shared_words(address: int, program: Program, shared_bytes: int) -> str:
    rank, offset = divmod(address, at.SHARED_WINDOW)
    offset -= at.SHARED_START
    whose = f" of block {rank - 1} of the cluster" if rank else ""
    for variable in program.static_shared:
        if variable.offset <= offset < variable.offset + variable.size_bytes:
            inside = f"offset {offset - variable.offset} of the {variable.size_bytes} bytes of {variable.name}"
            return f"shared memory{whose}, {inside}"
    if program.dynamic_offset <= offset < shared_bytes:
        return f"dynamic shared memory{whose}, offset {offset - program.dynamic_offset}"
    return f"shared memory{whose}, offset {offset} of {shared_bytes} bytes"


def site_words(program: Program, site: int) -> str:
    if not 0 <= site < len(program.sites):
        return f"kernel {program.symbol}"
    found = program.sites[site]
    text = found.text if len(found.text) <= 160 else found.text[:157] + "…"
    return f"kernel {program.symbol}, " + (f"line {found.line}, " if found.line else "") + f"`{text}`"


@dataclass(frozen=True)
class Fault:
    """What the machine noted when a thread stopped for good."""

    code: int
    address: int
    size: int
    site: int
    other: int


_RACE = "race: {{place}} {} what {{other}} {} without a synchronisation between them: {{target}}"
_BARRIER = "a barrier is missing between the two"
# per code what is said, the kind in a word, and what to do about it
_TEXTS: Mapping[int, tuple[str, str, str | None]] = {
    at.F_OUTSIDE: ("{access}: out of bounds", "bounds", None),
    at.F_LOCAL: ("{access}: out of bounds", "bounds", None),
    at.F_MISALIGNED: ("{access}, whose address is not a multiple of {number}", "alignment", None),
    at.F_READ_ONLY: ("{access}, which is read-only", "read-only", None),
    at.F_RACE_WW: (_RACE.format("writes", "wrote"), "race", _BARRIER),
    at.F_RACE_RW: (_RACE.format("writes", "read"), "race", _BARRIER),
    at.F_RACE_WR: (_RACE.format("reads", "wrote"), "race", _BARRIER),
    at.F_UNSET: ("{place} reads what nobody wrote: {target}", "unset", None),
    at.F_PENDING: (
        "{place} touches what an asynchronous copy of {other} may still be writing: {target}", "pending",
        "wait for the copy's group before, and let a barrier tell the other threads",
    ),
    at.F_QUEUE: ("{place} has {number} asynchronous copies in flight", "queue", None),
    at.F_EXITED: ("{place} waits for lanes {address:#010x}, of which {other} has already ended", "exited", None),
    at.F_MASK: ("{place} is not in the mask {address:#010x} that it gives", "mask", None),
    at.F_DIVERGED: (
        "{place} comes to barrier {address} at another instruction than {other} of its warp", "diverged",
        "a barrier has to be outside conditions that split a warp",
    ),
    at.F_COUNT: ("{place} comes to barrier {address} of {size} threads, others wait for {number}", "barrier", None),
    at.F_MBARRIER: (
        "{place} uses an mbarrier that is not initialised, or arrives once too often: {target}", "mbarrier", None,
    ),
    at.F_MANY_MBARRIERS: ("{place} initialises more than {number} mbarriers", "mbarrier", None),
    at.F_DESCRIPTOR: (
        "{place} gives the matrix descriptor {unsigned:#x} of a layout that is not known", "descriptor", None,
    ),
    at.F_TENSOR_MAP: (
        "{place} copies a box of {size} dimensions by what is no tensor map of such: {target}", "descriptor", None,
    ),
    at.F_ENDED: (
        "{place} uses shared memory of a block of its cluster that has ended: {target}", "ended",
        "let a barrier of the cluster stand at the end",
    ),
    at.F_PARTIAL: (
        "{place} runs an instruction of a whole warp, but only lanes {address:#010x} exist", "partial",
        "let the block's size be a multiple of 32",
    ),
}  # fmt: skip
_STOPPED = "{place} stopped", "trap", "the kernel ran into a trap or into unreachable code"


def error_of(
    fault: Fault, place: Place, other: str, program: Program, allocations: tuple[Allocation, ...], shared_bytes: int
) -> EmulationError:
    """The error of a fault; `other` names the thread that it collided with."""
    text, kind, hint = _TEXTS.get(fault.code, _STOPPED)
    target = describe(fault.address, allocations, program, shared_bytes)
    message = text.format(
        access=f"{place} accesses {fault.size} bytes in {target}",
        place=place,
        other=other,
        target=target,
        address=fault.address,
        unsigned=fault.address & (1 << 64) - 1,
        size=fault.size,
        number=fault.other,
    )
    return EmulationError(message, where=site_words(program, fault.site), hint=hint, kind=kind)
