"""Products and convolutions of quantised values are computed of their bytes, and scaled afterwards.

(q - z) * s  @  (w - v) * t   ->   (q @ (w - v) - z * sum(w - v)) * (s * t)
(q - z)      @  (w - v)       ->    q @ (w - v) - z * sum(w - v)                    q: bytes, w: a constant
q @ (w - v)                   ->    q @ (w - v - m) + m * sum(q)                    where w - v are no signed bytes
(q - z)      @  (p - v)       ->    q @ p - z * sum(p) - v * sum(q) + K * z * v     p: signed bytes that a call brings

Sums in int32 are exact, so what the model states in integers (ONNX's MatMulInteger, QLinearConv …) stays equal bit by
bit; what it states in floats (DequantizeLinear around an operator) is rounded less often than as it stands there.
A convolution's padding becomes the zero point, which stands for 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, ShapeExpr, Var
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import map_functions
from autosched.relax.transform.blocked import dims_of, image_shape_of, shape_of
from autosched.relax.transform.quantised import BYTES, Array, QuantisedRewriter, dtype_of, is_one

MOST_STEPS = (2**31 - 1) // (255 * 128)  # of a sum that int32 holds whatever the bytes are
MOST_EXACT = 2**24 // (255 * 128)  # of a sum that float32 holds exactly
GROUP = 4  # bytes that are multiplied at once: sums of products of other numbers of them go on with zeros
LEAST_CHANNELS, MOST_ROWS = 16, 8  # of a depthwise convolution, of its window, that are summed up as bytes
# Rows that meet a matrix of their own: copying it and adding its columns up takes longer than two rows need, and as
# long as four (8 times 512 x 100, Emerald Rapids).
LEAST_ROWS = 4
MOST_SUMMED = 2**24 // 255  # bytes whose sum float32 holds exactly
SIGN = 128  # between a signed byte and the unsigned one with the same bits but the first


@dataclass(frozen=True)
class _Quantised:
    """Data: (value - zero) * scale.

    value  of bytes
    zero   a number, or an int32 scalar that is known when the model runs
    scale  None for the integers themselves
    """

    value: Expr
    zero: int | Expr
    scale: Expr | None


@dataclass(frozen=True)
class _Weight:
    """A constant weight: (values + shift) * scales.

    values  int8
    shift   a number for all: 0 where the weight less its zero point is of signed bytes
    scales  one for each channel of the results, or for all; None for the integers themselves
    """

    values: Array
    shift: int
    scales: Array | None

    def sums(self, axes: tuple[int, ...]) -> Array:
        """The sums of values + shift, in int32."""
        n = math.prod(self.values.shape[a] for a in axes)
        total: Array = self.values.sum(axes, dtype=np.int32) + np.int32(self.shift * n)
        return total


class _Products(QuantisedRewriter):
    """sums_columns  whether windows of one channel are summed up fastest as bytes, too
    of_two        whether bytes that are no constants are multiplied fastest as they are
    """

    def __init__(self, sums_columns: bool, of_two: bool):
        super().__init__()
        self.sums_columns, self.of_two = sums_columns, of_two

    def call(self, call: Call, var: Var) -> Expr:
        self.calls[var] = call
        if call.op_name == "relax.matmul":
            return self.product(call) or self.product_of_two(call) or call
        if call.op_name == "relax.nn.conv2d":
            return self.convolution(call) or call
        return call

    # --- what is multiplied ------------------------------------------------------------------------------------------

    def data(self, x: Expr) -> _Quantised | None:
        """Data as unsigned bytes with a zero point for all of them, and a scale for all of them."""
        found = self.bytes_of(x)
        if found is None or dtype_of(found.value) == "uint8":
            return found
        return _Quantised(self.moved(found.value, SIGN, "uint8"), self.more(found.zero, SIGN), found.scale)

    def bytes_of(self, x: Expr) -> _Quantised | None:
        """Bytes of either sign with a zero point for all of them, and a scale for all of them."""
        found, scale = self.scaled(x)
        if found is None or (scale is not None and not is_one(scale)):
            return None
        centred = self.call_of(found)
        zero: int | Expr = 0
        if centred is not None and centred.op_name == "relax.subtract":
            shift = self.shift(centred.args[1])
            centred = self.call_of(centred.args[0])
            if shift is None:
                return None
            zero = shift
        if centred is None or centred.op_name != "relax.astype":
            return None
        value = centred.args[0]
        return _Quantised(value, zero, scale) if dtype_of(value) in BYTES else None

    def moved(self, value: Expr, by: int, dtype: str) -> Expr:
        """Bytes of the other sign, so many more."""
        whole = op.add(op.astype(value, "int32"), Constant(np.array(by, "int32")))
        return self.emit(op.astype(self.emit(whole), dtype))

    def more(self, zero: int | Expr, by: int) -> int | Expr:
        return zero + by if isinstance(zero, int) else self.emit(op.add(zero, Constant(np.array(by, "int32"))))

    def weight(self, x: Expr, channels: int) -> _Weight | None:
        """A weight of bytes less their zero point, which is a constant.

        channels  the axis of the results' channels
        """
        order: tuple[int, ...] = ()
        call = self.call_of(x)
        if call is not None and call.op_name == "relax.permute_dims" and len(shape_of(x)) == 2:
            x, order, channels = call.args[0], (1, 0), -1 - channels % 2
        found, scale = self.scaled(x)
        values = None if found is None else self.array(found)
        if values is None or not values.size:
            return None
        low, high = int(values.min()), int(values.max())
        shift = 0 if low >= -SIGN and high < SIGN else high - SIGN + 1
        if low - shift < -SIGN:
            return None
        scales = None
        if scale is not None:
            known = self.array(scale)
            shape = (1,) * (values.ndim - known.ndim) + known.shape if known is not None else ()
            if known is None or any(n != 1 for a, n in enumerate(shape) if a != channels % values.ndim):
                return None
            scales = known.reshape(-1)
        whole = (values - shift).astype(np.int8)
        return _Weight(np.ascontiguousarray(whole.transpose(order) if order else whole), shift, scales)

    # --- products ----------------------------------------------------------------------------------------------------

    def product(self, call: Call) -> Expr | None:
        """A matrix product of data with a constant weight [K, N]."""
        shape = shape_of(call.args[1])
        if len(shape) != 2 or not 0 < shape[0] <= MOST_STEPS or len(dims_of(call.args[0])) < 2:
            return None
        weight = self.weight(call.args[1], -1)
        data = self.data(call.args[0]) if weight is not None else None
        if data is None or weight is None or (data.scale is None) != (weight.scales is None):
            return None
        values = Constant(np.pad(weight.values, ((0, -shape[0] % GROUP), (0, 0))))
        total = self.emit(op.matmul(self.in_words(data.value, -1, shape[0]), values, "int32"))
        if weight.shift:
            whole = self.emit(op.sum(op.astype(data.value, "int32"), axis=-1, keepdims=True))
            total = self.shifted(total, whole, weight.shift)
        return self.rescaled(self.centred(total, data.zero, weight.sums((0,))), data, weight.scales)

    def product_of_two(self, call: Call) -> Expr | None:
        """A matrix product of integers with a matrix [K, N], or one for each of [M, K], that is no constant."""
        shape = shape_of(call.args[1])
        if not self.of_two or len(shape) < 2 or len(dims_of(call.args[0])) < 2 or dtype_of(call) != "int32":
            return None
        steps = shape[-2]
        if not 0 < steps <= MOST_STEPS:
            return None
        if len(shape) > 2:
            *batch, n_rows, _ = shape_of(call.args[0]) or (0, 0)
            if shape[:-2] != tuple(batch) or n_rows < LEAST_ROWS:
                return None
        if self.array(call.args[1]) is not None:
            return None
        rows, columns = self.bytes_of(call.args[0]), self.bytes_of(call.args[1])
        if rows is None or columns is None or rows.scale is not None or columns.scale is not None:
            return None
        data = self.data(call.args[0])
        assert data is not None, "just seen"
        matrix, zero = columns.value, columns.zero
        if dtype_of(matrix) == "uint8":
            matrix, zero = self.moved(matrix, -SIGN, "int8"), self.more(zero, -SIGN)
        words = self.in_words(data.value, -1, steps), self.in_words(matrix, -2, steps)
        total = self.emit(op.matmul(*words, "int32"))
        sums = None if data.zero == 0 else self.whole_sum(matrix, -2)
        if zero != 0:
            total = self.less(total, zero, self.whole_sum(data.value, -1))
            sums = None if sums is None else self.less(sums, zero, Constant(np.array(steps, "int32")))
        return total if sums is None else self.less(total, data.zero, sums)

    def in_words(self, x: Expr, axis: int, size: int) -> Expr:
        """Bytes with zeros behind them, up to whole words along an axis of a size."""
        widths = [(0, 0)] * len(dims_of(x))
        widths[axis] = 0, -size % GROUP
        return self.emit(op.nn.pad(x, pad_width=sum(widths, ()))) if size % GROUP else x

    def whole_sum(self, x: Expr, axis: int) -> Expr:
        """The sums of bytes along an axis, in int32."""
        return self.emit(op.sum(self.emit(op.astype(x, "int32")), axis=axis, keepdims=True))

    def less(self, total: Expr, zero: int | Expr, sums: Expr) -> Expr:
        """total - zero * sums."""
        one = Constant(np.array(zero, "int32")) if isinstance(zero, int) else self.emit(op.reshape(zero, ShapeExpr(())))
        return self.emit(op.subtract(total, self.emit(op.multiply(one, sums))))

    def convolution(self, call: Call) -> Expr | None:
        """A convolution of images in plain layout with a constant weight [O, I, KH, KW], of all channels or of groups.

        One channel's few products are summed in float32, which holds them exactly and is multiplied fastest where
        there is nothing for the bytes of a window's columns. Groups whose channels do not fill words are left as they
        are; all channels are multiplied in blocks, which end with zeros.
        """
        shape, attrs = shape_of(call.args[1]), call.attrs
        plain = attrs["data_layout"] == "NCHW" and attrs["out_layout"] == "NCHW" and attrs["kernel_layout"] == "OIHW"
        if len(shape) != 4 or not plain or attrs["pad_value"]:
            return None
        if not all(isinstance(n, int) for n in image_shape_of(call.args[0])[2:]):
            return None  # a direct convolution over images of open sizes multiplies no words: floats are faster
        is_each = shape[1] == 1 and attrs["groups"] == shape[0] > 1
        if is_each and math.prod(shape[1:]) > MOST_EXACT:
            return None
        groups = attrs["groups"]
        if not is_each and shape[1] % GROUP and groups > 1:
            return None
        if not is_each and groups > 1 and (shape[0] // groups) % GROUP:
            return None
        if not 0 < math.prod(shape[1:]) <= MOST_STEPS:
            return None
        weight = self.weight(call.args[1], 0)
        data = self.data(call.args[0]) if weight is not None else None
        if data is None or weight is None or (data.scale is None) != (weight.scales is None):
            return None
        if weight.shift and (groups > 1 or math.prod(shape[1:]) > MOST_SUMMED):
            return None
        if is_each and (data.scale is None or not isinstance(data.zero, int)):
            return None  # integers are asked for, or what is taken from them is only known as one
        has_padding = any(attrs["padding"])
        if has_padding and not (isinstance(data.zero, int) and 0 <= data.zero <= 255):
            return None
        pad_value = data.zero if has_padding and isinstance(data.zero, int) else 0
        in_words = self.sums_columns and shape[0] >= LEAST_CHANNELS and 1 < shape[2] <= MOST_ROWS
        dtype = "float32" if is_each and not in_words else "int32"
        args = [data.value, Constant(weight.values if dtype == "int32" else weight.values.astype(dtype))]
        total = self.emit(remake(call, args, {"out_dtype": dtype, "pad_value": pad_value}))
        if weight.shift:
            total = self.shifted(total, self.windows(call, data.value, pad_value), weight.shift)
        sums = weight.sums((1, 2, 3)).reshape(1, -1, 1, 1)
        scales = None if weight.scales is None else weight.scales.reshape(1, -1, 1, 1)
        return self.rescaled(self.centred(total, data.zero, sums), data, scales)

    def windows(self, call: Call, data: Expr, pad_value: int) -> Expr:
        """The sums of all that each window of a convolution's data holds, in int32: float32 holds them exactly."""
        _, channels, *window = shape_of(call.args[1])
        image = op.sum(op.astype(data, "int32"), axis=1, keepdims=True)
        ones = Constant(np.ones((1, 1, *window), np.float32))
        one = self.emit(op.astype(self.emit(image), "float32"))
        return op.astype(
            self.emit(remake(call, [one, ones], {"out_dtype": "float32", "pad_value": pad_value * channels})), "int32"
        )

    def shifted(self, total: Expr, sums: Expr, shift: int) -> Expr:
        """A product with a weight that is `shift` more than the one that was multiplied."""
        return self.emit(op.add(total, self.emit(op.multiply(self.emit(sums), Constant(np.array(shift, "int32"))))))

    def centred(self, total: Expr, zero: int | Expr, sums: Array) -> Expr:
        """A product less that of the zero point."""
        if isinstance(zero, int):
            kind = dtype_of(total)
            return total if zero == 0 else op.subtract(total, Constant((np.int64(zero) * sums).astype(kind)))
        one = self.emit(op.reshape(zero, ShapeExpr(())))
        return op.subtract(total, self.emit(op.multiply(one, Constant(sums))))

    def rescaled(self, total: Expr, data: _Quantised, scales: Array | None) -> Expr:
        """The floats that integers stand for; the integers where they are asked for."""
        if data.scale is None or scales is None:
            return total
        total = self.emit(total)
        real = total if dtype_of(total) == "float32" else self.emit(op.astype(total, "float32"))
        known = self.array(data.scale)
        if known is not None:
            return op.multiply(real, Constant((known.reshape(()) * scales).astype(np.float32)))
        scale = self.emit(op.reshape(data.scale, ShapeExpr(())))
        return op.multiply(real, self.emit(op.multiply(scale, Constant(scales.astype(np.float32)))))


def integer_products(module: IRModule, sums_columns: bool = False, of_two: bool = True) -> IRModule:
    """Compute products and convolutions of quantised values of their bytes: with constant weights, and products of two.

    sums_columns  whether the target sums depthwise windows up fastest as bytes, too
    of_two        whether it multiplies bytes that are no constants fastest as they are
    """

    def change(function: Function) -> Function:
        return _Products(sums_columns, of_two).rewrite(function)

    return map_functions(module, change)


def IntegerProducts(sums_columns: bool = False, of_two: bool = True) -> Pass:  # noqa: N802
    """See `integer_products`."""
    return graph_pass("IntegerProducts")(lambda module: integer_products(module, sums_columns, of_two))
