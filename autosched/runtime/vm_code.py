"""What the VM's code consists of: functions with their parameters and instructions, and what these name.

Straight parts of a function are built models (segments), which run as fast as any; the instructions between them say
what is called with what.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autosched.errors import InvalidTypeError, NameNotFoundError, ShapeError
from autosched.json_types import Json
from autosched.runtime.array import NDArray, array
from autosched.runtime.dynamic import DynamicExecutable
from autosched.runtime.executable import Executable
from autosched.runtime.graph_form import SizeRange
from autosched.runtime.size_expr import Shape, read_shape, show_shape, solve_sizes, symbols_of

if TYPE_CHECKING:
    from autosched.runtime.values import Value

Segment: TypeAlias = Executable | DynamicExecutable
SHAPE = "shape"  # where a tensor has its dtype
OUTPUT_NAMES = "output_names"  # of `main`, where the model names them: in its attributes, and in a program's manifest


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
            yield what, self.sizes, extents(value, what)

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


def all_instructions(code: Sequence[Instruction]) -> Iterator[Instruction]:
    """All instructions, those of branches too."""
    for instruction in code:
        yield instruction
        if instruction[0] == "if":
            yield from all_instructions(instruction[2])
            yield from all_instructions(instruction[3])


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

    def checked(self, args: Sequence[Value]) -> list[Value]:
        """Values as the parameters take them. Raises as `Program.call`."""
        if len(args) != len(self.params):
            raise InvalidTypeError(f"{len(args)} arguments instead of {len(self.params)}", where=self.signature)
        return [_checked(value, param, self) for value, param in zip(args, self.params, strict=True)]

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
class Code:
    """Functions, the segments that they run, and their constants.

    symbolic  functions with symbolic shapes that these may call too, and that are built when they are called
    late      gives the code of one for its arguments; None where nothing can build it
    """

    functions: Mapping[str, VMFunction]
    segments: tuple[Segment, ...]
    constants: tuple[np.ndarray, ...] = ()
    symbolic: Mapping[str, tuple[Param, ...]] = field(default_factory=dict)
    late: Callable[[str, Sequence[Value]], Code] | None = field(default=None, repr=False, compare=False)

    def function(self, name: str) -> VMFunction:
        """A function by name. Raises NameNotFoundError (AttributeError) naming those that there are."""
        if name not in self.functions:
            raise NameNotFoundError(f"no function '{name}'", hint=f"there are {', '.join(self.functions)}")
        return self.functions[name]

    def has_effects(self, name: str) -> bool:
        """Whether a function may not run twice: it, or one that it calls, calls registered ones or is built late."""
        found, left = set[str](), [name]
        while left:
            found.add(one := left.pop())
            if one not in self.functions:
                return True
            for kind, *operands in all_instructions(self.functions[one].code):
                if kind in ("packed", "packed_dps"):
                    return True
                if kind in ("call", "tail") and (callee := operands[-2]) not in found:
                    left.append(callee)
        return False


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


def extents(value: Value, what: str) -> tuple[int, ...]:
    """The extents that a shape is; a number is one. Raises InvalidTypeError for other values."""
    found = value if isinstance(value, tuple | list) else (value,)
    if not all(hasattr(size, "__index__") and np.ndim(size) == 0 for size in found):
        raise InvalidTypeError(f"{what} is a {type(value).__name__}, no shape or size")
    return tuple(map(int, found))


def _checked(value: Value, param: Param, function: VMFunction) -> Value:
    """A value as the parameter takes it. Raises as `Program.call`, naming function, parameter and expected type."""
    what = f"argument '{param.name}'"
    if param.fields is not None:
        if not isinstance(value, tuple | list):
            raise InvalidTypeError(f"{what} is a {type(value).__name__}, no tuple", where=function.signature)
        if len(value) != len(param.fields):
            raise InvalidTypeError(
                f"{what} has {len(value)} fields instead of {len(param.fields)}", where=function.signature
            )
        return tuple(_checked(v, f, function) for v, f in zip(value, param.fields, strict=True))
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
