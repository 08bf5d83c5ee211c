"""From a tensor-expression function and graph arguments to a PrimFunc and the arguments it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autosched import te
from autosched.errors import InvalidTypeError
from autosched.relax.expr import PrimValue, StringImm, Tuple, Var
from autosched.relax.struct_info import (
    Expr,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)  # fmt: skip
from autosched.tir.function import PrimFunc

_NUMBERED = re.compile(r"([lg]v)\d+")


@dataclass(frozen=True)
class TECall:
    """A PrimFunc without a global symbol, the graph arguments of its inputs, and the type of its result."""

    func: PrimFunc
    args: tuple[Expr, ...]
    out: StructInfo


class _Arguments:
    """Turns arguments into te placeholders, remembering which graph value each stands for."""

    def __init__(self) -> None:
        self.tensors: list[te.Tensor] = []
        self.values: list[Expr] = []

    def convert(self, x: object) -> Any:
        if isinstance(x, Tuple):
            return [self.convert(f) for f in x.fields]
        if isinstance(x, ShapeExpr):
            return TensorStructInfo(x).static_shape if all(hasattr(v, "value") for v in x.values) else x.values
        if isinstance(x, PrimValue | StringImm):
            return x.value
        if isinstance(x, Expr):
            return self.placeholder(x)
        if isinstance(x, list | tuple):
            return type(x)(self.convert(v) for v in x)
        return x

    def placeholder(self, x: Expr) -> te.Tensor:
        for known, tensor in zip(self.values, self.tensors, strict=True):
            if known is x:
                return tensor
        info = x.struct_info
        if not isinstance(info, TensorStructInfo) or info.shape is None:
            raise InvalidTypeError(f"a tensor of known shape is needed, got {info!r}")
        name = x.name if isinstance(x, Var) else chr(ord("A") + len(self.tensors) % 26)
        tensor = te.placeholder(info.shape.values, info.dtype, name=_identifier(name))
        self.tensors.append(tensor)
        self.values.append(x)
        return tensor


def _identifier(name: str) -> str:
    """A buffer's name for a value's, without the number by which a builder tells it from others.

    Kernels of one form are one in the cache, wherever in a model their arguments are computed.
    """
    if numbered := _NUMBERED.fullmatch(name):
        return numbered[1]
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text[:1].isalpha() or text[:1] == "_" else f"v_{text}"


def make_te_call(func: Callable[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]) -> TECall:
    """Call `func` on placeholders for the graph arguments and make a PrimFunc (int64 indices) of what it returns."""
    arguments = _Arguments()
    outputs = func(*(arguments.convert(a) for a in args), **{k: arguments.convert(v) for k, v in kwargs.items()})
    several = isinstance(outputs, list | tuple)
    results: list[te.Tensor] = list(outputs) if isinstance(outputs, list | tuple) else [outputs]
    prim = te.create_prim_func([*arguments.tensors, *results], index_dtype_override="int64").without_attr(
        "global_symbol"
    )
    infos = tuple(TensorStructInfo(t.shape, t.dtype) for t in results)
    return TECall(prim, tuple(arguments.values), TupleStructInfo(infos) if several else infos[0])
