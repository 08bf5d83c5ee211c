"""Weights of an imported module, as Relay hands them over."""

from __future__ import annotations

from autosched.ir import IRModule
from autosched.relax.frontend import detach_params
from autosched.runtime import NDArray, array


def named_params(mod: IRModule) -> tuple[IRModule, dict[str, NDArray]]:
    """(the module without its weights, the weights by the names of `main`'s last parameters)."""
    plain, found = detach_params(mod)
    values = found.get("main", [])
    names = [param.name for param in plain["main"].params]
    return plain, {
        name: value if isinstance(value, NDArray) else array(value)
        for name, value in zip(names[len(names) - len(values) :], values, strict=True)
    }
