"""What converters of PyTorch operators write with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from autosched.errors import ImportModelError
from autosched.frontend.data_sizes import DataSizes
from autosched.frontend.size_arithmetic import agreeing, are_same, info_of, uncomputed
from autosched.frontend.stages import DataNeededError, LibraryNeededError
from autosched.ir.node import Span
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.rewrite import with_origin
from autosched.relax.struct_info import Dim
from autosched.tir.dtypes import is_float, item_bytes
from autosched.tir.expr import PrimExpr

if TYPE_CHECKING:
    from torch import fx

Value: TypeAlias = Any  # of a node of PyTorch's graph: an Expr, a Complex, a number, a tuple or list of those, None
Ints: TypeAlias = "int | Sequence[int]"  # the same in all dimensions, or one each
RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2, "bfloat": 2}  # of kinds, when dtypes meet
DEFAULT_DTYPES = (("bool", bool), ("int64", int), ("float32", float))  # of Python numbers


@dataclass
class Emitter:
    """Binds expressions in the function that is being written.

    node    the name of the graph node at work, for messages
    dtypes  torch.dtype -> our name, filled by the importer, which has PyTorch at hand
    source  the graph node itself, where its form matters
    data    makes sizes that follow from data, where they may
    """

    builder: BlockBuilder
    dtypes: dict[object, str] = field(default_factory=dict)
    node: str = ""
    source: fx.Node | None = None
    data: DataSizes | None = None

    def __call__(self, expr: Expr) -> Expr:
        """Bind a value; one without elements is a constant."""
        return uncomputed(expr) or self.builder.emit(with_origin(expr, Span(self.node, 0)) if self.node else expr)

    def fail(self, message: str, hint: str | None = None) -> ImportModelError:
        """The error to raise for something that the node asks and we do not have."""
        return ImportModelError(message, where=f"node '{self.node}'", hint=hint)

    def data_sizes(self, message: str) -> DataSizes:
        """What makes sizes that follow from data. Raises DataNeededError where there are none of these."""
        if self.data is None:
            raise self.needs_data(message)
        return self.data

    def needs_data(self, message: str) -> DataNeededError:
        """The error to raise where a size or a number follows from what the model computes."""
        return DataNeededError(message, where=f"node '{self.node}'")

    def needs_library(self, message: str) -> LibraryNeededError:
        """The error to raise for what PyTorch has to compute."""
        return LibraryNeededError(message, where=f"node '{self.node}'")

    def dtype(self, value: object) -> str:
        """Our name of a torch.dtype. Raises ImportModelError for one that we do not have."""
        if isinstance(value, str):
            return value
        if value not in self.dtypes:
            raise self.fail(f"dtype {value} is not supported")
        return self.dtypes[value]

    def shape(self, x: Expr) -> tuple[Any, ...]:
        """The dimensions: integers, and expressions of sizes that are open, which have no truth and no order."""
        return info_of(x).dims

    def reshape(self, x: Expr, shape: Sequence[Dim]) -> Expr:
        """Bind the tensor under another shape; the same tensor where it has it."""
        return x if are_same(self.shape(x), shape) else self(op.reshape(x, ShapeExpr(tuple(shape))))

    def broadcast(self, x: Expr, shape: Sequence[Dim]) -> Expr:
        """Bind the tensor broadcast to a shape; the same tensor where it has it."""
        return x if are_same(self.shape(x), shape) else self(op.broadcast_to(x, ShapeExpr(tuple(shape))))

    def cast(self, x: Expr, dtype: str) -> Expr:
        """Bind the tensor as another dtype; the same tensor where it has it."""
        return x if info_of(x).dtype == dtype else self(op.astype(x, dtype=dtype))

    def as_float(self, x: Expr) -> Expr:
        """The tensor as floats: an integer one as float32."""
        return x if is_float(info_of(x).dtype) else self.cast(x, "float32")

    def alike(self, a: object, b: object) -> tuple[Expr, Expr]:
        """Two operands, tensors or numbers, as tensors of the dtype that PyTorch computes them in."""
        dtype = common_dtype(a, b)
        first, second = agreeing([self.as_dtype(a, dtype), self.as_dtype(b, dtype)], self)
        return first, second

    def as_dtype(self, x: object, dtype: str) -> Expr:
        """A tensor, a number or a size as a tensor of a dtype."""
        if isinstance(x, PrimExpr):
            return self(op.size_values(ShapeExpr((x,)), is_scalar=True, dtype=dtype))
        return self.cast(x, dtype) if isinstance(x, Expr) else constant(x, dtype)


def constant(value: object, dtype: str) -> Constant:
    """A constant of a dtype; integers wrap."""
    return Constant(np.asarray(value).astype(dtype))


def _rank(dtype: str) -> int:
    return RANKS[dtype.rstrip("0123456789")]


def promoted(a: str, b: str) -> str:
    """The dtype that two tensors meet in: torch.promote_types."""
    if a == b or not a or not b:
        return a or b
    if _rank(a) != _rank(b):
        return max(a, b, key=_rank)
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if "uint8" in (a, b) and "int8" in (a, b):
        return "int16"
    return max(a, b, key=item_bytes)


def common_dtype(*values: object) -> str:
    """torch.result_type: the highest kind wins; among equal kinds tensors win over 0-d ones, and these over numbers."""
    tensors, scalars, numbers = "", "", ""
    for v in values:
        if not isinstance(v, Expr):
            kinds = (d for d, kind in DEFAULT_DTYPES if type(v) is kind)
            numbers = promoted(numbers, "int64" if isinstance(v, PrimExpr) else next(kinds))
        elif info_of(v).ndim:
            tensors = promoted(tensors, info_of(v).dtype)
        else:
            scalars = promoted(scalars, info_of(v).dtype)
    return _over(tensors, _over(scalars, numbers))


def _over(higher: str, lower: str) -> str:
    """The dtype of more weight, unless the other is of a higher kind."""
    if not higher or not lower:
        return higher or lower
    return higher if _rank(higher) >= _rank(lower) else promoted(higher, lower)


def positive(axis: int, ndim: int) -> int:
    """An axis counted from the front; the only axis of a 0-d tensor is 0."""
    return axis + max(ndim, 1) if axis < 0 else axis
