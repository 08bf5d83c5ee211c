"""Models written as modules of layers, with the names of TVM's `relax.frontend.nn`."""

from typing import Any

from autosched.frontend.nn import core, op, spec
from autosched.frontend.nn.conv import Conv1D, Conv2D, Conv3D, ConvTranspose1D
from autosched.frontend.nn.core import (
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
    Tensor,
    get_default_dtype,
    set_default_dtype,
    wrap_nested,
)
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


def __getattr__(name: str) -> Any:
    """The functions of `nn.op`, which TVM has here too: `nn.relu(x)`."""
    if not name.startswith("_") and callable(found := getattr(op, name, None)):
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "GELU", "Conv1D", "Conv2D", "Conv3D", "ConvTranspose1D", "Embedding", "GroupNorm", "Identity", "LayerNorm",
    "Linear", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "RMSNorm", "ReLU",
    "Sequential", "SiLU", "Tensor", "core", "export_tvm", "get_default_dtype", "op", "set_default_dtype", "spec",
    "wrap_nested",
]  # fmt: skip
