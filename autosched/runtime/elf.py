"""Reads an ELF object: which architecture it is for, which symbols it defines and which it expects from elsewhere."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from autosched.errors import ArtifactError

_SYMBOL_TABLE = 2  # section type SHT_SYMTAB
_UNDEFINED = 0  # section index SHN_UNDEF
_LOCAL = 0  # binding STB_LOCAL
_FUNCTION = 2  # symbol type STT_FUNC
_MACHINES = {62: "x86_64", 183: "aarch64"}  # EM_X86_64, EM_AARCH64


@dataclass(frozen=True, slots=True)
class Symbols:
    """Names in an object file, and the architecture of its code."""

    architecture: str  # "x86_64", "aarch64"; of others ELF's number
    defined: frozenset[str]  # global functions, which can be looked up after loading
    undefined: frozenset[str]


def read_symbols(object_code: bytes) -> Symbols:
    """Read the symbol table of a 64-bit little-endian ELF relocatable object.

    Raises ArtifactError if the bytes are no such object.
    """
    try:
        return _read(memoryview(object_code))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise ArtifactError(f"object code is damaged: {error}") from error


def _read(data: memoryview) -> Symbols:
    if bytes(data[:6]) != b"\x7fELF\x02\x01":
        raise ArtifactError("object code is not a 64-bit little-endian ELF object")
    (machine,) = struct.unpack_from("<H", data, 0x12)
    (section_offset,) = struct.unpack_from("<Q", data, 0x28)
    section_size, section_count = struct.unpack_from("<HH", data, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, section_offset + index * section_size) for index in range(section_count)
    ]
    defined: set[str] = set()
    undefined: set[str] = set()
    for _, kind, _, _, offset, size, link, _, _, entry_size in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names_offset, names_size = sections[link][4], sections[link][5]
        names = bytes(data[names_offset : names_offset + names_size])
        for at in range(offset + entry_size, offset + size, entry_size):  # entry 0 is always empty
            name_at, info, _, section = struct.unpack_from("<IBBH", data, at)
            name = names[name_at : names.index(b"\0", name_at)].decode("ascii") if name_at else ""
            if name and section == _UNDEFINED:
                undefined.add(name)
            elif name and info >> 4 != _LOCAL and info & 15 == _FUNCTION:
                defined.add(name)
    return Symbols(_MACHINES.get(machine, f"ELF machine {machine}"), frozenset(defined), frozenset(undefined))
