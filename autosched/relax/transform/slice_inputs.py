"""Parts of an input are slices of it, which the kernels that read them take from where it lies.

split(x, n)[i]  ->  strided_slice(x, i-th part)          x: an input

A split is one kernel that copies all parts; a slice joins the kernel of whoever reads it. A cache of keys that holds
all layers of a decoder is so read once, by the concatenations with the new keys.
"""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Function, Tuple, Var
from autosched.relax.op.manipulate import split_sizes
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo


class _Slicer(Rewriter):
    def __init__(self, function: Function):
        super().__init__()
        self.given = set(function.params)

    def call(self, call: Call, var: Var) -> Expr:
        x = call.args[0] if call.op_name == "relax.split" else None
        info = x.struct_info if isinstance(x, Var) and x in self.given else None
        if not isinstance(info, TensorStructInfo) or not info.is_static:
            return call
        axis = call.attrs["axis"] % info.ndim
        parts, begin = [], 0
        for size in split_sizes(info.static_shape[axis], call.attrs["indices_or_sections"]):
            part = op.strided_slice(x, axes=(axis,), begin=(begin,), end=(begin + size,))
            parts.append(self.emit(part))
            begin += size
        return Tuple(tuple(parts))


def slice_inputs(module: IRModule) -> IRModule:
    """Replace splits of a function's inputs by slices."""
    return map_functions(module, lambda function: _Slicer(function).rewrite(function))


def SliceInputs() -> Pass:  # noqa: N802
    """See `slice_inputs`."""
    return graph_pass("SliceInputs")(slice_inputs)


__all__ = ["SliceInputs", "slice_inputs"]
