"""How tensors lie in memory, which `as_strided` sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def memory_order(noted: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions of a tensor that PyTorch noted, from the outermost in memory to the innermost.

    None where memory has gaps or elements share it, and where sizes follow from data. Open sizes are the example's.
    """
    sizes, strides = ([_hint(x) for x in given] for given in (noted.shape, noted.stride()))
    if None in sizes or None in strides:
        return None
    order = sorted(range(len(sizes)), key=lambda d: -strides[d])
    extent = 1
    for d in reversed(order):
        if sizes[d] != 1 and strides[d] != extent:
            return None
        extent *= sizes[d]
    return tuple(order)


def _hint(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.hint if size.node.has_hint() else None


def permuted_back(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """The tensor of which this one has the dimensions in another order."""
    return tensor.permute([order.index(d) for d in range(len(order))])
