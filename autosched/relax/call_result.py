"""What a call of a function of the module gives: the function's annotation with the caller's sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.relax.struct_info import (
    Dim,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    to_dim,
)  # fmt: skip
from autosched.tir.expr import PrimExpr, Var
from autosched.tir.functor import free_vars, substitute

_Found = dict[Var, PrimExpr]


def call_result(
    params: Sequence[StructInfo | None], result: StructInfo | None, args: Sequence[StructInfo | None]
) -> StructInfo | None:
    """The result's annotation in which symbols of the parameters stand for the arguments' sizes.

    A size that does not follow from them is left open.
    """
    if result is None or not _symbols(result):
        return result
    found: _Found = {}
    for p, a in zip(params, args):
        _match(p, a, found)
    return _with(result, found)


def _match(param: StructInfo | None, arg: StructInfo | None, found: _Found) -> None:
    match param, arg:
        case TupleStructInfo(), TupleStructInfo():
            for p, a in zip(param.fields, arg.fields):
                _match(p, a, found)
        case TensorStructInfo(), TensorStructInfo() if param.shape is not None and arg.shape is not None:
            _match_dims(param.shape.values, arg.shape.values, found)
        case ShapeStructInfo(), ShapeStructInfo() if param.values is not None and arg.values is not None:
            _match_dims(param.values, arg.values, found)
        case PrimStructInfo(value=Var() as v), PrimStructInfo(value=PrimExpr() as x):
            found.setdefault(v, x)


def _match_dims(params: Sequence[Dim], args: Sequence[Dim], found: _Found) -> None:
    for p, a in zip(params, args):
        if isinstance(p, Var):
            found.setdefault(p, to_dim(a))


def _symbols(info: StructInfo) -> bool:
    match info:
        case TupleStructInfo():
            return any(map(_symbols, info.fields))
        case TensorStructInfo() if info.shape is not None:
            return any(free_vars(d) for d in info.shape.values if isinstance(d, PrimExpr))
        case ShapeStructInfo() if info.values is not None:
            return any(free_vars(d) for d in info.values if isinstance(d, PrimExpr))
        case PrimStructInfo() if info.value is not None:
            return bool(free_vars(info.value))
    return False


def _with(info: StructInfo, found: Mapping[Var, PrimExpr]) -> StructInfo:
    match info:
        case TupleStructInfo():
            return TupleStructInfo(tuple(_with(x, found) for x in info.fields))
        case TensorStructInfo() if info.shape is not None:
            dims = _dims(info.shape.values, found)
            if dims is None:
                return TensorStructInfo(None, info.dtype, len(info.shape.values))
            return TensorStructInfo(ShapeExpr(dims), info.dtype)
        case ShapeStructInfo() if info.values is not None:
            dims = _dims(info.values, found)
            return ShapeStructInfo(None, len(info.values)) if dims is None else ShapeStructInfo(dims)
        case PrimStructInfo() if info.value is not None:
            dims = _dims((info.value,), found)
            return PrimStructInfo(info.dtype) if dims is None else PrimStructInfo(info.dtype, dims[0])
    return info


def _dims(dims: Sequence[Dim], found: Mapping[Var, PrimExpr]) -> tuple[PrimExpr, ...] | None:
    """The dimensions in the caller's symbols; None where one of them is not known."""
    new = tuple(to_dim(d) for d in dims)
    if any(v not in found for d in new for v in free_vars(d)):
        return None
    return tuple(substitute(d, found) for d in new)
