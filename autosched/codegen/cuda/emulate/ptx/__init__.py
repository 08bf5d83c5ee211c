"""Inline PTX of kernels, as LLVM IR for the emulator."""

from autosched.codegen.cuda.emulate.ptx.translate import assembly

__all__ = ["assembly"]
