"""One node of an ONNX graph, as converters see it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.onnx.contents import MOST_CONSTANT_BYTES
from autosched.frontend.size_arithmetic import info_of, is_empty, uncomputed
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Tuple
from autosched.relax.op.registry import definition_of, is_constant, python_argument
from autosched.relax.struct_info import Dim, TensorStructInfo, tensor_infos

if TYPE_CHECKING:
    import onnx

KERNEL_DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bfloat16", "float16", "float32", "float64"),
)


class RunTimeError(ImportModelError):
    """What cannot be said at import, and can be when the model runs: sizes, values, operators without kernels."""


class OpenShapesError(RunTimeError):
    """Sizes of inputs are needed that nobody has given.

    shapes  of these inputs by name: sizes, names of dimensions, None for any
    """

    shapes: Mapping[str, tuple[int | str | None, ...]] = MappingProxyType({})


class ValueNeededError(RunTimeError):
    """A node needs the contents of a value that is computed when the model runs.

    value  the expression
    """

    value: Expr | None = None


class NoKernelError(RunTimeError):
    """A node has no kernel for what it asks, or none at all: a library may compute it."""

    node: onnx.NodeProto | None = None
    opset = 0


@dataclass(frozen=True, eq=False)
class Held:
    """A value that no kernel can take: texts, sequences of them, numbers of a dtype that kernels do not have.

    value     as NumPy or Python has it
    is_known  whether its contents may be used at import
    """

    value: Any
    is_known: bool = False

    def known_sizes(self) -> tuple[Dim, ...]:
        """Integers, or expressions of open sizes, where it is a vector of these."""
        return ()

    def as_tensor(self) -> Expr | None:
        """The expression of a tensor that holds the value; None where none can."""
        return None


FOLD_LIMIT = 65536  # elements; larger constants are left to the constant-folding pass


def fold(call: Expr) -> Expr | None:
    """The constant that a call with constant arguments gives, if it is small or of integers."""
    definition = definition_of(call)
    if definition is None or definition.reference is None or not isinstance(call, Call):
        return None
    if not all(map(is_constant, call.args)):
        return None
    infos = tensor_infos(call.struct_info)
    if any(math.prod(i.static_shape) > MOST_CONSTANT_BYTES // 8 for i in infos):
        return None
    if any(np.prod(i.static_shape, dtype=np.int64) > FOLD_LIMIT and not i.dtype.startswith("int") for i in infos):
        return None
    with np.errstate(all="ignore"):  # as a kernel computes it; `Where` leaves out what is no number
        result = definition.run_reference([python_argument(a, lambda c: c.data) for a in call.args], call.attrs)
    if isinstance(result, tuple):
        return Tuple(tuple(Constant(np.ascontiguousarray(r)) for r in result))
    return Constant(_compact(result))


def _compact(x: np.ndarray) -> np.ndarray:
    return x if x.ndim == 0 else np.ascontiguousarray(x)


@dataclass
class Node:
    """Inputs as expressions (None where left out), attributes as Python values, and ways to emit.

    loop  makes a loop of the node's body that ends by data, of its condition, its most steps and its state
    """

    op_type: str
    name: str
    opset: int
    attrs: Mapping[str, Any]
    inputs: Sequence[Expr | Held | None]
    num_outputs: int
    bind: Callable[[Expr], Expr]
    import_subgraph: Callable[[Any, Sequence[Expr], str, int], list[Expr]]
    call_te: Callable[..., Expr]
    loop: Callable[[Node, Expr, Expr | None, Sequence[Expr]], tuple[Expr, ...]] | None = None

    def fail(self, message: str, hint: str | None = None) -> ImportModelError:
        """The error to raise for something that this node asks and we do not have."""
        return ImportModelError(f"{self.op_type}: {message}", where=f"node '{self.name}'", hint=hint)

    def no_kernel(self, message: str) -> NoKernelError:
        """The error to raise for something legal that a library has to compute."""
        return NoKernelError(f"{self.op_type}: {message}", where=f"node '{self.name}'")

    def needs(self, value: Expr, message: str) -> ValueNeededError:
        """The error to raise for a value whose contents decide what is computed."""
        error = ValueNeededError(f"{self.op_type}: {message}", where=f"node '{self.name}'")
        error.value = value
        return error

    def seen(self, result: Expr | None, shapes: str) -> Expr:
        """A result that shapes decide. Raises ImportModelError where open sizes leave them open."""
        if result is None:
            raise self.fail(f"{shapes}: whether that fits depends on sizes that are not known")
        return result

    def axis(self, axis: int, rank: int | None = None) -> int:
        """An axis counted from the front, of the first input or of so many. Raises ImportModelError out of range."""
        rank = self.info(0).ndim if rank is None else rank
        if not -rank <= axis < rank:
            raise self.fail(f"axis {axis} of {rank} dimensions")
        return axis % rank

    def require_small(self, size_bytes: int) -> None:
        """Refuse to make a constant of more bytes than MOST_CONSTANT_BYTES. Raises ImportModelError."""
        if size_bytes > MOST_CONSTANT_BYTES:
            raise self.fail(f"a constant of {size_bytes} bytes is not made at import")

    def emit(self, expr: Expr) -> Expr:
        """Bind a value; what is constant and small is computed at once, and so is what has no elements."""
        return uncomputed(expr) or fold(expr) or self.bind(expr)

    def subgraph(self, name: str, arguments: Sequence[Expr] = (), step: int = 0) -> list[Expr]:
        """The outputs of a subgraph (an attribute) for these inputs; `step` tells one import of it from another."""
        graph = self.attrs[name]
        if len(graph.input) != len(arguments):
            raise self.fail(f"'{name}' takes {len(graph.input)} inputs, not {len(arguments)}")
        return self.import_subgraph(graph, arguments, f"{self.name}/{name}{step or ''}/", self.opset)

    def attr(self, name: str, default: object = None) -> Any:
        return self.attrs.get(name, default)

    def has(self, index: int) -> bool:
        """Whether the (optional) input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> Expr:
        """The input. Raises ImportModelError where it is missing."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise self.fail(f"input {index} is missing")
        if isinstance(value, Held):
            made = value.as_tensor()
            if made is None:
                raise self.no_kernel(f"input {index} is nothing that kernels take")
            return self.emit(made)
        return value

    def info(self, index: int) -> TensorStructInfo:
        return info_of(self.input(index))

    def shape(self, index: int) -> tuple[int, ...]:
        return self.info(index).static_shape

    def sizes_from(self, index: int, axis: int) -> tuple[int, ...]:
        """The sizes of an input's dimensions from `axis` on; those before may be open. Raises ShapeError."""
        info = self.info(index)
        return TensorStructInfo(info.dims[axis:], info.dtype).static_shape

    def counted(self, count: Dim, axis: int, rank: int, first: Dim = 0) -> Expr:
        """`count` integers from `first` on along one of `rank` axes; the others have extent one."""
        if isinstance(count, int) and isinstance(first, int):
            known = np.arange(first, first + count, dtype=np.int64)
            return Constant(known.reshape([count if i == axis else 1 for i in range(rank)]))
        shape = ShapeExpr(tuple(count if i == axis else 1 for i in range(rank)))
        return self.emit(op.reshape(self.emit(op.size_range(ShapeExpr((first, count)))), shape))

    def is_empty(self, index: int) -> bool:
        """Whether an input is known to have no elements."""
        return is_empty(self.input(index))

    def array(self, index: int) -> np.ndarray:
        """A constant input as an array. Raises ImportModelError where it is computed at run time."""
        value = self.input(index)
        if not isinstance(value, Constant):
            raise self.needs(value, f"input {index} must be known when the model is imported")
        return value.data

    def integers(self, index: int) -> tuple[int, ...]:
        """A constant input as a tuple of integers."""
        return tuple(int(v) for v in self.array(index).reshape(-1))

    def sizes_of(self, index: int) -> tuple[Dim, ...]:
        """An input of integers that are known at import, or are expressions of open sizes."""
        value = self.inputs[index] if index < len(self.inputs) else None
        return value.known_sizes() or self.integers(index) if isinstance(value, Held) else self.integers(index)

    def number(self, index: int) -> float:
        """A constant input as a number, of an integer type as an integer: float64 does not hold all of int64."""
        first = self.array(index).reshape(-1)[0]
        return int(first) if first.dtype.kind in "biu" else float(first)


def constant(value: object, dtype: str) -> Constant:
    """A constant of a dtype."""
    return Constant(np.asarray(value, dtype=dtype))
