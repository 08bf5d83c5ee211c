"""A function that is called on natural arrays although its kernel reads packed ones: a small graph around it."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.runtime.graph import Graph, Node, Storage, Value
from autosched.runtime.kernel import Kernel
from autosched.runtime.memory import ALIGNMENT


def graph_with_packing(name: str, kernel: Kernel, packers: Mapping[int, Kernel]) -> Graph:
    """Pack some arguments into the arena, then run the kernel.

    packers  per position among the kernel's arguments the kernel that packs the natural array for it
    """
    values: list[Value] = []
    nodes: list[Node] = []
    inputs: list[int] = []
    outputs: list[int] = []
    operands: list[int] = []
    offset = 0
    for position, arg in enumerate(kernel.args):
        if arg.role == "output":
            values.append(Value(arg.name, arg.shape, arg.dtype, Storage("output", len(outputs))))
            outputs.append(len(values) - 1)
            continue
        natural = packers[position].inputs[0] if position in packers else arg
        values.append(Value(arg.name, natural.shape, natural.dtype, Storage("input", len(inputs))))
        inputs.append(len(values) - 1)
        if position in packers:
            packed = Value(f"{arg.name}_packed", arg.shape, arg.dtype, Storage("arena", offset))
            values.append(packed)
            nodes.append(Node(packed.name, packers[position].name, (inputs[-1],), (len(values) - 1,)))
            offset += -(-packed.size_bytes // ALIGNMENT) * ALIGNMENT
        operands.append(len(values) - 1)
    nodes.append(Node(name, f"{name}_kernel", tuple(operands), tuple(outputs)))
    return Graph(tuple(values), tuple(nodes), tuple(inputs), tuple(outputs), offset)
