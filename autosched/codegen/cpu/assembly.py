"""Assembly text of x86-64 and AArch64, read as instructions and loops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

_LABEL = re.compile(r"^(\.L\w+|[\w$.\"]+):")
_LINE = re.compile(r"^\s+([a-z]\w*)(?:[ \t]+([^#]*))?")
_TARGET = re.compile(r"(\.L\w+)$")
_VECTOR = re.compile(r"%([xyzt])mm\d+")
_STACK = re.compile(r"\(%rsp")
_STACK_BY_FRAME = re.compile(r"\(%r[sb]p")
_FRAME = re.compile(r"^\s+movq\s+%rsp, %rbp", re.MULTILINE)  # without this, %rbp is a register like any other
_TO_MEMORY = re.compile(r"\)(?:\s*\{[^}]*\})?$")  # memory as the last operand, perhaps masked
_FMA = re.compile(r"^(?:vfn?m(?:add|sub)|tdp)")
_SCALAR = re.compile(r"s[sd]$")  # of one element: vfmadd231ss, vmovss
_MOVE = re.compile(r"^(?:v?mov|tile(?:load|store))")
_STORE = re.compile(r"^(?:v(?:mov|ext|mask|comp|scat)|tilestore)")
_SHUFFLE = re.compile(r"^v(?:p?perm|p?shuf|p?unpck|pack|p?insert|p?extract|p?blend|p?align|mov[sd]?[lh]?dup|mov[lh]+p)")
_BITS = {"x": 128, "y": 256, "z": 512, "t": 512}  # a tile: of each row


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line: its mnemonic and operands; `on_stack`: one of them is memory of the function's own frame."""

    name: str
    operands: str
    on_stack: bool

    @property
    def is_vector(self) -> bool:
        """Whether it works on vector registers, wherever its operands are."""
        return bool(_VECTOR.search(self.operands))

    @property
    def is_packed(self) -> bool:
        """Whether it works on all elements of them."""
        return self.is_vector and not _SCALAR.search(self.name)

    @property
    def is_fma(self) -> bool:
        """Whether it multiplies and adds."""
        return bool(_FMA.match(self.name))

    @property
    def is_move(self) -> bool:
        """Whether it only moves a value."""
        return bool(_MOVE.match(self.name))

    @property
    def is_shuffle(self) -> bool:
        """Whether it moves elements between or inside of registers."""
        if self.name.startswith(("vbroadcast", "vpbroadcast")):
            return "(" not in self.operands
        return bool(_SHUFFLE.match(self.name))

    @property
    def stores(self) -> bool:
        """Whether it writes a vector to memory."""
        return bool(_STORE.match(self.name)) and bool(_TO_MEMORY.search(self.operands))

    @property
    def loads(self) -> bool:
        """Whether it reads memory: by itself or as the operand of something else."""
        return "(" in self.operands and not self.stores


_ARM_LINE = re.compile(r"^\s+([a-z][\w.]*)(?:[ \t]+(.*?))?(?:\s*//.*)?$")
_ARM_JUMP = re.compile(r"^(?:b|b\.\w+|cbn?z|tbn?z)$")
_ARM_STACK = re.compile(r"\[(?:sp|x29)\b")
_ARM_PACKED = re.compile(r"\bv\d+\.|\bq\d+")
_ARM_VECTOR = re.compile(r"\bv\d+\.|\b[qdsh]\d+\b")
_ARM_SHUFFLE = re.compile(r"^(?:zip|uzp|trn|ext|dup|ins|tb[lx]|rev)")


class ArmInstruction(Instruction):
    """A line of AArch64's assembly text. A multiply-add may take a factor from one lane of a register for all lanes."""

    @property
    def is_vector(self) -> bool:
        return bool(_ARM_VECTOR.search(self.operands))

    @property
    def is_packed(self) -> bool:
        return bool(_ARM_PACKED.search(self.operands))

    @property
    def is_fma(self) -> bool:
        return self.name.startswith(("fmla", "fmls", "fmadd", "fmsub", "fnmadd", "fnmsub"))

    @property
    def is_move(self) -> bool:
        return self.name.startswith(("mov", "fmov", "ld", "st"))

    @property
    def is_shuffle(self) -> bool:
        return bool(_ARM_SHUFFLE.match(self.name))

    @property
    def stores(self) -> bool:
        return self.name.startswith("st")

    @property
    def loads(self) -> bool:
        return self.name.startswith("ld")


@dataclass(frozen=True)
class Assembly:
    """The instructions of a text, and where its loops begin and end: `loops` are ranges of them, by backward jumps."""

    instructions: Sequence[Instruction]
    loops: Sequence[range]

    @staticmethod
    def read(text: str) -> Assembly:
        """Read the text that LLVM writes (AT&T syntax for x86-64, in which registers begin with %)."""
        is_arm = "%" not in text
        line_of, made = (_ARM_LINE, ArmInstruction) if is_arm else (_LINE, Instruction)
        stack = _ARM_STACK if is_arm else _STACK_BY_FRAME if _FRAME.search(text) else _STACK
        found: list[Instruction] = []
        labels: dict[str, int] = {}
        loops: list[range] = []
        for line in text.splitlines():
            if label := _LABEL.match(line):
                labels[label[1]] = len(found)
            elif one := line_of.match(line):
                operands = (one[2] or "").rstrip()
                jumps = _ARM_JUMP.match(one[1]) if is_arm else one[1].startswith("j")
                if jumps and (to := _TARGET.search(operands)) and to[1] in labels:
                    loops.append(range(labels[to[1]], len(found) + 1))
                found.append(made(one[1], operands, bool(stack.search(operands))))
        return Assembly(found, loops)

    @cached_property
    def innermost(self) -> Sequence[range]:
        """The loops that hold no other loop."""
        loops = self.loops
        return [x for x in loops if not any(x.start < y.start and y.stop < x.stop for y in loops)]

    def body(self, loop: range) -> Sequence[Instruction]:
        """The instructions of a loop."""
        return self.instructions[loop.start : loop.stop]

    @property
    def vector_bits(self) -> int:
        """The widest vector register that is used; 0 where there is none."""
        if any(isinstance(one, ArmInstruction) and one.is_packed for one in self.instructions):
            return 128
        widths = {found for one in self.instructions for found in _VECTOR.findall(one.operands)}
        return max((_BITS[width] for width in widths), default=0)
