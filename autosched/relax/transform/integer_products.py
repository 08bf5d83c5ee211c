"""Products and convolutions of quantised values are computed of their bytes, and scaled afterwards.

(q - z) * s  @  (w - v) * t   ->   (q @ (w - v) - z * sum(w - v)) * (s * t)
(q - z)      @  (w - v)       ->    q @ (w - v) - z * sum(w - v)                    q: bytes, w: a constant

Sums in int32 are exact, so what the model states in integers (ONNX's MatMulInteger, QLinearConv …) stays equal bit by
bit; what it states in floats (DequantizeLinear around an operator) is rounded less often than as it stands there.
A convolution's padding becomes the zero point, which stands for 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Var
from autosched.relax.op.registry import definition_of, is_constant, python_argument, remake
from autosched.relax.rewrite import Rewriter, map_functions
from autosched.relax.struct_info import TensorStructInfo
from autosched.relax.transform.blocked import shape_of

Array = np.ndarray[Any, Any]
MOST_STEPS = (2**31 - 1) // (255 * 128)  # of a sum that int32 holds whatever the bytes are
GROUP = 4  # input channels that are multiplied at once; those of a first layer become so many
SIGN = 128  # between a signed byte and the unsigned one with the same bits but the first


@dataclass(frozen=True)
class _Quantised:
    """(value - zero) * scale.

    value  of bytes for data; for weights a constant in which the zero point is accounted for
    zero   a number, or an int32 scalar that is known when the model runs
    scale  None for the integers themselves
    """

    value: Expr
    zero: int | Expr
    scale: Expr | None


class _Products(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[Var, Call] = {}
        self.arrays: dict[Var, Array | None] = {}

    def call(self, call: Call, var: Var) -> Expr:
        self.calls[var] = call
        if call.op_name == "relax.matmul":
            return self.product(call) or call
        if call.op_name == "relax.nn.conv2d":
            return self.convolution(call) or call
        return call

    # --- what is multiplied ------------------------------------------------------------------------------------------

    def data(self, x: Any) -> _Quantised | None:
        """Data as bytes with a zero point for all of them, and a scale for all of them."""
        found, scale = self.scaled(x)
        if found is None or (scale is not None and math.prod(shape_of(scale)) != 1):
            return None
        centred = self.calls.get(found) if isinstance(found, Var) else None
        zero: int | Expr = 0
        if centred is not None and centred.op_name == "relax.subtract":
            shift = self.shift(centred.args[1])
            centred = self.calls.get(centred.args[0]) if isinstance(centred.args[0], Var) else None
            if shift is None:
                return None
            zero = shift
        if centred is None or centred.op_name != "relax.astype":
            return None
        value = centred.args[0]
        dtype = value.struct_info.dtype if isinstance(value.struct_info, TensorStructInfo) else ""
        if dtype == "int8":
            whole = op.add(op.astype(value, "int32"), Constant(np.array(SIGN, "int32")))
            shifted = self.emit(op.astype(self.emit(whole), "uint8"))
            return _Quantised(shifted, zero + SIGN if isinstance(zero, int) else self.more(zero), scale)
        return _Quantised(value, zero, scale) if dtype == "uint8" else None

    def more(self, zero: Expr) -> Expr:
        return self.emit(op.add(zero, Constant(np.array(SIGN, "int32"))))

    def shift(self, x: Any) -> int | Expr | None:
        """A zero point for all values."""
        array = self.array(x)
        if array is not None:
            return int(array.reshape(-1)[0]) if array.size and np.all(array == array.reshape(-1)[0]) else None
        info = x.struct_info
        is_scalar = isinstance(info, TensorStructInfo) and info.is_static and math.prod(info.static_shape) == 1
        return x if is_scalar and info.dtype == "int32" else None

    def scaled(self, x: Any) -> tuple[Any, Expr | None]:
        """(an int32 value, its scale) for floats that are the product of both; (the value, None) for int32."""
        info = x.struct_info
        if not isinstance(info, TensorStructInfo) or not info.is_static:
            return None, None
        if info.dtype == "int32":
            return x, None
        call = self.calls.get(x) if isinstance(x, Var) else None
        if call is None or info.dtype != "float32" or call.op_name != "relax.multiply":
            return None, None
        cast = self.calls.get(call.args[0]) if isinstance(call.args[0], Var) else None
        if cast is None or cast.op_name != "relax.astype" or cast.args[0].struct_info.dtype != "int32":
            return None, None
        return cast.args[0], call.args[1]

    def weight(self, x: Any, channels: int) -> tuple[Array, Array | None] | None:
        """(a weight's bytes less their zero point, a scale for each of its channels or for all): constants.

        channels  the axis of the results' channels
        """
        order: tuple[int, ...] = ()
        call = self.calls.get(x) if isinstance(x, Var) else None
        if call is not None and call.op_name == "relax.permute_dims" and len(shape_of(x)) == 2:
            x, order, channels = call.args[0], (1, 0), -1 - channels % 2
        found, scale = self.scaled(x)
        values = None if found is None else self.array(found)
        if values is None or values.min(initial=0) < -SIGN or values.max(initial=0) >= SIGN:
            return None
        scales = None
        if scale is not None:
            known = self.array(scale)
            shape = (1,) * (values.ndim - known.ndim) + known.shape if known is not None else ()
            if known is None or any(n != 1 for a, n in enumerate(shape) if a != channels % values.ndim):
                return None
            scales = known.reshape(-1)
        whole = values.astype(np.int8)
        return (whole.transpose(order) if order else whole), scales

    def array(self, x: Any) -> Array | None:
        """The value of an expression of constants; None for any other."""
        if isinstance(x, Constant):
            return x.data
        call = self.calls.get(x) if isinstance(x, Var) else None
        if call is None:
            return None
        if x not in self.arrays:
            self.arrays[x] = self._computed(call)
        return self.arrays[x]

    def _computed(self, call: Call) -> Array | None:
        definition = definition_of(call)
        if definition is None or definition.reference is None or not isinstance(call.struct_info, TensorStructInfo):
            return None
        known = [Constant(a) if (a := self.array(x)) is not None else x for x in call.args]
        if not all(map(is_constant, known)):
            return None
        with np.errstate(all="ignore"):
            result = definition.run_reference([python_argument(a, lambda c: c.data) for a in known], call.attrs)
        return np.asarray(result, call.struct_info.dtype)

    # --- products ----------------------------------------------------------------------------------------------------

    def product(self, call: Call) -> Expr | None:
        """A matrix product of data with a constant weight [K, N]."""
        shape = shape_of(call.args[1])
        if len(shape) != 2 or not 0 < shape[0] <= MOST_STEPS or len(shape_of(call.args[0])) < 2:
            return None
        weight = self.weight(call.args[1], -1)
        data = self.data(call.args[0]) if weight is not None else None
        if data is None or weight is None or (data.scale is None) != (weight[1] is None):
            return None
        total = self.emit(op.matmul(data.value, Constant(np.ascontiguousarray(weight[0])), "int32"))
        centred = self.centred(total, data.zero, weight[0].sum(0, dtype=np.int32))
        return self.rescaled(centred, data, weight[1])

    def convolution(self, call: Call) -> Expr | None:
        """A convolution of images in plain layout with a constant weight [O, I, KH, KW], without groups."""
        shape, attrs = shape_of(call.args[1]), call.attrs
        plain = attrs["data_layout"] == "NCHW" and attrs["out_layout"] == "NCHW" and attrs["kernel_layout"] == "OIHW"
        if len(shape) != 4 or not plain or attrs["groups"] != 1 or attrs["pad_value"]:
            return None
        if shape[1] % GROUP and shape[1] > GROUP:
            return None
        if not 0 < math.prod(shape[1:]) <= MOST_STEPS:
            return None
        weight = self.weight(call.args[1], 0)
        data = self.data(call.args[0]) if weight is not None else None
        if data is None or weight is None or (data.scale is None) != (weight[1] is None):
            return None
        has_padding = any(attrs["padding"])
        if has_padding and not (isinstance(data.zero, int) and 0 <= data.zero <= 255):
            return None
        pad_value = data.zero if has_padding else 0
        args = [data.value, Constant(weight[0])]
        total = self.emit(remake(call, args, {"out_dtype": "int32", "pad_value": pad_value}))
        sums = weight[0].sum((1, 2, 3), dtype=np.int32).reshape(1, -1, 1, 1)
        scales = None if weight[1] is None else weight[1].reshape(1, -1, 1, 1)
        return self.rescaled(self.centred(total, data.zero, sums), data, scales)

    def centred(self, total: Expr, zero: int | Expr, sums: Array) -> Expr:
        """A product less that of the zero point."""
        if isinstance(zero, int):
            return total if zero == 0 else op.subtract(total, Constant((np.int64(zero) * sums).astype(np.int32)))
        one = self.emit(op.reshape(zero, ShapeExpr(())))
        return op.subtract(total, self.emit(op.multiply(one, Constant(sums))))

    def rescaled(self, total: Expr, data: _Quantised, scales: Array | None) -> Expr:
        """The floats that integers stand for; the integers where they are asked for."""
        if data.scale is None or scales is None:
            return total
        real = self.emit(op.astype(self.emit(total), "float32"))
        known = self.array(data.scale)
        if known is not None:
            return op.multiply(real, Constant((known.reshape(()) * scales).astype(np.float32)))
        scale = self.emit(op.reshape(data.scale, ShapeExpr(())))
        return op.multiply(real, self.emit(op.multiply(scale, Constant(scales.astype(np.float32)))))


def integer_products(module: IRModule) -> IRModule:
    """Compute products and convolutions of quantised values with constant weights of their bytes."""

    def change(function: Function) -> Function:
        return _Products().rewrite(function)

    return map_functions(module, change)


def IntegerProducts() -> Pass:  # noqa: N802
    """See `integer_products`."""
    return graph_pass("IntegerProducts")(integer_products)
