"""Operators on lists of tensors, compared with PyTorch's."""

from typing import Any

import torch

from autosched.frontend.torch.foreach_rules import foreach_rules


def example(parameter: Any) -> Any:
    match str(parameter.type):
        case "List[Tensor]":
            return [torch.rand(3, 3) + 1, torch.rand(2, 2) - 1]
        case "List[number]":
            return [0.3, 2.0]
        case "Tensor":
            return torch.tensor(1.5)
        case kind:
            return 2.0 if kind == "number" else parameter.default_value


def test_all_of_them():
    torch.manual_seed(0)
    assert len(rules := foreach_rules()) > 70
    for op, rule in rules.items():
        args = {p.name: example(p) for p in op._schema.arguments}
        named = {p.name: args.pop(p.name) for p in op._schema.arguments if p.kwarg_only}
        torch.testing.assert_close(rule(*args.values(), **named), list(op(*args.values(), **named)), equal_nan=True)
