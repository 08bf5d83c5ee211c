"""`torch.compile(model, backend="autosched")`: the graphs that PyTorch captures, built as models are.

A graph is imported and built for the sizes that it is called with, and again for others; once for all sizes where
PyTorch has symbols for them and kernels can be so. Parameters and buffers are constants of the build until one of them
changes. Where gradients are needed there are two graphs, forward and backward. What cannot be built runs in PyTorch,
with a warning that says why. Of a graph with operators that have no kernel the rest is compiled, in stages around them.
PyTorch draws random numbers.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autosched.driver.build.entry import build
from autosched.driver.build.following import LARGEST
from autosched.driver.build.sized import SizedModel
from autosched.driver.build.staged import Build, StagedModel, Value
from autosched.errors import AutoschedError, ImportModelError, ShapeError, UsageError, WrongInputError
from autosched.frontend.stages import DataNeededError, LibraryNeededError, OpenSizes, Stage
from autosched.frontend.torch.aten_graph import (
    ImportedGraph,
    Output,
    StagedGraph,
    decompositions,
    has_open_sizes,
    import_aten_graph,
    memory_orders,
    numbers_of_tensors,
)
from autosched.frontend.torch.graph import array_of, tensor_of
from autosched.frontend.torch.memory import permuted_back
from autosched.frontend.torch.random_draws import Draw, drawn_before
from autosched.frontend.torch.views import without_views
from autosched.ir.node import Attrs
from autosched.relax.struct_info import TensorStructInfo
from autosched.runtime import Executable, NDArray
from autosched.runtime.array import as_numpy
from autosched.runtime.size_expr import size_at

if TYPE_CHECKING:
    import torch

Input: TypeAlias = Any  # of a graph: a tensor of PyTorch's or a number
Run: TypeAlias = Callable[[Sequence[Input]], tuple[Input, ...]]
_log = logging.getLogger(__name__)
OPTIONS = ("target", "threads", "records", "strict")


@dataclass
class Counters:
    """What the backend did in this process.

    graphs     that PyTorch handed over (a model with graph breaks gives several, a recompilation another)
    builds     of graphs, one for each set of sizes
    runs       of built graphs
    rebuilds   because a parameter or buffer changed
    fallbacks  graphs that run in PyTorch, or of which PyTorch computes a part, by reason
    """

    graphs: int = 0
    builds: int = 0
    runs: int = 0
    rebuilds: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)

    def reset(self) -> None:
        """Count from 0."""
        self.__dict__.update(vars(Counters()))


counters = Counters()


def autosched_backend(
    graph_module: torch.fx.GraphModule, example_inputs: Sequence[Input], options: Mapping[str, object] | None = None
) -> Callable[..., object]:
    """The backend that `torch.compile` finds by the name "autosched".

    options  target, threads, records: as of `autosched.build`; strict=True raises instead of running in PyTorch
    """
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    chosen = dict(options or {})
    if unknown := sorted(set(chosen) - set(OPTIONS)):
        raise UsageError(f"the backend has no option '{unknown[0]}'", hint=f"there are {', '.join(OPTIONS)}")
    strict = bool(chosen.pop("strict", False))
    counters.graphs += 1
    if any(isinstance(x, torch.Tensor) and x.device.type != "cpu" for x in example_inputs):
        return _in_pytorch(graph_module.forward, "its tensors are not on the CPU", strict)
    real = list(example_inputs)

    def compile_graph(aten: torch.fx.GraphModule, fake_inputs: Sequence[object]) -> _Compiled:
        return _Compiled(aten, _constant_inputs(real, learn=False), chosen, strict, _user_results())

    def compile_forward(aten: torch.fx.GraphModule, fake_inputs: Sequence[object]) -> _Compiled:
        return _Compiled(aten, _constant_inputs(real, learn=True), chosen, strict, _user_results())

    def compile_backward(aten: torch.fx.GraphModule, fake_inputs: Sequence[object]) -> _Compiled:
        return _Compiled(aten, frozenset(), chosen, strict)

    compiled: Callable[..., object] = aot_autograd(
        fw_compiler=compile_forward, bw_compiler=compile_backward, inference_compiler=compile_graph,
        partition_fn=min_cut_rematerialization_partition, decompositions=decompositions(),
    )(graph_module, example_inputs)  # fmt: skip
    return compiled


def _in_pytorch(run: Callable[..., object], reason: str, strict: bool) -> Callable[..., object]:
    """What runs a graph in PyTorch, after a warning."""
    if strict:
        raise UsageError(f"a graph is not compiled by autosched: {reason}")
    _count_fallback(reason)
    warnings.warn(f"autosched: a graph runs in PyTorch: {reason}", stacklevel=3)
    return run


def _count_fallback(reason: str) -> None:
    counters.fallbacks[reason] = counters.fallbacks.get(reason, 0) + 1


def _constant_inputs(real: Sequence[object], learn: bool) -> frozenset[int]:
    """Which inputs of the graph that is being compiled are parameters and buffers that it does not change.

    learn  parameters that get gradients change between calls
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if metadata is None or len(metadata.input_info) != len(real):
        return frozenset()
    static = metadata.static_input_indices or ()
    info = metadata.input_info
    return frozenset(i for i in static if not (info[i].mutates_data or (learn and info[i].requires_grad)))


def _user_results() -> range:
    """Which results of the forward graph that is being compiled the user gets, and tensors that these are views of.

    New values of inputs are before them, and behind them is what is kept for gradients.
    """
    from torch._guards import TracingContext

    metadata = getattr(TracingContext.try_get(), "fw_metadata", None)
    if metadata is None:
        return range(0)
    n_tokens = len(metadata.tokens)
    return range(n_tokens + metadata.num_mutated_inp_runtime_indices, n_tokens + metadata.num_forward_returns)


class _Compiled:
    """A graph of ATen operators, built for each set of sizes at its first call.

    It empties the list of inputs that it is called with: so values that wait for a gradient are freed by it.
    """

    def __init__(
        self, graph: torch.fx.GraphModule, constants: frozenset[int], options: Attrs, strict: bool,
        may_be_views: range = range(0),
    ):  # fmt: skip
        rest, self.views = without_views(graph, may_be_views)
        self.graph, self.draws = drawn_before(rest)
        self.constants, self.options, self.strict = constants, dict(options), strict
        self.versions: list[tuple[int, int]] | None = None
        self.built: dict[object, tuple[Run | None, list[Draw]]] = {}
        self.has_open_sizes = has_open_sizes(self.graph)
        self.opened: _Open | None = None
        self.late_graphs: dict[tuple[float, ...], _LateGraph] = {}
        self.lock = threading.Lock()
        self._boxed_call = True  # PyTorch looks for it among an object's own attributes

    def __call__(self, boxed: list[Input]) -> tuple[Input, ...]:
        inputs = tuple(boxed)
        boxed.clear()
        results = self.results(inputs)
        return results if self.views is None else self.views.complete(inputs, results)

    def results(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """What the graph gives, without views."""
        with self.lock:
            self.see_changes(inputs)
            given = [x for i, x in enumerate(inputs) if i not in self.constants]
            key = tuple([(x.shape, x.dtype) if hasattr(x, "shape") else x for x in given])
            if key not in self.built:
                self.built[key] = self.build(inputs)
            run, draws = self.built[key]
        drawn = [draw() for draw in draws]
        if run is None:
            return tuple(self.graph(*inputs, *drawn))
        counters.runs += 1
        try:
            return run([*given, *drawn])
        except WrongInputError as error:  # of an operator that PyTorch computes
            raise error.__cause__ or error from None
        except (ImportModelError, ShapeError) as error:  # of a graph that is compiled stage by stage
            if self.strict:
                raise
            _in_pytorch(self.graph, error.line, strict=False)
            self.built[key] = None, draws
            return tuple(self.graph(*inputs, *drawn))

    def see_changes(self, inputs: Sequence[Input]) -> None:
        """Forget what was built where a constant has changed; one that did is no constant any more."""
        now = _versions([inputs[i] for i in self.constants])
        if now == self.versions:
            return
        if self.versions is not None:
            changed = {i for i, a, b in zip(self.constants, now, self.versions, strict=True) if a != b}
            counters.rebuilds += 1
            self.built.clear()
            self.opened = None
            self.late_graphs.clear()
            self.constants -= changed
            now = _versions([inputs[i] for i in self.constants])
        self.versions = now

    def build(self, inputs: Sequence[Input]) -> tuple[Run | None, list[Draw]]:
        """(what runs the graph for inputs of these sizes, or None where it cannot be built; what is drawn before)."""
        types, draws = ([], []) if self.draws is None else self.draws.at(inputs)
        if self.has_open_sizes:
            if self.opened is None:
                self.open(inputs, types)
            given = [x for i, x in enumerate(inputs) if i not in self.constants]
            if self.opened is not None and self.opened.takes(given):
                return self.opened.run, draws
        return self.built_with(inputs, types), draws

    def open(self, inputs: Sequence[Input], drawn: Sequence[TensorStructInfo]) -> None:
        """Build the graph for all sizes, if that can be."""
        try:
            given = [*(self.described(i, x) for i, x in enumerate(inputs)), *drawn]
            imported = import_aten_graph(self.graph, given, is_open=True)
            executable = None if imported.module is None else build(imported.module, **self.options)
            if isinstance(executable, SizedModel):
                raise ImportModelError(executable.reason)
        except AutoschedError as error:
            _log.info("a graph is built for each set of sizes: %s", error.line)
            self.has_open_sizes = False
        else:
            counters.builds += 1
            self.opened = _Open(imported, executable)

    def built_with(self, inputs: Sequence[Input], drawn: Sequence[TensorStructInfo]) -> Run | None:
        """A function of inputs that are no constants and of what is drawn; None where it cannot be built."""
        try:
            given = [*(self.described(i, x) for i, x in enumerate(inputs)), *drawn]
            imported = import_aten_graph(self.graph, given)
            executable = None if imported.module is None else build(imported.module, **self.options)
        except DataNeededError as error:
            if isinstance(error, LibraryNeededError):
                if self.strict:
                    raise
                _count_fallback(error.line)
                warnings.warn(f"autosched: PyTorch computes a part of a graph: {error.line}", stacklevel=2)
            return self.late(given).run_on
        except AutoschedError as error:
            if self.strict:
                raise
            _in_pytorch(self.graph, error.line, strict=False)
            return None
        counters.builds += 1
        _log.info("built a graph of %d nodes", len(self.graph.graph.nodes))
        return partial(_run, imported.results, executable)

    def late(self, given: Sequence[object]) -> _LateGraph:
        """The graph compiled in stages, for these inputs or any of their types and ranks."""
        said = numbers_of_tensors(self.graph)
        numbers = [x for i, x in enumerate(given) if isinstance(x, int | float) and i not in said]
        if (key := tuple(numbers)) not in self.late_graphs:
            counters.builds += 1
            self.late_graphs[key] = _LateGraph(self.graph, given, lambda module: build(module, **self.options))
        return self.late_graphs[key]

    def described(self, index: int, value: object) -> object:
        """An input as the importer takes it: a constant's array, a tensor's type, a number."""
        if not hasattr(value, "shape"):
            return value
        array = array_of(value, f"input {index}")
        if array.dtype.kind == "c":
            raise ImportModelError(f"input {index} is of complex numbers")
        if index in self.constants:
            return np.array(array)
        return TensorStructInfo(array.shape, str(array.dtype))


@dataclass(frozen=True)
class _Open:
    """A graph that was built for all sizes."""

    imported: ImportedGraph
    executable: Callable[..., object] | None

    def takes(self, given: Sequence[Input]) -> bool:
        """Whether the sizes of a call are such that kernels take them."""
        sizes = self.imported.sizes(given)
        return min(sizes.values(), default=1) > 0 and all(sizes[s] <= LARGEST for s in self.imported.unsaid)

    def run(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """What the graph gives for inputs that are no constants and what is drawn."""
        sizes = self.imported.sizes(inputs)
        hidden = [np.empty(sizes[s], np.bool_) for s in self.imported.unsaid]
        arrays = [_array(x) for x in inputs if hasattr(x, "shape")]
        made = () if self.executable is None else self.executable(*arrays, *hidden)
        given = made if isinstance(made, tuple) else (made,)
        return tuple(
            [size_at(r, sizes) if isinstance(r, str | tuple) else r for r in _results(self.imported.results, given)]
        )


class _LateGraph(StagedModel):
    """A graph whose sizes follow from data; the sizes of its inputs are known."""

    def __init__(self, graph: torch.fx.GraphModule, given: Sequence[object], build: Build):
        self._stages, self._orders = StagedGraph(graph, given), memory_orders(graph)
        super().__init__("a graph of torch.compile", self._stages.names, build)

    def check_inputs(self, args: Sequence[object], named: Mapping[str, object]) -> dict[str, Value]:
        return {name: as_numpy(x) for name, x in zip(self.input_names, args, strict=True)}

    def example(self, name: str, shape: tuple[int, ...] | None = None) -> np.ndarray | None:
        return None

    def import_stage(self, there: Mapping[str, Value], known: tuple[str, ...], opened: OpenSizes | None) -> Stage:
        return self._stages.stage(there, known, opened)

    def run_on(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """What the graph gives."""
        arrays = [_array(x) for x in inputs if hasattr(x, "shape")]
        found = self.results(dict(zip(self.input_names, arrays, strict=True)))
        return tuple(
            [
                x if isinstance(x, int | float | None) else _tensor(x, order)
                for x, order in zip(found, self._orders, strict=True)
            ]
        )


def _run(
    results: Sequence[object], executable: Executable | Callable[..., object] | None, inputs: Sequence[Input]
) -> tuple[Input, ...]:
    """What a graph gives for inputs whose sizes and dtypes are those that it was built for."""
    given: Sequence[object] = ()
    if executable is not None:
        arrays = [_array(x) for x in inputs if hasattr(x, "shape")]
        made = executable.run(arrays) if isinstance(executable, Executable) else executable(*arrays)
        given = made if isinstance(made, tuple) else (made,)
    return tuple(_results(results, given))


def _results(results: Sequence[object], given: Sequence[object]) -> list[Any]:
    """What a graph gives: tensors of what was computed, numbers as they are."""
    return [_tensor(given[r.index], r.order) if isinstance(r, Output) else r for r in results]


def _array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's values, in its memory where NumPy can read them there."""
    try:
        values: np.ndarray = tensor.numpy(force=True)
    except TypeError:  # a dtype that NumPy lacks
        return array_of(tensor, "an input")
    return values if values.flags.c_contiguous else np.ascontiguousarray(values)


def _versions(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """What tells whether tensors' values may have changed: where they are, and how often they were written."""
    return [(t.data_ptr(), 0 if t.is_inference() else t._version) for t in tensors]


def _tensor(array: object, order: Sequence[int] | None) -> torch.Tensor:
    """A result as a tensor of PyTorch's, in the same memory, where its dimensions are in this order."""
    tensor = tensor_of(array.view() if isinstance(array, NDArray) else np.asarray(array))
    return tensor if order is None else permuted_back(tensor, order)
