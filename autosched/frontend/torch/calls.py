"""Operators of a program that PyTorch computes, beside what is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError, WrongInputError
from autosched.frontend.torch.complex_values import PARTS
from autosched.frontend.torch.graph import array_of, operator_name, tensor_of
from autosched.frontend.torch.memory import memory_order, permuted_back

if TYPE_CHECKING:
    import torch
    from torch import fx

ORDERED = "with_effects"
OF_MEMORY = "as_strided"  # operators that read memory, whatever tensor lies there


def is_ordered(node: fx.Node) -> bool:
    """Whether a node is (token, operator, its arguments): it gives a token, for what comes next, and results."""
    return operator_name(node.target) == ORDERED


def can_call(node: fx.Node) -> bool:
    """Whether PyTorch can compute a node from real tensors, and gives nothing but such."""
    import torch

    target = node.args[1] if is_ordered(node) else node.target
    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    returns = [*(["Tensor"] if is_ordered(node) else []), *(str(r.type) for r in target._schema.returns)]
    values = [node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]
    tensors = [t for v in values for t in (v if isinstance(v, list | tuple) else (v,))]
    is_complex = any(str(getattr(t, "dtype", "")) in PARTS for t in tensors)
    if operator_name(node.target).startswith(OF_MEMORY) and any(memory_order(x) is None for x in _noted(node).values()):
        return False
    return bool(returns) and set(returns) <= {"Tensor", "List[Tensor]"} and not is_complex


def _noted(node: fx.Node) -> dict[str, Any]:
    """What PyTorch noted of the tensors that a node takes, by their names."""
    found = {n.name: n.meta.get("val") for n in node.all_input_nodes}
    return {name: x for name, x in found.items() if hasattr(x, "stride")}


def _laid_out(tensor: torch.Tensor, noted: Any) -> torch.Tensor:
    """The tensor with its dimensions in memory as PyTorch noted them, which `as_strided` sees."""
    order = None if noted is None else memory_order(noted)
    if order is None or order == tuple(range(len(order))):
        return tensor
    return permuted_back(tensor.permute(order).contiguous(), order)


@dataclass(frozen=True, eq=False)
class TorchCall:
    """A node to be computed by PyTorch.

    names  of the node's result, or of the items of it that are read, with their numbers
    """

    node: fx.Node
    inputs: tuple[str, ...]
    names: tuple[tuple[str, int | None], ...]

    @staticmethod
    def of(node: fx.Node) -> TorchCall:
        """The call of a node. Raises ImportModelError where its results are read as a whole."""
        items = [u for u in node.users if operator_name(u.target) == "getitem"]
        if items and len(items) < len(node.users):
            raise ImportModelError(f"{operator_name(node.target)}: its results are read as a whole", where=node.name)
        names = tuple((u.name, u.args[1]) for u in items) or ((node.name, None),)
        return TorchCall(node, tuple(dict.fromkeys(n.name for n in node.all_input_nodes)), names)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The values that it gives."""
        return tuple(name for name, _ in self.names)

    @property
    def name(self) -> str:
        return str(self.node.name)

    @property
    def op_name(self) -> str:
        return operator_name(self.node.target)

    @property
    def library_name(self) -> str:
        return "PyTorch"

    def check(self, inputs: Sequence[object]) -> None:
        """PyTorch has computed with these types when the program was exported."""

    def run(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs. Raises WrongInputError for values that the operator does not take."""
        import torch

        values = {n: tensor_of(x) if isinstance(x, np.ndarray) else x for n, x in zip(self.inputs, inputs, strict=True)}
        if self.op_name.startswith(OF_MEMORY):
            values |= {n: _laid_out(values[n], x) for n, x in _noted(self.node).items()}
        args, kwargs = torch.fx.node.map_arg((self.node.args, self.node.kwargs), lambda n: values[n.name])
        try:
            with torch.no_grad():
                found = self.node.target(*args, **kwargs)
        except (RuntimeError, ValueError, LookupError, TypeError) as error:
            text = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise WrongInputError(f"{self.op_name}: {text}", where=f"node '{self.name}'") from error
        results = {name: found if i is None else found[i] for name, i in self.names}
        if lost := [name for name, x in results.items() if x is None]:
            raise WrongInputError(f"{self.op_name}: PyTorch gives no '{lost[0]}'", where=f"node '{self.name}'")
        return tuple(array_of(x, name) for name, x in results.items())
