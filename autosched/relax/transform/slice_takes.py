"""Elements at constant positions that are a few runs become slices side by side: vectors of them are loads.

Before:  take(x, [1, 0, 1, 2, 3, 2], axis)      a border that is mirrored
After:   concat(x[1:0:-1], x[0:4], x[2:3], axis)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Tuple, Var
from autosched.relax.op.indexing import resolve
from autosched.relax.op.types import axis_index
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo

MOST_RUNS = 8


class _Slicer(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name != "relax.take" or not isinstance(call.args[1], Constant):
            return call
        info, positions = call.args[0].struct_info, call.args[1].data
        assert isinstance(info, TensorStructInfo), "what is taken from is a tensor"
        axis = axis_index(call.attrs["axis"] or 0, len(info.dims))
        size = info.dims[axis]
        if positions.ndim != 1 or not positions.size or not isinstance(size, int) or not size:
            return call
        runs = list(_runs(resolve(positions, size, call.attrs["mode"]).tolist()))
        if len(runs) > MOST_RUNS:
            return call
        parts = []
        for first, last in runs:
            step = 1 if first <= last else -1
            end = last + step if last + step >= 0 else -size - 1
            parts.append(
                self.emit(op.strided_slice(call.args[0], axes=(axis,), begin=(first,), end=(end,), strides=(step,)))
            )
        return op.concat(Tuple(tuple(parts)), axis=axis) if len(parts) > 1 else parts[0]


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of the runs in which each position is the one before it and 1, or less 1."""
    first, step = 0, 0
    for n in range(1, len(positions) + 1):
        found = positions[n] - positions[n - 1] if n < len(positions) else 0
        if found in (-1, 1) and step in (0, found):
            step = found
        else:
            yield positions[first], positions[n - 1]
            first, step = n, 0


def slice_takes(module: IRModule) -> IRModule:
    """No function takes elements at constant positions that are up to MOST_RUNS runs."""
    return map_functions(module, lambda function: _Slicer().rewrite(function))


def SliceTakes() -> Pass:  # noqa: N802
    """See `slice_takes`."""
    return graph_pass("SliceTakes")(slice_takes)


__all__ = ["SliceTakes", "slice_takes"]
