"""`CompiledKernel`: a kernel with what became of it on the way; each back end has its own subclass."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from autosched.ir.structural import function_key
from autosched.runtime.kernel import Kernel
from autosched.tir.function import PrimFunc

MOST_LETTERS = 64  # of a function's name in code


def code_name(name: str) -> str:
    """What functions of a kernel are called in its code: its name without the numbers that a model's kernels get.

    So the same kernel of two models is the same code: "fused_conv2d3_add1" becomes "fused_conv2d_add". Long names are
    cut, since where a graph's names end depends on the numbers in them.
    """
    return re.sub(r"(?<=[a-z])\d+(?=_|$)", "", re.sub(r"\W", "_", name))[:MOST_LETTERS]


def code_digest(func: PrimFunc, *texts: str) -> str:
    """What tells a function's code from all others in the names of its symbols.

    The source alone does not: types and attributes decide code that reads the same.
    """
    return hashlib.sha256("\x1f".join((function_key(func), *texts)).encode()).hexdigest()[:12]


@dataclass(slots=True)
class CompiledKernel(ABC):
    """kernel: what runs; `source`: the readable Numba source; `llvm`: its LLVM text."""

    kernel: Kernel
    from_cache: bool = False

    def with_name(self, name: str) -> Self:
        """The same code as the kernel of another name, whose `code_name` is the same."""
        old = self.kernel.name
        if old == name:
            return self
        source = re.sub(rf"^# {re.escape(old)}\(", lambda _: f"# {name}(", self.kernel.source)
        return replace(self, kernel=replace(self.kernel, name=name, source=source))

    def at(self, numbers: tuple[int, ...]) -> Self:
        """The same for values of the kernel's symbols; a kernel without symbols is as it is."""
        return replace(self, kernel=self.kernel.at(numbers)) if numbers else self

    @property
    def source(self) -> str:
        return self.kernel.source

    @property
    def llvm(self) -> str:
        return self.kernel.llvm

    @property
    def asm(self) -> str:
        """The machine code as text, as far as that can be shown here."""
        return self.kernel.asm

    @abstractmethod
    def report(self) -> object:
        """What the machine code shows: of a CPU's an `AsmReport`, of a GPU's its `Resources`."""

    @abstractmethod
    def instructions(self) -> tuple[int, ...]:
        """How many instructions of each kind there are, in an order of the back end's; empty where unknown."""

    def features(self) -> Mapping[str, tuple[float, ...]]:
        """What is known of the machine code at no cost, by name: what models learn from beside the loop nest."""
        return {}
