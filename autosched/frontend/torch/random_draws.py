"""Random numbers of a graph that `torch.compile` captured: PyTorch draws them before the rest of it runs.

They come from PyTorch's own generator in the graph's order, so they are those that PyTorch would have computed with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from autosched.frontend.torch.graph import map_arguments
from autosched.frontend.torch.program_sizes import size_value
from autosched.relax.struct_info import TensorStructInfo

if TYPE_CHECKING:
    import torch
    from torch import fx

_FROM_SIZES = (  # operators that read their tensor's sizes, strides and dtype alone
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "bernoulli.p", "uniform",
    "normal.float_float", "normal_functional", "exponential", "log_normal", "cauchy", "geometric", "random",
    "native_dropout",
)  # fmt: skip
Draw: TypeAlias = Callable[[], Any]  # gives a tensor


@dataclass(frozen=True)
class _Tensor:
    """What is drawn from of a tensor; sizes may be symbols."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, x: Any) -> _Tensor:
        return cls(tuple(x.shape), tuple(x.stride()), x.dtype)


_Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], _Tensor]


@dataclass(frozen=True)
class Draws:
    """What is drawn before a graph runs: inputs of it, behind its own.

    calls    (operator, arguments, named arguments, what it gives) of each, in order
    inputs   the graph's own, as PyTorch noted them
    """

    calls: tuple[_Call, ...]
    inputs: tuple[Any, ...]

    def at(self, given: Sequence[Any]) -> tuple[list[TensorStructInfo], list[Draw]]:
        """The types of the inputs that are drawn, and what draws them, for these inputs of the graph."""
        import torch

        sizes: dict[str, int] = {}
        for noted, value in zip(self.inputs, given, strict=True):
            pairs = zip(noted.shape, value.shape) if hasattr(noted, "shape") else [(noted, value)]
            sizes |= {str(symbol): n for symbol, n in pairs if isinstance(symbol, torch.SymInt)}

        def known(x: Any) -> Any:
            if isinstance(x, _Tensor):
                return torch.empty_strided(known(x.size), known(x.stride), dtype=x.dtype)
            if isinstance(x, tuple | list):
                return type(x)(map(known, x))
            return size_value(x, sizes) if isinstance(x, torch.SymInt) else x

        def drawing(op: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> Draw:
            return lambda: op(*known(args), **named)

        types = [TensorStructInfo(known(x.size), str(x.dtype).removeprefix("torch.")) for *_, x in self.calls]
        return types, [drawing(op, args, named) for op, args, named, _ in self.calls]


def is_drawn(target: Any) -> bool:
    """Whether an operator gives random numbers that follow from sizes alone."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    name = target._schema.name.partition("::")[2]
    return name in _FROM_SIZES or f"{name}.{target._overloadname}" in _FROM_SIZES


def drawn_before(whole: fx.GraphModule) -> tuple[fx.GraphModule, Draws | None]:
    """A graph whose random numbers are inputs, up to the first that follow from values; None where there are none."""
    from torch import fx

    if not (drawn := _drawn_nodes(whole.graph)):
        return whole, None
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    graph.output(graph.graph_copy(whole.graph, copies))
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    last = inputs[-1] if inputs else graph._root
    calls: list[_Call] = []
    for node in drawn:
        args, named = _noted(node.args), {k: _noted(v) for k, v in node.kwargs.items()}
        is_dropout = node.target._schema.name == "aten::native_dropout"
        with graph.inserting_after(last):
            last = graph.placeholder(f"drawn_{len(calls)}")
        last.meta["val"] = noted = node.meta["val"][1] if is_dropout else node.meta["val"]
        if is_dropout:
            _drop(copies[node], last)
            calls.append((_mask, args[:2], {}, _Tensor.of(noted)))
        else:
            copies[node].replace_all_uses_with(last)
            calls.append((node.target, args, named, _Tensor.of(noted)))
        graph.erase_node(copies[node])
    graph.eliminate_dead_code()
    return fx.GraphModule(whole, graph), Draws(tuple(calls), tuple(n.meta["val"] for n in inputs))


def _drawn_nodes(graph: fx.Graph) -> list[fx.Node]:
    """The nodes of random numbers before the first that cannot be drawn before the graph runs."""
    import torch

    noted = [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]
    sizes = [x for value in noted for x in (value.shape if hasattr(value, "shape") else [value])]
    symbols = {str(x) for x in sizes if isinstance(x, torch.SymInt)}
    found: list[fx.Node] = []
    for node in graph.nodes:
        name = getattr(getattr(node.target, "_schema", None), "name", "")
        is_idle = name == "aten::native_dropout" and (node.args[2] is False or not node.args[1])
        if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()) or is_idle or "attention" in name:
            continue
        value = node.meta["val"]
        results = value if isinstance(value, tuple) else (value,)
        used = {str(v) for x in results for n in (*x.shape, *x.stride()) for v in _free_symbols(n)}
        is_open = not used <= symbols or any(x.dtype.is_complex for x in results)
        if not is_drawn(node.target) or is_open or node.kwargs.get("generator") is not None:
            break
        found.append(node)
    return found


def _free_symbols(size: Any) -> set[Any]:
    return set() if isinstance(size, int) else size.node.expr.free_symbols


def _noted(argument: Any) -> Any:
    """An argument without nodes: what is drawn from of a tensor, the symbol that a size is."""

    def of(node: fx.Node) -> Any:
        value = node.meta["val"]
        return _Tensor.of(value) if hasattr(value, "shape") else value

    return map_arguments(argument, of)


def _mask(x: torch.Tensor, p: float) -> torch.Tensor:
    """Which elements dropout keeps, as PyTorch's kernel draws it."""
    import torch

    return torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p)


def _drop(node: fx.Node, mask: fx.Node) -> None:
    """Let what reads a node of dropout read products with the mask, and the mask."""
    import torch

    x, p = node.args[0], node.args[1]
    for item in list(node.users):
        assert item.target is operator.getitem, "dropout has two results"
        result = mask
        if item.args[1] == 0:
            for factor in (mask, 0.0 if p == 1 else 1 / (1 - p)):
                with node.graph.inserting_before(item):
                    result = node.graph.call_function(torch.ops.aten.mul.Tensor, (x, factor))
                result.meta, x = dict(item.meta), result
        item.replace_all_uses_with(result)
        node.graph.erase_node(item)
