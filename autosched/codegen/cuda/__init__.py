"""Scheduled PrimFunc -> launches for NVIDIA GPUs: numba.cuda source, NVVM IR, PTX, machine code.

What a schedule may use is in `autosched.codegen.lower.device`. Numba is imported when something is compiled.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.codegen.compiled import CompiledKernel
    from autosched.runtime.kernel import Kernel
    from autosched.target import Target
    from autosched.tir.expr import Var
    from autosched.tir.function import PrimFunc

SOURCES = ("cuda", "cpu")  # the emitter of tiles derives from the CPU's
CHECKS = True
_PACKAGES = ("numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-nvjitlink")


def compile_uncached(func: PrimFunc, target: Target, name: str, trace: str, config: str) -> CompiledKernel:
    from autosched.codegen.cuda import build

    return build.compile_uncached(func, target, name, trace, config)


def may_be_empty(func: PrimFunc, size: Var) -> bool:
    from autosched.codegen.cuda import build

    return build.may_be_empty(func, size)


def toolchain() -> str:
    return " ".join(f"{package} {_version(package)}" for package in _PACKAGES)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def target_facts(target: Target) -> str:
    gpu = target.gpu
    return f"{gpu.arch}\x1f{gpu.max_shared_memory_per_block}\x1f{gpu.max_threads_per_block}"


def cached(kernel: Kernel) -> CompiledKernel:
    from autosched.codegen.cuda.compiled import CompiledCudaKernel

    return CompiledCudaKernel(kernel, from_cache=True)
