"""Code generation: lowered loops, readable Numba source, object code.

Nothing is imported before it is used: llvmlite takes a while, and Numba, which GPUs' kernels need, takes longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autosched.codegen.compile import compile_func, compile_funcs
    from autosched.codegen.compiled import CompiledKernel
    from autosched.codegen.lower import lower_func

_WHERE = {
    "CompiledKernel": "autosched.codegen.compiled",
    "compile_func": "autosched.codegen.compile",
    "compile_funcs": "autosched.codegen.compile",
    "lower_func": "autosched.codegen.lower",
}

__all__ = ["CompiledKernel", "compile_func", "compile_funcs", "lower_func"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_WHERE[name]), name)
