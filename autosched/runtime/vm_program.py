"""`Program`: functions with branches, calls and tuples over built graphs; the VM's code and its interpreter.

Straight parts of a function are built models (segments), which run as fast as any; the instructions between them say
what is called with what.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, NameNotFoundError, ShapeError, TVMError
from autosched.json_types import Json
from autosched.runtime.array import NDArray, array, as_numpy, empty
from autosched.runtime.artifact_check import check_read_graph, check_tensor
from autosched.runtime.backends import default_device
from autosched.runtime.device import Device
from autosched.runtime.executable import Executable
from autosched.runtime.graph import Graph
from autosched.runtime.kernel import Kernel, check_count
from autosched.runtime.memory import machine_bytes
from autosched.runtime.module import Module
from autosched.runtime.params import load_param_dict, save_param_dict
from autosched.runtime.registry import get_global_func

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value

_MOST_REGISTERS = 1 << 24
_MAGIC = b"ASVM\x01\0\0\0"
MOST_CALLS = 5000  # functions inside of each other


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: `shape` and `dtype` of a tensor, None where any value goes; `fields` of a tuple."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    fields: tuple[Param, ...] | None = None

    def __str__(self) -> str:
        if self.fields is not None:
            return f"{self.name}: Tuple({', '.join(str(f).partition(': ')[2] for f in self.fields)})"
        if self.shape is None:
            return f"{self.name}: Object"
        return f"{self.name}: Tensor({list(self.shape)}, {self.dtype})"

    def to_json(self) -> list[Json]:
        """The parameter as JSON values."""
        fields = None if self.fields is None else [f.to_json() for f in self.fields]
        return [self.name, None if self.shape is None else list(self.shape), self.dtype, fields]

    @staticmethod
    def from_json(entry: Sequence[Json]) -> Param:
        """Read what `to_json` gave."""
        name, shape, dtype, fields = entry
        inner = None if fields is None else tuple(map(Param.from_json, fields))
        return Param(str(name), None if shape is None else tuple(map(int, shape)), dtype, inner)


# Instructions are lists, so that they are JSON as they stand; registers are numbers, parameters the first of them:
#   ["run", segment, [arguments], [results]]    ["call", result, function, [arguments]]
#   ["tail", function, [arguments]]             (a call whose result is that of the function itself: nothing follows)
#   ["tuple", result, [fields]]                 ["item", result, tuple, index]
#   ["const", result, constant]                 ["move", result, source]
#   ["if", condition, [instructions], [instructions]]                    ["value", result, number, text or shape]
#   ["check", register, name, shape, dtype]
#   ["packed", result, registered function, [arguments]]
#   ["packed_dps", [results], [[shape, dtype]], registered function, [arguments]]
Instruction: TypeAlias = list[Json]  # an operation and its operands


@dataclass(frozen=True, slots=True)
class VMFunction:
    """A function of the VM: parameters in the first registers, instructions, and the register of the result."""

    name: str
    params: tuple[Param, ...]
    n_registers: int
    code: tuple[Instruction, ...]
    result: int

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        return f"{self.name}({', '.join(map(str, self.params))})"


@dataclass(frozen=True)
class Program:
    """Functions, the segments that they run, and their constants."""

    functions: Mapping[str, VMFunction]
    segments: tuple[Executable, ...]
    constants: tuple[np.ndarray, ...] = ()
    manifest: Mapping[str, Json] = field(default_factory=dict)

    def function(self, name: str) -> VMFunction:
        """A function by name. Raises NameNotFoundError (AttributeError) naming those that there are."""
        if name not in self.functions:
            raise NameNotFoundError(f"no function '{name}'", hint=f"there are {', '.join(self.functions)}")
        return self.functions[name]

    def call(self, name: str, args: Sequence[object]) -> Value:
        """Run a function on values: arrays, tuples of them. Gives a fresh array or a nested tuple.

        Raises InvalidTypeError (TypeError) on a wrong count, dtype or kind, ShapeError (ValueError) on a wrong shape.
        """
        function = self.function(name)
        if len(args) != len(function.params):
            raise InvalidTypeError(f"{len(args)} arguments instead of {len(function.params)}", where=function.signature)
        values = [check(value, param, function) for value, param in zip(args, function.params, strict=True)]
        return _run(self, function, values)

    # As bytes

    def kernels(self) -> Iterator[tuple[str, Kernel]]:
        """All kernels under names that are theirs alone."""
        for number, segment in enumerate(self.segments):
            for key, kernel in segment.kernels.items():
                yield f"{number}.{key}", kernel

    def places(self) -> set[Device]:
        """The devices that the kernels run on."""
        return {default_device(kernel.backend) for _, kernel in self.kernels()}

    def library(self) -> Module:
        """The machine code, as a module."""
        native = self.segments[0].native if self.segments else b""
        return Module(dict(self.kernels()), native, functions={}, only_functions=True, manifest=dict(self.manifest))

    def to_bytes(self) -> bytes:
        """Everything but the machine code, and the constants that the manifest calls late: those come from a file."""
        segments = []
        arrays: dict[str, np.ndarray] = {f"c{i}": constant for i, constant in enumerate(self.constants)}
        for number, segment in enumerate(self.segments):
            entry = {
                "graph": segment.graph.to_manifest(), "kernels": list(segment.kernels),
                "params": list(segment.param_names), "n_constants": len(segment.constants),
            }  # fmt: skip
            segments.append(entry)
            arrays |= {f"s{number}.{i}": constant for i, constant in enumerate(segment.constants)}
        left_out = {name: arrays.pop(name) for name in self.manifest.get("late", ())}
        late = {name: [list(array.shape), str(array.dtype)] for name, array in left_out.items()}
        functions = [
            [f.name, [p.to_json() for p in f.params], f.n_registers, list(f.code), f.result]
            for f in self.functions.values()
        ]
        text = json.dumps(
            {"functions": functions, "segments": segments, "n_constants": len(self.constants),
             "manifest": dict(self.manifest), "late": late}
        ).encode()  # fmt: skip
        return _MAGIC + struct.pack("<Q", len(text)) + text + save_param_dict(arrays)

    @staticmethod
    def from_bytes(data: bytes, lib: Module | None) -> Program:
        """Put together what `to_bytes` and `library` gave. Raises ArtifactError where they do not fit."""
        if not data.startswith(_MAGIC):
            raise ArtifactError("the bytes are no VM program")
        try:
            (size,) = struct.unpack_from("<Q", data, len(_MAGIC))
            start = len(_MAGIC) + 8
            content = json.loads(data[start : start + size])
            arrays = {name: value.view() for name, value in load_param_dict(data[start + size :]).items()}
            arrays |= _late_arrays(content.get("late", {}))
            kernels = {} if lib is None else lib.kernels
            segments = tuple(
                Executable(
                    {key: kernels[f"{number}.{key}"] for key in entry["kernels"]},
                    Graph.from_manifest(entry["graph"]),
                    tuple(arrays[f"s{number}.{i}"] for i in range(entry["n_constants"])),
                    b"" if lib is None else lib.native,
                    params=tuple(entry["params"]),
                )
                for number, entry in enumerate(content["segments"])
            )
            functions = {
                str(name): VMFunction(str(name), tuple(map(Param.from_json, params)), n_registers, tuple(code), result)
                for name, params, n_registers, code, result in content["functions"]
            }
            constants = tuple(arrays[f"c{i}"] for i in range(content["n_constants"]))
            made = Program(functions, segments, constants, dict(content["manifest"]))
            for number, segment in enumerate(segments):
                check_read_graph(f"segment {number}", segment.graph, segment.kernels, segment.constants)
            for function in functions.values():
                _check_function(made, function)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise ArtifactError(f"the VM program is damaged or its library is another's ({error})") from error
        except struct.error as error:
            raise ArtifactError(f"the VM program is damaged ({error})") from error
        return made

    def to_text(self) -> str:
        """The bytes as text, for JSON."""
        return base64.b85encode(self.to_bytes()).decode()

    @staticmethod
    def from_text(text: str, lib: Module | None) -> Program:
        """Put together what `to_text` and `library` gave. Raises ArtifactError where they do not fit."""
        try:
            data = base64.b85decode(text)
        except ValueError as error:
            raise ArtifactError(f"the VM program is damaged ({error})") from error
        return Program.from_bytes(data, lib)


def _late_arrays(late: Mapping[str, Json]) -> dict[str, np.ndarray]:
    """Zeros in the place of constants that come from a file later. Raises ValueError for more than memory holds."""
    size_bytes = 0
    for name, (shape, dtype) in late.items():
        check_tensor(f"constant '{name}'", dtype, shape)
        size_bytes += math.prod(shape) * np.dtype(dtype).itemsize
    if size_bytes > machine_bytes():
        raise ValueError(f"its constants take {size_bytes} bytes")
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in late.items()}


def _check_function(program: Program, function: VMFunction) -> None:
    """See that code read from a file names registers, segments, constants and functions that there are.

    Raises ValueError, and TypeError or IndexError for what is no code at all.
    """

    def are_registers(*numbers: object) -> None:
        check_count(f"number of registers of '{function.name}'", function.n_registers, _MOST_REGISTERS)
        for number in numbers:
            check_count(f"register of '{function.name}'", number, function.n_registers - 1)

    are_registers(function.result)
    if len(function.params) > function.n_registers:
        raise ValueError(f"'{function.name}' has more parameters than registers")

    def check(code: Sequence[Instruction], before: Set[int]) -> Set[int]:
        """The registers that hold something after code, and those before. Raises ValueError for one read too early."""
        written = {*before}

        def are_read(*numbers: int) -> None:
            are_registers(*numbers)
            if early := [number for number in numbers if number not in written]:
                raise ValueError(f"'{function.name}' reads register {early[0]}, in which nothing is")

        for instruction in code:
            results: Sequence[int] = ()
            match instruction:
                case ["run", segment, args, results]:
                    check_count("segment", segment, len(program.segments) - 1)
                    found = program.segments[segment]
                    if (len(args), len(results)) != (len(found.inputs), len(found.outputs)):
                        raise ValueError(f"segment {segment} has other inputs or outputs")
                    are_read(*args)
                case ["call", result, name, args]:
                    if len(args) != len(program.functions[name].params):
                        raise ValueError(f"a call of '{name}' has {len(args)} arguments")
                    are_read(*args)
                    results = (result,)
                case ["tail", name, args]:
                    if len(args) != len(program.functions[name].params):
                        raise ValueError(f"a call of '{name}' has {len(args)} arguments")
                    are_read(*args)
                    return {*range(function.n_registers)}  # nothing is read after it
                case ["tuple", result, fields]:
                    are_read(*fields)
                    results = (result,)
                case ["item", result, source, index]:
                    are_read(source)
                    check_count("item", index)
                    results = (result,)
                case ["const", result, number]:
                    check_count("constant", number, len(program.constants) - 1)
                    results = (result,)
                case ["move", result, source]:
                    are_read(source)
                    results = (result,)
                case ["if", condition, list() as then, list() as otherwise]:
                    are_read(condition)
                    written |= check(then, written) & check(otherwise, written)
                case ["check", register, str(), list() as shape, str()]:
                    are_read(register)
                    tuple(map(int, shape))
                case ["value", result, int() | float() | str() | list() | None]:
                    results = (result,)
                case ["packed", result, str(), args]:
                    are_read(*args)
                    results = (result,)
                case ["packed_dps", results, outs, str(), args]:
                    are_read(*args)
                    if len(outs) != len(results):
                        raise ValueError("a call has other results")
                    for shape, dtype in outs:
                        check_tensor("a result", dtype, shape)
                case _:
                    raise ValueError(f"unknown instruction {str(instruction)[:80]}")
            are_registers(*results)
            written.update(results)
        return written

    if function.result not in check(function.code, {*range(len(function.params))}):
        raise ValueError(f"'{function.name}' gives register {function.result}, in which nothing is")


class _Frame:
    """A function that is being run: its registers, and what is left of its code and of the branches that it is in."""

    __slots__ = ("args", "function", "registers", "result", "todo")

    def __init__(self, function: VMFunction, args: Sequence[object], result: int):
        self.function, self.args, self.result = function, args, result  # result: the caller's register
        self.registers: list[Value] = [*args, *[None] * (function.n_registers - len(args))]
        self.todo: list[Iterator[Instruction]] = [iter(function.code)]


def _run(program: Program, function: VMFunction, args: Sequence[object]) -> object:
    """Run a function, with a stack of its own: however deep functions call each other, Python's is not used up.

    Raises TVMError for more than `MOST_CALLS` calls inside of each other.
    """
    frames = [_Frame(function, args, 0)]
    while True:
        frame = frames[-1]
        instruction = next(frame.todo[-1], None)
        if instruction is not None:
            if (callee := _step(program, frame, instruction)) is not None:
                if instruction[0] == "tail":
                    frames.pop()
                frames.append(callee)
                if len(frames) > MOST_CALLS + 1:
                    raise TVMError(
                        f"more than {MOST_CALLS} calls inside of each other", where=callee.function.signature
                    )
            continue
        frame.todo.pop()
        if frame.todo:
            continue
        result = _fresh(frame.registers[frame.function.result], frame.args)
        frames.pop()
        if not frames:
            return result
        frames[-1].registers[frame.result] = result


def _step(program: Program, frame: _Frame, instruction: Instruction) -> _Frame | None:
    """Run one instruction; of a call give the frame that is to be run next."""
    registers = frame.registers
    match instruction:
        case ["run", segment, args, results]:
            found = program.segments[segment](*(registers[r] for r in args))
            values = found if isinstance(found, tuple) else (found,)
            for register, value in zip(results, values, strict=True):
                registers[register] = value
        case ["call", result, name, args]:
            return _Frame(program.function(name), [registers[r] for r in args], result)
        case ["tail", name, args]:
            return _Frame(program.function(name), [registers[r] for r in args], frame.result)
        case ["tuple", result, fields]:
            registers[result] = tuple(registers[r] for r in fields)
        case ["item", result, source, index]:
            value = registers[source]
            if not isinstance(value, tuple) or index >= len(value):
                raise InvalidTypeError(f"there is no field {index} in a {type(value).__name__}")
            registers[result] = value[index]
        case ["const", result, number]:
            registers[result] = array(program.constants[number])
        case ["move", result, source]:
            registers[result] = registers[source]
        case ["if", condition, then, otherwise]:
            frame.todo.append(iter(then if _truth(registers[condition]) else otherwise))
        case ["check", register, name, shape, dtype]:
            _match(registers[register], name, tuple(shape), dtype)
        case ["value", result, value]:
            registers[result] = tuple(value) if isinstance(value, list) else value
        case ["packed", result, name, args]:
            registers[result] = _value(_registered(name)(*(registers[r] for r in args)))
        case ["packed_dps", results, outs, name, args]:
            made = [empty(tuple(shape), dtype) for shape, dtype in outs]
            _registered(name)(*(registers[r] for r in args), *made)
            for register, out in zip(results, made, strict=True):
                registers[register] = out
        case _:
            raise ArtifactError(f"unknown VM instruction {instruction!r}")
    return None


def _truth(value: object) -> bool:
    """The value of a condition. Raises InvalidTypeError for what is not one number."""
    found = as_numpy(value, "condition")
    if found.size != 1:
        raise InvalidTypeError(f"condition: an array of shape {list(found.shape)} is not one number")
    return bool(found.item())


def _match(value: object, name: str, shape: tuple[int, ...], dtype: str) -> None:
    """See that a tensor is what match_cast says. Raises as `check`."""
    if not isinstance(value, NDArray):
        raise InvalidTypeError(f"match_cast of '{name}': a {type(value).__name__} is no tensor")
    if dtype and value.dtype != dtype:
        raise InvalidTypeError(f"match_cast of '{name}': dtype {value.dtype} instead of {dtype}")
    if value.shape != shape:
        raise ShapeError(f"match_cast of '{name}': shape {list(value.shape)} instead of {list(shape)}")


def _registered(name: str) -> PackedFunc:
    """A function of the registry. Raises NameNotFoundError (AttributeError) naming it."""
    function = get_global_func(name, allow_missing=True)
    if function is None:
        raise NameNotFoundError(f"no function '{name}' is registered", hint="register it with autosched.register_func")
    return function


def _value(result: Value) -> Value:
    """What a registered function gave, its NumPy arrays and other libraries' tensors as arrays."""
    if isinstance(result, tuple | list):
        return tuple(map(_value, result))
    return array(result) if hasattr(result, "__dlpack__") and not isinstance(result, NDArray) else result


def _fresh(result: object, args: Sequence[object]) -> object:
    """The result, copied where it is one of the arguments."""
    if isinstance(result, tuple):
        return tuple(_fresh(value, args) for value in result)
    given = any(result is arg for arg in _flat(args))
    return array(result) if given and isinstance(result, NDArray) else result


def _flat(values: Value) -> Iterator[object]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flat(value)
        else:
            yield value


def check(value: Value, param: Param, function: VMFunction) -> Value:
    """A value as the parameter takes it. Raises as `Program.call`, naming function, parameter and expected type."""
    what = f"argument '{param.name}'"
    if param.fields is not None:
        if not isinstance(value, tuple | list):
            raise InvalidTypeError(f"{what} is a {type(value).__name__}, no tuple", where=function.signature)
        if len(value) != len(param.fields):
            raise InvalidTypeError(
                f"{what} has {len(value)} fields instead of {len(param.fields)}", where=function.signature
            )
        return tuple(check(v, f, function) for v, f in zip(value, param.fields, strict=True))
    if param.shape is None or param.dtype is None:
        return array(value) if isinstance(value, np.ndarray) else value
    if not isinstance(value, NDArray):
        try:
            value = array(value)
        except InvalidTypeError:
            raise InvalidTypeError(f"{what} is a {type(value).__name__}, no array", where=function.signature) from None
    if value.dtype != param.dtype:
        raise InvalidTypeError(f"{what} has dtype {value.dtype} instead of {param.dtype}", where=function.signature)
    if value.shape != param.shape:
        raise ShapeError(
            f"{what} has shape {list(value.shape)} instead of {list(param.shape)}", where=function.signature
        )
    return value
