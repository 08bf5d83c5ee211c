"""`CompiledKernel`: a kernel with what became of it on the way; each back end has its own subclass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autosched.runtime.kernel import Kernel


@dataclass(slots=True)
class CompiledKernel(ABC):
    """kernel: what runs; `source`: the readable Numba source; `llvm`: its LLVM text."""

    kernel: Kernel
    from_cache: bool = False

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
    def report(self) -> Any:
        """What the machine code shows: of a CPU's an `AsmReport`, of a GPU's its `Resources`."""

    @abstractmethod
    def instructions(self) -> tuple[int, ...]:
        """How many instructions of each kind there are, in an order of the back end's; empty where unknown."""

    def features(self) -> Mapping[str, tuple[float, ...]]:
        """What is known of the machine code at no cost, by name: what models learn from beside the loop nest."""
        return {}
