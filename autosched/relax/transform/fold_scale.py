"""Constant factors and shifts behind a convolution or matrix product move into its weight and bias.

(x * w + b) * c + d  ->  x * (w * c) + (b * c + d)
"""

from __future__ import annotations

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import CallTracker, map_functions, read_once, users
from autosched.relax.struct_info import TensorStructInfo, same_info
from autosched.relax.transform.decompose import decompose_ops

Array = np.ndarray
LINEAR = {
    "relax.nn.conv2d": 1,
    "relax.nn.conv3d": 1,
    "relax.matmul": -1,
}  # operator -> the output axis that its weight scales
PRODUCTS = (*LINEAR, "relax.multiply")


def along(array: Array, ndim: int, axis: int, size: int) -> Array | None:
    """A constant that, broadcast to `ndim` dimensions, differs along `axis` only: its values there, else None."""
    shape = (1,) * (ndim - array.ndim) + array.shape
    if array.ndim > ndim or any(s != 1 for i, s in enumerate(shape) if i != axis % ndim):
        return None
    return np.broadcast_to(array.reshape(-1), (size,)) if array.size in (1, size) else None


class _Folder(CallTracker):
    def __init__(self, function: Function):
        super().__init__()
        self.single = read_once(users(function))

    def call(self, call: Call, var: Var) -> Expr:
        if call.op_name in ("relax.multiply", "relax.divide"):
            return self.scale(call)
        return self.shift(call) if call.op_name in ("relax.add", "relax.subtract") else call

    def inner(self, x: object, names: tuple[str, ...]) -> Call | None:
        """The call that computed `x`, where nobody else reads it."""
        found = self.call_of(x) if x in self.single else None
        return found if found is not None and found.op_name in names else None

    def scale(self, call: Call) -> Call:
        x, factor = self.sides(call, "relax.multiply")
        if factor is None or factor.dtype.kind != "f":
            return call
        with np.errstate(divide="ignore"):
            values = factor.astype(np.float64) if call.op_name == "relax.multiply" else 1 / factor.astype(np.float64)
        if not np.all(np.isfinite(values)):
            return call
        product = self.inner(x, PRODUCTS)
        if product is not None:
            return self.scaled(product, values, call) or call
        sum_ = self.inner(x, ("relax.add",))
        if sum_ is None or not isinstance(sum_.args[1], Constant):
            return call
        product = self.inner(sum_.args[0], PRODUCTS)
        scaled = self.scaled(product, values, call) if product is not None else None
        if scaled is None:
            return call
        bias = sum_.args[1].data
        weighted = self.emit(scaled)
        assert isinstance(weighted, Var), "a call is bound to a variable"
        self.calls[weighted] = scaled
        self.single.add(weighted)
        return remake(sum_, [weighted, Constant((bias * values).astype(bias.dtype))])

    def scaled(self, product: Call, values: Array, outer: Call) -> Call | None:
        """The convolution or product with a scaled weight or factor; None where that cannot be."""
        if product.op_name == "relax.multiply":
            return self.merged(product, values)
        weight, info = product.args[1], product.struct_info
        if not isinstance(weight, Constant) or not isinstance(info, TensorStructInfo):
            return None
        layouts = [product.attrs.get(name) or "NCHW" for name in ("data_layout", "out_layout")]
        if not same_info(info, outer.struct_info) or any(x not in ("NCHW", "NCDHW") for x in layouts):
            return None
        if not product.attrs.get("kernel_layout", "O").startswith("O"):
            return None
        axis = LINEAR[product.op_name]
        if weight.data.ndim < 2 or info.ndim < 2:
            return None
        size = info.dims[axis]
        factors = along(values, info.ndim, axis, size) if isinstance(size, int) else None
        if factors is None:
            return None
        shape = [1] * weight.data.ndim
        shape[0 if axis == 1 else -1] = -1
        total = (weight.data * factors.reshape(shape)).astype(weight.data.dtype, copy=False)
        return remake(product, [product.args[0], Constant(total)])

    def merged(self, product: Call, values: Array) -> Call | None:
        """(x * w) * c -> x * (w * c), where w * c is no larger than the two."""
        x, factor = self.sides(product, "relax.multiply")
        if factor is None:
            return None
        total = (factor * values).astype(factor.dtype)
        return op.multiply(x, Constant(total)) if total.size <= max(factor.size, values.size) else None

    def shift(self, call: Call) -> Call:
        """(x + b) + d -> x + (b + d), behind a convolution or matrix product."""
        x, value = self.sides(call, "relax.add")
        if value is None:
            return call
        value = -value if call.op_name == "relax.subtract" else value
        plain = call if call.op_name == "relax.add" and call.args[0] is x else _as_addition(call, x, value)
        sum_ = self.inner(x, ("relax.add",))
        if sum_ is None or not isinstance(sum_.args[1], Constant) or not same_info(sum_.struct_info, call.struct_info):
            return plain
        total = sum_.args[1].data + value
        if total.size > max(sum_.args[1].data.size, value.size):
            return plain
        return remake(sum_, [sum_.args[0], Constant(np.asarray(total, value.dtype))])

    @staticmethod
    def sides(call: Call, commutative: str) -> tuple[Expr | None, Array | None]:
        """(the variable, the constant) of a call of two arguments, in either order where it is commutative."""
        a, b = call.args
        if isinstance(b, Constant) and isinstance(a, Var):
            return a, b.data
        if call.op_name == commutative and isinstance(a, Constant) and isinstance(b, Var):
            return b, a.data
        return None, None


def _as_addition(call: Call, x: object, value: Array) -> Call:
    """`call` as x + value; the call itself where it is of integers, whose negatives may not exist."""
    return op.add(x, Constant(value)) if value.dtype.kind == "f" else call


def fold_scale(module: IRModule) -> IRModule:
    """Fold constant factors into weights and add constant shifts up; outputs keep their values but for rounding."""
    return map_functions(module, lambda function: _Folder(function).rewrite(function))


def FoldBatchnormToConv2D() -> Pass:  # noqa: N802
    """Decompose batch_norm into factor and shift, and fold them into the convolution in front where there is one."""
    return graph_pass("FoldBatchnormToConv2D")(lambda module: fold_scale(decompose_ops(module)))
