"""Calls that need no kernel: their result is memory that other kernels have written.

A view is its argument's memory under another shape. A concatenation whose parts lie one after the other in memory is
nothing either, where the kernels of the parts write into its memory at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from autosched.relax.expr import Call, DataflowVar, Function, Tuple, Var
from autosched.relax.op.registry import definition_of
from autosched.relax.rewrite import users
from autosched.relax.struct_info import TensorStructInfo

VIEWS = frozenset({"reshape", "flatten", "expand_dims", "squeeze"})
MOVES = frozenset({"permute_dims", "layout_transform"})
ALIGNMENT = 64  # bytes: where a kernel's output may begin


def is_view(x: Any) -> bool:
    """Whether an expression is a call that gives its argument's memory another shape."""
    return isinstance(x, Call) and x.op_name.removeprefix("relax.") in VIEWS


def is_concat(x: Any) -> bool:
    return isinstance(x, Call) and x.op_name == "relax.concat"


def _is_move(x: Any) -> bool:
    return isinstance(x, Call) and x.op_name.removeprefix("relax.") in MOVES


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


class _Finder:
    def __init__(self, function: Function):
        self.values: Mapping[Var, Any] = {b.var: b.value for b in function.bindings()}
        self.readers = users(function)
        self.joined: set[Var] = set()
        self.claimed: set[Var] = set()

    def find(self) -> set[Var]:
        for var, value in self.values.items():
            if is_concat(value) and self.can_join(var, value):
                self.joined.add(var)
                self.claimed.update(value.args[0].fields)
        return self.joined | {
            v for v, value in self.values.items() if is_view(value) and not self.stands_between_moves(v, value)
        }

    def can_join(self, var: Var, call: Call) -> bool:
        parts = call.args[0].fields if isinstance(call.args[0], Tuple) else ()
        distinct = len(set(parts)) == len(parts)
        return distinct and part_offsets(call) is not None and self.is_inner(var) and all(map(self.can_be_part, parts))

    def can_be_part(self, x: Any) -> bool:
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
        alone = len(self.readers.get(source, [])) == 1
        return alone and _is_move(self.values.get(source)) and _is_move(self.values.get(readers[0]))


def without_kernel(function: Function) -> set[Var]:
    """The variables of a function whose calls need no kernel; `to_graph` gives them memory."""
    return _Finder(function).find()
