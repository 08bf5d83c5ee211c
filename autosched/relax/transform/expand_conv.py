"""Convolutions over one dimension become convolutions of images with one row, which have the fast kernels."""

from __future__ import annotations

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Expr, Var
from autosched.relax.rewrite import Rewriter, map_functions

ROWS = 2  # the axis that is added


class _Expander(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name != "relax.nn.conv1d":
            return call
        data, weight = (self.emit(op.expand_dims(x, axis=ROWS)) for x in call.args)
        begin, end = call.attrs["padding"]
        images = op.nn.conv2d(
            data,
            weight,
            strides=(1, *call.attrs["strides"]),
            padding=(0, begin, 0, end),
            dilation=(1, *call.attrs["dilation"]),
            groups=call.attrs["groups"],
            out_dtype=call.attrs["out_dtype"],
        )
        return op.squeeze(self.emit(images), axis=(ROWS,))


def expand_conv1d(module: IRModule) -> IRModule:
    """Replace each `nn.conv1d` by `nn.conv2d` over images of one row."""
    return map_functions(module, lambda function: _Expander().rewrite(function))


def ExpandConv1d() -> Pass:  # noqa: N802
    """See `expand_conv1d`."""
    return graph_pass("ExpandConv1d")(expand_conv1d)
