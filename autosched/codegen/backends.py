"""The back ends of the code generator: sub-packages of `autosched.codegen`, found by their names."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Protocol

from autosched.codegen.compiled import CompiledKernel
from autosched.errors import TargetError
from autosched.runtime.kernel import Kernel
from autosched.target import Target
from autosched.tir.expr import Var
from autosched.tir.function import PrimFunc
from autosched.version import __version__

GENERATOR = f"{__version__}+5"  # the number after + grows whenever equal input gives other code


class CodegenBackend(Protocol):
    """What `autosched.codegen.<name>` has.

    SOURCES  the back ends whose sub-packages of `autosched.codegen` this one is made of, itself among them
    CHECKS   whether kernels can see that accesses stay inside of their buffers: `build(checks=True)`
    """

    SOURCES: tuple[str, ...]
    CHECKS: bool

    def compile_uncached(self, func: PrimFunc, target: Target, name: str, trace: str, config: str) -> CompiledKernel:
        """Compile a scheduled function. Raises CodegenError for what no code exists for."""

    def may_be_empty(self, func: PrimFunc, size: Var) -> bool:
        """Whether a scheduled function over symbols leaves arrays without elements alone where one of them is 0."""

    def toolchain(self) -> str:
        """The versions of the packages that decide what code comes out."""

    def target_facts(self, target: Target) -> str:
        """What of a target decides what code comes out, beyond its JSON text."""

    def cached(self, kernel: Kernel) -> CompiledKernel:
        """A kernel that was found in the cache."""


@cache
def codegen_backend(name: str) -> CodegenBackend:
    """Raises TargetError where there is no such back end."""
    package = f"{__package__}.{name}"
    if importlib.util.find_spec(package) is None:
        raise TargetError(f"no code generator for the back end '{name}'", hint=f"{package} is missing")
    return importlib.import_module(package)  # type: ignore[return-value]  # a module with these functions
