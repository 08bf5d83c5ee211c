"""A sum of convolutions of one image is one convolution, as blocks with branches for training alone have them (RepVGG).

conv(x, w) + conv(x, v) + x * c  ->  conv(x, w + v + c), each weight at its taps, biases added up
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.ir.module import IRModule
from autosched.ir.transform import Pass, graph_pass
from autosched.relax import op
from autosched.relax.expr import Call, Constant, Expr, Function, Var
from autosched.relax.op.registry import remake
from autosched.relax.rewrite import CallTracker, map_functions, read_once, users
from autosched.relax.struct_info import TensorStructInfo, same_info
from autosched.relax.transform.fold_scale import Array, along

PLAIN = {
    "data_layout": ("NCHW",), "out_layout": (None, "NCHW"), "kernel_layout": ("OIHW",), "dilation": ((1, 1),),
    "out_dtype": (None, "float32"), "pad_value": (0,),
}  # fmt: skip


@dataclass
class _Term:
    """product(data, factor) + bias: a convolution, or an image times a constant for each channel."""

    product: Call
    data: Expr
    factor: Array
    bias: Array | None


class _Summer(CallTracker):
    def __init__(self, function: Function):
        super().__init__()
        self.single = read_once(users(function))

    def call(self, call: Call, var: Var) -> Expr:
        return (self.summed(call) if call.op_name == "relax.add" else None) or call

    def summed(self, call: Call) -> Call | None:
        """One convolution, with its bias, for a sum of two terms; None where they are no such terms."""
        a, b = map(self.term, call.args)
        if a is None or b is None or a.data is not b.data:
            return None
        if not all(same_info(t.product.struct_info, call.struct_info) for t in (a, b)):
            return None
        if _is_within(a, b):
            a, b = b, a
        if not _is_within(b, a):
            return None
        made = remake(a.product, [a.data, Constant(_with_taps(a, b))])
        biases = [t.bias for t in (a, b) if t.bias is not None]
        if not biases:
            return made
        total = np.asarray(sum(biases), "float32")
        if total.size > max(bias.size for bias in biases):
            return None
        weighted = self.emit(made)
        assert isinstance(weighted, Var), "a call is bound to a variable"
        self.calls[weighted] = made
        self.single.add(weighted)
        return op.add(weighted, Constant(total))

    def term(self, x: Expr) -> _Term | None:
        """What a summand is, where nobody else reads it or its parts."""
        found, bias = self.inner(x), None
        if found is not None and found.op_name == "relax.add" and isinstance(found.args[1], Constant):
            bias, product = found.args[1].data, self.inner(found.args[0])
            if product is None or not same_info(product.struct_info, found.struct_info):
                return None
            found = product
        if found is None or found.op_name not in ("relax.nn.conv2d", "relax.multiply"):
            return None
        if not isinstance(found.args[1], Constant) or found.args[1].data.dtype != np.float32:
            return None
        data, factor = found.args[0], found.args[1].data
        if found.op_name == "relax.nn.conv2d":
            return _Term(found, data, factor, bias) if all(found.attrs[k] in v for k, v in PLAIN.items()) else None
        info = found.struct_info
        if not isinstance(info, TensorStructInfo) or info.ndim != 4:
            return None
        channels = info.dims[1]
        factors = along(factor, 4, 1, channels) if isinstance(channels, int) else None
        return None if factors is None or not same_info(data.struct_info, info) else _Term(found, data, factors, bias)

    def inner(self, x: object) -> Call | None:
        return self.call_of(x) if x in self.single else None


def _is_convolution(term: _Term) -> bool:
    return term.product.op_name == "relax.nn.conv2d"


def _shift(large: _Term, small: _Term) -> tuple[int, int]:
    """The tap of the large convolution at which the first one of the small is."""
    top, left, *_ = large.product.attrs["padding"]
    y, x, *_ = small.product.attrs["padding"] if _is_convolution(small) else (0, 0)
    return top - y, left - x


def _is_within(small: _Term, large: _Term) -> bool:
    """Whether a convolution has a tap for each one of another term."""
    if not _is_convolution(large):
        return False
    attrs, taps = large.product.attrs, (1, 1)
    if _is_convolution(small):
        taps = small.factor.shape[2:]
        if any(attrs[k] != small.product.attrs[k] for k in ("strides", "groups")):
            return False
    elif tuple(attrs["strides"]) != (1, 1):
        return False
    sizes = zip(_shift(large, small), taps, large.factor.shape[2:], strict=True)
    return all(first >= 0 and first + count <= size for first, count, size in sizes)


def _with_taps(large: _Term, small: _Term) -> Array:
    """The large convolution's weight with the small term's added at its taps."""
    total = large.factor.astype(np.float64)
    y, x = _shift(large, small)
    if _is_convolution(small):
        height, width = small.factor.shape[2:]
        total[:, :, y : y + height, x : x + width] += small.factor
    else:
        out = np.arange(len(total))
        total[out, out % total.shape[1], y, x] += small.factor
    return total.astype(np.float32)


def sum_convolutions(module: IRModule) -> IRModule:
    """Make one convolution of convolutions of one image whose results are added; outputs change by rounding only."""
    return map_functions(module, lambda function: _Summer(function).rewrite(function))


def SumConvolutions() -> Pass:  # noqa: N802
    """See `sum_convolutions`."""
    return graph_pass("SumConvolutions")(sum_convolutions)
