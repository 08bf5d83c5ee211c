"""Normalisation by batches as simple operators: in inference, with constants computed ahead, and in training."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, ShapeExpr, Tuple, TupleGetItem, Var, VarBinding
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo


class _Decomposer(Rewriter):
    def call(self, call: Call, var: Var) -> Expr:
        return self.batch_norm(call) if call.op_name == "relax.nn.batch_norm" else call

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


class _BuildDecomposer(_Decomposer):
    """Of batch_norm as it says itself: with the batch's statistics it stays."""

    def call(self, call: Call, var: Var) -> Expr:
        return call if call.attrs.get("training") else super().call(call, var)


class _TvmDecomposer(_Decomposer):
    """In the form and order that TVM writes, where not all is constant."""

    def call(self, call: Call, var: Var) -> Expr:
        new = super().call(call, var)
        return self.bound(new, var) if isinstance(new, Tuple) else new

    def bound(self, value: Expr, var: Var) -> Expr:
        """The variable, bound to a tuple: its items stay to be read from it."""
        self._bindings.append(VarBinding(var, value))
        self._changed = True
        return var

    def batch_norm(self, call: Call) -> Expr:
        if all(isinstance(a, Constant) for a in call.args[1:]):
            return super().batch_norm(call)
        data, gamma, beta, mean, var = call.args
        return Tuple((self.normalised(call, data, gamma, beta, mean, var), mean, var))

    def normalised(self, call: Call, data: Expr, gamma: Expr, beta: Expr, mean: Expr, var: Expr) -> Expr:
        """(data - mean) / sqrt(var + epsilon) * gamma + beta, by channels."""
        info = data.struct_info
        assert isinstance(info, TensorStructInfo), "batch_norm takes a tensor"
        axes = tuple(a for a in range(info.ndim) if a != call.attrs["axis"] % info.ndim)

        def wide(x: Expr) -> Expr:
            return self.emit(op.expand_dims(x, axes))

        moved = self.emit(op.subtract(data, wide(mean)))
        deviation = self.emit(op.sqrt(self.emit(op.add(wide(var), call.attrs["epsilon"]))))
        return self.scaled(call, self.emit(op.divide(moved, deviation)), gamma, beta, wide)

    def scaled(self, call: Call, result: Expr, gamma: Expr, beta: Expr, wide: Callable[[Expr], Expr]) -> Expr:
        """result * gamma + beta, as far as the call says so."""
        if call.attrs["scale"]:
            result = self.emit(op.multiply(result, wide(gamma)))
        return self.emit(op.add(result, wide(beta))) if call.attrs["center"] else result


class _TrainingDecomposer(_TvmDecomposer):
    def call(self, call: Call, var: Var) -> Expr:
        return self.layer_norm(call) if call.op_name == "relax.nn.layer_norm" else super().call(call, var)

    def batch_norm(self, call: Call) -> Expr:
        """By the batch's own statistics, which the moving ones take a share of."""
        data, gamma, beta, moving_mean, moving_var = call.args
        info = data.struct_info
        assert isinstance(info, TensorStructInfo), "batch_norm takes a tensor"
        axes = tuple(a for a in range(info.ndim) if a != call.attrs["axis"] % info.ndim)
        mean, var = self.emit(op.mean(data, axis=axes)), self.emit(op.variance(data, axis=axes))
        inner = self.emit(Tuple((self.normalised(call, data, gamma, beta, mean, var), mean, var)))
        result = self.emit(TupleGetItem(inner, 0))
        share = call.attrs["momentum"]
        moved = (
            self.emit(op.add(self.emit(op.multiply(1 - share, old)), self.emit(op.multiply(share, new))))
            for old, new in ((moving_mean, mean), (moving_var, var))
        )
        return Tuple((result, *moved))

    def layer_norm(self, call: Call) -> Expr:
        """By the mean and the variance along its axes."""
        data, gamma, beta = call.args
        axes = tuple(call.attrs["axes"])
        mean = self.emit(op.mean(data, axis=axes, keepdims=True))
        moved = self.emit(op.subtract(data, mean))
        var = self.emit(op.variance(data, axis=axes, keepdims=True))
        deviation = self.emit(op.sqrt(self.emit(op.add(var, call.attrs["epsilon"]))))
        return self.scaled(call, self.emit(op.divide(moved, deviation)), gamma, beta, lambda x: x)


def _decomposed(module: IRModule, func: str | None, decomposer: type[Rewriter]) -> IRModule:
    if func is not None:
        module[func]  # raises where there is none
    skip = () if func is None else [gv.name for gv in module.get_global_vars() if gv.name != func]
    return map_functions(module, lambda function: decomposer().rewrite(function), skip)


def DecomposeOpsForTraining(func: str | None = None) -> Pass:  # noqa: N802
    """Replace every batch_norm and layer_norm (of `func`, or of all functions) by simple operators.

    The first takes the batch's own statistics.
    """
    return graph_pass("DecomposeOpsForTraining")(lambda module: _decomposed(module, func, _TrainingDecomposer))


def DecomposeOpsForInference(func: str | None = None) -> Pass:  # noqa: N802
    """Replace every batch_norm (of `func`, or of all functions) by simple operators; constants become one factor.

    It is taken as in inference, whatever its attribute `training` says.
    """
    return graph_pass("DecomposeOpsForInference")(lambda module: _decomposed(module, func, _TvmDecomposer))


def decompose_ops(module: IRModule) -> IRModule:
    """The same for each batch_norm that is not in training."""
    return _decomposed(module, None, _BuildDecomposer)
