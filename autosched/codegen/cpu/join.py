"""Puts ELF objects together to one, in which each calls what another one defines, as a linker's `-r` does.

Source: System V ABI, chapter 4.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autosched.runtime.elf import (
    ALLOCATED,
    EXECUTABLE,
    FUNCTION,
    NO_BITS,
    RELOCATIONS,
    SYMBOL_TABLE,
    UNDEFINED,
    WRITABLE,
    ElfObject,
    Section,
    read_object,
)  # fmt: skip

_STRINGS = 3  # section type
_SECTION, _SYMBOL, _RELOCATION = (struct.Struct(form) for form in ("<IIQQQQIIQQ", "<IBBHQQ", "<QQq"))
_HEADER_BYTES = 64
_NAMES = {EXECUTABLE: ".text", WRITABLE: ".data", 0: ".rodata"}


@dataclass(slots=True, eq=False)
class _Symbol:
    """What objects mean by a name: byte `value` of a section of the whole; section 0 is none of them."""

    name: str
    section: int = UNDEFINED
    value: int = 0
    is_function: bool = False


def join_objects(objects: Sequence[bytes], exported: Collection[str]) -> bytes:
    """One relocatable object of several, whose global functions are the exported ones.

    Raises ArtifactError where one is no ELF object.
    """
    parts = [read_object(data) for data in objects]
    out = _Sections(objects[0][:_HEADER_BYTES])
    known: dict[str, _Symbol] = {}  # by global names
    symbols: list[_Symbol] = []
    waiting: list[tuple[int, Section, list[tuple[int, int, int, _Symbol]]]] = []
    for part in parts:
        places = {i: out.add_copy(s, part) for i, s in enumerate(part.sections) if s.flags & ALLOCATED}
        own: list[_Symbol] = []
        for x in part.symbols:
            is_known = bool(x.name) and (x.is_global or x.section == UNDEFINED)
            symbol = known.setdefault(x.name, _Symbol(x.name)) if is_known else _Symbol(x.name)
            if x.section in places:
                assert symbol.section == UNDEFINED, f"two objects define {x.name}"
                symbol.section, symbol.value, symbol.is_function = places[x.section], x.value, x.is_function
            own.append(symbol)
        symbols += own
        for section in part.sections:
            if section.kind == RELOCATIONS and section.info in places:
                entries = [(r.offset, r.kind, r.addend, own[r.symbol]) for r in part.relocations(section)]
                waiting.append((places[section.info], section, entries))
    used = {id(entry[3]) for _, _, entries in waiting for entry in entries}
    kept = [s for s in {id(s): s for s in symbols}.values() if id(s) in used or s.is_function]
    kept.sort(key=lambda s: s.name in exported or s.section == UNDEFINED)  # local ones come first
    n_local = sum(s.name not in exported and s.section != UNDEFINED for s in kept)
    numbers = {id(s): i + 1 for i, s in enumerate(kept)}
    table_at = len(out.entries) + len(waiting)
    for at, section, entries in waiting:
        data = b"".join(_RELOCATION.pack(to, numbers[id(s)] << 32 | kind, plus) for to, kind, plus, s in entries)
        out.add(".rela", RELOCATIONS, section.flags, data, section.align, _RELOCATION.size, (table_at, at))
    rows = [bytes(_SYMBOL.size)]
    for number, s in enumerate(kept):
        info = (number >= n_local) << 4 | FUNCTION * s.is_function
        rows.append(_SYMBOL.pack(out.name(s.name), info, 0, s.section, s.value, 0))
    out.add(".symtab", SYMBOL_TABLE, 0, b"".join(rows), 8, _SYMBOL.size, (table_at + 1, n_local + 1))
    return out.data()


class _Sections:
    """The bytes of an object while sections are added."""

    def __init__(self, header: bytes):
        self.bytes = bytearray(header)
        self.entries = [bytes(_SECTION.size)]
        self.names = bytearray(1)

    def name(self, text: str) -> int:
        """Where a name begins in the table of names, which sections and symbols share."""
        if not text:
            return 0
        self.names += text.encode("ascii") + b"\0"
        return len(self.names) - len(text) - 1

    def add(
        self, name: str, kind: int, flags: int, data: bytes, align: int, each: int = 0,
        more: tuple[int, int] = (0, 0), size: int | None = None,
    ) -> int:  # fmt: skip
        """A section more; its number.

        each  bytes of an entry; `more`: numbers of the sections that it belongs to (`sh_link`, `sh_info`)
        size  of one without bytes in the file
        """
        self.bytes += bytes(-len(self.bytes) % max(align, 1))
        size = len(data) if size is None else size
        self.entries.append(_SECTION.pack(self.name(name), kind, flags, 0, len(self.bytes), size, *more, align, each))
        self.bytes += data
        return len(self.entries) - 1

    def add_copy(self, section: Section, part: ElfObject) -> int:
        """A section of a part."""
        if section.kind == NO_BITS:
            return self.add(".bss", NO_BITS, section.flags, b"", section.align, size=section.size_bytes)
        name = _NAMES.get(section.flags & (EXECUTABLE | WRITABLE), ".data")
        return self.add(name, section.kind, section.flags, part.contents(section), section.align, section.entry_bytes)

    def data(self) -> bytes:
        """The whole object."""
        name = self.name(".strtab")
        self.entries.append(_SECTION.pack(name, _STRINGS, 0, 0, len(self.bytes), len(self.names), 0, 0, 1, 0))
        self.bytes += self.names
        self.bytes += bytes(-len(self.bytes) % 8)
        at = len(self.bytes)
        struct.pack_into("<Q", self.bytes, 0x28, at)
        struct.pack_into("<HHH", self.bytes, 0x3A, _SECTION.size, len(self.entries), len(self.entries) - 1)
        return bytes(self.bytes) + b"".join(self.entries)
