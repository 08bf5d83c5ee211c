"""The graph executor: a model with its own memory, ready to run again and again.

`GraphExecutor` does the work; `graph_module.GraphModule` has TVM's names for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Unpack

import numpy as np

from autosched.errors import (
    InvalidTypeError,
    InvalidValueError,
    ShapeError,
    TVMError,
)
from autosched.runtime.array import NDArray, array, as_numpy
from autosched.runtime.backends import open_program
from autosched.runtime.device import CPU, Device
from autosched.runtime.executor_functions import (
    FUNCTIONS,
    ExecutorFunctions,
    copy_into,
    input_position,
    output_position,
)  # fmt: skip
from autosched.runtime.graph import Graph, Node, Value
from autosched.runtime.kernel import Kernel
from autosched.runtime.names import known_name
from autosched.runtime.params import load_param_dict
from autosched.runtime.program import Program
from autosched.runtime.timing import BenchmarkResult, MeasureOptions, measure
from autosched.target import choose_threads

if TYPE_CHECKING:
    from autosched.json_types import Json


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Seconds that one node takes in a run."""

    node: Node
    seconds: float


class Model(Protocol):
    """What an executor runs; `Executable` is one."""

    @property
    def graph(self) -> Graph: ...
    @property
    def kernels(self) -> Mapping[str, Kernel]: ...
    @property
    def constants(self) -> tuple[np.ndarray, ...]: ...
    @property
    def native(self) -> bytes: ...
    @property
    def manifest(self) -> Mapping[str, Json]: ...
    @property
    def inputs(self) -> tuple[Value, ...]: ...
    @property
    def outputs(self) -> tuple[Value, ...]: ...


class GraphExecutor(ExecutorFunctions):
    """A model's arena, inputs and outputs, and its program.

    Its inputs are the graph's, then the constants, which count as parameters that are loaded already.
    threads  most threads to run on; None: as many as the machine, the container and the environment allow
    leader   an executor of the same model whose inputs this one reads where it has not set them itself
    It belongs to one thread at a time: `GraphModule` gives each thread its own, `Executable` each call.
    """

    functions = (*FUNCTIONS, "set_output_zero_copy")

    def __init__(
        self,
        executable: Model,
        device: Device | None = None,
        *,
        threads: int | None = None,
        leader: GraphExecutor | None = None,
    ):
        self.executable = executable
        graph = self._graph = executable.graph
        self.threads = choose_threads(threads)
        self.program, self.device = open_program(
            graph, executable.kernels, executable.constants, executable.native, self.threads, device
        )
        constants = [number for number, value in enumerate(graph.values) if value.storage.kind == "const"]
        self._args = [*graph.inputs, *(number for number in constants if number not in graph.inputs)]
        self._index = {graph.values[number].name: index for index, number in reversed(list(enumerate(self._args)))}
        self._leader, self._followed = leader, -1
        self._moves = 0  # how often an input got other memory
        self._own_inputs = set(graph.inputs) if leader is None else set()  # those with memory that others do not read
        self._written = {graph.root(number) for node in graph.nodes for number in node.outputs}
        self._param_names = {graph.values[number].name for number in constants}
        for number, value in enumerate(graph.values):
            if value.storage.kind == "output" or (value.storage.kind == "input" and leader is None):
                self.program.allocate(number)
        if leader is not None:
            self._param_names = leader._param_names
            self._follow(leader)

    def sibling(self) -> GraphExecutor:
        """Make another executor of the model, which has this one's inputs where it has not set its own."""
        return GraphExecutor(self.executable, self.device, threads=self.threads, leader=self)

    def forget_inputs(self) -> None:
        """Let all inputs be the leader's again."""
        self._own_inputs, self._followed = set(), -1

    def _follow(self, leader: GraphExecutor) -> None:
        """Read the leader's memory, wherever it is now, for what this one has not set itself."""
        self._followed = leader._moves
        for number in self._args:
            if number not in self._own_inputs and self._graph.root(number) == number:
                self.program.share(number, leader.program)
                if number in self._written:
                    self.program.own(number)

    # Inputs

    def _position(self, key: int | str, action: str) -> int:
        names = [value.name for value in self.executable.inputs]
        return input_position(key, self._index, len(self._args), names, action)

    def set_input(self, key: int | str, value: object) -> None:
        """Copy a value into an input, converting its dtype.

        Raises TVMError (RuntimeError) on an unknown name, IndexOutOfRangeError, ShapeError (ValueError).
        """
        number = self._args[self._position(key, "set_input")]
        spec = self._graph.values[number]
        data = value if isinstance(value, NDArray) else as_numpy(value, f"set_input: '{spec.name}'")
        if data.shape != spec.shape:
            raise ShapeError(
                f"set_input: array of shape {list(data.shape)} instead of {list(spec.shape)}",
                where=f"input '{spec.name}'",
            )
        self._own(number)
        self.program.array(number).copyfrom(data)

    def fill_inputs(self, values: Sequence[NDArray | np.ndarray]) -> None:
        """Copy arrays, whose shapes fit, into the graph's inputs, in order."""
        for number, value in zip(self._graph.inputs, values, strict=True):
            if number not in self._own_inputs:
                self._own(number)
            self.program.array(number).copyfrom(value)

    def copy_outputs(self) -> tuple[NDArray, ...]:
        """Give new arrays on the executor's device with what the last run gave."""
        return tuple([array(self.program.array(number), self.device) for number in self._graph.outputs])

    def call(self, values: Sequence[NDArray | np.ndarray]) -> tuple[NDArray, ...]:
        """Run on arrays that fit the graph's inputs, in order; gives new arrays."""
        program = self.program
        if type(program) is Program and self._leader is None:
            device = self.device
            return tuple([NDArray(x, device) for x in program.call(values)])
        self.fill_inputs(values)
        self.run()
        return self.copy_outputs()

    def _own(self, number: int) -> None:
        """Before an input may be written: what other executors read too gets memory of its own."""
        if number not in self._own_inputs:
            with self.program.lock:
                self.program.own(number)
                self._note_move(number)

    def _note_move(self, number: int) -> None:
        self._own_inputs.add(number)
        self._moves += 1

    def set_input_zero_copy(self, key: int | str, value: NDArray | np.ndarray) -> None:
        """Let an input live in the given array from now on."""
        self._place(self._args[self._position(key, "set_input_zero_copy")], value)

    def set_output_zero_copy(self, key: int | str, value: NDArray | np.ndarray) -> None:
        """Let an output be written into the given array from now on.

        Raises InvalidValueError for read-only memory, for arrays that are not row-major and aligned, and for an output
        that is an input, a constant or a part of another value.
        """
        names = [output.name for output in self.executable.outputs]
        if isinstance(key, str) and key not in names:
            outputs = ", ".join(names)
            raise TVMError(
                f"set_output_zero_copy: could not find '{key}' in graph's outputs", hint=f"outputs are {outputs}"
            )
        number = self._output(names.index(key) if isinstance(key, str) else key, "set_output_zero_copy")
        if self._graph.values[self._graph.root(number)].storage.kind not in ("arena", "output"):
            raise InvalidValueError(f"output {key} is an input or a constant and has no memory of its own")
        root = self._graph.root(number)
        is_whole = self._graph.values[root].size_bytes == self._graph.values[number].size_bytes
        if not is_whole or all(root not in map(self._graph.root, node.outputs) for node in self._graph.nodes):
            raise InvalidValueError(f"output {key} shares its memory with other values", hint="copy it with get_output")
        host = value.view() if isinstance(value, NDArray) and value.device.device_type == CPU else value
        if isinstance(host, np.ndarray) and not host.flags.writeable:
            raise InvalidValueError(
                f"the array for output {key} is read-only", hint="pass an array that can be written"
            )
        self._place(number, value)

    def _place(self, number: int, value: NDArray | np.ndarray) -> None:
        spec, where = self._graph.values[number], f"zero copy of '{self._graph.values[number].name}'"
        if not isinstance(value, np.ndarray | NDArray):
            raise InvalidTypeError(f"{type(value).__name__} is no array", where=where)
        if value.shape != spec.shape:
            raise ShapeError(f"shape {list(value.shape)} instead of {list(spec.shape)}", where=where)
        if str(value.dtype) != spec.dtype:
            raise InvalidTypeError(f"dtype {value.dtype} instead of {spec.dtype}", where=where)
        root = self._graph.root(number)
        with self.program.lock:
            self.program.adopt(root, value, where)
            self._note_move(root)

    def get_input(self, key: int | str, out: NDArray | None = None) -> NDArray | None:
        """Give an input's own array, or copy it into `out`; an unknown name gives None."""
        if isinstance(key, str) and known_name(key, self._index) not in self._index:
            return None
        number = self._args[self._position(key, "get_input")]
        if out is None:
            self._own(number)  # what the caller gets may be written
        found = self.program.array(number)
        return found if out is None else copy_into(out, found, f"input '{self._graph.values[number].name}'")

    def get_num_inputs(self) -> int:
        """Count the inputs, parameters included."""
        return len(self._args)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Give shapes and dtypes by name of the inputs that are not parameters."""
        values = [self._graph.values[number] for number in self._args]
        wanted = [value for value in values if value.name not in self._param_names]
        return {value.name: value.shape for value in wanted}, {value.name: value.dtype for value in wanted}

    def load_params(self, data: bytes | bytearray) -> None:
        """Copy the arrays of a parameter file into the inputs of their names; others are ignored."""
        params = load_param_dict(data)
        for name, value in params.items():
            self._set_known_input(name, value)
        self.mark_params(params)

    def mark_params(self, names: Iterable[str]) -> None:
        """Count inputs of these names as parameters from now on."""
        self._param_names |= set(names)

    def share_params(self, other: GraphExecutor, data: bytes | bytearray) -> None:
        """Use another executor's arrays for the inputs that a parameter file names."""
        names = load_param_dict(data).keys()
        for name in names:
            found = other.get_input(name)
            if name in self._index and found is not None:
                self._place(self._args[self._index[name]], found)
        self._param_names |= names

    # Running

    def run(self) -> None:
        """Run all nodes in order."""
        if self._leader is not None and self._leader._moves != self._followed:
            self._follow(self._leader)
        self.program.run(1)

    def profile(self, number: int = 10) -> list[NodeTime]:
        """Give each node's seconds, the mean of `number` runs after one that is not timed."""
        self.program.run(1)
        return [
            NodeTime(node, float(seconds)) for node, seconds in zip(self._graph.nodes, self.program.profile(number))
        ]

    # Outputs

    def _output(self, index: int, action: str) -> int:
        return self._graph.outputs[output_position(index, len(self._graph.outputs), action)]

    def get_num_outputs(self) -> int:
        """Count the outputs."""
        return len(self._graph.outputs)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Give an output's own array, which the next run overwrites, or copy it into `out`."""
        found = self.program.array(self._output(index, "get_output"))
        return found if out is None else copy_into(out, found, f"output {index}")

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: Unpack[MeasureOptions]
    ) -> Callable[..., BenchmarkResult]:
        """Give a function that times one of this executor's functions on its arguments; see `timing.measure`."""
        if func_name == "run":
            return lambda: measure(self.program.run, timer=self.program.seconds, **options)
        function = self[func_name]

        def evaluate(*args: object) -> BenchmarkResult:
            def run(number: int) -> None:
                for _ in range(number):
                    function(*args)
                self.program.synchronize()

            return measure(run, **options)

        return evaluate
