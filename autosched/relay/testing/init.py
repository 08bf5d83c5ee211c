"""Random weights for the models of this package."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.ir import IRModule
from autosched.relay.expr import GraphFunction
from autosched.runtime import NDArray, array


def create_workload(
    net: GraphFunction, initializer: Callable[[str, np.ndarray], None] | None = None, seed: int = 0
) -> tuple[IRModule, dict[str, NDArray]]:
    """(module, seeded weights of all its parameters but "data"): Xavier's for weights, ones and zeros for the rest.

    initializer  called as (name, array) for each parameter, fills it
    """
    rng = np.random.default_rng(seed)
    params = {}
    for param in net.params:
        if param.name == "data":
            continue
        shape, dtype = param.struct_info.static_shape, param.struct_info.dtype  # type: ignore[union-attr]
        if initializer is not None:
            value = np.zeros(shape, dtype)
            initializer(param.name, value)
        elif param.name.endswith("weight"):
            fan = np.prod(shape[1:]) + shape[0]
            value = rng.uniform(-1, 1, shape) * np.sqrt(3 * 2 / fan)
        else:
            value = np.ones(shape) if param.name.endswith(("gamma", "var")) else np.zeros(shape)
        params[param.name] = array(value.astype(dtype))
    return IRModule({"main": net}), params
