"""`Program`: functions with branches, calls and tuples over built graphs; the VM's code and its interpreter.

Straight parts of a function are built models (segments), which run as fast as any; the instructions between them say
what is called with what.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autosched.errors import ArtifactError, InvalidTypeError, NameNotFoundError, ShapeError, TVMError
from autosched.json_types import Json
from autosched.runtime.array import NDArray, array, as_numpy, empty
from autosched.runtime.artifact import Contents
from autosched.runtime.artifact_check import check_read_graph, check_tensor
from autosched.runtime.backends import default_device
from autosched.runtime.device import Device
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable
from autosched.runtime.graph import Graph
from autosched.runtime.graph_form import SizeRange
from autosched.runtime.kernel import Kernel, check_count
from autosched.runtime.memory import machine_bytes
from autosched.runtime.module import Module
from autosched.runtime.params import load_param_dict, save_param_dict
from autosched.runtime.registry import get_global_func
from autosched.runtime.size_expr import (
    Shape,
    Size,
    read_shape,
    read_size,
    shape_at,
    show_shape,
    size_at,
    solve_sizes,
    symbols_of,
)

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value

Segment: TypeAlias = Executable | DynamicExecutable
SHAPE = "shape"  # where a tensor has its dtype
_FUNCTIONS = "functions"  # of the manifest: what kernels are built again from; the library has it
_MOST_REGISTERS = 1 << 24
_MAGIC = b"ASVM\x01\0\0\0"
MOST_CALLS = 5000  # functions inside of each other


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: `shape` and `dtype` of a tensor, None where any value goes; `fields` of a tuple.

    sizes  of a shape, or of a number the one that it is
    """

    name: str
    shape: Shape | None = None
    dtype: str | None = None
    fields: tuple[Param, ...] | None = None
    sizes: Shape | None = None

    def __str__(self) -> str:
        if self.fields is not None:
            return f"{self.name}: Tuple({', '.join(str(f).partition(': ')[2] for f in self.fields)})"
        if self.sizes is not None:
            return f"{self.name}: Shape({show_shape(self.sizes)})"
        if self.shape is None:
            return f"{self.name}: Object"
        return f"{self.name}: Tensor({show_shape(self.shape)}, {self.dtype})"

    @property
    def symbols(self) -> Set[str]:
        """The symbols of which it says what they are."""
        own = (*(self.shape or ()), *(self.sizes or ()))
        return frozenset[str]().union(*map(symbols_of, own), *(field.symbols for field in self.fields or ()))

    def given(self, value: Value) -> Iterator[tuple[str, Shape, Sequence[int]]]:
        """The shapes that a value gives, as `solve_sizes` takes them. Raises InvalidTypeError for another kind."""
        what = f"argument '{self.name}'"
        if self.fields is not None and isinstance(value, tuple):
            for field, own in zip(self.fields, value, strict=False):
                yield from field.given(own)
        elif self.shape is not None:
            yield what, self.shape, value.shape
        elif self.sizes is not None:
            yield what, self.sizes, _extents(value, what)

    def to_json(self) -> list[Json]:
        """The parameter as JSON values."""
        fields = None if self.fields is None else [f.to_json() for f in self.fields]
        kinds = [None if shape is None else list(shape) for shape in (self.shape, self.sizes)]
        return [self.name, kinds[0], self.dtype, fields, kinds[1]]

    @staticmethod
    def from_json(entry: Sequence[Json], names: Collection[str] = ()) -> Param:
        """Read what `to_json` gave, with the symbols of its function."""
        name, shape, dtype, fields, *sizes = entry  # files of before have no sizes
        inner = None if fields is None else tuple(Param.from_json(field, names) for field in fields)
        kinds = [None if kind is None else read_shape(kind, names) for kind in (shape, *(sizes or [None]))]
        return Param(str(name), kinds[0], dtype, inner, kinds[1])


# Extents of shapes may be expressions of the function's symbols (`runtime.size_expr`), which have values in each call.
# Instructions are lists, so that they are JSON as they stand; registers are numbers, parameters the first of them:
#   ["run", segment, [arguments], [results]]    ["call", result, function, [arguments]]
#   ["tail", function, [arguments]]             (a call whose result is that of the function itself: nothing follows)
#   ["tuple", result, [fields]]                 ["item", result, tuple, index]
#   ["const", result, constant]                 ["move", result, source]
#   ["if", condition, [instructions], [instructions]]                    ["value", result, number, text or shape]
#   ["check", register, name, shape, dtype]     (of a tensor, or with the dtype "shape": symbols get their values)
#   ["number", result, size]                    ["blank", result, size]    (so many bytes that nobody reads)
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
    symbols: tuple[str, ...] = ()  # sizes that a call knows
    ranges: tuple[SizeRange, ...] = ()  # what some of them may be

    def sizes_of(self, args: Sequence[Value]) -> dict[str, int]:
        """What a call's arguments say of the symbols.

        Raises ShapeError where they contradict each other, SizeError for one that is out of bounds.
        """
        if not self.symbols:
            return {}
        found = _plain_sizes(self.params, args)
        if found is None:
            given = [one for param, value in zip(self.params, args, strict=True) for one in param.given(value)]
            found = solve_sizes(given, where=self.signature)[0]
        for size in self.ranges:
            size.check(found[size.name], f"function {self.name}")
        return found

    @property
    def signature(self) -> str:
        """The call as messages show it."""
        return f"{self.name}({', '.join(map(str, self.params))})"


@dataclass(frozen=True)
class Program:
    """Functions, the segments that they run, and their constants."""

    functions: Mapping[str, VMFunction]
    segments: tuple[Segment, ...]
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

    def has_effects(self, name: str) -> bool:
        """Whether a function calls registered ones, itself or in functions that it calls: it may not run twice."""
        found, left = set[str](), [name]
        while left:
            found.add(one := left.pop())
            for kind, *operands in _instructions(self.functions[one].code):
                if kind in ("packed", "packed_dps"):
                    return True
                if kind in ("call", "tail") and (callee := operands[-2]) not in found:
                    left.append(callee)
        return False

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
                "kernels": list(segment.kernels), "params": list(segment.param_names),
                "n_constants": len(segment.constants),
            }  # fmt: skip
            if isinstance(segment, DynamicExecutable):
                entry |= {"form": segment.form.to_manifest(), "forms": {n: list(b) for n, b in segment.forms.items()}}
                entry["manifest"] = {key: segment.manifest[key] for key in ("lanes",) if key in segment.manifest}
            else:
                entry["graph"] = segment.graph.to_manifest()
            segments.append(entry)
            arrays |= {f"s{number}.{i}": constant for i, constant in enumerate(segment.constants)}
        left_out = {name: arrays.pop(name) for name in self.manifest.get("late", ())}
        late = {name: [list(array.shape), str(array.dtype)] for name, array in left_out.items()}
        functions = [
            [
                f.name,
                [p.to_json() for p in f.params],
                f.n_registers,
                list(f.code),
                f.result,
                list(f.symbols),
                [[size.name, size.low, size.high] for size in f.ranges],
            ]
            for f in self.functions.values()
        ]
        text = json.dumps(
            {"functions": functions, "segments": segments, "n_constants": len(self.constants),
             "manifest": {k: v for k, v in self.manifest.items() if k != _FUNCTIONS}, "late": late}
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
                _read_segment(number, entry, kernels, arrays, b"" if lib is None else lib.native)
                for number, entry in enumerate(content["segments"])
            )
            functions = {str(entry[0]): _read_function(*entry) for entry in content["functions"]}
            constants = tuple(arrays[f"c{i}"] for i in range(content["n_constants"]))
            kept = {} if lib is None else {k: v for k, v in lib.manifest.items() if k == _FUNCTIONS}
            made = Program(functions, segments, constants, {**content["manifest"], **kept})
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


def _plain_sizes(params: Sequence[Param], args: Sequence[Value]) -> dict[str, int] | None:
    """The symbols where each is a dimension of an array, and all fit; None where there is more to see."""
    found: dict[str, int] = {}
    for param, value in zip(params, args, strict=True):
        if param.shape is None:
            if param.fields is not None or param.sizes is not None:
                return None
            continue
        if len(value.shape) != len(param.shape):
            return None
        for size, extent in zip(param.shape, value.shape):
            if (found.setdefault(size, extent) if isinstance(size, str) else size) != extent:
                return None
    return found


def _read_segment(
    number: int, entry: Mapping[str, Json], kernels: Mapping[str, Kernel], arrays: Mapping[str, np.ndarray],
    native: bytes,
) -> Segment:  # fmt: skip
    """A segment of what `to_bytes` has written of it. Raises ArtifactError, and ValueError for what cannot be run."""
    own = {key: kernels[f"{number}.{key}"] for key in entry["kernels"]}
    constants = tuple(arrays[f"s{number}.{i}"] for i in range(entry["n_constants"]))
    if "form" in entry:
        info = {key: entry[key] for key in ("form", "forms", "manifest", "params")}
        return DynamicExecutable.from_contents(Contents("dynamic", own, native, {}, constants, info))
    found = Executable(own, Graph.from_manifest(entry["graph"]), constants, native, params=tuple(entry["params"]))
    check_read_graph(f"segment {number}", found.graph, found.kernels, found.constants)
    return found


def _read_function(
    name: Json, params: Json, n_registers: int, code: Json, result: int, symbols: Json = (), ranges: Json = ()
) -> VMFunction:
    names = tuple(map(str, symbols))
    read = tuple(Param.from_json(param, names) for param in params)
    bounds = tuple(SizeRange(str(n), int(low), None if high is None else int(high)) for n, low, high in ranges)
    if not {size.name for size in bounds} <= {symbol for param in read for symbol in param.symbols}:
        raise ValueError(f"the bounds of '{name}' are of no sizes of its arguments")
    return VMFunction(str(name), read, n_registers, tuple(_read_code(code, names)), result, names, bounds)


def _read_code(code: Sequence[Json], names: Collection[str]) -> Iterator[Instruction]:
    """Instructions with their sizes as `size_expr` has them. Raises ValueError for what is no size."""
    for instruction in code:
        match instruction:
            case ["if", condition, list() as then, list() as otherwise]:
                yield ["if", condition, list(_read_code(then, names)), list(_read_code(otherwise, names))]
            case ["check", register, name, list() as shape, dtype]:
                yield ["check", register, name, list(read_shape(shape, names)), dtype]
            case ["value", result, list() as shape]:
                yield ["value", result, list(read_shape(shape, names))]
            case ["number" | "blank" as kind, result, size]:
                yield [kind, result, read_size(size, names)]
            case ["packed_dps", results, list() as outs, name, args]:
                yield ["packed_dps", results, [[list(read_shape(s, names)), d] for s, d in outs], name, args]
            case _:
                yield instruction


def _instructions(code: Sequence[Instruction]) -> Iterator[Instruction]:
    """All instructions, those of branches too."""
    for instruction in code:
        yield instruction
        if instruction[0] == "if":
            yield from _instructions(instruction[2])
            yield from _instructions(instruction[3])


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

    def check(code: Sequence[Instruction], before: Set[int | str]) -> Set[int | str]:
        """The registers that hold something after code, those before, and symbols with values.

        Raises ValueError for one read too early.
        """
        written = {*before}

        def are_read(*numbers: int) -> None:
            are_registers(*numbers)
            if early := [number for number in numbers if number not in written]:
                raise ValueError(f"'{function.name}' reads register {early[0]}, in which nothing is")

        def are_known(*sizes: Size) -> None:
            if early := [name for size in sizes for name in symbols_of(size) if name not in written]:
                raise ValueError(f"'{function.name}' computes with '{early[0]}', which nothing has said")

        for instruction in code:
            results: Sequence[int] = ()
            match instruction:
                case ["run", segment, args, results]:
                    check_count("segment", segment, len(program.segments) - 1)
                    found = program.segments[segment]
                    ends = found.form if isinstance(found, DynamicExecutable) else found.graph
                    if (len(args), len(results)) != (len(ends.inputs), len(ends.outputs)):
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
                    return {*range(function.n_registers), *function.symbols}  # nothing is read after it
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
                    written |= {name for size in shape for name in symbols_of(size)}
                case ["number" | "blank", result, int() | str() | tuple() as size]:
                    are_known(size)
                    results = (result,)
                case ["value", result, int() | float() | str() | list() | None as value]:
                    are_known(*(value if isinstance(value, list) else ()))
                    results = (result,)
                case ["packed", result, str(), args]:
                    are_read(*args)
                    results = (result,)
                case ["packed_dps", results, outs, str(), args]:
                    are_read(*args)
                    if len(outs) != len(results):
                        raise ValueError("a call has other results")
                    for shape, dtype in outs:
                        are_known(*shape)
                        check_tensor("a result", dtype, [size for size in shape if isinstance(size, int)])
                case _:
                    raise ValueError(f"unknown instruction {str(instruction)[:80]}")
            are_registers(*results)
            written.update(results)
        return written

    said = {name for param in function.params for name in param.symbols}
    if function.result not in check(function.code, {*range(len(function.params)), *said}):
        raise ValueError(f"'{function.name}' gives register {function.result}, in which nothing is")


class _Frame:
    """A function that is being run: its registers, and what is left of its code and of the branches that it is in."""

    __slots__ = ("args", "function", "registers", "result", "sizes", "todo")

    def __init__(self, function: VMFunction, args: Sequence[object], result: int):
        self.function, self.args, self.result = function, args, result  # result: the caller's register
        self.sizes = function.sizes_of(args)
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
            given = _match(registers[register], name, tuple(shape), dtype)
            frame.sizes = solve_sizes([given], frame.sizes)[0]
        case ["value", result, value]:
            registers[result] = shape_at(tuple(value), frame.sizes) if isinstance(value, list) else value
        case ["number", result, size]:
            registers[result] = size_at(size, frame.sizes)
        case ["blank", result, size]:
            registers[result] = empty(_shape((size,), frame), "bool")
        case ["packed", result, name, args]:
            registers[result] = _value(_registered(name)(*(registers[r] for r in args)))
        case ["packed_dps", results, outs, name, args]:
            made = [empty(_shape(tuple(shape), frame), dtype) for shape, dtype in outs]
            _registered(name)(*(registers[r] for r in args), *made)
            for register, out in zip(results, made, strict=True):
                registers[register] = out
        case _:
            raise ArtifactError(f"unknown VM instruction {instruction!r}")
    return None


def _shape(shape: Shape, frame: _Frame) -> tuple[int, ...]:
    """The shape of an array that is made. Raises ShapeError for what is none."""
    found = shape_at(shape, frame.sizes)
    if min(found, default=0) < 0:
        raise ShapeError(f"{show_shape(shape)} is {list(found)}, no shape", where=frame.function.signature)
    return found


def _truth(value: object) -> bool:
    """The value of a condition. Raises InvalidTypeError for what is not one number."""
    found = as_numpy(value, "condition")
    if found.size != 1:
        raise InvalidTypeError(f"condition: an array of shape {list(found.shape)} is not one number")
    return bool(found.item())


def _extents(value: Value, what: str) -> tuple[int, ...]:
    """The extents that a shape is; a number is one. Raises InvalidTypeError for other values."""
    found = value if isinstance(value, tuple | list) else (value,)
    if not all(hasattr(size, "__index__") and np.ndim(size) == 0 for size in found):
        raise InvalidTypeError(f"{what} is a {type(value).__name__}, no shape or size")
    return tuple(map(int, found))


def _match(value: object, name: str, shape: Shape, dtype: str) -> tuple[str, Shape, Sequence[int]]:
    """The shape of what match_cast is told of, as `solve_sizes` takes it. Raises InvalidTypeError."""
    what = f"'{name}' of match_cast"
    if dtype == SHAPE:
        return what, shape, _extents(value, what)
    if not isinstance(value, NDArray):
        raise InvalidTypeError(f"{what} is a {type(value).__name__}, no tensor")
    if dtype and value.dtype != dtype:
        raise InvalidTypeError(f"{what} has dtype {value.dtype} instead of {dtype}")
    return what, shape, value.shape


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
    if value.shape != param.shape and not function.symbols:  # else all are compared at once
        raise ShapeError(
            f"{what} has shape {list(value.shape)} instead of {show_shape(param.shape)}", where=function.signature
        )
    return value
