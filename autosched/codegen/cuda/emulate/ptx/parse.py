"""Reading inline PTX: statements with predicates, labels, register declarations and operands."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from autosched.errors import CodegenError


@dataclass(frozen=True)
class Register:
    """A declared register, or an operand of the assembly (`$0`)."""

    name: str


@dataclass(frozen=True)
class Immediate:
    value: int  # its bits


@dataclass(frozen=True)
class Special:
    """A special register, without its `%`."""

    name: str


@dataclass(frozen=True)
class Vector:
    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Address:
    """`[base + offset]`; a tensor's address has coordinates too: `[map, {x, y}]`."""

    base: Operand
    offset: int
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class Pair:
    """`d|p`: a result and a predicate."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Negated:
    operand: Operand


Operand = Register | Immediate | Special | Vector | Address | Pair | Negated


@dataclass(frozen=True)
class Instruction:
    """`@predicate opcode operands`; the opcode split at its dots."""

    opcode: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: str | None = None
    if_not: bool = False
    text: str = ""


@dataclass(frozen=True)
class Declaration:
    """`.reg .type names`."""

    type: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Label:
    name: str


Statement = Instruction | Declaration | Label


def parse(text: str) -> list[Statement]:
    """The statements of an assembly; braces of scopes are dropped, names of scopes do not hide each other."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    statements: list[Statement] = []
    for piece in _pieces(text):
        while label := re.match(r"\s*([\w$%]+):(?!:)", piece):
            statements.append(Label(label[1]))
            piece = piece[label.end() :]
        piece = " ".join(piece.split())
        if not piece:
            continue
        if match := re.fullmatch(r"\.reg \.(\w+) (.*)", piece):
            names: list[str] = []
            for name in match[2].replace(" ", "").split(","):
                if many := re.fullmatch(r"(.*)<(\d+)>", name):
                    names += [f"{many[1]}{k}" for k in range(int(many[2]))]
                else:
                    names.append(name)
            statements.append(Declaration(match[1], tuple(names)))
        else:
            statements.append(_instruction(piece))
    return statements


def _pieces(text: str) -> list[str]:
    """Split at semicolons and at the braces of scopes, but not inside the braces of a vector."""
    pieces, current, depth = [], "", 0
    for character in text:
        if character == "{" and not re.sub(r"[\w$%]+:", "", current).strip():
            continue
        if character == "}" and depth == 0:
            if current.strip():
                pieces.append(current)
            current = ""
            continue
        depth += (character in "{[") - (character in "}]")
        if character == ";":
            pieces.append(current)
            current = ""
        else:
            current += character
    return [*pieces, current] if current.strip() else pieces


def _instruction(text: str) -> Instruction:
    match = re.fullmatch(r"(?:@(!?)([\w$%]+) )?([a-z][\w.:]*)\s*(.*)", text)
    if match is None:
        raise CodegenError(f"the emulator cannot read the PTX `{text}`")
    opcode = tuple(match[3].replace("::", "__").split("."))
    operands = tuple(operand(part) for part in _commas(match[4]))
    return Instruction(opcode, operands, match[2], match[1] == "!", text)


def _commas(text: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current.strip() else parts


def operand(text: str) -> Operand:
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        return Vector(tuple(operand(part) for part in _commas(text[1:-1])))
    if text.startswith("[") and text.endswith("]"):
        base, *more = _commas(text[1:-1])
        coordinates: tuple[Operand, ...] = ()
        if more:
            found = operand(more[0])
            coordinates = found.items if isinstance(found, Vector) else (found,)
        match = re.fullmatch(r"\s*(.+?)\s*(?:([+-])\s*(-?\w+))?\s*", base)
        assert match is not None
        offset = int(match[3], 0) * (-1 if match[2] == "-" else 1) if match[3] else 0
        return Address(operand(match[1]), offset, coordinates)
    if text.startswith("!"):
        return Negated(operand(text[1:]))
    if "|" in text:
        first, second = text.split("|")
        return Pair(operand(first), operand(second))
    if re.fullmatch(r"-?(0x[0-9a-fA-F]+|\d+)U?", text):
        return Immediate(int(text.rstrip("U"), 0))
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
        return Immediate(int(match[1], 16))
    if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
        return Immediate(int(match[1], 16))
    if re.fullmatch(r"-?\d+\.\d*(e[-+]?\d+)?", text):
        return Immediate(struct.unpack("<I", struct.pack("<f", float(text)))[0])
    if text == "WARP_SZ":
        return Special(text)
    if text.startswith("%") and "." in text or text in _SPECIAL:
        return Special(text.lstrip("%"))
    if re.fullmatch(r"[\w$%]+", text):
        return Register(text)
    raise CodegenError(f"the emulator cannot read the PTX operand `{text}`")


_SPECIAL = {
    "%laneid", "%warpid", "%nwarpid", "%dynamic_smem_size", "%cluster_ctarank", "%cluster_nctarank", "%lanemask_eq",
    "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge", "%clock", "%clock64", "%globaltimer", "%smid",
    "%nsmid", "%gridid",
}  # fmt: skip
