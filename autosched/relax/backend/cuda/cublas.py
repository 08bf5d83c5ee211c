"""The matrix products that TVM gives to cuBLAS."""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from autosched.relax.backend.patterns import make_matmul_pattern
from autosched.relax.transform.fuse_by_pattern import FuseOpsByPattern

_ACTIVATIONS = {"": None, "_relu": "relax.nn.relu", "_gelu": "relax.nn.gelu"}

register_patterns(
    [
        (
            f"cublas.matmul{'_transposed' * flipped}{'_bias' * bias}{name}",
            *make_matmul_pattern(bias, activation, flipped),
        )
        for flipped in (False, True)
        for bias, name, activation in [(False, "", None), *((True, n, a) for n, a in _ACTIVATIONS.items())]
    ]
)


def partition_for_cublas(mod: IRModule, bind_constants: bool = False) -> IRModule:
    """Move matrix products into functions that are marked for cuBLAS."""
    return FuseOpsByPattern(get_patterns_with_prefix("cublas"), bind_constants, annotate_codegen=True)(mod)
