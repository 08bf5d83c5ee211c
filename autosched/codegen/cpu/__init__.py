"""Scheduled PrimFunc -> object code for CPUs. LLVM is imported when something is compiled."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.codegen.compiled import CompiledKernel
    from autosched.runtime.kernel import Kernel
    from autosched.target import Target
    from autosched.tir.expr import Var
    from autosched.tir.function import PrimFunc

SOURCES = ("cpu",)
CHECKS = True


def compile_uncached(func: PrimFunc, target: Target, name: str, trace: str, config: str) -> CompiledKernel:
    from autosched.codegen.cpu import build

    return build.compile_uncached(func, target, name, trace, config)


def may_be_empty(func: PrimFunc, size: Var) -> bool:
    from autosched.codegen.cpu import build

    return build.may_be_empty(func, size)


def toolchain() -> str:
    return f"numba {version('numba')} llvmlite {version('llvmlite')}"


def target_facts(target: Target) -> str:
    return f"{target.mcpu}\x1f{','.join(sorted(target.features))}"


def cached(kernel: Kernel) -> CompiledKernel:
    from autosched.codegen.cpu.compiled import CompiledCpuKernel

    return CompiledCpuKernel(kernel, from_cache=True)
