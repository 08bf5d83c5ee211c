"""Reads a 64-bit little-endian ELF object: its sections, symbols and relocations.

Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from autosched.errors import ArtifactError

SYMBOL_TABLE, RELOCATIONS, NO_BITS, RELOCATIONS_WITHOUT_ADDEND = 2, 4, 8, 9  # section types
WRITABLE, ALLOCATED, EXECUTABLE, THREAD_LOCAL = 1, 2, 4, 0x400  # section flags
UNDEFINED, ABSOLUTE = 0, 0xFFF1  # section indices
_RESERVED = 0xFF00  # section indices from here on have a meaning of their own
_LOCAL = 0  # binding STB_LOCAL
FUNCTION = 2  # symbol type STT_FUNC
_MACHINES = {62: "x86_64", 183: "aarch64"}  # EM_X86_64, EM_AARCH64


@dataclass(frozen=True, slots=True)
class Section:
    """A part of an object; `link` and `info` are positions of other sections."""

    kind: int
    flags: int
    offset: int
    size_bytes: int
    link: int
    info: int
    align: int
    entry_bytes: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name of an object: at byte `value` of a section, or expected from elsewhere."""

    name: str
    section: int
    value: int
    is_global: bool
    is_function: bool


@dataclass(frozen=True, slots=True)
class Relocation:
    """A place of a section that needs the address of a symbol, plus `addend`."""

    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class ElfObject:
    """An object's parts; `architecture` is "x86_64" or "aarch64", and for other machines ELF's number."""

    architecture: str
    data: bytes
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]

    def contents(self, section: Section) -> bytes:
        """The bytes of a section as they are in the file. Raises ValueError if the file ends before."""
        if section.offset + section.size_bytes > len(self.data):
            raise ValueError("a section ends after the file")
        return self.data[section.offset : section.offset + section.size_bytes]

    def relocations(self, section: Section) -> Iterator[Relocation]:
        """The entries of a section of relocations."""
        for offset, info, addend in struct.iter_unpack("<QQq", self.contents(section)):
            yield Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names in an object file, and the architecture of its code."""

    architecture: str
    defined: frozenset[str]  # global functions, which can be looked up after loading
    undefined: frozenset[str]


def read_symbols(object_code: bytes) -> Symbols:
    """Read the names of an object. Raises ArtifactError as `read_object` does."""
    found = read_object(object_code)
    return Symbols(
        found.architecture,
        frozenset(s.name for s in found.symbols if s.section != UNDEFINED and s.is_global and s.is_function),
        frozenset(s.name for s in found.symbols if s.section == UNDEFINED and s.name),
    )


def read_object(object_code: bytes) -> ElfObject:
    """Read the tables of a 64-bit little-endian ELF relocatable object.

    Raises ArtifactError if the bytes are no such object.
    """
    if object_code[:6] != b"\x7fELF\x02\x01":
        raise ArtifactError("object code is not a 64-bit little-endian ELF object")
    try:
        return _read(object_code)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ArtifactError(f"object code is damaged: {error}") from error


def _read(data: bytes) -> ElfObject:
    (machine,) = struct.unpack_from("<H", data, 0x12)
    (section_offset,) = struct.unpack_from("<Q", data, 0x28)
    section_bytes, section_count = struct.unpack_from("<HH", data, 0x3A)
    sections = []
    for index in range(section_count):
        entry = struct.unpack_from("<IIQQQQIIQQ", data, section_offset + index * section_bytes)
        _, kind, flags, _, offset, size, link, info, align, entry_bytes = entry
        sections.append(Section(kind, flags, offset, size, link, info, align, entry_bytes))
    found = ElfObject(_MACHINES.get(machine, f"ELF machine {machine}"), data, tuple(sections), ())
    tables = [section for section in sections if section.kind == SYMBOL_TABLE]
    if len(tables) > 1:
        raise ValueError("more than one table of symbols")
    symbols = tuple(_read_symbols(found, tables[0])) if tables else ()
    return ElfObject(found.architecture, data, found.sections, symbols)


def _read_symbols(found: ElfObject, table: Section) -> Iterator[Symbol]:
    names = found.contents(found.sections[table.link])
    for name_at, info, _, section, value, _ in struct.iter_unpack("<IBBHQQ", found.contents(table)):
        name = names[name_at : names.index(b"\0", name_at)].decode("ascii") if name_at else ""
        if section >= len(found.sections) and section < _RESERVED:
            raise ValueError(f"symbol '{name}' is of section {section}, which there is not")
        yield Symbol(name, section, value, info >> 4 != _LOCAL, info & 15 == FUNCTION)
