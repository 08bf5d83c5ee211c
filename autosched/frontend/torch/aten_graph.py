"""From a graph of ATen operators with the inputs of one call to an IRModule: what `torch.compile` hands over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.stages import OpenSizes, Stage, with_sizes
from autosched.frontend.torch.complex_values import Complex
from autosched.frontend.torch.decompose import needed_calls
from autosched.frontend.torch.exported import Importer
from autosched.frontend.torch.graph import (
    array_of,
    constant_of,
    fill_table,
    map_arguments,
    operator_name,
    refuse_complex,
)  # fmt: skip
from autosched.frontend.torch.memory import memory_order
from autosched.frontend.torch.random_draws import is_drawn
from autosched.frontend.torch.registry import CONVERTERS
from autosched.frontend.torch.rules import all_rules
from autosched.frontend.torch.stages import StageImporter
from autosched.ir.module import IRModule
from autosched.relax import op
from autosched.relax.expr import Constant, Expr, Tuple, Var
from autosched.relax.struct_info import Dim, TensorStructInfo
from autosched.tir.expr import PrimExpr, SizeVar
from autosched.tir.size_expr import to_size

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True)
class Output:
    """A result of the module.

    index  its number there
    order  its dimensions as the module has them: in memory it is as PyTorch's would be
    """

    index: int
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class ImportedGraph:
    """A graph for inputs of certain sizes, or for all.

    module    None where no tensor is computed
    results   for each of the graph's: an `Output`, the number (or None) that it is, or its size in symbols
    symbols   of open sizes, each with the input that says it: (number of the input, constants left out; its dimension,
              or None for a number)
    unsaid    those that no tensor says: the module takes an array of so many elements for each, behind its inputs
    """

    module: IRModule | None
    results: tuple[Any, ...]
    symbols: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()

    def sizes(self, inputs: Sequence[Any]) -> dict[str, int]:
        """The values of the symbols, by the inputs of a call that are no constants."""
        return {s: inputs[i] if d is None else inputs[i].shape[d] for s, (i, d) in self.symbols.items()}


def decompositions() -> dict[object, Callable[..., object]]:
    """PyTorch's rules for operators that have no converter here, and no random numbers that its generator draws."""
    fill_table()
    rules = all_rules().items()
    return {op: rule for op, rule in rules if operator_name(op) not in CONVERTERS and not is_drawn(op)}


def import_aten_graph(graph_module: object, inputs: Sequence[object], is_open: bool = False) -> ImportedGraph:
    """The graph as a module whose parameters are the inputs given by type, in order.

    inputs   one for each placeholder: a TensorStructInfo, the array that a constant input is, or a number
    is_open  the sizes that PyTorch has symbols for are symbols
    Raises   ImportModelError naming all operators without converter, or the node that cannot be imported.
    """
    return _GraphImporter(graph_module, inputs, is_open).imported()


def has_open_sizes(graph_module: Any) -> bool:
    """Whether PyTorch has symbols for sizes of inputs."""
    noted = [n.meta.get("val") for n in _inputs(graph_module)]
    return any(not isinstance(d, int) for x in noted for d in getattr(x, "shape", ()))


class _GraphImporter(Importer):
    def __init__(self, graph_module: object, given: Sequence[object], is_open: bool):
        super().__init__(graph_module, False, {}, {})
        self.given, self.is_open = given, is_open
        self.said: dict[str, tuple[int, int | None]] = {}

    def imported(self) -> ImportedGraph:
        self.refuse()
        self.placeholders()
        builder = self.emitter.builder
        results: list[object] = []
        with builder.function("main"):
            with builder.dataflow():
                for node in needed_calls(self.program.graph):
                    self.call(node)
                tensors: list[Expr] = []
                for value, order in zip(_outputs(self), memory_orders(self.program), strict=True):
                    number = to_size(value) if isinstance(value, PrimExpr) else value
                    results.append(Output(len(tensors), order) if isinstance(value, Expr) else number)
                    tensors += [value] if isinstance(value, Expr) else []
                outputs = tuple(builder.emit_output(t) for t in tensors or [Constant(np.zeros(1, np.float32))])
            builder.emit_func_output(Tuple(outputs), self.inputs)
        if not tensors:
            return ImportedGraph(None, tuple(results), self.said)
        module = builder.get()
        module["main"], unsaid = with_sizes(module["main"], [*self.symbols.values()], lambda name: name)
        return ImportedGraph(module, tuple(results), self.said, tuple(s.name for s in unsaid))

    def placeholders(self) -> None:
        self.values |= _fixed(self, self.given)
        number = 0
        for node, value in zip(_inputs(self.program), self.given, strict=True):
            if isinstance(value, np.ndarray):
                continue
            if isinstance(value, TensorStructInfo):
                dims = self.open_dims(node, number) if self.is_open else value.dims
                self.values[node] = var = Var(node.name, TensorStructInfo(dims, value.dtype))
                self.inputs.append(var)
            elif self.is_open and not isinstance(size := node.meta["val"], type(value)):
                self.values[node] = self.said_by(self.dim(node.name, size), number, None)
            number += 1
        if lost := self.symbols.keys() - self.said.keys():
            raise ImportModelError(f"no input says what the size {min(lost)} is")

    def open_dims(self, node: fx.Node, number: int) -> tuple[Dim, ...]:
        """An input's dimensions, symbols among them."""
        dims = (self.dim(node.name, d) for d in node.meta["val"].shape)
        return tuple([self.said_by(dim, number, d) for d, dim in enumerate(dims)])

    def said_by(self, size: Dim, number: int, dim: int | None) -> Dim:
        """The size; an input's dimension, or the number that it is, says the symbol that the size is."""
        if isinstance(size, SizeVar) and self.said.get(size.name, (0, None))[1] is None:
            self.said[size.name] = number, dim
        return size


class StagedGraph:
    """A graph whose sizes follow from data, of which stages can be imported; `inputs` as of `import_aten_graph`.

    Numbers that are sizes of tensors are those of the tensors at hand.
    names  of the inputs that are given by type
    """

    def __init__(self, graph_module: Any, inputs: Sequence[object]):
        self.program = graph_module
        said = numbers_of_tensors(graph_module)
        self._inputs = tuple(said.get(i, x) for i, x in enumerate(inputs))
        nodes = zip(_inputs(graph_module), inputs, strict=True)
        self.names = tuple(n.name for n, x in nodes if isinstance(x, TensorStructInfo))

    def stage(self, values: Mapping[str, object], known: Sequence[str], open_sizes: OpenSizes | None = None) -> Stage:
        """The next stage, as of `StagedProgram`."""
        return _GraphStage(self.program, self._inputs, values, known, open_sizes or OpenSizes()).stage()


@dataclass(frozen=True)
class SizeOf:
    """The size of a tensor that is an input, along a dimension."""

    name: str
    dim: int


def numbers_of_tensors(graph_module: Any) -> dict[int, SizeOf]:
    """The inputs of a graph that are sizes of others, by their numbers."""
    nodes = _inputs(graph_module)
    sizes = {str(d): SizeOf(n.name, i) for n in nodes for i, d in enumerate(getattr(n.meta.get("val"), "shape", ()))}
    noted = {i: n.meta.get("val") for i, n in enumerate(nodes)}
    return {i: sizes[str(x)] for i, x in noted.items() if type(x).__name__ == "SymInt" and str(x) in sizes}


class _GraphStage(StageImporter):
    def __init__(
        self, program: Any, inputs: Sequence[object], values: Mapping[str, object], known: Sequence[str],
        open_sizes: OpenSizes,
    ):  # fmt: skip
        super().__init__(program, values, known, open_sizes)
        self._inputs = inputs

    def placeholders(self) -> None:
        self.values |= _fixed(self, self._inputs)
        for node, value in zip(_inputs(self.program), self._inputs, strict=True):
            if isinstance(value, SizeOf):
                there: Any = self.there[value.name]  # an array
                self.values[node] = self.open.shapes.get(value.name, there.shape)[value.dim]

    def outputs(self) -> list[Any]:
        return _outputs(self)


def _inputs(program: Any) -> list[fx.Node]:
    return [n for n in program.graph.nodes if n.op == "placeholder"]


def _fixed(importer: Importer, inputs: Sequence[object]) -> dict[fx.Node, Any]:
    """The values of inputs that are not given by type, and of the tensors that the graph holds."""
    nodes = zip(_inputs(importer.program), inputs, strict=True)
    given = {n: x for n, x in nodes if not isinstance(x, TensorStructInfo)}
    held = [n for n in importer.program.graph.nodes if n.op == "get_attr" and not hasattr(importer.value(n), "graph")]
    return {
        **{n: constant_of(x) if isinstance(x, np.ndarray) else x for n, x in given.items()},
        **{n: attribute_of(importer.program, n.target) for n in held},
    }


def _outputs(importer: Importer) -> list[Any]:
    """What the graph gives, with its dimensions in memory's order. Raises ImportModelError for complex numbers."""
    found = [map_arguments(x, importer.values.__getitem__) for x in _ends(importer.program)]
    for i, order in enumerate(memory_orders(importer.program)):
        refuse_complex(importer.emitter, found[i])
        if order and isinstance(found[i], Expr):
            found[i] = importer.emitter(op.permute_dims(found[i], axes=order))
    return found


def _ends(program: Any) -> list[Any]:
    (end,) = (n for n in program.graph.nodes if n.op == "output")
    return list(end.args[0]) if isinstance(end.args[0], tuple | list) else [end.args[0]]


def memory_orders(program: Any) -> list[tuple[int, ...] | None]:
    """For each of the graph's results the dimensions in memory's order; None where that is their own, or has gaps."""
    noted = [x.meta.get("val") if hasattr(x, "meta") else None for x in _ends(program)]
    orders = [memory_order(x) if hasattr(x, "stride") else None for x in noted]
    return [None if order is None or order == tuple(range(len(order))) else order for order in orders]


def attribute_of(program: object, path: str) -> Constant | Complex:
    """The tensor that a graph holds. Raises ImportModelError for anything else."""
    value: Any = program
    for part in path.split("."):
        value = getattr(value, part)
    if not hasattr(value, "detach"):
        raise ImportModelError(f"the graph holds '{path}', a {type(value).__name__}, which is not supported")
    return constant_of(array_of(value, path))
