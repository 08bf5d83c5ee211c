"""What converters of PyTorch operators write with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.errors import ImportModelError
from autosched.ir.node import Span
from autosched.relax import op
from autosched.relax.block_builder import BlockBuilder
from autosched.relax.expr import Constant, Expr, ShapeExpr
from autosched.relax.rewrite import with_origin
from autosched.relax.struct_info import TensorStructInfo, tensor_infos

RANKS = {"bool": 0, "int": 1, "uint": 1, "float": 2, "bfloat": 2}  # of kinds, when dtypes meet
DEFAULT_DTYPES = (("bool", bool), ("int64", int), ("float32", float))  # of Python numbers


@dataclass
class Emitter:
    """Binds expressions in the function that is being written.

    node    the graph node at work, for messages
    dtypes  torch.dtype -> our name, filled by the importer, which has PyTorch at hand
    """

    builder: BlockBuilder
    dtypes: dict[Any, str] = field(default_factory=dict)
    node: str = ""

    def __call__(self, expr: Any) -> Any:
        """Bind a value."""
        return self.builder.emit(with_origin(expr, Span(self.node, 0)) if self.node else expr)

    def fail(self, message: str, hint: str | None = None) -> ImportModelError:
        """The error to raise for something that the node asks and we do not have."""
        return ImportModelError(message, where=f"node '{self.node}'", hint=hint)

    def dtype(self, value: Any) -> str:
        """Our name of a torch.dtype. Raises ImportModelError for one that we do not have."""
        if isinstance(value, str):
            return value
        if value not in self.dtypes:
            raise self.fail(f"dtype {value} is not supported")
        return self.dtypes[value]

    def shape(self, x: Expr) -> tuple[int, ...]:
        return info_of(x).static_shape

    def reshape(self, x: Expr, shape: Sequence[int]) -> Any:
        """Bind the tensor under another shape; the same tensor where it has it."""
        return x if self.shape(x) == tuple(shape) else self(op.reshape(x, ShapeExpr(tuple(shape))))

    def cast(self, x: Expr, dtype: str) -> Any:
        """Bind the tensor as another dtype; the same tensor where it has it."""
        return x if info_of(x).dtype == dtype else self(op.astype(x, dtype=dtype))

    def alike(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Two operands, tensors or numbers, as tensors of the dtype that PyTorch computes them in."""
        dtype = common_dtype(a, b)
        return tuple(self.cast(x, dtype) if isinstance(x, Expr) else constant(x, dtype) for x in (a, b))  # type: ignore[return-value]


def info_of(x: Expr) -> TensorStructInfo:
    """The type of a tensor."""
    (info,) = tensor_infos(x.struct_info)
    return info


def constant(value: Any, dtype: str) -> Constant:
    """A constant of a dtype."""
    return Constant(np.asarray(value, dtype=dtype))


def _rank(dtype: str) -> int:
    return RANKS[dtype.rstrip("0123456789")]


def common_dtype(*values: Any) -> str:
    """PyTorch's rule: the highest kind wins; among equal kinds the widest tensor; a number counts by its kind alone."""
    tensors = [info_of(v).dtype for v in values if isinstance(v, Expr)]
    numbers = [next(d for d, kind in DEFAULT_DTYPES if type(v) is kind) for v in values if not isinstance(v, Expr)]
    highest = max(map(_rank, tensors), default=-1)
    if any(_rank(n) > highest for n in numbers):
        return max(numbers, key=_rank)
    return max((d for d in tensors if _rank(d) == highest), key=lambda d: np.dtype(d).itemsize)


def positive(axis: int, ndim: int) -> int:
    """An axis counted from the front."""
    return axis + ndim if axis < 0 else axis
