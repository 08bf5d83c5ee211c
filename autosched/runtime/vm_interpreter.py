"""Runs the VM's code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from autosched.errors import ArtifactError, InvalidTypeError, NameNotFoundError, ShapeError, TVMError
from autosched.runtime.array import NDArray, array, as_numpy, empty
from autosched.runtime.registry import get_global_func
from autosched.runtime.size_expr import Shape, shape_at, show_shape, size_at, solve_sizes
from autosched.runtime.vm_code import SHAPE, Code, Instruction, VMFunction, extents

if TYPE_CHECKING:
    from autosched.runtime.registry import PackedFunc
    from autosched.runtime.values import Value

MOST_CALLS = 5000  # functions inside of each other


def run(code: Code, function: VMFunction, args: Sequence[object]) -> object:
    """Run a function, with a stack of its own: however deep functions call each other, Python's is not used up.

    Raises TVMError for more than `MOST_CALLS` calls inside of each other.
    """
    frames = [_Frame(code, function, args, 0)]
    while True:
        frame = frames[-1]
        instruction = next(frame.todo[-1], None)
        if instruction is not None:
            if (callee := _step(frame, instruction)) is not None:
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


class _Frame:
    """A function that is being run: its registers, and what is left of its code and of the branches that it is in."""

    __slots__ = ("args", "code", "function", "registers", "result", "sizes", "todo")

    def __init__(self, code: Code, function: VMFunction, args: Sequence[object], result: int):
        self.code, self.function, self.args, self.result = code, function, args, result  # result: the caller's register
        self.sizes = function.sizes_of(args)
        self.registers: list[Value] = [*args, *[None] * (function.n_registers - len(args))]
        self.todo: list[Iterator[Instruction]] = [iter(function.code)]


def _called(frame: _Frame, name: str, args: Sequence[int], result: int) -> _Frame:
    """The frame of a function that one calls. Raises NameNotFoundError (AttributeError) for one that nothing builds."""
    code, values = frame.code, [frame.registers[r] for r in args]
    if name in code.symbolic and code.late is not None:
        code = code.late(name, values)
    return _Frame(code, code.function(name), values, result)


def _step(frame: _Frame, instruction: Instruction) -> _Frame | None:
    """Run one instruction; of a call give the frame that is to be run next."""
    code, registers = frame.code, frame.registers
    match instruction:
        case ["run", segment, args, results]:
            found = code.segments[segment](*(registers[r] for r in args))
            values = found if isinstance(found, tuple) else (found,)
            for register, value in zip(results, values, strict=True):
                registers[register] = value
        case ["call", result, name, args]:
            return _called(frame, name, args, result)
        case ["tail", name, args]:
            return _called(frame, name, args, frame.result)
        case ["tuple", result, fields]:
            registers[result] = tuple(registers[r] for r in fields)
        case ["item", result, source, index]:
            value = registers[source]
            if not isinstance(value, tuple) or index >= len(value):
                raise InvalidTypeError(f"there is no field {index} in a {type(value).__name__}")
            registers[result] = value[index]
        case ["const", result, number]:
            registers[result] = array(code.constants[number])
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


def _match(value: object, name: str, shape: Shape, dtype: str) -> tuple[str, Shape, Sequence[int]]:
    """The shape of what match_cast is told of, as `solve_sizes` takes it. Raises InvalidTypeError."""
    what = f"'{name}' of match_cast"
    if dtype == SHAPE:
        return what, shape, extents(value, what)
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
