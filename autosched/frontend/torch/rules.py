"""PyTorch's rules that take operators apart, and those that are written anew where they differ from its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from autosched.frontend.torch.backward_rules import backward_rules
from autosched.frontend.torch.foreach_rules import foreach_rules
from autosched.frontend.torch.grid_sampler_rules import grid_sampler_rules


def all_rules() -> dict[object, Callable[..., object]]:
    """For each operator that can be taken apart how it is."""
    from torch._decomp import decomposition_table

    return {**decomposition_table, **grid_sampler_rules(), **backward_rules(), **foreach_rules()}


def core_rules() -> dict[Any, Callable[..., object]]:
    """PyTorch's rules that bring programs down to its core operators, those of operators registered by now."""
    import torch

    return dict(_core_rules(len(torch._C._dispatch_get_all_op_names())))


@functools.lru_cache(1)
def _core_rules(n_operators: int) -> dict[Any, Callable[..., object]]:
    """Kept until there are more operators: PyTorch asks each of them, which takes as long as a small model's export."""
    import torch

    return dict(torch.export.default_decompositions().items())
