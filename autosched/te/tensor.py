"""Tensors and the operations that make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, TypeAlias

from autosched.errors import InvalidTypeError, InvalidValueError
from autosched.ir.node import IGNORED, Attrs, FrozenDict, Node, preorder
from autosched.lazy_names import hook
from autosched.tir import expr as E
from autosched.tir.axis import IterVar, Reduce
from autosched.tir.buffer import ProducerLoad
from autosched.tir.dtypes import is_float, is_int
from autosched.tir.expr import ExprLike, PrimExpr, to_expr


class ExprOperators:
    """Arithmetic for things that stand for one element: written once, over `as_expr`."""

    def as_expr(self) -> PrimExpr:
        raise NotImplementedError

    def __add__(self, other: ExprLike) -> PrimExpr:
        return E.add(self.as_expr(), to_expr_like(other))

    def __radd__(self, other: ExprLike) -> PrimExpr:
        return E.add(to_expr_like(other), self.as_expr())

    def __sub__(self, other: ExprLike) -> PrimExpr:
        return E.sub(self.as_expr(), to_expr_like(other))

    def __rsub__(self, other: ExprLike) -> PrimExpr:
        return E.sub(to_expr_like(other), self.as_expr())

    def __mul__(self, other: ExprLike) -> PrimExpr:
        return E.mul(self.as_expr(), to_expr_like(other))

    def __rmul__(self, other: ExprLike) -> PrimExpr:
        return E.mul(to_expr_like(other), self.as_expr())

    def __truediv__(self, other: ExprLike) -> PrimExpr:
        return E.div(self.as_expr(), to_expr_like(other))

    def __rtruediv__(self, other: ExprLike) -> PrimExpr:
        return E.div(to_expr_like(other), self.as_expr())

    def __floordiv__(self, other: ExprLike) -> PrimExpr:
        return E.floordiv(self.as_expr(), to_expr_like(other))

    def __rfloordiv__(self, other: ExprLike) -> PrimExpr:
        return E.floordiv(to_expr_like(other), self.as_expr())

    def __mod__(self, other: ExprLike) -> PrimExpr:
        return E.floormod(self.as_expr(), to_expr_like(other))

    def __rmod__(self, other: ExprLike) -> PrimExpr:
        return E.floormod(to_expr_like(other), self.as_expr())

    def __and__(self, other: ExprLike) -> PrimExpr:
        return self.as_expr() & to_expr_like(other)

    def __or__(self, other: ExprLike) -> PrimExpr:
        return self.as_expr() | to_expr_like(other)

    def __xor__(self, other: ExprLike) -> PrimExpr:
        return self.as_expr() ^ to_expr_like(other)

    def __lshift__(self, other: ExprLike) -> PrimExpr:
        return self.as_expr() << to_expr_like(other)

    def __rshift__(self, other: ExprLike) -> PrimExpr:
        return self.as_expr() >> to_expr_like(other)

    def __invert__(self) -> PrimExpr:
        return ~self.as_expr()

    def __neg__(self) -> PrimExpr:
        return -self.as_expr()

    def astype(self, dtype: str) -> PrimExpr:
        return E.cast(dtype, self.as_expr())


def to_expr_like(x: ExprLike) -> ExprLike:
    """An element or axis as its expression; numbers stay numbers (they take the other side's dtype)."""
    if isinstance(x, ExprOperators):
        return x.as_expr()
    return E.plain(x)


TensorOrElement: TypeAlias = Any  # arithmetic of tensors gives a Tensor, of two tensors without dimensions a PrimExpr


@dataclass(frozen=True, eq=False)
class Operation(Node):
    """What makes tensors: a placeholder or a compute."""

    name: str

    @property
    def num_outputs(self) -> int:
        return 1

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        return ()

    def output(self, index: int) -> Tensor:
        """The tensor of output `index`."""
        if not 0 <= index < self.num_outputs:
            raise InvalidValueError(f"operation '{self.name}' has {self.num_outputs} outputs, asked for {index}")
        return self._outputs[index]

    @property
    def _outputs(self) -> tuple[Tensor, ...]:
        raise NotImplementedError


class OpaqueOperation(Operation):
    """An operation without axes of its own to schedule: statements of the user's, a recurrence."""

    @property
    def axis(self) -> tuple[IterVar, ...]:
        return ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        return ()


@dataclass(frozen=True, eq=False)
class Tensor(Node, ExprOperators):
    """A multi-dimensional value: output `value_index` of `op`. Called or indexed, it gives an element."""

    shape: tuple[PrimExpr, ...]
    dtype: str
    op: Operation
    value_index: int = 0

    @property
    def name(self) -> str:
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __call__(self, *indices: ExprLike) -> ProducerLoad:
        if len(indices) != self.ndim:
            raise InvalidValueError(f"tensor '{self.name}' has {self.ndim} dimensions, got {len(indices)} indices")
        found = tuple(to_expr(i) for i in indices)
        for index in found:
            if is_float(index.dtype):
                raise InvalidTypeError(f"tensor '{self.name}': an index is an integer, not {index.dtype}")
        return ProducerLoad(self, found)

    def __iter__(self) -> NoReturn:  # without it, Python would index for ever
        raise InvalidTypeError(f"tensor '{self.name}' cannot be iterated", hint="index it")

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> TensorSlice:
        return TensorSlice(self, indices if isinstance(indices, tuple) else (indices,))

    def as_expr(self) -> PrimExpr:
        """A zero-dimensional tensor as its element."""
        return self()

    def _with(self, operator: str, a: ExprLike, b: ExprLike) -> TensorOrElement:
        """Element-wise arithmetic of whole tensors, broadcast; of one element where both are."""
        if self.ndim == 0 and all(not isinstance(x, Tensor) or x.ndim == 0 for x in (a, b)):
            return getattr(E, _SCALAR[operator])(to_expr_like(a), to_expr_like(b))
        return getattr(hook("tensor operators"), operator)(a, b)

    def __add__(self, other: ExprLike) -> TensorOrElement:
        return self._with("add", self, other)

    def __radd__(self, other: ExprLike) -> TensorOrElement:
        return self._with("add", other, self)

    def __sub__(self, other: ExprLike) -> TensorOrElement:
        return self._with("subtract", self, other)

    def __rsub__(self, other: ExprLike) -> TensorOrElement:
        return self._with("subtract", other, self)

    def __mul__(self, other: ExprLike) -> TensorOrElement:
        return self._with("multiply", self, other)

    def __rmul__(self, other: ExprLike) -> TensorOrElement:
        return self._with("multiply", other, self)

    def __truediv__(self, other: ExprLike) -> TensorOrElement:
        return self._with("divide", self, other)

    def __rtruediv__(self, other: ExprLike) -> TensorOrElement:
        return self._with("divide", other, self)

    def __neg__(self) -> TensorOrElement:
        return self._with("subtract", 0 if is_int(self.dtype) else 0.0, self)

    def astype(self, dtype: str) -> TensorOrElement:
        """The tensor (or its one element) in another dtype."""
        return E.cast(dtype, self()) if self.ndim == 0 else hook("tensor operators").cast(self, dtype)

    def __repr__(self) -> str:
        return f"Tensor(shape={[str(E.const_int(s) or s) for s in self.shape]}, op.name={self.name})"

    __str__ = __repr__


_SCALAR = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div"}


class TensorSlice(ExprOperators):
    """`T[i]` of a tensor of more dimensions: more indices may follow; with all of them it is an element."""

    def __init__(self, tensor: Tensor, indices: tuple[ExprLike, ...]):
        if len(indices) > tensor.ndim:
            raise InvalidValueError(f"tensor '{tensor.name}' has {tensor.ndim} dimensions, got {len(indices)} indices")
        self.tensor, self.indices = tensor, indices

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> TensorSlice:
        return TensorSlice(self.tensor, self.indices + (indices if isinstance(indices, tuple) else (indices,)))

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def as_expr(self) -> PrimExpr:
        return self.tensor(*self.indices)

    def __eq__(self, other: object) -> Any:
        return self.as_expr() == (other.as_expr() if isinstance(other, ExprOperators) else other)

    def __ne__(self, other: object) -> Any:
        return self.as_expr() != (other.as_expr() if isinstance(other, ExprOperators) else other)

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return str(self.as_expr())


def compare_slices(kind: type[E.CmpOp]) -> Callable[[ExprOperators, ExprLike], PrimExpr]:
    def method(self: ExprOperators, other: ExprLike) -> PrimExpr:
        return E.compare(kind, self.as_expr(), to_expr_like(other))

    return method


for _name, _kind in (("__lt__", E.LT), ("__le__", E.LE), ("__gt__", E.GT), ("__ge__", E.GE)):
    setattr(ExprOperators, _name, compare_slices(_kind))


@dataclass(frozen=True, eq=False)
class PlaceholderOp(Operation):
    """An input."""

    shape: tuple[PrimExpr, ...] = ()
    dtype: str = "float32"
    _cache: dict[int, tuple[Tensor, ...]] = field(default_factory=dict, repr=False, metadata=IGNORED)

    @property
    def _outputs(self) -> tuple[Tensor, ...]:
        if 0 not in self._cache:
            self._cache[0] = (Tensor(self.shape, self.dtype, self),)
        return self._cache[0]


@dataclass(frozen=True, eq=False)
class ComputeOp(Operation):
    """Tensors given element by element: `body[i]` is output i at `axis`; all bodies share the reduction, if any."""

    axis: tuple[IterVar, ...] = ()
    body: tuple[PrimExpr, ...] = ()
    tag: str = ""
    attrs: Attrs = field(default_factory=FrozenDict)
    _cache: dict[int, tuple[Tensor, ...]] = field(default_factory=dict, repr=False, metadata=IGNORED)

    @property
    def num_outputs(self) -> int:
        return len(self.body)

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        first = self.body[0]
        return first.axis if isinstance(first, Reduce) else ()

    @cached_property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Tensors that the bodies read, each once, in order of first use."""
        seen: dict[Tensor, None] = {}
        for body in self.body:
            for node in preorder(body):
                if isinstance(node, ProducerLoad):
                    seen[node.producer] = None
        return tuple(seen)

    @property
    def _outputs(self) -> tuple[Tensor, ...]:
        if 0 not in self._cache:
            shape = tuple(iv.dom.extent for iv in self.axis)
            self._cache[0] = tuple(Tensor(shape, b.dtype, self, i) for i, b in enumerate(self.body))
        return self._cache[0]
