"""TVM's graph JSON: the text that says which function of a library computes what, and where values share memory.

An executor reads it (`read_graph`) with a module of functions; a built model can be written as such a text
(`layout_of`). Besides TVM's attributes we write "arena_offset" (a list of integers, which other readers skip): the
exact places that our memory plan found, where values may lie inside of each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.runtime.graph import NOP, Graph, Node, Storage, Value
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import ALIGNMENT
from autosched.runtime.module import Module

if TYPE_CHECKING:
    from autosched.json_types import Json, JsonObject

COPY = "__copy"  # the function of a node that copies to another device
_KEYS = {"nodes", "arg_nodes", "heads", "node_row_ptr", "attrs"}
_NODE_KEYS = {"op", "name", "inputs", "attrs", "control_deps"}
_OP_ATTRS = ("func_name", "num_inputs", "num_outputs", "flatten_data")
_ATTR_KINDS = {"dltype": "list_str", "shape": "list_shape", "storage_id": "list_int"}


@dataclass(frozen=True, slots=True)
class JsonNode:
    """A node of the text: `function` is "" for an input; `inputs` and `outputs` are entries."""

    name: str
    function: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    flatten: bool
    attrs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JsonGraph:
    """What a text says; an entry is an output of a node, numbered through all nodes."""

    nodes: tuple[JsonNode, ...]
    args: tuple[int, ...]  # nodes
    heads: tuple[int, ...]  # entries
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    storage_ids: tuple[int, ...]
    device_types: tuple[int, ...] | None
    arena_offsets: tuple[int, ...] | None

    def size_bytes(self, entry: int) -> int:
        """Bytes of an entry."""
        return math.prod(self.shapes[entry]) * np.dtype(self.dtypes[entry]).itemsize


def _fail(problem: str, hint: str | None = None) -> InvalidValueError:
    return InvalidValueError(f"graph JSON: {problem}", hint=hint)


# The text


def parse_graph(text: str) -> JsonGraph:
    """Read the text and see that it is consistent. Raises InvalidValueError (a TVMError) saying what is wrong."""
    try:
        pairs = json.loads(text, object_pairs_hook=lambda found: found)
    except (ValueError, RecursionError) as error:
        raise _fail(f"no JSON ({error})") from None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise _fail("it is no object")
    found: JsonObject = {}
    for key, value in pairs:
        if key == "metadata":
            break
        if key not in _KEYS:
            raise _fail(f"key '{key}' is not supported", f"the keys are {', '.join(sorted(_KEYS))}")
        found[key] = value
    if missing := sorted(_KEYS - found.keys()):
        raise _fail(f"'{missing[0]}' is missing")
    try:
        return _check(found)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        if isinstance(error, InvalidValueError):
            raise
        raise _fail(f"malformed ({error})") from None


def _check(found: Mapping[str, Json]) -> JsonGraph:
    row_ptr = [int(n) for n in found["node_row_ptr"]]
    raw = [_node_fields(node, number) for number, node in enumerate(found["nodes"])]
    if len(row_ptr) != len(raw) + 1:
        raise _fail(f"node_row_ptr has {len(row_ptr)} numbers for {len(raw)} nodes", "one more than nodes is needed")

    def entry(triple: Sequence[int], limit: int, where: str) -> int:
        if len(triple) not in (2, 3):
            raise _fail(f"{where}: an entry is [node, output, version]")
        node, index = int(triple[0]), int(triple[1])
        if not 0 <= node < limit or not 0 <= index < row_ptr[node + 1] - row_ptr[node]:
            raise _fail(f"{where} names output {index} of node {node}, which is not there or comes later")
        return row_ptr[node] + index

    nodes = []
    for number, (op, name, inputs, attrs) in enumerate(raw):
        outputs = tuple(range(row_ptr[number], row_ptr[number + 1]))
        sources = tuple(entry(triple, number, f"node '{name}'") for triple in inputs)
        nodes.append(_json_node(op, name, sources, outputs, attrs))
    dtypes, shapes, storage_ids, devices, offsets = _entry_attrs(found["attrs"], row_ptr[-1])
    args = tuple(int(n) for n in found["arg_nodes"])
    for number in args:
        if not 0 <= number < len(nodes) or nodes[number].function:
            raise _fail(f"arg_nodes names node {number}, which is no input")
    heads = tuple(entry(triple, len(nodes), "heads") for triple in found["heads"])
    return JsonGraph(tuple(nodes), args, heads, dtypes, shapes, storage_ids, devices, offsets)


def _node_fields(pairs: object, number: int) -> tuple[str, str, list[Json], dict[str, str]]:
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise _fail(f"node {number} is no object")
    fields = dict(pairs)
    if strange := sorted(fields.keys() - _NODE_KEYS):
        raise _fail(f"node {number} has the key '{strange[0]}', which is not supported")
    for key in ("op", "name", "inputs"):
        if key not in fields:
            raise _fail(f"node {number} lacks '{key}'")
    attrs = dict(fields.get("attrs") or ())
    return str(fields["op"]), str(fields["name"]), fields["inputs"], attrs


def _json_node(
    op: str, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], attrs: Mapping[str, str]
) -> JsonNode:
    if op == "null":
        if len(outputs) != 1:
            raise _fail(f"input '{name}' has {len(outputs)} outputs in node_row_ptr")
        return JsonNode(name, "", (), outputs, False, attrs)
    if op != "tvm_op":
        raise _fail(f"node '{name}' has op '{op}'", 'ops are "null" and "tvm_op"')
    for key in _OP_ATTRS:
        if key not in attrs:
            raise _fail(f"node '{name}' lacks attribute '{key}'")
    if int(attrs["num_inputs"]) != len(inputs) or int(attrs["num_outputs"]) != len(outputs):
        raise _fail(f"node '{name}' has {len(inputs)} inputs and {len(outputs)} outputs, and its attributes say others")
    flatten = str(attrs["flatten_data"]) not in ("0", "")
    return JsonNode(name, str(attrs["func_name"]), inputs, outputs, flatten, attrs)


def _entry_attrs(pairs: Json, n_entries: int) -> tuple[Json, ...]:
    lists: dict[str, list[Json]] = {}
    for key, value in pairs:
        if key in (*_ATTR_KINDS, "device_index", "arena_offset"):
            wanted = _ATTR_KINDS.get(key, "list_int")
            if not isinstance(value, list) or len(value) != 2 or value[0] != wanted:
                raise _fail(f"attribute '{key}' is no {wanted}")
            if len(value[1]) != n_entries:
                raise _fail(f"attribute '{key}' has {len(value[1])} entries instead of {n_entries}")
            lists[key] = value[1]
        elif not isinstance(value, list) or not value or value[0] not in ("list_int", "size_t"):
            raise _fail(f"attribute '{key}' cannot be skipped", "unknown attributes are list_int or size_t")
    for key in _ATTR_KINDS:
        if key not in lists:
            raise _fail(f"attribute '{key}' is missing")
    shapes = tuple(tuple(int(extent) for extent in shape) for shape in lists["shape"])
    dtypes = tuple(str(dtype) for dtype in lists["dltype"])
    for number, (dtype, shape) in enumerate(zip(dtypes, shapes)):
        if any(extent < 0 for extent in shape):
            raise _fail(f"entry {number} has shape {list(shape)}")
        try:
            np.dtype(dtype)
        except TypeError:
            raise _fail(f"entry {number} has the unknown dtype '{dtype}'") from None
    ints = {key: tuple(int(n) for n in values) for key, values in lists.items() if key not in ("shape", "dltype")}
    return dtypes, shapes, ints["storage_id"], ints.get("device_index"), ints.get("arena_offset")


# Reading: a graph that the executor runs


class ReadGraph(NamedTuple):
    """A graph that was read, with what an `Executable` is made of besides."""

    kernels: dict[str, Kernel]
    graph: Graph
    constants: tuple[np.ndarray, ...]
    native: bytes
    manifest: JsonObject


def read_graph(text: str, lib: Module) -> ReadGraph:
    """The program of a text over a library's functions.

    All inputs, weights too, are inputs of the program. Raises InvalidValueError (a TVMError) where the text is wrong,
    names a function that the library lacks, or gives one arrays that it does not take.
    """
    parsed = parse_graph(text)
    if not isinstance(lib, Module):
        raise InvalidTypeError(f"a graph runs the functions of a Module, not of a {type(lib).__name__}")
    reader = _Reader(parsed, lib.with_imports())
    graph = reader.graph()
    lib = reader.lib
    kernels = {node.kernel: lib.kernels[node.kernel] for node in graph.nodes if node.kernel != NOP}
    manifest = {"graph_json": text, "graph_spans": [[span.start, span.stop] for span in reader.spans]}
    return ReadGraph(kernels, graph, lib.constants, lib.native, manifest)


class _Reader:
    def __init__(self, parsed: JsonGraph, lib: Module):
        self.parsed, self.lib = parsed, lib
        self.values: list[Value] = []
        self.nodes: list[Node] = []
        self.spans: list[range] = []
        self.arena_bytes = 0

    def graph(self) -> Graph:
        parsed = self.parsed
        self.place_entries()
        for node in parsed.nodes:
            first = len(self.nodes)
            if node.function:
                self.call(node)
            self.spans.append(range(first, len(self.nodes)))
        inputs = tuple(parsed.nodes[number].outputs[0] for number in parsed.args)
        return Graph(tuple(self.values), tuple(self.nodes), inputs, parsed.heads, self.arena_bytes)

    # Memory

    def place_entries(self) -> None:
        """Give every entry its place: one storage id is one piece of memory, as large as its largest entry."""
        parsed = self.parsed
        names = self._names()
        groups: dict[int, list[int]] = {}
        for entry, key in enumerate(self._storage_keys()):
            groups.setdefault(key, []).append(entry)
        self._check_devices(groups)
        inputs = {parsed.nodes[number].outputs[0]: i for i, number in enumerate(parsed.args)}
        heads: dict[int, int] = {}
        for i, head in enumerate(parsed.heads):
            heads.setdefault(head, i)
        places: dict[int, Storage] = {}
        for entries in groups.values():
            offset = parsed.arena_offsets
            for entry in entries:
                if offset is not None and offset[entry] >= 0:
                    places[entry] = self._arena(offset[entry], parsed.size_bytes(entry))
            waiting = [entry for entry in entries if entry not in places]
            if not waiting:
                continue
            owner = max(entries, key=lambda entry: (parsed.size_bytes(entry), entry in inputs, -entry))
            if owner not in places:
                if owner in inputs:
                    places[owner] = Storage("input", inputs[owner])
                elif owner in heads:
                    places[owner] = Storage("output", heads[owner])
                else:
                    places[owner] = self._arena(-(-self.arena_bytes // ALIGNMENT) * ALIGNMENT, parsed.size_bytes(owner))
            for entry in waiting:
                places.setdefault(entry, Storage("alias", owner))
        self.values = [
            Value(names[entry], shape, dtype, places[entry])
            for entry, (shape, dtype) in enumerate(zip(parsed.shapes, parsed.dtypes))
        ]

    def _arena(self, offset: int, size_bytes: int) -> Storage:
        self.arena_bytes = max(self.arena_bytes, offset + size_bytes)
        return Storage("arena", offset)

    def _names(self) -> list[str]:
        names = [""] * len(self.parsed.shapes)
        for node in self.parsed.nodes:
            for index, entry in enumerate(node.outputs):
                names[entry] = node.name if len(node.outputs) == 1 else f"{node.name}:{index}"
        return names

    def _storage_keys(self) -> list[int]:
        """The storage of each entry: its id; but where nodes copy, each its own, so that a copy can share its source's.

        All memory is a CPU's here: a copy to another device shows the same memory, which nothing may write again.
        """
        parsed = self.parsed
        if not any(node.function == COPY for node in parsed.nodes):
            return list(parsed.storage_ids)
        keys = list(range(len(parsed.shapes)))
        for node in parsed.nodes:
            if node.function in (COPY, NOP) and node.inputs:
                for entry in node.outputs:
                    keys[entry] = keys[node.inputs[0]]
        return keys

    def _check_devices(self, groups: Mapping[int, list[int]]) -> None:
        devices = self.parsed.device_types
        if devices is None:
            return
        for entries in groups.values():
            kinds = {devices[entry] for entry in entries}
            if len(kinds) > 1 and not any(node.function == COPY for node in self.parsed.nodes):
                raise _fail(f"storage of entry {entries[0]} is on several devices ({sorted(kinds)})")

    # Calls

    def call(self, node: JsonNode) -> None:
        if node.function in (NOP, COPY):
            self.share(node)
            return
        if not self.lib.implements_function(node.function):
            raise _fail(
                f"node '{node.name}' calls function '{node.function}', which the library lacks",
                f"it has {', '.join(self.lib.graphs) or 'none'}",
            )
        graph = self.lib.graphs[node.function]
        entries = (*node.inputs, *node.outputs)
        params = sorted({*graph.inputs, *graph.outputs})
        if len(params) != len(entries):
            raise _fail(f"node '{node.name}' gives '{node.function}' {len(entries)} arrays instead of {len(params)}")
        numbers: dict[int, int] = {}
        for param, entry in zip(params, entries, strict=True):
            numbers[param] = self.argument(node, graph.values[param], entry)
        base = -(-self.arena_bytes // ALIGNMENT) * ALIGNMENT
        for number, value in enumerate(graph.values):
            if number not in numbers:
                numbers[number] = self.inner(value, base, numbers, node)
        for inner in graph.nodes:
            self.nodes.append(
                Node(
                    node.name, inner.kernel,
                    tuple(numbers[n] for n in inner.inputs), tuple(numbers[n] for n in inner.outputs),
                )
            )  # fmt: skip

    def argument(self, node: JsonNode, param: Value, entry: int) -> int:
        """The value that stands for an argument; another shape of the same size where the node flattens its data."""
        value = self.values[entry]
        shape = (math.prod(value.shape),) if node.flatten else value.shape
        same_size = math.prod(param.shape) == math.prod(shape)
        if value.dtype != param.dtype or (shape != param.shape and not (node.flatten and same_size)):
            raise _fail(
                f"node '{node.name}' gives '{node.function}' {value.dtype}{list(value.shape)} as '{param.name}', "
                f"which is {param.dtype}{list(param.shape)}"
            )
        if value.shape == param.shape:
            return entry
        self.values.append(Value(f"{value.name}_flat", param.shape, param.dtype, Storage("alias", entry)))
        return len(self.values) - 1

    def inner(self, value: Value, base: int, numbers: Mapping[int, int], node: JsonNode) -> int:
        """A value inside of a function: its scratch comes after everything else in the arena."""
        storage = value.storage
        if storage.kind == "arena":
            storage = self._arena(base + storage.index, value.size_bytes)
        elif storage.kind == "alias":
            storage = Storage("alias", numbers[storage.index])
        self.values.append(replace(value, name=f"{node.name}.{value.name}", storage=storage))
        return len(self.values) - 1

    def share(self, node: JsonNode) -> None:
        """A node that computes nothing."""
        if len(node.inputs) != 1:  # our own concatenation: its parts lie inside of it already
            if self.parsed.arena_offsets is None:
                raise _fail(f"node '{node.name}' does nothing with {len(node.inputs)} inputs")
            return
        for entry in node.outputs:
            if self._root(entry) != self._root(node.inputs[0]):
                raise _fail(f"node '{node.name}' does nothing, and its output does not share its input's storage")
        self.nodes.append(Node(node.name, NOP, node.inputs, node.outputs))

    def _root(self, number: int) -> int:
        while self.values[number].storage.kind == "alias":
            number = self.values[number].storage.index
        return number


# Writing


@dataclass(frozen=True, slots=True)
class JsonLayout:
    """A program's text, and where its parts are in the program's graph.

    values  per entry the value that it stands for
    spans   per node the nodes of the graph that compute it
    """

    text: str
    values: tuple[int, ...]
    spans: tuple[range, ...]


def layout_of(graph: Graph, manifest: Mapping[str, Json]) -> JsonLayout:
    """A built model as TVM's graph JSON, written or the text that it was read from, and the places of its parts.

    Constants are inputs that come after the model's own.
    """
    if "graph_json" in manifest:
        text = str(manifest["graph_json"])
        entries = range(len(parse_graph(text).shapes))
        return JsonLayout(text, tuple(entries), tuple(range(a, b) for a, b in manifest["graph_spans"]))
    writer = _Writer(graph)
    text = writer.text()
    return JsonLayout(text, tuple(writer.order), tuple(writer.spans))


class _Writer:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.nodes: list[JsonObject] = []
        self.row_ptr = [0]
        self.entries: dict[int, tuple[int, int]] = {}  # value -> node and output
        self.order: list[int] = []  # value of each entry
        self.spans: list[range] = []

    def text(self) -> str:
        graph = self.graph
        args = [*graph.inputs, *(n for n in constant_values(graph) if n not in graph.inputs)]
        for number in args:
            self.add({"op": "null", "name": graph.values[number].name, "inputs": []}, [number])
        waiting = self.joined()
        for position, node in enumerate(graph.nodes):
            for number in node.inputs:
                if number in waiting:
                    self.op(graph.values[number].name, NOP, waiting.pop(number), [number])
            self.op(node.name, node.kernel, node.inputs, node.outputs)
            self.spans[-1] = range(position, position + 1)
        for number in graph.outputs:
            if number in waiting:
                self.op(graph.values[number].name, NOP, waiting.pop(number), [number])
        content = {
            "nodes": self.nodes,
            "arg_nodes": list(range(len(args))),
            "heads": [[*self.entries[number], 0] for number in graph.outputs],
            "attrs": self.attrs(),
            "node_row_ptr": self.row_ptr,
        }
        return json.dumps(content, indent=2)

    def add(self, node: JsonObject, outputs: Sequence[int]) -> None:
        for index, number in enumerate(outputs):
            self.entries[number] = (len(self.nodes), index)
            self.order.append(number)
        self.nodes.append(node)
        self.spans.append(range(0))
        self.row_ptr.append(len(self.order))

    def op(self, name: str, function: str, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        attrs = {
            "num_inputs": str(len(inputs)),
            "num_outputs": str(len(outputs)),
            "func_name": function,
            "flatten_data": "0",
        }
        sources = [[*self.entries[number], 0] for number in inputs]
        self.add({"op": "tvm_op", "name": name, "attrs": attrs, "inputs": sources}, outputs)

    def joined(self) -> dict[int, list[int]]:
        """Values that no node writes: their parts, which lie inside of them, are written one by one."""
        graph = self.graph
        written = [n for node in graph.nodes for n in node.outputs]
        made = {*written, *graph.inputs, *constant_values(graph)}
        whole = {n for node in graph.nodes for n in node.inputs} | set(graph.outputs)
        found: dict[int, list[int]] = {}
        for number in sorted(whole - made):
            at, size = graph.values[number].storage, graph.values[number].size_bytes
            found[number] = [
                n for n in written
                if graph.values[n].storage.kind == at.kind == "arena"
                and at.index <= graph.values[n].storage.index < at.index + size
            ]  # fmt: skip
        return found

    def attrs(self) -> dict[str, list[Json]]:
        values = [self.graph.values[number] for number in self.order]
        roots = [self.graph.root(number) for number in self.order]
        ids: dict[tuple[str, int], int] = {}
        for root in roots:
            ids.setdefault(self.storage_key(root), len(ids))
        offsets = [v.storage.index if v.storage.kind == "arena" else -1 for v in values]
        return {
            "dltype": ["list_str", [value.dtype for value in values]],
            "shape": ["list_shape", [list(value.shape) for value in values]],
            "storage_id": ["list_int", [ids[self.storage_key(root)] for root in roots]],
            "arena_offset": ["list_int", offsets],
        }

    def storage_key(self, root: int) -> tuple[str, int]:
        at = self.graph.values[root].storage
        return ("arena", at.index) if at.kind == "arena" else ("value", root)


def constant_values(graph: Graph) -> list[int]:
    """The values that are constants, by number, in the graph's order."""
    return [number for number, value in enumerate(graph.values) if value.storage.kind == "const"]


__all__ = [
    "COPY",
    "JsonGraph",
    "JsonLayout",
    "JsonNode",
    "constant_values",
    "layout_of",
    "parse_graph",
    "read_graph",
]
