"""`GraphForm`: a graph over a batch of unknown size; `at` gives the static graph for a number of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autosched.errors import InvalidTypeError, ShapeError
from autosched.runtime.graph import Graph, Node, Storage, Value
from autosched.runtime.memory_plan import Lifetime, plan_memory


@dataclass(frozen=True, slots=True)
class SizeRange:
    """A size that is known when a model is called: its name, and what it may be."""

    name: str
    low: int = 1
    high: int | None = None

    def check(self, value: int, what: str) -> None:
        """Raises ShapeError naming the size and its bounds."""
        if not self.low <= value or (self.high is not None and value > self.high):
            bounds = f"{self.low} to {self.high}" if self.high is not None else f"at least {self.low}"
            raise ShapeError(f"{what}: '{self.name}' is {value}, and the model is built for {bounds}")


@dataclass(frozen=True, slots=True)
class GraphForm:
    """Nodes in the order in which they run, and the values between them.

    values   as for one part of the batch; in the arena at -1
    axes     per value the dimension that counts the batch, as often as it has elements for one part; -1: none does
    lives    (value, first node, last node) for each that has memory of its own in the arena
    inside   (value, other): values that lie in the memory of another one, which has its own
    inputs, outputs, nodes  as of a Graph; a node's kernel may be the name of a form
    """

    size: SizeRange
    values: tuple[Value, ...]
    axes: tuple[int, ...]
    lives: tuple[tuple[int, int, int], ...]
    inside: tuple[tuple[int, int], ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def shape_at(self, value: int, n_parts: int) -> tuple[int, ...]:
        """The shape of a value for a batch of `n_parts`."""
        axis, shape = self.axes[value], self.values[value].shape
        return shape if axis < 0 else (*shape[:axis], shape[axis] * n_parts, *shape[axis + 1 :])

    def parts_of(self, shapes: Mapping[int, tuple[int, ...]]) -> int:
        """The size of the batch from the shapes of inputs, by value.

        Raises ShapeError where a shape is not the input's, where two disagree, and where the size is out of bounds.
        """
        found: dict[int, str] = {}
        for value, shape in shapes.items():
            spec, axis, what = self.values[value], self.axes[value], f"input '{self.values[value].name}'"
            n, rest = divmod(shape[axis], spec.shape[axis]) if 0 <= axis < len(shape) else (0, 0)
            if rest or self.shape_at(value, n) != shape:
                raise ShapeError(f"{what} has shape {list(shape)} instead of {self.describe(value)}")
            if axis >= 0:
                found.setdefault(n, what)
        if len(found) > 1:
            (n, a), (m, b), *_ = found.items()
            raise ShapeError(f"'{self.size.name}' is {n} for {a} and {m} for {b}")
        for n, what in found.items():
            self.size.check(n, what)
        return next(iter(found), self.size.low)

    def describe(self, value: int) -> str:
        """A value's shape with the size by its name: [n, 784]."""
        dims = list(map(str, self.values[value].shape))
        if (axis := self.axes[value]) >= 0:
            dims[axis] = self.size.name if dims[axis] == "1" else f"{dims[axis]}*{self.size.name}"
        return f"[{', '.join(dims)}]"

    def at(self, n_parts: int) -> Graph:
        """The graph for a batch of `n_parts`, its memory planned; nodes still call forms."""
        values = [replace(v, shape=self.shape_at(i, n_parts)) for i, v in enumerate(self.values)]
        offsets, size = plan_memory([Lifetime(values[v].size_bytes, first, last) for v, first, last in self.lives])
        for (number, *_), offset in zip(self.lives, offsets, strict=True):
            values[number] = replace(values[number], storage=Storage("arena", offset))
        for number, other in self.inside:
            values[number] = replace(values[number], storage=values[other].storage)
        return Graph(tuple(values), self.nodes, self.inputs, self.outputs, size)

    def to_manifest(self) -> dict[str, Any]:
        """Give the form as JSON values."""
        graph = Graph(self.values, self.nodes, self.inputs, self.outputs, 0)
        return {
            "size": [self.size.name, self.size.low, self.size.high],
            "graph": graph.to_manifest(),
            "axes": list(self.axes),
            "lives": [list(life) for life in self.lives],
            "inside": [list(pair) for pair in self.inside],
        }

    @staticmethod
    def from_manifest(entry: Mapping[str, Any]) -> GraphForm:
        """Rebuild a form from what `to_manifest` gave. Raises KeyError, TypeError, ValueError for anything else."""
        graph = Graph.from_manifest(entry["graph"])
        name, low, high = entry["size"]
        axes = tuple(map(int, entry["axes"]))
        if len(axes) != len(graph.values):
            raise InvalidTypeError(f"{len(axes)} axes of {len(graph.values)} values")
        return GraphForm(
            SizeRange(str(name), int(low), None if high is None else int(high)),
            graph.values,
            axes,
            tuple((int(v), int(first), int(last)) for v, first, last in entry["lives"]),
            tuple((int(v), int(other)) for v, other in entry["inside"]),
            graph.nodes,
            graph.inputs,
            graph.outputs,
        )
