"""Parts that lie one after the other in memory need no kernel, parts that are moved on none of their own.

split(x, n, axis)[i]  ->  strided_slice(x, i-th part)

A split is one kernel that copies all parts. A slice without gaps is memory of its argument, and one that a change of
layout or a permutation reads is one kernel with it (`views.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from autosched.relax.op.manipulate import split_sizes
from autosched.relax.rewrite import Rewriter, map_functions, users
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.views import is_move, slice_offset


class _Slicer(Rewriter):
    def __init__(self, function: Function):
        super().__init__()
        self.values: Mapping[Var, Expr] = {b.var: b.value for b in function.bindings()}
        self.readers = users(function)

    def call(self, call: Call, var: Var) -> Expr:
        info = call.args[0].struct_info if call.op_name == "relax.split" else None
        if not isinstance(info, TensorStructInfo) or not info.is_static or not math.prod(info.static_shape):
            return call
        axis, begin = call.attrs["axis"] % info.ndim, 0
        parts: list[Call] = []
        for size in split_sizes(info.static_shape[axis], call.attrs["indices_or_sections"]):
            parts.append(op.strided_slice(call.args[0], axes=(axis,), begin=(begin,), end=(begin + size,)))
            begin += size
        moved = self.moved(var)
        if not all(slice_offset(part) is not None or i in moved for i, part in enumerate(parts)):
            return call
        return Tuple(tuple(self.emit(part) for part in parts))

    def moved(self, split: Var) -> set[int]:
        """The parts of a split that one call reads, which only moves their elements."""
        parts = [(r, self.values.get(r)) for r in self.readers.get(split, []) if r is not None]
        return {
            value.index
            for part, value in parts
            if isinstance(value, TupleGetItem) and [*map(self.is_move, self.readers.get(part, []))] == [True]
        }

    def is_move(self, reader: Var | None) -> bool:
        return reader is not None and is_move(self.values.get(reader))


def slice_splits(module: IRModule) -> IRModule:
    """No function splits what its parts are memory of, or what is only moved on."""
    return map_functions(module, lambda function: _Slicer(function).rewrite(function))


def SliceSplits() -> Pass:  # noqa: N802
    """See `slice_splits`."""
    return graph_pass("SliceSplits")(slice_splits)


__all__ = ["SliceSplits", "slice_splits"]
