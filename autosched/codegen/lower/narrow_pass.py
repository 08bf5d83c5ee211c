"""Indices of 64 bits become indices of 32."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeVar

from autosched.errors import CodegenError
from autosched.ir.node import FrozenDict
from autosched.tir import expr as E
from autosched.tir.buffer import Buffer
from autosched.tir.dtypes import fits
from autosched.tir.expr import IntImm, PrimExpr, Var
from autosched.tir.function import PrimFunc
from autosched.tir.functor import rewrite

T = TypeVar("T")


def narrow_indices(func: PrimFunc) -> PrimFunc:
    """The function with int32 loop variables, block variables, sizes and indices in place of int64 ones.

    Raises CodegenError where a buffer holds int64, and where a constant or the size of a buffer is too large.
    """
    wide = next((b for b in func.buffers if b.dtype == "int64"), None)
    if wide is not None:
        raise CodegenError(f"ForceNarrowIndexToInt32: buffer '{wide.name}' of the interface holds int64")
    narrowed: dict[int, tuple[object, object]] = {}

    def once(x: object, made: T) -> T:
        narrowed[id(x)] = (x, made)  # the pair keeps `x` alive, and so its id its own
        return made

    def step(x: object) -> object:
        if id(x) in narrowed:
            return narrowed[id(x)][1]
        match x:
            case Var(dtype="int64"):
                return once(x, type(x)(x.name, "int32"))
            case IntImm(dtype="int64"):
                return _constant(x.value)
            case E.Cast(dtype="int64"):
                return E.cast("int32", x.value)
            case E.Call(dtype="int64"):
                return dataclasses.replace(x, dtype="int32")
            case Buffer():
                return once(x, _buffer(x, step))
        return x

    body = rewrite(func.body, step)
    params = tuple(rewrite(p, step) for p in func.params)
    mapped: Mapping[Var, Buffer] = FrozenDict({rewrite(p, step): step(b) for p, b in func.buffer_map.items()})
    return dataclasses.replace(func, params=params, buffer_map=mapped, body=body)


def _constant(value: int) -> PrimExpr:
    if not fits(value, "int32"):
        raise CodegenError(f"ForceNarrowIndexToInt32: {value} is no int32")
    return IntImm(value, "int32")


def _buffer(buffer: Buffer, step: Callable[[object], object]) -> Buffer:
    size = 1
    for extent in buffer.shape:
        size *= extent.value if isinstance(extent, IntImm) else 1
    if not fits(size, "int32"):
        raise CodegenError(f"ForceNarrowIndexToInt32: buffer '{buffer.name}' has {size} elements")
    if buffer.dtype == "int64":
        raise CodegenError(f"ForceNarrowIndexToInt32: buffer '{buffer.name}' holds int64")
    shape, strides = (tuple(rewrite(x, step) for x in part) for part in (buffer.shape, buffer.strides))
    same = all(a is b for a, b in zip(shape + strides, buffer.shape + buffer.strides, strict=True))
    return buffer if same else dataclasses.replace(buffer, shape=shape, strides=strides)
