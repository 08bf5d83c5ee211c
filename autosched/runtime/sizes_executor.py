"""The graph executor of a model over open sizes: inputs of any size are set, and outputs are as they ask for."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from autosched.errors import InvalidTypeError, ShapeError, TVMError
from autosched.runtime.array import NDArray, array, as_numpy, empty
from autosched.runtime.backends import check_device, default_device
from autosched.runtime.device import CPU, Device
from autosched.runtime.executor_functions import ExecutorFunctions, copy_into, input_position, output_position
from autosched.runtime.graph_executor import GraphExecutor, Model, NodeTime
from autosched.runtime.names import known_name
from autosched.runtime.params import load_param_dict
from autosched.runtime.timing import BenchmarkResult, MeasureOptions, measure

if TYPE_CHECKING:
    from autosched.runtime.graph_form import GraphForm


class SizesModel(Protocol):
    """What an executor over open sizes runs; `DynamicExecutable` is one."""

    backend: str
    form: GraphForm

    @property
    def input_shapes(self) -> dict[str, str]: ...
    def at(self, shapes: Mapping[str, Sequence[int]]) -> Model: ...
    def create_executor(self, threads: int | None = None, device: Device | None = None) -> Any: ...


class SizesGraphExecutor(ExecutorFunctions):
    """Inputs that are set, and what the last run gave for them. Functions by name as of a GraphExecutor.

    Outputs have no memory of their own: each run gives new arrays. A run before all inputs are set is an error.
    leader   an executor of the same model whose inputs this one reads where it has not set them itself
    """

    def __init__(
        self,
        executable: SizesModel,
        device: Device | None = None,
        *,
        threads: int | None = None,
        leader: SizesGraphExecutor | None = None,
    ):
        self.executable, self.threads, self.form = executable, threads, executable.form
        self.device = default_device(executable.backend) if device is None else device
        check_device(executable.backend, self.device)
        self._executor = executable.create_executor(threads, self.device)
        names = [self.form.values[number].name for number in self.form.inputs]
        self._index = {name: position for position, name in enumerate(names)}
        self._inputs: ChainMap[int, NDArray] = ChainMap({}) if leader is None else leader._inputs.new_child()
        self._outputs: tuple[NDArray, ...] = ()
        self._param_names: set[str] = set() if leader is None else leader._param_names

    def sibling(self) -> SizesGraphExecutor:
        """Make another executor of the model, which has this one's inputs where it has not set its own."""
        return SizesGraphExecutor(self.executable, self.device, threads=self.threads, leader=self)

    def forget_inputs(self) -> None:
        """Let all inputs be the leader's again."""
        self._inputs.maps[0].clear()

    # Inputs

    def _number(self, key: int | str, action: str) -> int:
        return self.form.inputs[input_position(key, self._index, len(self.form.inputs), list(self._index), action)]

    def _check(self, number: int, shape: Sequence[int], what: str) -> None:
        """Raises ShapeError where rank or an extent that is not open differs."""
        wanted = self.form.shapes[number]
        if len(shape) != len(wanted) or any(isinstance(w, int) and w != n for w, n in zip(wanted, shape)):
            name, said = self.form.values[number].name, self.form.describe(number)
            raise ShapeError(f"{what}: array of shape {list(shape)} instead of {said}", where=f"input '{name}'")

    def set_input(self, key: int | str, value: object) -> None:
        """Copy a value of any size into an input, converting its dtype.

        Raises TVMError (RuntimeError) on an unknown name, IndexOutOfRangeError, ShapeError (ValueError).
        """
        number = self._number(key, "set_input")
        spec = self.form.values[number]
        data = value if isinstance(value, NDArray) else as_numpy(value, f"set_input: '{spec.name}'")
        self._check(number, data.shape, "set_input")
        held = self._inputs.maps[0].get(number)
        if held is None or held.shape != data.shape:
            held = empty(data.shape, spec.dtype, self.device)
        self._inputs[number] = held.copyfrom(data)

    def set_input_zero_copy(self, key: int | str, value: NDArray) -> None:
        """Let an input be the given array, of the input's dtype and on its device, from now on."""
        number = self._number(key, "set_input_zero_copy")
        spec, where = self.form.values[number], f"zero copy of '{self.form.values[number].name}'"
        if not isinstance(value, NDArray):
            raise InvalidTypeError(f"{type(value).__name__} is no array", where=where)
        if value.dtype != spec.dtype or value.device != self.device:
            wanted = f"{spec.dtype} on {self.device}"
            raise InvalidTypeError(f"{value.dtype} on {value.device} instead of {wanted}", where=where)
        self._check(number, value.shape, "set_input_zero_copy")
        self._inputs[number] = value

    def get_input(self, key: int | str, out: NDArray | None = None) -> NDArray | None:
        """Give an input's array as it was set, or copy it into `out`; None for an unknown name and for one not set."""
        if isinstance(key, str) and known_name(key, self._index) not in self._index:
            return None
        number = self._number(key, "get_input")
        found = self._inputs.get(number)
        if found is None or out is not None:
            return found if found is None or out is None else copy_into(out, found, f"input {key}")
        if number not in self._inputs.maps[0]:  # what the caller gets may be written
            self._inputs[number] = found = array(found, self.device)
        return found

    def get_num_inputs(self) -> int:
        """Count the inputs."""
        return len(self.form.inputs)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Give shapes, -1 for what is open, and dtypes by name of the inputs that are not parameters."""
        wanted = [n for n in self.form.inputs if self.form.values[n].name not in self._param_names]
        shapes = {n: tuple(e if isinstance(e, int) else -1 for e in self.form.shapes[n]) for n in wanted}
        values = self.form.values
        return {values[n].name: shapes[n] for n in wanted}, {values[n].name: values[n].dtype for n in wanted}

    def load_params(self, data: bytes | bytearray) -> None:
        """Copy the arrays of a parameter file into the inputs of their names; others are ignored."""
        params = load_param_dict(data)
        for name, value in params.items():
            self._set_known_input(name, value)
        self._param_names |= params.keys()

    def share_params(self, other: SizesGraphExecutor, data: bytes | bytearray) -> None:
        """Use another executor's arrays for the inputs that a parameter file names."""
        names = load_param_dict(data).keys()
        for name in names & self._index.keys():
            if (found := other.get_input(name)) is not None:
                self.set_input_zero_copy(name, found)
        self._param_names |= names

    # Running

    def _given(self) -> dict[int, NDArray]:
        """All inputs by value. Raises TVMError where one is not set."""
        if missing := [n for n in self.form.inputs if n not in self._inputs]:
            listed = ", ".join(f"{name}: {shape}" for name, shape in self.executable.input_shapes.items())
            raise TVMError(f"input '{self.form.values[missing[0]].name}' is not set", hint=f"inputs are {listed}")
        return {number: self._inputs[number] for number in self.form.inputs}

    def run(self) -> None:
        """Run at the sizes of the inputs. Raises ShapeError where these do not fit together."""
        given: Any = self._given()
        if self.device.device_type == CPU:
            given = {number: value.view() for number, value in given.items()}
        self._outputs = self._executor.run(given)

    def profile(self, number: int = 10) -> list[NodeTime]:
        """Give each node's seconds at the sizes of the inputs, the mean of `number` runs."""
        given = {self.form.values[n].name: value for n, value in self._given().items()}
        model = self.executable.at({name: value.shape for name, value in given.items()})
        executor = GraphExecutor(model, self.device, threads=self.threads)
        for name, value in given.items():
            executor.set_input(name, value)
        return executor.profile(number)

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: Unpack[MeasureOptions]
    ) -> Callable[..., BenchmarkResult]:
        """Give a function that times one of this executor's functions on its arguments; see `timing.measure`."""
        function = self.run if func_name == "run" else self[func_name]

        def evaluate(*args: object) -> BenchmarkResult:
            def run(number: int) -> None:
                for _ in range(number):
                    function(*args)
                self.device.sync()

            return measure(run, **options)

        return evaluate

    # Outputs

    def get_num_outputs(self) -> int:
        """Count the outputs."""
        return len(self.form.outputs)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Give an output of the last run, or copy it into `out`. Raises TVMError before the first run."""
        index = output_position(index, len(self.form.outputs), "get_output")
        if not self._outputs:
            raise TVMError("get_output: there is none before a run, whose inputs say how large it is")
        found = self._outputs[index]
        return found if out is None else copy_into(out, found, f"output {index}")
