"""PyTorch's operators on lists of tensors (`torch._foreach_add`, …), which optimizers call, as operators on each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_PREFIX = "aten::_foreach_"
_OTHER_NAMES = {"maximum": "clamp_min", "minimum": "clamp_max", "norm": "linalg_vector_norm", "zero": "zeros_like"}


def foreach_rules() -> dict[object, Callable[..., object]]:
    """For each such operator without writes how it is taken apart."""
    import torch

    aten, rules = torch.ops.aten, dict[object, Callable[..., object]]()
    overloads = (n.removeprefix(_PREFIX) for n in torch._C._dispatch_get_all_op_names() if n.startswith(_PREFIX))
    for name, _, overload in (n.partition(".") for n in overloads):
        single = getattr(aten, _OTHER_NAMES.get(name, name), None)
        if single is None or name.endswith("_") or "out" in overload:
            continue
        op = getattr(getattr(aten, f"_foreach_{name}"), overload or "default")
        parameters = op._schema.arguments
        if not any(p.name == "scalars" and str(p.type) == "Tensor" for p in parameters):
            rules[op] = functools.partial(_one_by_one, single, parameters)
    return rules


def _one_by_one(
    operator: Callable[..., torch.Tensor], parameters: Any, *given: Any, **named: Any
) -> list[torch.Tensor]:
    """The operator on each tensor; of what is given as a list each gets an item."""
    args = {p.name: x for p, x in zip(parameters, given)} | named
    if "tensor1" in args:  # addcdiv and addcmul
        args = {"value" if name == "scalars" else name: x for name, x in args.items()}
    by_name = {"value", "dtype", *(p.name for p in parameters if p.kwarg_only)}
    n = max(len(x) for x in args.values() if isinstance(x, list | tuple))
    items = [{name: x[i] if isinstance(x, list | tuple) else x for name, x in args.items()} for i in range(n)]
    return [
        operator(*(x for k, x in item.items() if k not in by_name), **{k: x for k, x in item.items() if k in by_name})
        for item in items
    ]
