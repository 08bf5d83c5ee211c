"""Results of a graph that are views: PyTorch makes them of the tensors whose memory they share."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True)
class Views:
    """How the results of a graph that are views follow from its inputs and its other results.

    graph      what computes them
    given      for each of its inputs: (whether it is an input of the whole, or a result of the rest; its number)
    places     their numbers among the results
    n_results  of the whole: what the rest gives behind these are sizes for the views
    """

    graph: fx.GraphModule
    given: tuple[tuple[bool, int], ...]
    places: tuple[int, ...]
    n_results: int

    def complete(self, inputs: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        """The results of the whole. Views have no history: PyTorch adds what follows from their place in memory."""
        import torch

        with torch.no_grad():
            made = self.graph(*[(inputs if is_input else results)[i] for is_input, i in self.given])
        found = list(results[: self.n_results])
        for place, view in zip(self.places, made, strict=True):
            bare = torch.empty(0, dtype=view.dtype)
            found[place] = bare.set_(view.untyped_storage(), view.storage_offset(), view.size(), view.stride())
        return tuple(found)


def without_views(whole: fx.GraphModule, places: range) -> tuple[fx.GraphModule, Views | None]:
    """A graph with None for those of its results at `places` that are views of inputs or other results.

    PyTorch takes from such a result where it lies in the memory of the other tensor, so a copy would not do.
    """
    from torch import fx

    rest, views, known = fx.Graph(), fx.Graph(), {}
    copied: dict[fx.Node, fx.Node] = {}
    results = list(rest.graph_copy(whole.graph, copied) or ())
    own = list(next(n for n in whole.graph.nodes if n.op == "output").args[0])
    chains = {i: _chain(own[i]) for i in places if i < len(own) and hasattr(own[i], "op")}
    chains = {i: c for i, c in chains.items() if len(c) > 1 and (c[0].op == "placeholder" or c[0] in own)}
    if not chains:
        return whole, None
    placeholders = [n for n in whole.graph.nodes if n.op == "placeholder"]
    given: list[tuple[bool, int]] = []

    def value(node: fx.Node) -> fx.Node:
        if node not in known:
            if is_input := node in placeholders:
                number = placeholders.index(node)
            elif node in own:
                number = own.index(node)
            else:
                number = len(results)
                results.append(copied[node])
                own.append(node)
            given.append((is_input, number))
            known[node] = views.placeholder(f"given_{len(given)}")
        return known[node]

    n_results = len(results)
    for chain in chains.values():
        for node in chain[1:]:
            if node not in known:
                args = [value(n) for n in node.all_input_nodes]
                assert args, "a view has a tensor"
                known[node] = views.node_copy(node, known.__getitem__)
    views.output(tuple(known[chain[-1]] for chain in chains.values()))
    rest.output(tuple(None if i in chains else x for i, x in enumerate(results)))
    rest.eliminate_dead_code()
    made = Views(fx.GraphModule(whole, _placeholders_first(views)), tuple(given), tuple(chains), n_results)
    return fx.GraphModule(whole, rest), made


def _chain(node: fx.Node) -> list[fx.Node]:
    """The views between a tensor and a node, which is the last; the tensor is the first."""
    found = [node]
    while (base := _viewed(found[0])) is not None:
        found.insert(0, base)
    return found


def _viewed(node: fx.Node) -> fx.Node | None:
    """What a node gives a view, or several views, of."""
    import torch

    is_item = node.target is operator.getitem and _viewed(node.args[0]) is not None
    is_view = isinstance(node.target, torch._ops.OpOverload) and any(
        r.alias_info is not None and not r.alias_info.is_write for r in node.target._schema.returns
    )
    return node.args[0] if is_item or is_view else None


def _placeholders_first(graph: fx.Graph) -> fx.Graph:
    """The graph with its inputs before all else, as a graph has to have them."""
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    for node in reversed(inputs):
        next(iter(graph.nodes)).prepend(node)
    return graph
