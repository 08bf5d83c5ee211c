"""From a graph of ATen operators with the inputs of one call to an IRModule: what `torch.compile` hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.stages import OpenSizes, Stage
from autosched.frontend.torch.complex_values import Complex
from autosched.frontend.torch.exported import Importer
from autosched.frontend.torch.graph import (
    array_of,
    constant_of,
    fill_table,
    map_arguments,
    operator_name,
    refuse_complex,
)  # fmt: skip
from autosched.frontend.torch.registry import CONVERTERS
from autosched.frontend.torch.rules import all_rules
from autosched.frontend.torch.stages import StageImporter
from autosched.ir.module import IRModule
from autosched.relax.expr import Constant, Expr, Tuple, Var
from autosched.relax.struct_info import TensorStructInfo

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Output:
    """A result of the module, by its number there."""

    index: int


@dataclass(frozen=True)
class ImportedGraph:
    """A graph for inputs of certain sizes.

    module    None where no tensor is computed
    results   for each of the graph's: an `Output`, or the number (or None) that it is
    """

    module: IRModule | None
    results: tuple[torch.Tensor, ...]


def decompositions() -> dict[object, Callable[..., object]]:
    """PyTorch's rules for operators that have no converter here."""
    fill_table()
    return {op: rule for op, rule in all_rules().items() if operator_name(op) not in CONVERTERS}


def import_aten_graph(graph_module: object, inputs: Sequence[object]) -> ImportedGraph:
    """The graph as a module whose parameters are the inputs given by type, in order.

    inputs  one for each placeholder: a TensorStructInfo, the array that a constant input is, or a number
    Raises  ImportModelError naming all operators without converter, or the node that cannot be imported.
    """
    return _GraphImporter(graph_module, inputs).imported()


class _GraphImporter(Importer):
    def __init__(self, graph_module: object, given: Sequence[object]):
        super().__init__(graph_module, False, {}, {})
        self.given = given

    def imported(self) -> ImportedGraph:
        self.refuse()
        self.placeholders()
        builder = self.emitter.builder
        results: list[object] = []
        with builder.function("main"):
            with builder.dataflow():
                for node in self.program.graph.nodes:
                    if node.op == "call_function":
                        self.call(node)
                (end,) = (n for n in self.program.graph.nodes if n.op == "output")
                values = map_arguments(end.args[0], self.values.__getitem__)
                tensors: list[Expr] = []
                for value in values if isinstance(values, tuple | list) else [values]:
                    refuse_complex(self.emitter, value)
                    results.append(Output(len(tensors)) if isinstance(value, Expr) else value)
                    tensors += [value] if isinstance(value, Expr) else []
                outputs = tuple(builder.emit_output(t) for t in tensors or [Constant(np.zeros(1, np.float32))])
            builder.emit_func_output(Tuple(outputs), self.inputs)
        return ImportedGraph(builder.get() if tensors else None, tuple(results))

    def placeholders(self) -> None:
        nodes = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, value in zip(nodes, self.given, strict=True):
            if isinstance(value, TensorStructInfo):
                var = Var(node.name, value)
                self.inputs.append(var)
                self.values[node] = var
            else:
                self.values[node] = constant_of(value) if isinstance(value, np.ndarray) else value
        for node in self.program.graph.nodes:
            if node.op == "get_attr" and not hasattr(self.value(node), "graph"):
                self.values[node] = attribute_of(self.program, node.target)


class StagedGraph:
    """A graph whose sizes follow from data, of which stages can be imported; `inputs` as of `import_aten_graph`.

    names  of the inputs that are given by type
    """

    def __init__(self, graph_module: Any, inputs: Sequence[object]):
        self.program = graph_module
        self._inputs = tuple(inputs)
        nodes = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        self.names = tuple(n.name for n, x in zip(nodes, inputs, strict=True) if isinstance(x, TensorStructInfo))

    def stage(self, values: Mapping[str, object], known: Sequence[str], open_sizes: OpenSizes | None = None) -> Stage:
        """The next stage, as of `StagedProgram`."""
        return _GraphStage(self.program, self._inputs, values, known, open_sizes or OpenSizes()).stage()


class _GraphStage(StageImporter):
    def __init__(
        self, program: Any, inputs: Sequence[object], values: Mapping[str, object], known: Sequence[str],
        open_sizes: OpenSizes,
    ):  # fmt: skip
        super().__init__(program, values, known, open_sizes)
        self._inputs = inputs

    def placeholders(self) -> None:
        nodes = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, value in zip(nodes, self._inputs, strict=True):
            if not isinstance(value, TensorStructInfo):
                self.values[node] = constant_of(value) if isinstance(value, np.ndarray) else value
        for node in self.program.graph.nodes:
            if node.op == "get_attr" and not hasattr(self.value(node), "graph"):
                self.values[node] = attribute_of(self.program, node.target)

    def outputs(self) -> list[Any]:
        (end,) = (n for n in self.program.graph.nodes if n.op == "output")
        values = map_arguments(end.args[0], self.values.__getitem__)
        for value in values if isinstance(values, tuple | list) else [values]:
            refuse_complex(self.emitter, value)
        return list(values) if isinstance(values, tuple | list) else [values]


def attribute_of(program: object, path: str) -> Constant | Complex:
    """The tensor that a graph holds. Raises ImportModelError for anything else."""
    value: Any = program
    for part in path.split("."):
        value = getattr(value, part)
    if not hasattr(value, "detach"):
        raise ImportModelError(f"the graph holds '{path}', a {type(value).__name__}, which is not supported")
    return constant_of(array_of(value, path))
