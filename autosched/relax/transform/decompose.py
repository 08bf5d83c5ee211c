"""Operators of training in their inference form: simple operators with what is constant computed ahead."""

from __future__ import annotations

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Tuple, Var
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo


class _Decomposer(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name == "relax.nn.batch_norm" and not call.attrs["training"]:
            return self.batch_norm(call)
        return call

    def batch_norm(self, call: Call) -> Expr:
        """x * factor + shift, along the channels' axis."""
        data, _, _, mean, var = call.args
        info = data.struct_info
        assert isinstance(info, TensorStructInfo), "batch_norm takes a tensor"
        axis = call.attrs["axis"] % info.ndim
        channels = TensorStructInfo(info.dims[axis : axis + 1], info.dtype).static_shape[0]
        shape = tuple(channels if i == axis else 1 for i in range(info.ndim))
        constant = all(isinstance(a, Constant) for a in call.args[1:])
        factor, shift = self.constants(call, shape) if constant else self.computed(call, shape)
        scaled = self.emit(op.multiply(data, factor))
        return Tuple((self.emit(op.add(scaled, shift)), mean, var))

    def constants(self, call: Call, shape: tuple[int, ...]) -> tuple[Expr, Expr]:
        """Factor and shift, computed in float64."""
        gamma, beta, mean, var = (np.asarray(a.data, np.float64) for a in call.args[1:])
        factor = 1 / np.sqrt(var + call.attrs["epsilon"])
        factor = factor * gamma if call.attrs["scale"] else factor
        shift = -mean * factor + (beta if call.attrs["center"] else 0)
        dtype = call.args[0].struct_info.dtype
        return Constant(factor.astype(dtype).reshape(shape)), Constant(shift.astype(dtype).reshape(shape))

    def computed(self, call: Call, shape: tuple[int, ...]) -> tuple[Expr, Expr]:
        """The same in the graph, where the statistics are not known at build."""
        _, gamma, beta, mean, var = call.args
        factor = self.emit(op.rsqrt(op.add(var, call.attrs["epsilon"])))
        if call.attrs["scale"]:
            factor = self.emit(op.multiply(factor, gamma))
        moved = self.emit(op.negative(op.multiply(mean, factor)))
        shift = self.emit(op.add(moved, beta)) if call.attrs["center"] else moved
        return self.emit(op.reshape(factor, ShapeExpr(shape))), self.emit(op.reshape(shift, ShapeExpr(shape)))


def decompose_ops(module: IRModule, func: str | None = None) -> IRModule:
    """Replace every batch_norm (of `func`, or of all functions) by a multiplication and an addition."""
    skip = () if func is None else [gv.name for gv in module.get_global_vars() if gv.name != func]

    def decompose(function: Function) -> Function:
        return _Decomposer().rewrite(function)

    return map_functions(module, decompose, skip)


def DecomposeOpsForInference(func: str | None = None) -> Pass:  # noqa: N802
    """See `decompose_ops`."""
    return graph_pass("DecomposeOpsForInference")(lambda module: decompose_ops(module, func))
