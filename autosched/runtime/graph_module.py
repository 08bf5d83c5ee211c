"""`GraphModule`: TVM's graph executor, over whatever has the functions "set_input", "run", "get_output", …"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import InvalidTypeError, InvalidValueError, TVMError
from autosched.runtime.array import NDArray
from autosched.runtime.device import RPC_SESS_MASK, Device
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable
from autosched.runtime.executor_pool import Seat, ThreadExecutors
from autosched.runtime.graph_executor import GraphExecutor, NodeTime
from autosched.runtime.graph_json import read_graph
from autosched.runtime.module import Module
from autosched.runtime.sizes_executor import SizesGraphExecutor
from autosched.runtime.timing import BenchmarkResult, MeasureOptions

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc

_NEEDED = (
    *("set_input", "run", "get_output", "get_input", "get_num_outputs", "get_input_index", "get_input_info"),
    *("get_num_inputs", "load_params", "share_params"),
)
_SETTERS = (
    *("set_input", "set_input_zero_copy", "set_output_zero_copy", "run_from_inputs", "get_input", "load_params"),
    "share_params",
)


def create(graph_json_str: str, libmod: Module | Executable, device: Device | Sequence[Device]) -> GraphModule:
    """Make the executor of a graph in TVM's JSON over a library's functions.

    device   the first one is where everything runs that the graph does not place elsewhere
    Raises   AssertionError if the graph is no text, ValueError on a wrong graph, function or device.
    """
    assert isinstance(graph_json_str, str), f"the graph is JSON text, not {type(graph_json_str).__name__}"
    devices, n_rpc, _ = get_device(libmod, device)
    if n_rpc:  # a library of the devices' session, as `get_device` has seen
        remote: Any = libmod
        return GraphModule(remote.create_executor_of(graph_json_str, devices))
    library = libmod.get_lib() if isinstance(libmod, Executable) else libmod
    return GraphModule(GraphExecutor(Executable(*read_graph(graph_json_str, library)), devices[0]))


def get_device(libmod: object, device: object) -> tuple[list[Device], int, list[int]]:
    """(devices, number of remote ones, [type 0, number 0, type 1, number 1, …]) of one device or several.

    Raises ValueError for what is no device and for a mixture of local and remote ones.
    """
    if isinstance(device, Device):
        devices = [device]
    elif isinstance(device, list | tuple):
        devices = list(device)
        for found in devices:
            if not isinstance(found, Device):
                raise InvalidValueError(f"expected a device or a list of them, got a {type(found).__name__} inside")
    else:
        raise InvalidValueError(f"expected a device or a list of them, got {type(device).__name__}")
    if not devices:
        raise InvalidValueError("at least one device is needed")
    n_rpc, codes = 0, []
    for found in devices:
        code = found.device_type
        if code >= RPC_SESS_MASK:
            assert getattr(libmod, "type_key", "") == "rpc", "remote devices need a library of the same session"
            session = getattr(libmod, "session_index", None)
            assert session is None or session() == code // RPC_SESS_MASK - 1, "library and device are of two sessions"
            n_rpc, code = n_rpc + 1, code % RPC_SESS_MASK
        codes += [code, found.device_id]
    if 0 < n_rpc < len(devices):
        raise InvalidValueError("either all or no devices are remote")
    return devices, n_rpc, codes


class GraphModule:
    """TVM's graph executor: `set_input`, `run`, `get_output`, …

    module   what `lib["default"](device)` or `create` gives, or anything with its functions by name; an Executable
             gets memory of its own. Inputs of a model over open sizes are of any size, and each run gives new outputs
    threads  most threads to run on, for an Executable

    Several threads may use it at once, each for requests of its own: a thread that sets inputs gets an executor with
    memory of its own, in which it runs and from which it reads outputs. Inputs that a thread has not set are those of
    the first thread, so weights are set once for all.
    """

    _executor_per_thread = True

    def __init__(self, module: Any, device: Device | None = None, *, threads: int | None = None):
        if isinstance(module, Executable):
            module = module.create_executor(device, threads)
        elif isinstance(module, DynamicExecutable):
            module = SizesGraphExecutor(module, device, threads=threads)
        self.module = module
        self._threads: ThreadExecutors | None = None
        try:
            self._seat = Seat(module, _NEEDED)
        except TypeError:
            is_open = hasattr(module, "check_inputs") or hasattr(module, "values_of")
            hint = "call it itself: it takes inputs of any size" if is_open else 'use lib["default"](device)'
            raise InvalidTypeError(
                f"GraphModule takes an executor of one size, not {type(module).__name__}", hint=hint
            ) from None
        if self._executor_per_thread and type(module) in (GraphExecutor, SizesGraphExecutor):
            self._threads = ThreadExecutors(module, _NEEDED)

    def __reduce__(self) -> tuple[object, ...]:
        raise InvalidTypeError("a graph module holds memory of this process", hint="pickle its executable")

    def _to_set(self) -> Seat:
        return self._seat if self._threads is None else self._threads.to_set()

    def _to_use(self) -> Seat:
        return self._seat if self._threads is None else self._threads.to_use()

    def set_input(self, key: int | str | None = None, value: object = None, **params: Any) -> None:
        """Set an input by position or name; keywords that name no input are ignored.

        Raises TVMError (RuntimeError) on an unknown `key`, ShapeError (ValueError) on another shape.
        """
        functions = self._to_set().functions
        set_input = functions["set_input"]
        if key is not None:
            if isinstance(key, str) and functions["get_input_index"](key) < 0:
                names = ", ".join(functions["get_input_info"]()[0])
                raise TVMError(f"set_input: could not find '{key}' in graph's inputs", hint=f"inputs are {names}")
            set_input(key, value)
        # the largest first, which is best where a device's memory is about to run short
        for name in sorted(params, key=lambda name: -int(np.prod(np.shape(params[name])))):
            set_input(name, params[name])

    def set_input_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Let an input live in the given array from now on."""
        self._to_set().executor["set_input_zero_copy"](key, value)

    def set_output_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Let an output be written into the given array from now on."""
        self._to_set().executor["set_output_zero_copy"](key, value)

    def run(self, **input_dict: Any) -> None:
        """Set the inputs given, then run all nodes in order."""
        if input_dict:
            self.set_input(**input_dict)
        self._to_use().functions["run"]()

    def get_num_outputs(self) -> int:
        """Count the outputs."""
        return int(self._seat.functions["get_num_outputs"]())

    def get_num_inputs(self) -> int:
        """Count the inputs, parameters included."""
        return int(self._seat.functions["get_num_inputs"]())

    def get_input(self, index: int | str, out: NDArray | None = None) -> NDArray | None:
        """Give an input's own array, which may be written, or copy it into `out`; an unknown name gives None."""
        if out is not None:
            copied: NDArray | None = self._to_use().functions["get_input"](index, out)
            return copied
        found: NDArray | None = self._to_set().functions["get_input"](index)
        return found

    def get_input_index(self, name: str) -> int:
        """Give the position of an input, -1 if there is none of that name."""
        return int(self._seat.functions["get_input_index"](name))

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Give shapes and dtypes by name of the inputs that are not parameters."""
        shapes, dtypes = self._seat.functions["get_input_info"]()
        return dict(shapes), dict(dtypes)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Give an output's own array, which this thread's next run overwrites, or copy it into `out`."""
        get_output = self._to_use().functions["get_output"]
        found: NDArray = get_output(index) if out is None else get_output(index, out)
        return found

    def debug_get_output(self, node: int | str, out: NDArray) -> None:
        """Only the debug executor gives inner values."""
        raise NotImplementedError("use the debug executor: contrib.debugger.debug_executor")

    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Copy the arrays of a parameter file into the inputs of their names."""
        if not isinstance(params_bytes, bytes | bytearray):
            raise InvalidTypeError(f"load_params: parameters are bytes, not {type(params_bytes).__name__}")
        self._to_set().functions["load_params"](bytes(params_bytes))

    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Use another graph module's arrays for the inputs that a parameter file names."""
        if not isinstance(other, GraphModule):
            raise InvalidTypeError(f"share_params takes a GraphModule, not {type(other).__name__}")
        self._to_set().functions["share_params"](other.module, bytes(params_bytes))

    def profile(self, number: int = 10) -> list[NodeTime]:
        """Give each node's seconds, the mean of `number` runs."""
        times: list[NodeTime] = self._to_use().executor.profile(number)
        return times

    def __getitem__(self, key: str) -> PackedFunc:
        function: PackedFunc = self.module[key]
        if self._threads is None:
            return function
        find = self._to_set if key in _SETTERS else self._to_use
        return lambda *args, **kwargs: find().executor[key](*args, **kwargs)

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
        common: MeasureOptions = {
            "repeat": repeat,
            "number": number,
            "min_repeat_ms": min_repeat_ms or 0,
            "limit_zero_time_iterations": limit_zero_time_iterations,
        }
        evaluate: Callable[..., BenchmarkResult]
        if device is not None and not isinstance(device, Device):
            raise InvalidTypeError(f"benchmark: argument 'device' is a {type(device).__name__}, not a Device")
        if end_to_end:
            where = device or self.module.device
            pairs = [part for pair in inputs.items() for part in pair]
            evaluate = self._to_set().executor.time_evaluator("run_from_inputs", where, **common)
            return evaluate(where.device_type, where.device_id, *pairs)
        if inputs:
            self.set_input(**inputs)
        common |= {"cooldown_interval_ms": cooldown_interval_ms, "repeats_to_cooldown": repeats_to_cooldown}
        evaluate = self._to_use().executor.time_evaluator(func_name, device, **common)
        return evaluate()
