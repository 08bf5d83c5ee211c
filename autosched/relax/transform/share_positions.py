"""Positions that are repeated along other dimensions are read where they stand once.

Before:  gather_elements(x, broadcast_to(at, shape), axis)      at [n, 1], x [m, c]
After:   take_along_axis(x, at, axis)                           whole rows are copied
"""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.op.types import axis_index
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo, same_dim


class _Sharer(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.repeated: dict[Var, Expr] = {}  # what a variable repeats

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name == "relax.broadcast_to":
            self.repeated[var] = call.args[0]
        if call.op_name != "relax.gather_elements":
            return call
        data, wide = call.args
        at = self.repeated.get(wide) if isinstance(wide, Var) else None
        if at is None or not _is_shared(data, at, wide, call.attrs["axis"]):
            return call
        return op.take_along_axis(data, at, axis=call.attrs["axis"], mode=call.attrs["mode"])


def _is_shared(data: Expr, at: Expr, wide: Expr, axis: int) -> bool:
    """Whether the wide positions reach over all of the data, and those that they repeat are as many along the axis."""
    infos = [x.struct_info for x in (data, at, wide)]
    known = [i for i in infos if isinstance(i, TensorStructInfo) and i.shape is not None]
    if len(known) != len(infos) or known[0].ndim != known[1].ndim:
        return False
    whole, few, many = known
    a = axis_index(axis, whole.ndim)
    others = [(n, m) for d, (n, m) in enumerate(zip(whole.dims, many.dims, strict=True)) if d != a]
    return same_dim(few.dims[a], many.dims[a]) and all(same_dim(n, m) for n, m in others)


def share_positions(module: IRModule) -> IRModule:
    """No function looks up elements at positions that were repeated for that."""
    return map_functions(module, lambda function: _Sharer().rewrite(function))


def SharePositions() -> Pass:  # noqa: N802
    """See `share_positions`."""
    return graph_pass("SharePositions")(share_positions)
