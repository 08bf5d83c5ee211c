"""Puts an ELF object into this process's memory, ready to run: code that is not writable, data that is not executable.

Kernels call functions of the C library alone, so the relocations are few. Other kinds are refused. Sources: System V
ABI, AMD64 supplement, section 4.4; ELF for the Arm 64-bit architecture, section 5.7.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from autosched.errors import ArtifactError
from autosched.runtime.elf import (
    ABSOLUTE,
    ALLOCATED,
    EXECUTABLE,
    NO_BITS,
    RELOCATIONS,
    RELOCATIONS_WITHOUT_ADDEND,
    THREAD_LOCAL,
    UNDEFINED,
    WRITABLE,
    ElfObject,
    Symbol,
)

PAGE = mmap.PAGESIZE
_ENTRY_BYTES = 16  # of a jump to a library function, and of an address in the table
_UNWINDING = 0x70000001  # SHT_X86_64_UNWIND: tables for exceptions, which kernels do not throw
_MOST_BYTES = 1 << 30


class Image:
    """An object in memory, which stays as long as this lives; `address_of` has its global functions."""

    def __init__(self, base: int, size_bytes: int, address_of: Mapping[str, int]):
        self.address_of = address_of
        # Not at exit: other threads may still run the code.
        weakref.finalize(self, _libc().munmap, base, size_bytes).atexit = False


@dataclass(slots=True)
class _Place:
    """Where a section is: its segment, and its first byte there."""

    segment: bytearray
    start: int


class _Layout:
    """The three segments of an object, each of which has its own rights, with what the linker adds to them."""

    def __init__(self, found: ElfObject, machine: _Machine, imports: Iterable[str]):
        self.code, self.constants, self.variables = bytearray(), bytearray(), bytearray()
        self.places: dict[int, _Place] = {}
        for index, section in enumerate(found.sections):
            if not section.flags & ALLOCATED or section.kind == _UNWINDING:
                continue
            if section.flags & THREAD_LOCAL:
                raise ValueError("it has variables of a thread")
            if section.size_bytes > _MOST_BYTES or section.align > PAGE:
                raise ValueError(f"it has a section of {section.size_bytes} bytes, aligned to {section.align}")
            rights = section.flags & (EXECUTABLE | WRITABLE)
            if rights == EXECUTABLE | WRITABLE:
                raise ValueError("it has code that can be written")
            segment = {EXECUTABLE: self.code, WRITABLE: self.variables, 0: self.constants}[rights]
            start = _pad(segment, section.align)
            segment += bytes(section.size_bytes) if section.kind == NO_BITS else found.contents(section)
            self.places[index] = _Place(segment, start)
        self.relocations = [
            (self.places[section.info], found.sections[section.info].size_bytes, relocation)
            for section in found.sections
            if section.kind == RELOCATIONS and section.info in self.places
            for relocation in found.relocations(section)
        ]
        if any(s.kind == RELOCATIONS_WITHOUT_ADDEND and s.info in self.places for s in found.sections):
            raise ValueError("it has relocations without addend")
        in_table = sorted({r.symbol for _, _, r in self.relocations if r.kind in machine.through_table})
        self.jumps = {name: _entry(self.code) for name in imports}
        self.table = {symbol: _entry(self.constants) for symbol in in_table}
        self.starts = {id(self.code): 0}
        self.starts[id(self.constants)] = _whole_pages(len(self.code))
        self.starts[id(self.variables)] = self.starts[id(self.constants)] + _whole_pages(len(self.constants))
        self.size_bytes = self.starts[id(self.variables)] + _whole_pages(len(self.variables))

    def offset(self, place: _Place, within: int = 0) -> int:
        """A byte's distance from the image's begin."""
        return self.starts[id(place.segment)] + place.start + within


def _pad(segment: bytearray, align: int) -> int:
    segment += bytes(-len(segment) % max(align, 1))
    return len(segment)


def _entry(segment: bytearray) -> _Place:
    place = _Place(segment, _pad(segment, _ENTRY_BYTES))
    segment += bytes(_ENTRY_BYTES)
    return place


def _whole_pages(size_bytes: int) -> int:
    return -(-size_bytes // PAGE) * PAGE


def link(found: ElfObject, libraries: Mapping[str, int]) -> Image:
    """Load an object; `libraries` has the addresses of what it needs from elsewhere.

    Raises ArtifactError if the object is damaged, needs what kernels do not, or memory may not be executed.
    """
    try:
        machine = _MACHINES[found.architecture]
        layout = _Layout(found, machine, libraries)
        base, size_bytes = _reserve(max(layout.size_bytes, PAGE))
        try:
            return Image(base, size_bytes, _fill(found, layout, base, libraries, machine))
        except BaseException:
            _libc().munmap(base, size_bytes)
            raise
    except (struct.error, IndexError, KeyError, ValueError, OverflowError) as error:
        raise ArtifactError(f"object code cannot be loaded: {error}") from error


def _reserve(size_bytes: int) -> tuple[int, int]:
    rights, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = _libc().mmap(None, size_bytes, rights, kind, -1, 0)
    if base in (None, ctypes.c_void_p(-1).value):
        raise ArtifactError(f"the system gives no {size_bytes} bytes for code: {os.strerror(ctypes.get_errno())}")
    return base, size_bytes


def _fill(
    found: ElfObject, layout: _Layout, base: int, libraries: Mapping[str, int], machine: _Machine
) -> dict[str, int]:
    """Write the segments with all addresses in them, and set their rights; gives the addresses of global functions."""

    def address(symbol: Symbol) -> int:
        if symbol.section == UNDEFINED:
            return base + layout.offset(layout.jumps[symbol.name])
        return (
            symbol.value
            if symbol.section == ABSOLUTE
            else base + layout.offset(layout.places[symbol.section], symbol.value)
        )

    for name, place in layout.jumps.items():
        code = machine.jump(libraries[name])
        layout.code[place.start : place.start + len(code)] = code
    for index, place in layout.table.items():
        symbol = found.symbols[index]
        value = libraries[symbol.name] if symbol.section == UNDEFINED else address(symbol)
        struct.pack_into("<Q", place.segment, place.start, value)
    for place, size_bytes, relocation in layout.relocations:
        patch = machine.kinds.get(relocation.kind)
        if patch is None:
            raise ValueError(f"relocation {relocation.kind} of {found.architecture} is none that kernels need")
        if relocation.offset + (8 if relocation.kind in machine.eight_bytes else 4) > size_bytes:
            raise ValueError("a relocation is behind its section")
        through_table = relocation.kind in machine.through_table
        symbol = found.symbols[relocation.symbol]
        to = base + layout.offset(layout.table[relocation.symbol]) if through_table else address(symbol)
        position = place.start + relocation.offset
        patch(place.segment, position, to + relocation.addend, base + layout.offset(place, relocation.offset))
    for segment, rights in (
        (layout.code, mmap.PROT_READ | mmap.PROT_EXEC),
        (layout.constants, mmap.PROT_READ),
        (layout.variables, mmap.PROT_READ | mmap.PROT_WRITE),
    ):
        start = base + layout.starts[id(segment)]
        ctypes.memmove(start, bytes(segment), len(segment))
        if segment and _libc().mprotect(start, len(segment), rights):
            raise ArtifactError(f"the system lets no memory be executed: {os.strerror(ctypes.get_errno())}")
    machine.flush(base, len(layout.code))
    functions = (s for s in found.symbols if s.is_global and s.is_function and s.section != UNDEFINED)
    return {symbol.name: address(symbol) for symbol in functions}


# How a place is written: its segment and position there, the address that it needs, and its own address.
Patch = Callable[[bytearray, int, int, int], None]


def _whole(form: str, relative: bool) -> Patch:
    """An address, or its distance from the place, as an integer. struct.error where it does not fit."""

    def patch(segment: bytearray, position: int, to: int, at: int) -> None:
        struct.pack_into(form, segment, position, to - at if relative else to)

    return patch


def _arm(bits: Callable[[int, int], int]) -> Patch:
    """Bits of an instruction of AArch64 that are zero in the object."""

    def patch(segment: bytearray, position: int, to: int, at: int) -> None:
        (word,) = struct.unpack_from("<I", segment, position)
        struct.pack_into("<I", segment, position, word | bits(to, at))

    return patch


def _branch(to: int, at: int) -> int:
    return _signed(to - at, 28) >> 2


def _page(to: int, at: int) -> int:
    pages = _signed((to >> 12) - (at >> 12), 21)
    return (pages & 3) << 29 | pages >> 2 << 5


def _low(shift: int) -> Callable[[int, int], int]:
    return lambda to, at: (to & 0xFFF) >> shift << 10


def _signed(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"an address {value} away, more than {bits} bits")
    return value & (1 << bits) - 1


@dataclass(frozen=True, slots=True)
class _Machine:
    """What linking has to know of an architecture."""

    kinds: Mapping[int, Patch]
    through_table: frozenset[int]  # kinds that want the place of an address in the table
    eight_bytes: frozenset[int]
    jump: Callable[[int], bytes]  # a jump to an address that may be anywhere
    flush: Callable[[int, int], object]


def _flush_arm(start: int, size_bytes: int) -> None:
    """Instruction caches of AArch64 do not see what was written. Linux sees to pages that become executable too."""
    try:
        clear = ctypes.CDLL("libgcc_s.so.1")["__clear_cache"]
    except (OSError, AttributeError):
        return
    clear.argtypes, clear.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    clear(start, start + size_bytes)


_MACHINES = {
    "x86_64": _Machine(
        kinds={
            1: _whole("<Q", relative=False),  # R_X86_64_64
            24: _whole("<q", relative=True),  # R_X86_64_PC64
            # PC32, PLT32, and the three that name an entry of the table: GOTPCREL, GOTPCRELX, REX_GOTPCRELX
            **dict.fromkeys((2, 4, 9, 41, 42), _whole("<i", relative=True)),
        },
        through_table=frozenset({9, 41, 42}),
        eight_bytes=frozenset({1, 24}),
        jump=lambda address: b"\xff\x25\0\0\0\0" + struct.pack("<Q", address),  # jmp [rip]
        flush=lambda start, size_bytes: None,
    ),
    "aarch64": _Machine(
        kinds={
            257: _whole("<Q", relative=False),  # R_AARCH64_ABS64
            260: _whole("<q", relative=True),  # PREL64
            261: _whole("<i", relative=True),  # PREL32
            **dict.fromkeys((282, 283), _arm(_branch)),  # JUMP26, CALL26
            **dict.fromkeys((275, 311), _arm(_page)),  # ADR_PREL_PG_HI21, ADR_GOT_PAGE
            **dict.fromkeys((277, 278), _arm(_low(0))),  # ADD_ABS_LO12_NC, LDST8_ABS_LO12_NC
            284: _arm(_low(1)),  # LDST16_ABS_LO12_NC
            285: _arm(_low(2)),  # LDST32_ABS_LO12_NC
            **dict.fromkeys((286, 312), _arm(_low(3))),  # LDST64_ABS_LO12_NC, LD64_GOT_LO12_NC
            299: _arm(_low(4)),  # LDST128_ABS_LO12_NC
        },
        through_table=frozenset({311, 312}),
        eight_bytes=frozenset({257, 260}),
        jump=lambda address: struct.pack("<IIQ", 0x58000050, 0xD61F0200, address),  # ldr x16, +8; br x16
        flush=_flush_arm,
    ),
}


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.mmap.restype = ctypes.c_void_p
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc
