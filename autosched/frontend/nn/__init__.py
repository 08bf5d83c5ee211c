"""Models written as modules of layers, with the names of TVM's `relax.frontend.nn`."""

from typing import Any

from autosched.frontend.nn import core, effects, op, spec, subroutine, visitor
from autosched.frontend.nn.conv import Conv1D, Conv2D, Conv3D, ConvTranspose1D
from autosched.frontend.nn.core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Object,
    Parameter,
    ParameterDict,
    ParameterList,
    Tensor,
    get_default_dtype,
    set_default_dtype,
    wrap_nested,
)
from autosched.frontend.nn.effects import IOEffect, KVCache, debug_func, print_
from autosched.frontend.nn.export import export_tvm
from autosched.frontend.nn.layers import (
    GELU,
    Embedding,
    GroupNorm,
    Identity,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    SiLU,
)
from autosched.frontend.nn.core import Sequential
from autosched.frontend.nn.visitor import Mutator


def __getattr__(name: str) -> Any:
    """The functions of `nn.op`, which TVM has here too: `nn.relu(x)`."""
    if not name.startswith("_") and callable(found := getattr(op, name, None)):
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Effect", "Embedding", "GELU", "GroupNorm", "IOEffect",
    "Identity", "KVCache", "LayerNorm", "Linear", "Module", "ModuleDict", "ModuleList", "Mutator", "Object",
    "Parameter", "ParameterDict", "ParameterList", "RMSNorm", "ReLU", "Sequential", "SiLU", "Tensor", "core",
    "debug_func", "effects", "export_tvm", "get_default_dtype", "op", "print_", "set_default_dtype", "spec",
    "subroutine", "visitor", "wrap_nested",
]  # fmt: skip
