"""What graph executors have in common: TVM's functions by name, and inputs and outputs by name or position."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.errors import IndexOutOfRangeError, InvalidTypeError, NameNotFoundError, ShapeError, TVMError
from autosched.runtime.array import NDArray, array
from autosched.runtime.device import Device
from autosched.runtime.names import known_name

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc

FUNCTIONS = (
    *("set_input", "set_input_zero_copy", "run", "run_from_inputs", "get_output", "get_input", "get_num_inputs"),
    *("get_num_outputs", "get_input_index", "get_input_info", "load_params", "share_params"),
)


class ExecutorFunctions(ABC):
    """Functions by name.

    functions  their names
    """

    type_key = "GraphExecutor"
    functions: tuple[str, ...] = FUNCTIONS
    _index: Mapping[str, int]  # the positions of inputs, by name

    def __reduce__(self) -> tuple[object, ...]:
        raise InvalidTypeError("an executor holds memory of this process", hint="pickle its executable")

    def __getitem__(self, name: str) -> PackedFunc:
        if name not in self.functions:
            hint = f"it has {', '.join(self.functions)}"
            raise NameNotFoundError(f"graph executor has no function '{name}'", hint=hint)
        function: PackedFunc = self._set_known_input if name == "set_input" else getattr(self, name)
        return function

    get_function = __getitem__

    @abstractmethod
    def set_input(self, key: int | str, value: object) -> None: ...

    @abstractmethod
    def run(self) -> None: ...

    @abstractmethod
    def get_num_outputs(self) -> int: ...

    @abstractmethod
    def get_output(self, index: int, out: NDArray | None = None) -> NDArray: ...

    def get_input_index(self, name: str) -> int:
        """Give the position of an input, -1 if there is none of that name."""
        return self._index.get(known_name(name, self._index), -1)

    def _set_known_input(self, key: int | str, value: object) -> None:
        if not (isinstance(key, str) and known_name(key, self._index) not in self._index):
            self.set_input(key, value)

    def run_from_inputs(self, device_type: int, device_id: int, *args: Any) -> list[NDArray]:
        """Copy inputs in (name, value, name, value, …), run, and copy all outputs to a device."""
        if len(args) % 2:
            raise InvalidTypeError("inputs come as name, value, name, value, …")
        for name, value in zip(args[::2], args[1::2]):
            self.set_input(name, value)
        self.run()
        target = Device(device_type, device_id)
        return [array(self.get_output(index), target) for index in range(self.get_num_outputs())]


def input_position(key: int | str, index: Mapping[str, int], n: int, names: Sequence[str], action: str) -> int:
    """The position of an input, of which there are n, that is given by name or position.

    names   those that a message lists
    Raises  TVMError (RuntimeError) on an unknown name, InvalidTypeError (TypeError), IndexOutOfRangeError.
    """
    if isinstance(key, str):
        key = known_name(key, index)
        if key not in index:
            raise TVMError(f"{action}: could not find '{key}' in graph's inputs", hint=f"inputs are {', '.join(names)}")
        return index[key]
    if isinstance(key, bool) or not hasattr(key, "__index__"):
        raise InvalidTypeError(f"{action}: an input is known by name or position, not by {type(key).__name__}")
    if not 0 <= key < n:
        raise IndexOutOfRangeError(f"{action}: input {key} of {n}")
    return key


def output_position(index: int, n: int, action: str) -> int:
    """The position of an output, of which there are n. Raises InvalidTypeError (TypeError), IndexOutOfRangeError."""
    if isinstance(index, bool) or not hasattr(index, "__index__"):
        raise InvalidTypeError(f"{action}: an output is known by position, not by {type(index).__name__}")
    if not 0 <= index < n:
        raise IndexOutOfRangeError(f"{action}: output {index} of {n}")
    return index


def copy_into(out: NDArray, found: NDArray, what: str) -> NDArray:
    """Copy an array into a given one and give that. Raises InvalidTypeError (TypeError), ShapeError (ValueError)."""
    if not isinstance(out, NDArray):
        raise InvalidTypeError(f"{what} is copied into an array, not into a {type(out).__name__}")
    if out.shape != found.shape:
        raise ShapeError(f"{what} has shape {list(found.shape)}, the given array {list(out.shape)}")
    return out.copyfrom(found)
