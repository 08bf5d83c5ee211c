"""Calls that need no kernel: their result is memory that other kernels have written.

A view is its argument's memory under another shape, a slice without gaps a part of it. A concatenation whose parts lie
one after the other in memory is nothing either, where the kernels of the parts write into its memory at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeGuard

import numpy as np

from autosched.relax.expr import Call, DataflowVar, Function, Tuple, Var
from autosched.relax.op.manipulate import slice_plan
from autosched.relax.op.registry import definition_of
from autosched.relax.rewrite import users
from autosched.relax.struct_info import Expr, TensorStructInfo

VIEWS = frozenset({"reshape", "flatten", "expand_dims", "squeeze"})
MOVES = frozenset({"permute_dims", "layout_transform"})
ALIGNMENT = 64  # bytes: where a kernel's output may begin


def is_view(x: object) -> TypeGuard[Call]:
    """Whether an expression is a call that gives its argument's memory another shape."""
    return isinstance(x, Call) and x.op_name.removeprefix("relax.") in VIEWS


def is_concat(x: object) -> TypeGuard[Call]:
    return isinstance(x, Call) and x.op_name == "relax.concat"


def is_move(x: object) -> TypeGuard[Call]:
    """Whether a call only moves elements; a layout with more places than elements is a kernel of its own."""
    if not isinstance(x, Call) or x.op_name.removeprefix("relax.") not in MOVES:
        return False
    infos = [i for i in (x.args[0].struct_info, x.struct_info) if isinstance(i, TensorStructInfo) and i.is_static]
    return len(infos) < 2 or math.prod(infos[0].static_shape) == math.prod(infos[1].static_shape)


def part_offsets(call: Call) -> tuple[int, ...] | None:
    """Where in a concatenation's memory each part begins, in bytes; None where parts are not contiguous or aligned."""
    parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
    infos = [p.struct_info for p in parts if isinstance(p.struct_info, TensorStructInfo) and p.struct_info.is_static]
    if len(infos) < 2 or len(infos) != len(parts):
        return None
    axis = call.attrs["axis"] % infos[0].ndim
    if math.prod(infos[0].static_shape[:axis]) != 1:
        return None
    offsets, end = [], 0
    for i in infos:
        if end % ALIGNMENT:
            return None
        offsets.append(end)
        end += math.prod(i.static_shape) * np.dtype(i.dtype).itemsize
    return tuple(offsets)


def is_slice(x: object) -> TypeGuard[Call]:
    return isinstance(x, Call) and x.op_name == "relax.strided_slice"


def slice_offset(call: Call) -> int | None:
    """Where in its argument's memory a slice begins, in bytes; None where it has gaps or is not aligned."""
    info = call.args[0].struct_info
    if not isinstance(info, TensorStructInfo) or not info.is_static:
        return None
    shape = info.static_shape
    sizes, begins, steps = slice_plan(shape, *(call.attrs[name] for name in ("axes", "begin", "end", "strides")))
    cut = [axis for axis, size in enumerate(sizes) if size != shape[axis]]
    if len(cut) != 1 or steps[cut[0]] != 1 or not sizes[cut[0]] or math.prod(shape[: cut[0]]) != 1:
        return None
    offset = begins[cut[0]] * math.prod(shape[cut[0] + 1 :]) * np.dtype(info.dtype).itemsize
    return None if offset % ALIGNMENT else offset


class _Finder:
    def __init__(self, function: Function):
        self.values: Mapping[Var, Expr] = {b.var: b.value for b in function.bindings()}
        self.readers = users(function)
        self.joined: set[Var] = set()
        self.claimed: set[Var] = set()

    def find(self) -> set[Var]:
        for var, value in self.values.items():
            if is_concat(value) and self.can_join(var, value):
                self.joined.add(var)
                self.claimed.update(value.args[0].fields)
        views = {v for v, value in self.values.items() if is_view(value) and not self.stands_between_moves(v, value)}
        return self.joined | views | self.slices(views)

    def slices(self, views: set[Var]) -> set[Var]:
        """Slices of what kernels write into memory of their own and somebody else reads as well."""
        return {
            v
            for v, value in self.values.items()
            if is_slice(value)
            and isinstance(v, DataflowVar)
            and v not in self.claimed
            and None not in self.readers.get(v, [])
            and slice_offset(value) is not None
            and len(self.readers.get(value.args[0], ())) > 1  # else its kernel need not compute the rest
            and not any(self.is_moved(r) for r in self.readers.get(v, []) if r is not None)  # one kernel with that
            and self.is_owned(value.args[0], views)
        }

    def is_moved(self, reader: Var) -> bool:
        """Whether a call only moves elements on."""
        value = self.values.get(reader)
        return is_move(value) or is_concat(value) or is_slice(value)

    def is_owned(self, x: object, views: set[Var]) -> bool:
        """Whether a kernel writes `x`, or what it is a view of, and no result of the function lies there."""
        while isinstance(x, DataflowVar) and None not in self.readers.get(x, []):
            value = self.values.get(x)
            if x not in views or value is None:
                kernel = definition_of(value) is not None and not is_slice(value) and x not in self.joined
                return kernel and not self.is_shown(x)
            assert isinstance(value, Call), "views are calls"
            x = value.args[0]
        return False

    def is_shown(self, x: Var) -> bool:
        """Whether `x` is a result under some shape."""
        readers = self.readers.get(x, [])
        return None in readers or any(
            is_view(self.values.get(r)) and self.is_shown(r) for r in readers if r is not None
        )

    def can_join(self, var: Var, call: Call) -> bool:
        parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
        distinct = len(set(parts)) == len(parts)
        return distinct and part_offsets(call) is not None and self.is_inner(var) and all(map(self.can_be_part, parts))

    def can_be_part(self, x: object) -> bool:
        """Whether a kernel (or another joined concatenation) of this function alone decides where `x` lies."""
        if not isinstance(x, Var) or x in self.claimed or not self.is_inner(x):
            return False
        value = self.values.get(x)
        if is_concat(value):
            return x in self.joined
        return definition_of(value) is not None and not is_view(value)

    def is_inner(self, x: Var) -> bool:
        """Whether `x` stays inside: neither a result itself nor seen under another shape."""
        readers = self.readers.get(x, [])
        return isinstance(x, DataflowVar) and not any(r is None or is_view(self.values.get(r)) for r in readers)

    def stands_between_moves(self, var: Var, call: Call) -> bool:
        """Whether a view joins two kernels that only move elements: as a kernel it makes one kernel of the three."""
        source, readers = call.args[0], self.readers.get(var, [])
        if not isinstance(source, Var) or len(readers) != 1 or readers[0] is None:
            return False
        if len(self.readers.get(source, [])) != 1:
            return False
        moved, reader = self.values.get(source), self.values.get(readers[0])
        if is_slice(moved) and moved.args[0] not in self.values:  # of an input: no part of memory that kernels write
            return is_move(reader) or is_concat(reader)
        return is_move(moved) and is_move(reader)


def without_kernel(function: Function) -> set[Var]:
    """The variables of a function whose calls need no kernel; `to_graph` gives them memory."""
    return _Finder(function).find()
