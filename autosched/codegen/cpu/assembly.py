"""Assembly text of x86-64, read as instructions and loops; the text of other machines has neither."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

_LABEL = re.compile(r"^(\.L\w+|[\w$.\"]+):")
_LINE = re.compile(r"^\s+([a-z]\w*)(?:[ \t]+([^#]*))?")
_TARGET = re.compile(r"(\.L\w+)$")
_VECTOR = re.compile(r"%([xyz])mm\d+")
_STACK = re.compile(r"\(%rsp")
_STACK_BY_FRAME = re.compile(r"\(%r[sb]p")
_FRAME = re.compile(r"^\s+movq\s+%rsp, %rbp", re.MULTILINE)  # without this, %rbp is a register like any other
_TO_MEMORY = re.compile(r"\)(?:\s*\{[^}]*\})?$")  # memory as the last operand, perhaps masked
_FMA = re.compile(r"^vfn?m(?:add|sub)")
_SCALAR = re.compile(r"s[sd]$")  # of one element: vfmadd231ss, vmovss
_MOVE = re.compile(r"^v?mov")
_STORE = re.compile(r"^v(?:mov|ext|mask|comp|scat)")
_SHUFFLE = re.compile(r"^v(?:p?perm|p?shuf|p?unpck|pack|p?insert|p?extract|p?blend|p?align|mov[sd]?[lh]?dup|mov[lh]+p)")
_BITS = {"x": 128, "y": 256, "z": 512}


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


@dataclass(frozen=True)
class Assembly:
    """The instructions of a text, and where its loops begin and end: `loops` are ranges of them, by backward jumps."""

    instructions: Sequence[Instruction]
    loops: Sequence[range]

    @staticmethod
    def read(text: str) -> Assembly:
        """Read the text that LLVM writes (AT&T syntax)."""
        stack = _STACK_BY_FRAME if _FRAME.search(text) else _STACK
        found: list[Instruction] = []
        labels: dict[str, int] = {}
        loops: list[range] = []
        for line in text.splitlines():
            if label := _LABEL.match(line):
                labels[label[1]] = len(found)
            elif one := _LINE.match(line):
                operands = (one[2] or "").rstrip()
                if one[1].startswith("j") and (to := _TARGET.search(operands)) and to[1] in labels:
                    loops.append(range(labels[to[1]], len(found) + 1))
                found.append(Instruction(one[1], operands, bool(stack.search(operands))))
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
        widths = {found for one in self.instructions for found in _VECTOR.findall(one.operands)}
        return max((_BITS[width] for width in widths), default=0)
