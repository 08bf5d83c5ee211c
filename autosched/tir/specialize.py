"""A function for given values of its symbolic extents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from autosched.ir.node import FrozenDict, walk
from autosched.tir.expr import Buffer, PrimExpr, Var, const, const_int
from autosched.tir.function import PrimFunc
from autosched.tir.functor import free_vars, replace_buffers, substitute


def shape_vars(func: PrimFunc) -> list[Var]:
    """The variables in the shapes of a function's parameters, in order of first use."""
    found = {v: None for buffer in func.buffers for extent in buffer.shape for v in sorted_vars(extent)}
    return list(found)


def sorted_vars(extent: Any) -> list[Var]:
    """The variables of an expression, by name."""
    return sorted(free_vars(extent), key=lambda v: v.name) if isinstance(extent, PrimExpr) else []


def specialize(func: PrimFunc, values: Mapping[Var, int]) -> PrimFunc:
    """The function with numbers in place of variables; a parameter that is such a variable is left out."""
    numbers: dict[Var, PrimExpr] = {var: const(value, var.dtype) for var, value in values.items()}
    known = {node for node in walk(func.body) if isinstance(node, Buffer)} | set(func.buffers)
    buffers = {old: _specialized(old, numbers) for old in known}
    changed = {old: new for old, new in buffers.items() if new is not old}
    body = substitute(replace_buffers(func.body, changed), numbers)
    return dataclasses.replace(
        func,
        params=tuple(p for p in func.params if p not in numbers),
        buffer_map=FrozenDict({p: buffers[b] for p, b in func.buffer_map.items()}),
        body=body,
    )


def _specialized(buffer: Buffer, numbers: Mapping[Var, PrimExpr]) -> Buffer:
    shape = tuple(substitute(extent, numbers) for extent in buffer.shape)
    same = all(
        const_int(a) == const_int(b) and (a is b or const_int(a) is not None) for a, b in zip(shape, buffer.shape)
    )
    return buffer if same else dataclasses.replace(buffer, shape=shape)
