"""The graph executor: a model with its own memory, ready to run again and again.

`GraphExecutor` does the work; `GraphModule` is TVM's face on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.errors import (
    IndexOutOfRangeError,
    InvalidTypeError,
    InvalidValueError,
    NameNotFoundError,
    ShapeError,
    TVMError,
)
from autosched.runtime.array import NDArray, array
from autosched.runtime.device import CPU, Device, cpu
from autosched.runtime.executable import Executable
from autosched.runtime.graph import Node
from autosched.runtime.memory import ALIGNMENT, empty_aligned
from autosched.runtime.names import known_name
from autosched.runtime.params import load_param_dict
from autosched.runtime.program import Program
from autosched.runtime.timing import BenchmarkResult, measure
from autosched.target import choose_threads

_FUNCTIONS = (
    *("set_input", "set_input_zero_copy", "set_output_zero_copy", "run", "run_from_inputs", "get_output", "get_input"),
    *("get_num_inputs", "get_num_outputs", "get_input_index", "get_input_info", "load_params", "share_params"),
)


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Seconds that one node takes in a run."""

    node: Node
    seconds: float


class GraphExecutor:
    """A model's arena, inputs and outputs, and its program.

    Its inputs are the graph's, then the constants, which count as parameters that are loaded already.
    threads  most threads to run on; None: as many as the machine, the container and the environment allow
    """

    type_key = "GraphExecutor"

    def __init__(self, executable: Executable, device: Device | None = None, *, threads: int | None = None):
        self.device = device or cpu()
        if self.device.device_type != CPU:
            raise TVMError(f"this model was built for cpu devices and cannot run on {self.device}")
        self.executable = executable
        graph = self._graph = executable.graph
        self.threads = choose_threads(threads)
        self.program = Program(graph, executable.kernels, executable.constants, executable.native, self.threads)
        constants = [number for number, value in enumerate(graph.values) if value.storage.kind == "const"]
        self._args = [*graph.inputs, *(number for number in constants if number not in graph.inputs)]
        self._index = {graph.values[number].name: index for index, number in reversed(list(enumerate(self._args)))}
        self._replaced: set[int] = set()  # constants that `set_input` gave another value
        self._param_names = {graph.values[number].name for number in constants}
        for number, value in enumerate(graph.values):
            if value.storage.kind in ("input", "output"):
                memory = empty_aligned(value.shape, value.dtype)
                memory.fill(0)
                self.program.place(number, memory)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in _FUNCTIONS:
            raise NameNotFoundError(f"graph executor has no function '{name}'", hint=f"it has {', '.join(_FUNCTIONS)}")
        if name == "set_input":
            return self._set_known_input
        function: Callable[..., Any] = getattr(self, name)
        return function

    get_function = __getitem__

    # Inputs

    def _position(self, key: int | str) -> int:
        if isinstance(key, str):
            key = known_name(key, self._index)
            if key not in self._index:
                names = ", ".join(value.name for value in self.executable.inputs)
                raise TVMError(f"could not find '{key}' in graph's inputs", hint=f"inputs are {names}")
            return self._index[key]
        if not 0 <= key < len(self._args):
            raise IndexOutOfRangeError(f"input {key} of {len(self._args)}")
        return key

    def set_input(self, key: int | str, value: Any) -> None:
        """Copy a value into an input, converting its dtype.

        Raises TVMError (RuntimeError) on an unknown name, IndexOutOfRangeError, ShapeError (ValueError).
        """
        number = self._args[self._position(key)]
        spec = self._graph.values[number]
        memory = self.program.view(number)
        if spec.storage.kind == "const" and number not in self._replaced:
            memory = empty_aligned(spec.shape, spec.dtype)  # the constant itself is shared with other executors
        try:
            NDArray(memory).copyfrom(value)
        except ShapeError as error:
            raise ShapeError(error.message, where=f"input '{spec.name}'") from None
        if spec.storage.kind == "const" and number not in self._replaced:
            self.program.place(number, memory)
            self._replaced.add(number)

    def _set_known_input(self, key: int | str, value: Any) -> None:
        if not (isinstance(key, str) and known_name(key, self._index) not in self._index):
            self.set_input(key, value)

    def set_input_zero_copy(self, key: int | str, value: NDArray | np.ndarray) -> None:
        """Let an input live in the given array from now on."""
        self._place(self._args[self._position(key)], value)

    def set_output_zero_copy(self, key: int | str, value: NDArray | np.ndarray) -> None:
        """Let an output be written into the given array from now on."""
        names = [output.name for output in self.executable.outputs]
        if isinstance(key, str) and key not in names:
            raise TVMError(f"could not find '{key}' in graph's outputs", hint=f"outputs are {', '.join(names)}")
        number = self._output(names.index(key) if isinstance(key, str) else key)
        if self._graph.values[self._graph.root(number)].storage.kind not in ("arena", "output"):
            raise InvalidValueError(f"output {key} is an input or a constant and has no memory of its own")
        self._place(number, value)

    def _place(self, number: int, value: NDArray | np.ndarray) -> None:
        spec, data = self._graph.values[number], value.view() if isinstance(value, NDArray) else value
        where = f"zero copy of '{spec.name}'"
        if not isinstance(data, np.ndarray):
            raise InvalidTypeError(f"{type(value).__name__} is no array", where=where)
        if data.shape != spec.shape:
            raise ShapeError(f"shape {list(data.shape)} instead of {list(spec.shape)}", where=where)
        if str(data.dtype) != spec.dtype:
            raise InvalidTypeError(f"dtype {data.dtype} instead of {spec.dtype}", where=where)
        if data.ctypes.data % ALIGNMENT or not data.flags.c_contiguous:
            raise InvalidValueError(f"the array is not row-major or not aligned to {ALIGNMENT} bytes", where=where)
        with self.program.lock:
            self.program.place(self._graph.root(number), data)

    def get_input(self, key: int | str, out: NDArray | None = None) -> NDArray | None:
        """Give an input's own array, or copy it into `out`; an unknown name gives None."""
        if isinstance(key, str) and known_name(key, self._index) not in self._index:
            return None
        found = NDArray(self.program.view(self._args[self._position(key)]), self.device)
        return found if out is None else out.copyfrom(found)

    def get_num_inputs(self) -> int:
        """Count the inputs, parameters included."""
        return len(self._args)

    def get_input_index(self, name: str) -> int:
        """Give the position of an input, -1 if there is none of that name."""
        return self._index.get(known_name(name, self._index), -1)

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
        self._param_names |= params.keys()

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
        self.program.run(1)

    def run_from_inputs(self, device_type: int, device_id: int, *args: Any) -> list[NDArray]:
        """Copy inputs in (name, value, name, value, …), run, and copy all outputs to a device."""
        if len(args) % 2:
            raise InvalidTypeError("inputs come as name, value, name, value, …")
        for name, value in zip(args[::2], args[1::2]):
            self.set_input(name, value)
        self.run()
        target = Device(device_type, device_id)
        return [array(self.get_output(index), target) for index in range(self.get_num_outputs())]

    def profile(self, number: int = 10) -> list[NodeTime]:
        """Give each node's seconds, the mean of `number` runs after one that is not timed."""
        self.program.run(1)
        return [
            NodeTime(node, float(seconds)) for node, seconds in zip(self._graph.nodes, self.program.profile(number))
        ]

    # Outputs

    def _output(self, index: int) -> int:
        if not 0 <= index < len(self._graph.outputs):
            raise IndexOutOfRangeError(f"output {index} of {len(self._graph.outputs)}")
        return self._graph.outputs[index]

    def get_num_outputs(self) -> int:
        """Count the outputs."""
        return len(self._graph.outputs)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Give an output's own array, which the next run overwrites, or copy it into `out`."""
        found = NDArray(self.program.view(self._output(index)), self.device)
        return found if out is None else out.copyfrom(found)

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """Give a function that times one of this executor's functions on its arguments; see `timing.measure`."""
        if func_name == "run":
            return lambda: measure(self.program.run, **options)
        function = self[func_name]

        def evaluate(*args: Any) -> BenchmarkResult:
            def run(number: int) -> None:
                for _ in range(number):
                    function(*args)

            return measure(run, **options)

        return evaluate


class GraphModule:
    """TVM's graph executor: `set_input`, `run`, `get_output`, …

    module   an Executable, which gets memory of its own, or a GraphExecutor, such as `lib["default"](device)` gives
    threads  most threads to run on, for an Executable
    """

    def __init__(self, module: Executable | GraphExecutor, device: Device | None = None, *, threads: int | None = None):
        if isinstance(module, Executable):
            module = module.create_executor(device, threads)
        if not isinstance(module, GraphExecutor):
            raise InvalidTypeError(f"GraphModule takes an Executable, not {type(module).__name__}")
        self.module = module

    def set_input(self, key: int | str | None = None, value: Any = None, **params: Any) -> None:
        """Set an input by position or name; keywords that name no input are ignored.

        Raises TVMError (RuntimeError) on an unknown `key`, ShapeError (ValueError) on another shape.
        """
        if key is not None:
            self.module.set_input(key, value)
        for name in sorted(params, key=lambda name: -int(np.prod(np.shape(params[name])))):
            self.module["set_input"](name, params[name])

    def set_input_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Let an input live in the given array from now on."""
        self.module.set_input_zero_copy(key, value)

    def set_output_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Let an output be written into the given array from now on."""
        self.module.set_output_zero_copy(key, value)

    def run(self, **inputs: Any) -> None:
        """Set the inputs given, then run all nodes in order."""
        if inputs:
            self.set_input(**inputs)
        self.module.run()

    def get_num_outputs(self) -> int:
        """Count the outputs."""
        return self.module.get_num_outputs()

    def get_num_inputs(self) -> int:
        """Count the inputs, parameters included."""
        return self.module.get_num_inputs()

    def get_input(self, index: int | str, out: NDArray | None = None) -> NDArray | None:
        """Give an input's own array, or copy it into `out`; an unknown name gives None."""
        return self.module.get_input(index, out)

    def get_input_index(self, name: str) -> int:
        """Give the position of an input, -1 if there is none of that name."""
        return self.module.get_input_index(name)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Give shapes and dtypes by name of the inputs that are not parameters."""
        return self.module.get_input_info()

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Give an output's own array, which the next run overwrites, or copy it into `out`."""
        return self.module.get_output(index, out)

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Copy the arrays of a parameter file into the inputs of their names."""
        self.module.load_params(params_bytes)

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Use another graph module's arrays for the inputs that a parameter file names."""
        self.module.share_params(other.module, params_bytes)

    def debug_get_output(self, node: int | str, out: NDArray) -> None:
        """Only the debug executor gives inner values."""
        raise NotImplementedError("use the debug executor")

    def profile(self, number: int = 10) -> list[NodeTime]:
        """Give each node's seconds, the mean of `number` runs."""
        return self.module.profile(number)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.module[name]

    def benchmark(
        self,
        device: Device | None = None,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **inputs: Any,
    ) -> BenchmarkResult:
        """Time runs; the rules are `timing.measure`'s.

        end_to_end  time copying the inputs in and all outputs out as well; then cooldown and func_name do not count
        inputs      set before; with end_to_end an unknown name is an error, else it is ignored
        """
        common: dict[str, Any] = {
            "repeat": repeat,
            "number": number,
            "min_repeat_ms": min_repeat_ms or 0,
            "limit_zero_time_iterations": limit_zero_time_iterations,
        }
        if end_to_end:
            where = device or self.module.device
            pairs = [part for pair in inputs.items() for part in pair]
            evaluate = self.module.time_evaluator("run_from_inputs", where, **common)
            return evaluate(where.device_type, where.device_id, *pairs)
        self.set_input(**inputs)
        cooldown: dict[str, Any] = {
            "cooldown_interval_ms": cooldown_interval_ms,
            "repeats_to_cooldown": repeats_to_cooldown,
        }
        return self.module.time_evaluator(func_name, device, **common, **cooldown)()
