"""The order of the bindings of dataflow blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from autosched.errors import InvalidValueError
from autosched.ir.transform import Pass, graph_pass
from autosched.relax.expr import Binding, DataflowBlock, Function
from autosched.relax.rewrite import map_functions, used_vars

ORDERS, DIRECTIONS = ("depth-first", "breadth-first"), ("from-inputs", "from-outputs")


def _reads(bindings: Sequence[Binding]) -> list[set[int]]:
    """For each binding the positions of those that it reads."""
    place = {b.var: i for i, b in enumerate(bindings)}
    return [{place[v] for v in used_vars(b.value) if v in place} for b in bindings]


def _sorted(before: Sequence[set[int]], depth_first: bool) -> list[int]:
    """The positions, each behind all of `before`; the newest that became free goes first, or the oldest."""
    missing = [len(b) for b in before]
    after: list[list[int]] = [[] for _ in before]
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].append(i)
    free = [i for i, n in enumerate(missing) if n == 0]
    free.reverse()  # the first is taken from the end
    order = []
    while free:
        i = free.pop()
        order.append(i)
        ready = []
        for j in after[i]:
            missing[j] -= 1
            if missing[j] == 0:
                ready.append(j)
        ready.reverse()
        free = [*free, *ready] if depth_first else [*ready, *free]
    return order


def TopologicalSort(order: str = "depth-first", direction: str = "from-inputs") -> Pass:  # noqa: N802
    """Sort the bindings of each dataflow block: along a chain, or level by level, seen from its start or its end.

    Raises InvalidValueError for another order or direction.
    """
    for what, given, known in (("order", order, ORDERS), ("direction", direction, DIRECTIONS)):
        if given not in known:
            raise InvalidValueError(f"TopologicalSort: {what} {given!r}", hint=f"one of {', '.join(known)}")

    def block(old: DataflowBlock) -> DataflowBlock:
        before = _reads(old.bindings)
        depth_first = order == "depth-first"
        if direction == "from-inputs":
            new = _sorted(before, depth_first)
        else:
            after: list[set[int]] = [set() for _ in before]
            for i, earlier in enumerate(before):
                for j in earlier:
                    after[j].add(i)
            new = _sorted(after, depth_first)[::-1]
        same = new == list(range(len(new)))
        return old if same else DataflowBlock(tuple(old.bindings[i] for i in new))

    def change(function: Function) -> Function:
        old = function.body.blocks
        blocks = tuple(block(b) if isinstance(b, DataflowBlock) else b for b in old)
        if all(a is b for a, b in zip(blocks, old, strict=True)):
            return function
        return dataclasses.replace(function, body=dataclasses.replace(function.body, blocks=blocks))

    return graph_pass("TopologicalSort")(lambda module: map_functions(module, change))
