"""What is wrong with an emulated kernel, said so that its writer finds the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autosched.codegen.cuda.emulate import layout as at
from autosched.codegen.cuda.emulate.program import Program
from autosched.errors import CodegenError


class EmulationError(CodegenError):
    """A kernel did what a GPU would not stand, or what gives no reliable result. `kind` names the fault in a word."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None, kind: str = "fault"):
        super().__init__(message, where=where, hint=hint)
        self.kind = kind

    def __reduce__(self) -> tuple[Any, ...]:
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


def error_of(
    fault: Fault, place: Place, other: str, program: Program, allocations: tuple[Allocation, ...], shared_bytes: int
) -> EmulationError:
    """The error of a fault; `other` names the thread that it collided with."""
    where = site_words(program, fault.site)
    target = describe(fault.address, allocations, program, shared_bytes)
    access = f"{place} accesses {fault.size} bytes in {target}"
    match fault.code:
        case at.F_OUTSIDE | at.F_LOCAL:
            return EmulationError(f"{access}: out of bounds", where=where, kind="bounds")
        case at.F_MISALIGNED:
            return EmulationError(
                f"{access}, whose address is not a multiple of {fault.other}", where=where, kind="alignment"
            )
        case at.F_READ_ONLY:
            return EmulationError(f"{access}, which is read-only", where=where, kind="read-only")
        case at.F_RACE_WW | at.F_RACE_RW | at.F_RACE_WR:
            verbs = {
                at.F_RACE_WW: ("writes", "wrote"),
                at.F_RACE_RW: ("writes", "read"),
                at.F_RACE_WR: ("reads", "wrote"),
            }
            now, before = verbs[fault.code]
            return EmulationError(
                f"race: {place} {now} what {other} {before} without a synchronisation between them: {target}",
                where=where,
                hint="a barrier is missing between the two",
                kind="race",
            )
        case at.F_UNSET:
            return EmulationError(f"{place} reads what nobody wrote: {target}", where=where, kind="unset")
        case at.F_PENDING:
            return EmulationError(
                f"{place} touches what an asynchronous copy of {other} may still be writing: {target}",
                where=where,
                hint="wait for the copy's group before, and let a barrier tell the other threads",
                kind="pending",
            )
        case at.F_QUEUE:
            return EmulationError(f"{place} has {fault.other} asynchronous copies in flight", where=where, kind="queue")
        case at.F_EXITED:
            return EmulationError(
                f"{place} waits for lanes {fault.address:#010x}, of which {other} has already ended",
                where=where,
                kind="exited",
            )
        case at.F_MASK:
            return EmulationError(
                f"{place} is not in the mask {fault.address:#010x} that it gives", where=where, kind="mask"
            )
        case at.F_DIVERGED:
            return EmulationError(
                f"{place} comes to barrier {fault.address} at another instruction than {other} of its warp",
                where=where,
                hint="a barrier has to be outside conditions that split a warp",
                kind="diverged",
            )
        case at.F_COUNT:
            return EmulationError(
                f"{place} comes to barrier {fault.address} of {fault.size} threads, others wait for {fault.other}",
                where=where,
                kind="barrier",
            )
        case at.F_MBARRIER:
            return EmulationError(
                f"{place} uses an mbarrier that is not initialised, or arrives once too often: {target}",
                where=where,
                kind="mbarrier",
            )
        case at.F_MANY_MBARRIERS:
            return EmulationError(
                f"{place} initialises more than {fault.other} mbarriers", where=where, kind="mbarrier"
            )
        case at.F_DESCRIPTOR:
            return EmulationError(
                f"{place} gives the matrix descriptor {fault.address & (1 << 64) - 1:#x} of a layout that is not known",
                where=where,
                kind="descriptor",
            )
        case at.F_TENSOR_MAP:
            return EmulationError(
                f"{place} copies a box of {fault.size} dimensions by what is no tensor map of such: {target}",
                where=where,
                kind="descriptor",
            )
        case at.F_PARTIAL:
            return EmulationError(
                f"{place} runs an instruction of a whole warp, but only lanes {fault.address:#010x} exist",
                where=where,
                hint="let the block's size be a multiple of 32",
                kind="partial",
            )
    return EmulationError(
        f"{place} stopped", where=where, hint="the kernel ran into a trap or into unreachable code", kind="trap"
    )
