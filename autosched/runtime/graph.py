"""The static graph that the graph executor runs: values with their places in memory, and nodes that call kernels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import ArtifactError
from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import ALIGNMENT

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

NOP = "__nop"  # the kernel of a node that does nothing: its output shares the storage of its input
_KINDS = ("input", "const", "arena", "output", "alias")


@dataclass(frozen=True, slots=True)
class Storage:
    """Where a value lives.

    ("input", i)   the i-th input's own buffer          ("output", i)  the i-th output's own buffer
    ("const", i)   the i-th constant                    ("arena", b)   b bytes into the arena
    ("alias", v)   the storage of value v
    """

    kind: str
    index: int


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the graph: row-major, of fixed shape."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    storage: Storage

    def __post_init__(self) -> None:
        know_dtype(self.dtype)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Node:
    """One call of a kernel."""

    name: str
    kernel: str  # a key of the executable's kernels, or NOP
    inputs: tuple[int, ...]  # values by number, in the order of the kernel's arguments
    outputs: tuple[int, ...]
    threads: int = 0  # the most that it is worth splitting over, as the build decided; 0: decided when it is loaded
    origin: str = ""  # names of the model's own nodes that it computes, where they are known
    # Nodes that follow each other and have numbers from 1 on, none smaller than the one before, are branches that do
    # not depend on each other: each runs on one thread, beside the others. 0: the node runs alone.
    branch: int = 0


def sections_of(nodes: Sequence[Node]) -> list[range]:
    """The positions of nodes that run side by side; see `Node.branch`."""
    found: list[range] = []
    before = 0
    for position, node in enumerate(nodes):
        if node.branch and before and node.branch >= before:
            found[-1] = range(found[-1].start, position + 1)
        elif node.branch:
            found.append(range(position, position + 1))
        before = node.branch
    return found


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order in which they run, and the values between them."""

    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]  # values by number
    outputs: tuple[int, ...]
    arena_bytes: int

    def root(self, value: int) -> int:
        """Follow aliases to the value that owns the storage."""
        seen = 0
        while self.values[value].storage.kind == "alias":
            value, seen = self.values[value].storage.index, seen + 1
            assert seen <= len(self.values), "aliases form no circle"
        return value

    def to_manifest(self) -> JsonObject:
        """Give the graph as JSON values."""
        return {
            "values": [[v.name, list(v.shape), v.dtype, v.storage.kind, v.storage.index] for v in self.values],
            "nodes": [[n.name, n.kernel, list(n.inputs), list(n.outputs), n.threads, *_rest_of(n)] for n in self.nodes],
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "arena_bytes": self.arena_bytes,
        }

    @staticmethod
    def from_manifest(entry: Mapping[str, Json]) -> Graph:
        """Rebuild a graph from what `to_manifest` gave."""
        return Graph(
            values=tuple(
                Value(str(name), tuple(map(int, shape)), str(dtype), Storage(str(kind), int(index)))
                for name, shape, dtype, kind, index in entry["values"]
            ),
            nodes=tuple(
                Node(
                    str(name),
                    str(kernel),
                    tuple(map(int, inputs)),
                    tuple(map(int, outputs)),
                    int(rest[0]) if rest else 0,
                    str(rest[1]) if len(rest) > 1 else "",
                    int(rest[2]) if len(rest) > 2 else 0,
                )
                for name, kernel, inputs, outputs, *rest in entry["nodes"]
            ),
            inputs=tuple(map(int, entry["inputs"])),
            outputs=tuple(map(int, entry["outputs"])),
            arena_bytes=int(entry["arena_bytes"]),
        )


def _rest_of(node: Node) -> list[Json]:
    """The fields at the end that a node's row has only where they say something."""
    if node.branch:
        return [node.origin, node.branch]
    return [node.origin] if node.origin else []


def graph_of_kernel(kernel: Kernel, key: str) -> Graph:
    """Make the graph that runs one kernel, known by `key`, on its inputs' and outputs' own buffers."""
    values, counts = [], {"input": 0, "output": 0}
    for arg in kernel.args:
        values.append(Value(arg.name, arg.shape, arg.dtype, Storage(arg.role, counts[arg.role])))
        counts[arg.role] += 1
    inputs = tuple(i for i, arg in enumerate(kernel.args) if arg.role == "input")
    outputs = tuple(i for i, arg in enumerate(kernel.args) if arg.role == "output")
    return Graph(tuple(values), (Node(kernel.name, key, inputs, outputs),), inputs, outputs, 0)


def check_graph(graph: Graph, kernels: Mapping[str, Kernel], constants: tuple[np.ndarray, ...]) -> None:
    """See that every value has a place that holds it and every node fits its kernel.

    Native code trusts what is checked here. Raises ArtifactError naming the value or node.
    """
    for number in (*graph.inputs, *graph.outputs):
        _check_number(graph, number, "the list of inputs and outputs")
    for number, value in enumerate(graph.values):
        _check_alias(graph, number, value)
    for number, value in enumerate(graph.values):
        _check_value(graph, number, value, constants)
    for node in graph.nodes:
        _check_node(graph, node, kernels)
    for section in sections_of(graph.nodes):
        _check_section(graph, section)


def _check_section(graph: Graph, section: range) -> None:
    """See that no branch writes what another one reads or writes."""
    nodes = [graph.nodes[position] for position in section if graph.nodes[position].kernel != NOP]
    for writer in nodes:
        others = [node for node in nodes if node.branch != writer.branch]
        for output in writer.outputs:
            for node in others:
                if any(_share_memory(graph, output, number) for number in (*node.inputs, *node.outputs)):
                    _fail(f"node '{writer.name}'", f"writes memory of node '{node.name}', which runs beside it")


def _share_memory(graph: Graph, one: int, two: int) -> bool:
    one, two = graph.root(one), graph.root(two)
    a, b = graph.values[one], graph.values[two]
    if (a.storage.kind, b.storage.kind) == ("arena", "arena"):
        begin, other = a.storage.index, b.storage.index
        return begin < other + b.size_bytes and other < begin + a.size_bytes
    return one == two


def _fail(what: str, problem: str) -> None:
    raise ArtifactError(f"graph: {what} {problem}")


def _check_number(graph: Graph, number: int, where: str) -> None:
    if not 0 <= number < len(graph.values):
        _fail(where, f"names value {number} of {len(graph.values)}")


def _check_value(graph: Graph, number: int, value: Value, constants: tuple[np.ndarray, ...]) -> None:
    what, at = f"value {number} '{value.name}'", value.storage
    if at.kind not in _KINDS or any(extent < 0 for extent in value.shape):
        _fail(what, f"has storage '{at.kind}' and shape {value.shape}")
    if at.kind == "arena" and (at.index < 0 or at.index % ALIGNMENT or at.index + value.size_bytes > graph.arena_bytes):
        _fail(what, f"lies outside the arena of {graph.arena_bytes} bytes or is not aligned")
    if at.kind == "const" and not (0 <= at.index < len(constants) and constants[at.index].nbytes >= value.size_bytes):
        _fail(what, f"needs constant {at.index}, which is missing or too small")
    root = graph.values[graph.root(number)]
    if root.size_bytes < value.size_bytes:
        _fail(what, f"is larger than '{root.name}', whose storage it shares")
    if at.kind == "input" and not (0 <= at.index < len(graph.inputs) and graph.inputs[at.index] == number):
        _fail(what, f"is not input {at.index}")
    owners = [graph.root(output) for output in graph.outputs]
    if at.kind == "output" and not (0 <= at.index < len(owners) and owners[at.index] == number):
        _fail(what, f"is not output {at.index}")


def _check_alias(graph: Graph, number: int, value: Value) -> None:
    what, at, steps = f"value {number} '{value.name}'", value.storage, 0
    while at.kind == "alias":
        _check_number(graph, at.index, what)
        at, steps = graph.values[at.index].storage, steps + 1
        if steps > len(graph.values):
            _fail(what, "is an alias of itself")


def _check_node(graph: Graph, node: Node, kernels: Mapping[str, Kernel]) -> None:
    what = f"node '{node.name}'"
    for number in (*node.inputs, *node.outputs):
        _check_number(graph, number, what)
    if node.kernel == NOP:
        if len(node.inputs) != 1 or any(graph.root(out) != graph.root(node.inputs[0]) for out in node.outputs):
            _fail(what, "does nothing, but its output does not share the storage of its input")
        return
    kernel = kernels.get(node.kernel)
    if kernel is None:
        _fail(what, f"calls kernel '{node.kernel}', which is missing")
        return
    if kernel.lacks_sizes:
        _fail(what, f"calls kernel '{node.kernel}', whose sizes are not known")
    for number in node.outputs:
        if graph.values[graph.root(number)].storage.kind == "const":
            _fail(what, f"writes to '{graph.values[number].name}', which is a constant")
    for args, numbers in ((kernel.inputs, node.inputs), (kernel.outputs, node.outputs)):
        if len(args) != len(numbers):
            _fail(what, f"gives kernel {kernel.signature} {len(node.inputs)} inputs and {len(node.outputs)} outputs")
        for arg, number in zip(args, numbers, strict=True):
            value = graph.values[number]
            if (value.dtype, value.shape) != (arg.dtype, arg.shape):
                _fail(what, f"gives '{value.name}' {value.dtype}{list(value.shape)} as {arg}")
