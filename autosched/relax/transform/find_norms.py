"""Norms that are spelled out, as files of older opsets and PyTorch's decoders have them, become `nn.layer_norm` and
`nn.rms_norm`: one kernel that reads its rows once.

    x * rsqrt(mean(x * x) + e) * w                 ->  rms_norm(x, w)
    c = x - mean(x); c / sqrt(mean(c * c) + e) * g + b  ->  layer_norm(x, g, b)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.registry import remake
from autosched.relax.op.types import axes_tuple
from autosched.relax.rewrite import CallTracker, float_of, map_functions, read_once, users
from autosched.relax.struct_info import TensorStructInfo, same_info
from autosched.tir.expr import const_int

MOST = 1 << 16  # elements of a row, which one thread goes over and a core's cache keeps
NORMS = {"relax.nn.layer_norm", "relax.nn.rms_norm"}


@dataclass(frozen=True)
class _Spread:
    """mean(x * x) + epsilon, or of a centred x; the root of it divides."""

    x: Expr
    is_centred: bool
    axes: tuple[int, ...]
    epsilon: float


class _Finder(CallTracker):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.single = read_once(users(function))

    def call(self, call: Call, var: Var) -> Expr:
        return self.found(call) or call

    def found(self, call: Call) -> Call | None:
        """The norm that a call is, or is a norm's scale or bias; None for others."""
        match call.op_name:
            case "relax.divide":
                numerator, root = call.args
                return self.norm(call, numerator, self.under(root, "relax.sqrt"))
            case "relax.multiply":
                for a, b in (call.args, call.args[::-1]):
                    if made := self.norm(call, a, self.inverse(b)) or self.with_parameter(call, a, b, "scale"):
                        return made
            case "relax.add":
                for a, b in (call.args, call.args[::-1]):
                    if made := self.with_parameter(call, a, b, "center"):
                        return made
        return None

    def norm(self, call: Call, x: Expr, under: Expr | None) -> Call | None:
        """x divided by the root of `under`, without scale and bias."""
        spread = None if under is None else self.spread(under)
        info = call.struct_info
        if spread is None or not isinstance(info, TensorStructInfo) or info.dtype not in ("float32", "float64"):
            return None
        sizes = [size for a in spread.axes if (size := const_int(info.dims[a]))]
        if list(spread.axes) != list(range(info.ndim - len(sizes), info.ndim)) or not 0 < len(sizes) < info.ndim:
            return None  # not the last ones, of known sizes
        if math.prod(sizes) > MOST:
            return None
        one, zero = (Constant(np.full(sizes, n, info.dtype)) for n in (1, 0))
        given = spread.x if spread.is_centred else x
        if not same_info(given.struct_info, info):
            return None
        if spread.is_centred:
            if not self.is_centred(x, spread.x, spread.axes):
                return None
            return op.nn.layer_norm(given, one, zero, spread.axes, spread.epsilon, False, False)
        return op.nn.rms_norm(given, one, spread.axes, spread.epsilon) if spread.x is x else None

    def inverse(self, x: Expr) -> Expr | None:
        """What x is one over the root of."""
        call = self.call_of(x)
        if call is not None and call.op_name == "relax.divide" and float_of(call.args[0]) == 1.0:
            return self.under(call.args[1], "relax.sqrt")
        return self.under(x, "relax.rsqrt")

    def spread(self, total: Expr) -> _Spread | None:
        """What a total of a mean and a number is."""
        call = self.call_of(total)
        if call is None or call.op_name != "relax.add":
            return None
        for mean, number in (call.args, call.args[::-1]):
            epsilon, over = float_of(number), self.call_of(mean)
            if epsilon is None or epsilon < 0 or over is None or not over.attrs.get("keepdims"):
                continue
            info = over.args[0].struct_info
            if not isinstance(info, TensorStructInfo) or info.ndim < 1:
                continue
            axes = axes_tuple(over.attrs["axis"], info.ndim)
            if over.op_name == "relax.variance":
                return _Spread(over.args[0], True, axes, epsilon)
            x = self.squared(over.args[0]) if over.op_name == "relax.mean" else None
            if x is None:
                continue
            inner = self.call_of(x)
            if inner is not None and inner.op_name == "relax.subtract" and self.is_centred(x, inner.args[0], axes):
                return _Spread(inner.args[0], True, axes, epsilon)
            return _Spread(x, False, axes, epsilon)
        return None

    def squared(self, x: Expr) -> Expr | None:
        """What x is the square of."""
        call = self.call_of(x)
        if call is None:
            return None
        value, *others = call.args
        is_square = (
            call.op_name == "relax.square"
            or (call.op_name == "relax.multiply" and others[0] is value)
            or (call.op_name == "relax.power" and float_of(others[0]) == 2.0)
        )
        return value if is_square else None

    def is_centred(self, x: Expr, source: Expr, axes: tuple[int, ...]) -> bool:
        """Whether x is the source less its mean."""
        call = self.call_of(x)
        if call is None or call.op_name != "relax.subtract" or call.args[0] is not source:
            return False
        mean = self.call_of(call.args[1])
        if mean is None or mean.op_name != "relax.mean" or mean.args[0] is not source or not mean.attrs["keepdims"]:
            return False
        info = source.struct_info
        return isinstance(info, TensorStructInfo) and axes_tuple(mean.attrs["axis"], info.ndim) == axes

    def with_parameter(self, call: Call, x: Expr, parameter: Expr, role: str) -> Call | None:
        """The norm x with its scale, or its bias; None where it is no norm that nobody else reads, or has one."""
        norm = self.call_of(x) if x in self.single else None
        info = parameter.struct_info
        if norm is None or norm.op_name not in NORMS or not isinstance(info, TensorStructInfo):
            return None
        wanted = norm.args[1].struct_info
        if not same_info(call.struct_info, norm.struct_info) or not same_info(info, wanted):
            return None
        if norm.op_name == "relax.nn.rms_norm":
            is_bare = role == "scale" and isinstance(norm.args[1], Constant) and bool(np.all(norm.args[1].data == 1))
            return remake(norm, [norm.args[0], parameter]) if is_bare else None
        if norm.attrs[role] or norm.attrs["center"]:  # a scale behind a bias is another function
            return None
        args = [*norm.args]
        args[1 if role == "scale" else 2] = parameter
        attrs = {**norm.attrs, role: True}
        return op.nn.layer_norm(*args, *(attrs[k] for k in ("axes", "epsilon", "center", "scale")))

    def under(self, x: Expr, name: str) -> Expr | None:
        call = self.call_of(x)
        return call.args[0] if call is not None and call.op_name == name else None


def find_norms(module: IRModule) -> IRModule:
    """Replace norms by `nn.layer_norm` and `nn.rms_norm`; what they were made of goes where nobody else reads it."""
    return map_functions(module, lambda function: _Finder(function).rewrite(function))


def FindNorms() -> Pass:  # noqa: N802
    """See `find_norms`."""
    return graph_pass("FindNorms")(find_norms)


__all__ = ["FindNorms", "find_norms"]
