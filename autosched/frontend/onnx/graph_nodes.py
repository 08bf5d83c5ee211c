"""The nodes of an ONNX graph before they are converted: their opset, which are supported, their order and names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from autosched.errors import ImportModelError
from autosched.frontend.onnx.functions import Functions, has_standard_function, inputs_of, standard_twin
from autosched.frontend.onnx.library import has_library
from autosched.frontend.onnx.node import NoKernelError
from autosched.frontend.onnx.registry import CONVERTERS

if TYPE_CHECKING:
    import onnx

OPSETS = range(1, 29)
OUR_DOMAINS = ("", "ai.onnx")


def opset_of(model: onnx.ModelProto) -> int:
    """The opset that a model's operators are from."""
    versions = [entry.version for entry in model.opset_import if entry.domain in OUR_DOMAINS]
    if not versions:  # operators of other domains only, or a file from before opsets
        return OPSETS.start if model.ir_version < 3 else OPSETS.stop - 1
    if versions[0] < OPSETS.start:
        raise ImportModelError(f"there is no opset {versions[0]}")
    if versions[0] >= OPSETS.stop:
        first = next(((n.op_type, node_name(n, i)) for i, n in enumerate(model.graph.node)), None)
        where = None if first is None else f"operator {first[0]}, node '{first[1]}'"
        message = f"opset {versions[0]} is newer than those known here, {OPSETS.start} to {OPSETS.stop - 1}"
        raise ImportModelError(message, where=where, hint="export the model for one of these")
    return int(versions[0])


def refuse_unsupported(graph: onnx.GraphProto, opset: int, functions: Functions, libraries: bool = False) -> None:
    """Raise NoKernelError naming all nodes that have no kernels (nor, with `libraries`, a library's function)."""
    missing: dict[str, list[str]] = {}
    for index, node in enumerate(graph.node):
        if not _is_supported(node, opset, functions) and not (libraries and has_library(node, opset)):
            op = node.op_type if node.domain in OUR_DOMAINS else f"{node.domain}.{node.op_type}"
            missing.setdefault(op, []).append(node_name(node, index))
    if missing:
        parts = []
        for op, names in sorted(missing.items()):
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            parts.append(f"{op} ({shown})")
        raise NoKernelError(f"operators that are not supported: {'; '.join(parts)}")


def _is_supported(node: onnx.NodeProto, opset: int, functions: Functions) -> bool:
    if (node.domain, node.op_type) in functions:
        return True
    if node.domain not in OUR_DOMAINS:
        return f"{node.domain}.{node.op_type}" in CONVERTERS or standard_twin(node) is not None
    return node.op_type in CONVERTERS or has_standard_function(node.op_type, opset)


def sort_nodes(nodes: Sequence[onnx.NodeProto], known: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes in an order in which each follows those that compute its inputs; as they stand where they are in one.

    Nodes that no order reaches come last, where the importer names what they miss. Raises ImportModelError for a value
    that two nodes compute.
    """
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        if twice := [name for name in node.output if name in maker]:
            raise ImportModelError(f"value '{twice[0]}' is computed by two nodes", where=f"node '{node_name(node, i)}'")
        maker.update(dict.fromkeys(filter(None, node.output), i))
    for name in known:
        maker.pop(name, None)
    needs = [{maker[name] for name in inputs_of(node) if name in maker} for node in nodes]
    users: list[list[int]] = [[] for _ in nodes]
    for i, wanted in enumerate(needs):
        for j in wanted:
            users[j].append(i)
    missing = [len(wanted) for wanted in needs]
    ready = [i for i, count in enumerate(missing) if not count]  # a heap: sorted
    order = []
    while ready:
        i = heappop(ready)
        order.append(i)
        for user in users[i]:
            missing[user] -= 1
            if not missing[user]:
                heappush(ready, user)
    order += [i for i, count in enumerate(missing) if count]
    return [nodes[i] for i in order]


def node_name(node: onnx.NodeProto, index: int) -> str:
    """A node's name, or what identifies it where it has none."""
    return node.name or (node.output[0] if node.output else "") or f"{node.op_type}_{index}"
