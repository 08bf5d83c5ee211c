"""A random model in the making: its inputs, values, constants and nodes, with the sizes that nobody knows yet."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes  # registers bfloat16 and the types of 8 bits with NumPy
import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int32", "int64")
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 48, 64, 100)
assert ml_dtypes.bfloat16


class Unfit(Exception):
    """An operator cannot take this value; the model is made without it."""


class Size(int):
    """A size that a call decides: an input's dimension by its name, or what is computed from such (no name).

    Its number is one that the size may have. It is equal to no known number, and no constant may be made of it.
    """

    name: str

    def __new__(cls, value: int, name: str = "") -> Size:
        made = super().__new__(cls, value)
        made.name = name
        return made

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Size) and self.name != "" and self.name == other.name)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __add__(self, other: int) -> int:
        return Size(int(self) + int(other)) if type(other) is not int or other else self

    def __mul__(self, other: int) -> int:
        return Size(int(self) * int(other)) if type(other) is not int or other != 1 else self

    def __sub__(self, other: int) -> int:
        return Size(int(self) - int(other)) if type(other) is not int or other else self

    def __rsub__(self, other: int) -> int:
        return Size(int(other) - int(self))

    def __neg__(self) -> int:
        return Size(-int(self))

    def __floordiv__(self, other: int) -> int:
        return Size(int(self) // int(other)) if type(other) is not int or other != 1 else self

    def __mod__(self, other: int) -> int:
        return Size(int(self) % int(other))

    __radd__, __rmul__ = __add__, __mul__


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """What an input, a constant or a node gives."""

    name: str
    shape: Shape
    dtype: str

    @property
    def rank(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether it has one of the three types of floats that all operators take."""
        return self.dtype in FLOATS

    @property
    def is_known(self) -> bool:
        """Whether no size is open."""
        return not any(isinstance(d, Size) for d in self.shape)


@dataclass(frozen=True)
class Input:
    """An input of the model. Its numbers are normal, or, with limits, integers of [low, high)."""

    shape: Shape
    dtype: str
    low: int | None = None
    high: int | None = None

    def draw(self, numbers: np.random.Generator, sizes: dict[str, int], has_edges: bool = False) -> np.ndarray:
        """Random contents, with the open sizes as they are given, and with edges a few odd numbers among them."""

        def at(size: int) -> int:
            return sizes[size.name] if isinstance(size, Size) else size

        shape = tuple(at(d) for d in self.shape)
        if self.low is None or self.high is None:
            drawn = draw(numbers, shape, self.dtype)
            return with_edges(numbers, drawn) if has_edges else drawn
        low, high = at(self.low), at(self.high)
        return numbers.integers(min(low, high - 1), max(high, 1), shape).astype(self.dtype)


def draw(numbers: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Random numbers of a type: normal ones, small integers, or as many True as False."""
    if dtype in FLOATS:
        return numbers.standard_normal(shape).astype(dtype)
    if dtype == "bool":
        return np.asarray(numbers.random(shape) < 0.5)
    low, high = (0, 100) if dtype == "uint8" else (-9, 10)
    return numbers.integers(low, high, shape).astype(dtype)


def with_edges(numbers: np.random.Generator, drawn: np.ndarray) -> np.ndarray:
    """One in ten of the numbers replaced by infinities, NaN and zeros, or by integers of many bits."""
    if drawn.dtype == bool:
        return drawn
    if drawn.dtype.kind == "f":
        large, tiny = (60, 6e-5) if drawn.dtype == "float16" else (1e4, np.finfo(drawn.dtype).tiny)  # large² is finite
        edges = np.array([np.inf, -np.inf, np.nan, -0.0, 0.0, large, -1e-4, tiny], drawn.dtype)
    else:
        ends = np.iinfo(drawn.dtype)
        high = ends.max if ends.bits == 8 else 2 ** (ends.bits // 2 - 4) + 1  # sums of squares stay in the range
        edges = np.array([high, ends.min if ends.bits == 8 else -high, high - 1, 0], drawn.dtype)
    return np.where(numbers.random(drawn.shape) < 0.1, numbers.choice(edges, drawn.shape), drawn)


@dataclass
class Maker:
    """A model in the making.

    most_elements  that a value may have, to be used further
    sizes          to draw from
    is_open        whether inputs may have open sizes
    """

    seed: int
    most_elements: int
    sizes: Sequence[int]
    is_open: bool
    inputs: dict[str, Input] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    n_names: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.numbers = np.random.default_rng(self.seed)

    # ---- what is drawn

    def chance(self, share: float) -> bool:
        """True so often."""
        return self.random.random() < share

    def choose(self, *of: Any) -> Any:
        """One of these."""
        return self.random.choice(of)

    def size(self) -> int:
        """A size of a new dimension."""
        return self.random.choice(self.sizes)

    def axis(self, x: Value, known: bool = False) -> int:
        """An axis of a value, with `known` one whose size is no open one. Raises Unfit without such."""
        found = [n for n, d in enumerate(x.shape) if not (known and isinstance(d, Size))]
        if not found:
            raise Unfit
        return self.random.choice(found)

    def pick(self, fits: Callable[[Value], bool] = lambda value: True) -> Value:
        """A value to go on with: half of the time the last one that fits. Raises Unfit without one."""
        found = [v for v in self.values if fits(v)]
        if not found:
            raise Unfit
        return found[-1] if self.chance(0.5) else self.random.choice(found)

    # ---- what the model is made of

    def name(self, prefix: str) -> str:
        """A name that nothing has yet."""
        self.n_names += 1
        return f"{prefix}{self.n_names}"

    def constant(self, array: Any, dtype: str | None = None) -> Value:
        """A constant of these contents."""
        array = np.asarray(array, dtype)
        name = self.name("c")
        self.constants[name] = array
        return Value(name, array.shape, str(array.dtype))

    def ints(self, *values: int) -> Value:
        """A constant list of integers. Raises Unfit where one of them is an open size."""
        if any(isinstance(v, Size) for v in values):
            raise Unfit
        return self.constant(np.array(values, "int64"))

    def scalar(self, value: float, like: Value) -> Value:
        """A constant of one number, of a value's type."""
        return self.constant(np.array(value, like.dtype))

    def input(self, shape: Iterable[int], dtype: str, low: int | None = None, high: int | None = None) -> Value:
        """A new input. Raises Unfit where its size is computed."""
        shape = tuple(shape)
        if any(isinstance(d, Size) and not d.name for d in (*shape, low, high)):
            raise Unfit
        name = self.name("x")
        self.inputs[name] = Input(shape, dtype, low, high)
        return Value(name, shape, dtype)

    def other(self, shape: Iterable[int], dtype: str, is_constant: bool | None = None) -> Value:
        """A further operand, an input or a constant; an input where sizes are open."""
        shape = tuple(shape)
        is_open = any(isinstance(d, Size) for d in shape)
        if is_constant and is_open:
            raise Unfit
        if is_open or not (self.chance(0.5) if is_constant is None else is_constant):
            return self.input(shape, dtype)
        return self.constant(draw(self.numbers, shape, dtype))

    def broadcast(self, x: Value, dtype: str | None = None) -> Value:
        """A further operand whose shape is broadcast to a value's."""
        shape = x.shape
        if not self.chance(0.3):
            shape = tuple(d if self.chance(0.6) else 1 for d in shape)
            if self.chance(0.3):
                shape = shape[self.random.randrange(len(shape) + 1) :]
        if any(isinstance(d, Size) and not d.name for d in shape):
            shape = tuple(1 if isinstance(d, Size) else d for d in shape)
        return self.other(shape, dtype or x.dtype)

    def node(
        self, op: str, *inputs: Value | None, shape: Iterable[int] | None = None, dtype: str | None = None,
        domain: str = "", **attributes: Any,
    ) -> Value:  # fmt: skip
        """A node of one result; shape and type are those of its first input where they are not given."""
        first = next(i for i in inputs if i is not None)
        result = (first.shape if shape is None else tuple(shape), dtype or first.dtype)
        return self.results(op, inputs, [result], domain, **attributes)[0]

    def results(
        self, op: str, inputs: Sequence[Value | None], results: Sequence[tuple[Shape, str] | None], domain: str = "",
        **attributes: Any,
    ) -> list[Value]:  # fmt: skip
        """A node of several results, each (shape, dtype), or None for one that is left out.

        Raises Unfit where a result is too large, or an attribute would be an open size.
        """
        for given in attributes.values():
            if isinstance(given, list | tuple) and any(isinstance(v, Size) for v in given) or isinstance(given, Size):
                raise Unfit
        names = [self.name("y") if result else "" for result in results]
        given = ["" if value is None else value.name for value in inputs]
        self.nodes.append(helper.make_node(op, given, names, domain=domain, **attributes))
        made = [Value(n, tuple(r[0]), r[1]) for n, r in zip(names, results, strict=True) if r is not None]
        self.types.update((v.name, v.dtype) for v in made if domain)
        if any(math.prod(int(d) for d in v.shape) > self.most_elements for v in made):
            raise Unfit
        self.values += [v for v in made if v.dtype in (*FLOATS, *INTEGERS, "bool")]
        return made

    def undo(self, n_nodes: int, n_values: int) -> None:
        """Forget the nodes and values behind the first so many, and what only they have used."""
        del self.nodes[n_nodes:], self.values[n_values:]
        used = {*names_read(self.nodes), *(v.name for v in self.values)}
        self.inputs = {name: given for name, given in self.inputs.items() if name in used}
        self.constants = {name: array for name, array in self.constants.items() if name in used}


def names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The names that nodes read, also inside of branches and loops."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from names_read(attribute.g.node)


def value_info(name: str, dtype: str, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    """The declaration of a value; a dimension may be a name."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def tensors(constants: dict[str, np.ndarray]) -> list[onnx.TensorProto]:
    """Constants as a graph has them."""
    return [numpy_helper.from_array(array, name) for name, array in constants.items()]
