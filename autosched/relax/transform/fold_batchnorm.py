"""Scales and shifts of channels: joined, and folded into the convolution before them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, PassInfo, Sequential
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import Rewriter, map_functions, users
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.dead_code import dead_code_elimination
from autosched.relax.transform.decompose import decompose_for_inference
from autosched.relax.transform.fold_constant import fold_constants

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Affine:
    """base * scale + shift, a value a channel (float64); `steps` operators were joined."""

    base: Expr
    scale: Array
    shift: Array
    steps: int


def channel_values(c: Expr, info: TensorStructInfo) -> Array | None:
    """A constant that depends on dimension 1 of [N, C, H, W] only, as an array [C]; None for any other."""
    if not isinstance(c, Constant) or c.data.dtype.kind != "f" or info.ndim != 4 or not info.is_static:
        return None
    channels = info.static_shape[1]
    shape = (1,) * (4 - c.data.ndim) + c.data.shape
    if len(shape) != 4 or shape[0] != 1 or shape[2:] != (1, 1) or shape[1] not in (1, channels):
        return None
    return np.broadcast_to(c.data.reshape(-1).astype(np.float64), (channels,))


class _Joiner(Rewriter):
    """Follows chains of multiply, add, subtract, divide by channel constants whose values are read once."""

    def __init__(self, function: Function):
        super().__init__()
        self.read = {v: len(u) for v, u in users(function).items()}
        self.affine: dict[Var, Affine] = {}
        self.convolutions: dict[Var, Call] = {}

    def call(self, call: Call, var: Var) -> Expr:
        name = call.op_name.removeprefix("relax.")
        if name == "nn.conv2d":
            if self.read.get(var) == 1 and isinstance(call.args[1], Constant) and call.attrs["out_layout"] == "NCHW":
                self.convolutions[var] = call
            return call
        joined = self.join(name, call)
        if joined is None:
            return call
        value = self.build(joined, call)
        if self.read.get(var) == 1:
            self.affine[value if isinstance(value, Var) else var] = joined
        return value

    def join(self, name: str, call: Call) -> Affine | None:
        if name not in ("multiply", "add", "subtract", "divide"):
            return None
        x, info = call.args[0], call.struct_info
        assert isinstance(info, TensorStructInfo)
        c = channel_values(call.args[1], info)
        if c is None and name in ("multiply", "add"):
            x, c = call.args[1], channel_values(call.args[0], info)
        shape = getattr(x.struct_info, "dims", None)
        if c is None or shape != info.dims:
            return None
        before = self.affine.get(x) or Affine(x, np.ones_like(c), np.zeros_like(c), 0)
        match name:
            case "multiply":
                return Affine(before.base, before.scale * c, before.shift * c, before.steps + 1)
            case "divide":
                return Affine(before.base, before.scale / c, before.shift / c, before.steps + 1)
            case _:
                return Affine(before.base, before.scale, before.shift + (c if name == "add" else -c), before.steps + 1)

    def build(self, a: Affine, call: Call) -> Expr:
        """The joined chain: into the convolution's weight where there is one; as it was where nothing was gained."""
        base, scaled = a.base, bool(np.any(a.scale != 1))
        convolution = self.convolutions.get(base)  # type: ignore[call-overload]
        if a.steps < 2 and (convolution is None or not scaled):
            return call
        info = call.struct_info
        assert isinstance(info, TensorStructInfo)
        if scaled and convolution is not None:
            weight = convolution.args[1].data
            scaled_weight = (weight * a.scale.reshape(-1, 1, 1, 1)).astype(weight.dtype)
            base = self.emit(remake(convolution, (convolution.args[0], Constant(scaled_weight))))
        elif scaled:
            base = self.emit(op.multiply(base, _wide(a.scale, info.dtype)))
        return op.add(base, _wide(a.shift, info.dtype)) if np.any(a.shift != 0) else base


def _wide(values: Array, dtype: str) -> Constant:
    return Constant(values.astype(dtype).reshape(1, -1, 1, 1))


def _fold_scales(module: IRModule) -> IRModule:
    """Chains of channel scales and shifts become one scale and one shift; the scale goes into a convolution before it."""
    return map_functions(module, lambda function: _Joiner(function).rewrite(function))


fold_scales = Pass(_fold_scales, PassInfo(0, "fold-scales"))
fold_batchnorm = Sequential(
    [decompose_for_inference, fold_constants, fold_scales, dead_code_elimination()], name="FoldBatchnormToConv2D"
)


def FoldBatchnormToConv2D() -> Pass:  # noqa: N802  (TVM's name)
    """Batch normalisation becomes part of the convolution before it, or a scale and a shift."""
    return fold_batchnorm
