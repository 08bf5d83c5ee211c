"""What an artifact's manifest may say: native code and memory maps trust these numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import ArtifactError
from autosched.runtime.bfloat16 import NAME as BFLOAT16
from autosched.runtime.bfloat16 import know_dtype
from autosched.runtime.graph import NOP, Graph, check_graph
from autosched.runtime.kernel import Kernel, check_count, kernel_class
from autosched.runtime.memory import machine_bytes
from autosched.runtime.team import MOST_THREADS

if TYPE_CHECKING:
    from autosched.json_types import Json

KINDS = ("graph", "module", "source", "dynamic", "function")
_ARENA_SLACK = 1 << 20
_DTYPE_KINDS = "biuf"  # no Python objects, no records, no texts


def check_sections(sections: Sequence[Mapping[str, Json]], size_bytes: int, alignment: int) -> None:
    """See that every section lies inside the file, aligned. Raises ValueError naming the section."""
    places = set()
    for index, section in enumerate(sections):
        offset, size = section["offset"], section["size"]
        check_count(f"offset of section {index}", offset)
        check_count(f"size of section {index}", size)
        if offset % alignment or offset + size > size_bytes:
            raise ValueError(f"section {index} at {offset} with {size} bytes lies outside the file")
        places.add((offset, size))
    if sum(size for _, size in places) > size_bytes:
        raise ValueError("sections overlap")


def check_tensor(what: str, dtype: str, shape: Sequence[int]) -> None:
    """See that a tensor has a plain dtype and a size that can be. Raises ValueError."""
    know_dtype(dtype)
    try:
        kind = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"{what} has dtype {dtype!r}") from None
    plain = kind.kind in _DTYPE_KINDS or dtype == BFLOAT16
    if not plain or kind.fields or kind.subdtype:
        raise ValueError(f"{what} has dtype {dtype!r}")
    for extent in shape:
        check_count(f"extent of {what}", extent)
    check_count(f"size of {what}", math.prod(shape) * kind.itemsize)


def check_kernel(key: str, entry: Mapping[str, Json]) -> None:
    """See that a kernel's sizes and counts can be. Raises ValueError, and KeyError for what is missing."""
    what = f"kernel '{key}'"
    kernel_class(entry).check_manifest(what, entry)
    for name, role, dtype, shape in entry["args"]:
        if role not in ("input", "output"):
            raise ValueError(f"argument '{name}' of {what} is neither input nor output")
        check_tensor(f"argument '{name}' of {what}", dtype, shape)


def check_contents(
    kind: str,
    info: Mapping[str, Json],
    kernels: Mapping[str, Kernel],
    graphs: Mapping[str, Graph],
    constants: tuple[np.ndarray, ...],
) -> None:
    """See that an artifact of its kind is complete and its parts fit.

    Raises ValueError, and KeyError for what is missing.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    if kind == "graph" and "main" not in graphs:
        raise ValueError("there is no graph 'main'")
    if kind == "module" and info["entry"] not in {"", *kernels, *graphs}:
        raise ValueError(f"there is no function {info['entry']!r}")
    if kind == "source" and {type(info["manifest"][key]) for key in ("source", "target", "runs")} != {str}:
        raise ValueError("there is no source")
    manifest, names = info["manifest"], info["params"] if kind == "graph" else info.get("params", [])
    if not isinstance(manifest, dict) or not isinstance(names, list) or {*map(type, names)} - {str}:
        raise ValueError("what its maker noted is malformed")
    states = info.get("states", [])
    if not isinstance(states, list) or {*map(type, states)} - {str} or len({*states}) < len(states):
        raise ValueError("the names of its buffers are malformed")
    if len(states) > len(constants):
        raise ValueError("its buffers are missing")
    if kind == "function":
        _check_function(manifest, kernels)
    for name, graph in graphs.items():
        check_read_graph(name, graph, kernels, constants)


def _check_function(manifest: Mapping[str, Json], kernels: Mapping[str, Kernel]) -> None:
    """See that an own function's kernels take the arguments that are noted. Raises ValueError, KeyError, TypeError."""
    names = set()
    for kernel, shapes, facts in manifest["variants"]:
        specs = [spec for spec in kernels[kernel].args if spec.name != "return"]
        names.add(tuple(spec.name for spec in specs))
        if [len(shape) for shape in shapes] != [len(spec.shape) for spec in specs] or not isinstance(facts, dict):
            raise ValueError(f"kernel '{kernel}' is called with other arguments")
        for extent in (extent for shape in shapes for extent in shape):
            check_count(f"extent of an argument of '{kernel}'", extent)
    decides = [] if manifest["decides"] is None else manifest["decides"]
    if not isinstance(decides, list) or {*map(type, decides)} - {str}:
        raise ValueError("what decides is no list of arguments")
    if len(names) != 1 or not isinstance(manifest["function"], str) or not isinstance(manifest["defaults"], dict):
        raise ValueError("its kernels are not those of one function")


def check_read_graph(name: str, graph: Graph, kernels: Mapping[str, Kernel], constants: tuple[np.ndarray, ...]) -> None:
    """See that a graph that was read from a file can be run: sizes that can be, and what `check_graph` sees.

    Raises ValueError.
    """
    check_count(f"arena of graph '{name}'", graph.arena_bytes)
    for value in graph.values:
        check_tensor(f"value '{value.name}'", value.dtype, value.shape)
    for node in graph.nodes:
        check_count(f"threads of node '{node.name}'", node.threads, MOST_THREADS)
        check_count(f"branch of node '{node.name}'", node.branch, len(graph.nodes))
    try:
        check_graph(graph, kernels, constants)
    except ArtifactError as error:
        raise ValueError(error.message) from None
    _check_memory(name, graph)
    _check_written(name, graph)


def _check_written(name: str, graph: Graph) -> None:
    """See that nothing is read before a node has written it: a run then never shows what was in memory before."""
    written: list[tuple[int, int]] = []  # of the arena, in order, with gaps between
    results: set[int] = set()

    def is_written(number: int) -> bool:
        root, size = graph.root(number), graph.values[number].size_bytes
        at = graph.values[root].storage
        if at.kind == "output":
            return root in results
        return at.kind != "arena" or not size or any(a <= at.index and at.index + size <= b for a, b in written)

    for node in graph.nodes:
        for number in node.inputs:
            if not is_written(number):
                raise ValueError(f"node '{node.name}' of graph '{name}' reads '{graph.values[number].name}' too early")
        for root in map(graph.root, node.outputs if node.kernel != NOP else ()):
            at = graph.values[root].storage
            if at.kind == "output":
                results.add(root)
            elif at.kind == "arena":
                written = _joined(written, at.index, at.index + graph.values[root].size_bytes)
    for number in graph.outputs:
        if not is_written(number):
            raise ValueError(f"nothing of graph '{name}' writes '{graph.values[number].name}'")


def _joined(spans: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """Spans with gaps between, in order, and one more."""
    touching = [(a, b) for a, b in spans if a <= last and first <= b]
    whole = min([first, *(a for a, _ in touching)]), max([last, *(b for _, b in touching)])
    return sorted([*(span for span in spans if span not in touching), whole])


def _check_memory(name: str, graph: Graph) -> None:
    """See that what a graph takes is what its values need, and fits into this machine."""
    ends = [v.storage.index + v.size_bytes for v in graph.values if v.storage.kind == "arena"]
    if graph.arena_bytes > max(ends, default=0) + _ARENA_SLACK:
        raise ValueError(f"arena of graph '{name}' has {graph.arena_bytes} bytes, of which none are used")
    own = sum(v.size_bytes for v in graph.values if v.storage.kind in ("input", "output"))
    if own + graph.arena_bytes > machine_bytes():
        raise ValueError(f"graph '{name}' needs {own + graph.arena_bytes} bytes, more than this machine has")
