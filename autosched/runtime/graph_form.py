"""`GraphForm`: a graph over sizes that are known when it is called; `at` gives the static graph for some of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from autosched.errors import InvalidTypeError, ShapeError, SizeError
from autosched.runtime.graph import Graph, Node, Storage, Value
from autosched.runtime.memory_plan import Lifetime, plan_memory
from autosched.runtime.size_expr import (
    Shape,
    Size,
    product_of,
    read_shape,
    read_size,
    shape_at,
    show_limit,
    show_shape,
    show_size,
    size_at,
    solve_sizes,
    solved,
    symbols_of,
)  # fmt: skip

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject


@dataclass(frozen=True, slots=True)
class SizeRange:
    """A size that is known when a model is called: its name, and what it may be."""

    name: str
    low: int = 1
    high: int | None = None

    def check(self, value: int, what: str) -> None:
        """Raises SizeError naming the size and its bounds."""
        if not self.low <= value or (self.high is not None and value > self.high):
            bounds = f"{self.low} to {self.high}" if self.high is not None else f"at least {self.low}"
            raise SizeError(f"{what}: '{self.name}' is {value}, and the model is built for {bounds}")


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """What the sizes of a call must be: an expression of them that lies between two numbers.

    what  the node that asks for it
    """

    size: Size
    low: int
    high: int | None
    what: str

    def holds(self, sizes: Mapping[str, int]) -> bool:
        value = size_at(self.size, sizes)
        return self.low <= value and (self.high is None or value <= self.high)

    def check(self, sizes: Mapping[str, int]) -> None:
        """Raises SizeError naming the node, the sizes, and what does not hold."""
        if self.holds(sizes):
            return
        given = ", ".join(f"{name} {sizes[name]}" for name in sorted(symbols_of(self.size)))
        raise SizeError(f"{self.what} needs {show_limit(self.size, self.low, self.high)}, and gets {given}")


@dataclass(frozen=True)
class GraphForm:
    """Nodes in the order in which they run, and the values between them.

    sizes    the symbols, with their bounds
    values   their shapes are those for sizes of one; in the arena at -1
    shapes   of the values, by the symbols
    numbers  per node what its kernel is given: the parts of a batch for a kernel of blocks, the values of its symbols
             for one whose sizes come with the call; () for others
    lives    (value, first node, last node) for each that has memory of its own in the arena
    inside   (value, other, bytes): values that lie in the memory of another one, which has its own, so far behind it
    limits   what the sizes must be together
    inputs, outputs, nodes  as of a Graph; a node's kernel may be the name of a form
    """

    sizes: tuple[SizeRange, ...]
    values: tuple[Value, ...]
    shapes: tuple[Shape, ...]
    numbers: tuple[Shape, ...]
    lives: tuple[tuple[int, int, int], ...]
    inside: tuple[tuple[int, int, int], ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    limits: tuple[SizeLimit, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The symbols."""
        return tuple(size.name for size in self.sizes)

    @cached_property
    def output_roots(self) -> tuple[int, ...]:
        """For each output the value that owns its storage."""
        return tuple(map(self._unsized.root, self.outputs))

    @cached_property
    def written(self) -> frozenset[int]:
        """The values, of those that own storage, that nodes write."""
        return frozenset(self._unsized.root(value) for node in self.nodes for value in node.outputs)

    @property
    def _unsized(self) -> Graph:
        return Graph(self.values, self.nodes, self.inputs, self.outputs, 0)

    def least(self) -> dict[str, int]:
        """Small sizes, by name, for which limits hold and values have elements; the least ones where none are found.

        They are found by raising one after the other as limits ask for it, else all of them alike.
        """
        found = self._raised()
        if self.takes(found):
            return found
        for number in (*range(2, 33), *(1 << n for n in range(6, 13))):
            tried = {s.name: min(max(number, s.low), s.high or number) for s in self.sizes}
            if self.takes(tried):
                return tried
        return found

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Whether a call may come with these sizes: limits hold, and every value has elements."""
        fewest = min((1, *sizes.values()))
        return all(limit.holds(sizes) for limit in self.limits) and all(
            size_at(extent, sizes) >= fewest for shape in self.shapes for extent in shape
        )

    def _raised(self) -> dict[str, int]:
        """The least sizes, raised where limits ask for more."""
        found = {size.name: max(size.low, 1) for size in self.sizes}
        for _ in range(4 * len(self.limits)):
            broken = next((limit for limit in self.limits if not limit.holds(found)), None)
            if broken is None:
                break
            for name in sorted(symbols_of(broken.size)):
                one = solved(broken.size, broken.low, {n: v for n, v in found.items() if n != name})
                if one is not None and one[1] > found[name]:
                    found[name] = one[1]
                    break
        return found

    def sizes_of(self, shapes: Mapping[int, tuple[int, ...]]) -> dict[str, int]:
        """The sizes, by name and in the order of `names`, from the shapes of inputs, by value.

        Raises ShapeError where a shape is not the input's, where two disagree, and where a size is out of bounds.
        """
        given = [(f"input '{self.values[value].name}'", self.shapes[value], shape) for value, shape in shapes.items()]
        found, said = solve_sizes(given)
        for size in self.sizes:
            if size.name not in found:
                found[size.name] = size.low
                continue
            size.check(found[size.name], said[size.name])
        for limit in self.limits:
            limit.check(found)
        return {name: found[name] for name in self.names}

    def empty_outputs(self, shapes: Mapping[int, tuple[int, ...]]) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of the outputs where a size is 0 and no output has elements, so that there is nothing to compute.

        None for any other call. Raises ShapeError as `sizes_of`, whose least sizes it takes no notice of where they
        are 1.
        """
        if all(min(shape, default=1) > 0 for shape in shapes.values()):
            return None
        freed = tuple(replace(size, low=0) if size.low == 1 else size for size in self.sizes)
        sizes = replace(self, sizes=freed).sizes_of(shapes)
        try:
            found = tuple(shape_at(self.shapes[number], sizes) for number in self.outputs)
        except ZeroDivisionError:
            return None
        return found if all(min(shape, default=1) == 0 for shape in found) else None

    def describe(self, value: int) -> str:
        """A value's shape with its symbols: [n, 784]."""
        return show_shape(self.shapes[value])

    def shape_words(self, value: int) -> list[int | str]:
        """The extents of a value, those that depend on symbols as text."""
        return [size if isinstance(size, int) else show_size(size) for size in self.shapes[value]]

    def at(self, sizes: Mapping[str, int]) -> Graph:
        """The graph for some sizes, its memory planned; nodes still call forms.

        Raises ShapeError for sizes of which a value would have no elements, unless one of them is 0.
        """
        least = min(sizes.values(), default=1)
        for value, shape in zip(self.values, self.shapes, strict=True):
            if min(found := shape_at(shape, sizes), default=1) < min(least, 1):
                given = ", ".join(f"{name} {sizes[name]}" for name in sorted(sizes))
                raise ShapeError(f"'{value.name}' would have the shape {list(found)} for {given}")
        values = [replace(v, shape=shape_at(s, sizes)) for v, s in zip(self.values, self.shapes, strict=True)]
        offsets, size = plan_memory([Lifetime(values[v].size_bytes, first, last) for v, first, last in self.lives])
        for (number, *_), offset in zip(self.lives, offsets, strict=True):
            values[number] = replace(values[number], storage=Storage("arena", offset))
        for number, other, behind in self.inside:
            storage = values[other].storage
            values[number] = replace(values[number], storage=replace(storage, index=storage.index + behind))
        return Graph(tuple(values), self.nodes, self.inputs, self.outputs, size)

    def to_manifest(self) -> JsonObject:
        """Give the form as JSON values."""
        graph = Graph(self.values, self.nodes, self.inputs, self.outputs, 0)
        return {
            "sizes": [[size.name, size.low, size.high] for size in self.sizes],
            "graph": graph.to_manifest(),
            "shapes": [list(shape) for shape in self.shapes],
            "numbers": [list(numbers) for numbers in self.numbers],
            "lives": [list(life) for life in self.lives],
            "inside": [list(pair) for pair in self.inside],
            **({"limits": [[x.size, x.low, x.high, x.what] for x in self.limits]} if self.limits else {}),
        }

    @staticmethod
    def from_manifest(entry: Mapping[str, Json]) -> GraphForm:
        """Rebuild a form from what `to_manifest` gave. Raises KeyError, TypeError, ValueError for anything else."""
        graph = Graph.from_manifest(entry["graph"])
        if "size" in entry:
            entry = _of_one_size(entry, graph)
        sizes = tuple(
            SizeRange(str(name), int(low), None if high is None else int(high)) for name, low, high in entry["sizes"]
        )
        names = tuple(size.name for size in sizes)
        shapes = tuple(read_shape(shape, names) for shape in entry["shapes"])
        numbers = tuple(read_shape(found, names) for found in entry["numbers"])
        if (len(shapes), len(numbers)) != (len(graph.values), len(graph.nodes)):
            raise InvalidTypeError(f"{len(shapes)} shapes of {len(graph.values)} values, {len(numbers)} nodes' numbers")
        return GraphForm(
            sizes,
            graph.values,
            shapes,
            numbers,
            tuple((int(v), int(first), int(last)) for v, first, last in entry["lives"]),
            tuple((int(v), int(other), int(sum(behind))) for v, other, *behind in entry["inside"]),
            graph.nodes,
            graph.inputs,
            graph.outputs,
            tuple(
                SizeLimit(read_size(size, names), int(low), None if high is None else int(high), str(what))
                for size, low, high, what in entry.get("limits", ())
            ),
        )


def _of_one_size(entry: Mapping[str, Json], graph: Graph) -> JsonObject:
    """A form as files held it that know one symbol: values for one part, and the dimension that counts parts."""
    name, low, high = entry["size"]
    axes = tuple(map(int, entry["axes"]))
    if len(axes) != len(graph.values) or any(axis >= len(v.shape) for axis, v in zip(axes, graph.values)):
        raise InvalidTypeError(f"{len(axes)} axes of {len(graph.values)} values")
    shapes = [
        [product_of((n, name)) if d == axis else n for d, n in enumerate(value.shape)]
        for value, axis in zip(graph.values, axes, strict=True)
    ]
    return {**entry, "sizes": [[name, low, high]], "shapes": shapes, "numbers": [[name] for _ in graph.nodes]}
