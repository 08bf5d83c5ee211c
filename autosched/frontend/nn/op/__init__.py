"""Operators on tensors of a model, with the signatures of TVM's `relax.frontend.nn.op`.

Each binds its result under the operator's name; numbers beside tensors become constants of the tensor's dtype.
"""

from autosched.frontend.nn.core import METHODS, wrap_nested
from autosched.frontend.nn.effects import debug_func, print_
from autosched.frontend.nn.op.convolutions import conv1d, conv1d_transpose, conv2d, conv3d, interpolate
from autosched.frontend.nn.op.creation import arange, empty, full, ones, tril, triu, zeros
from autosched.frontend.nn.op.elementwise import (
    abs, add, astype, ceil, clip, cos, divide, equal, erf, exp, floor, gelu, greater, greater_equal, less,
    less_equal, log, matmul, maximum, minimum, multiply, negative, not_equal, prelu, relu, relu6, sigmoid, silu,
    sin, softplus, sqrt, square, subtract, tanh, where,
)  # fmt: skip
from autosched.frontend.nn.op.normalizations import (
    group_norm, layer_norm, rms_norm, scaled_dot_product_attention, softmax,
)  # fmt: skip
from autosched.frontend.nn.op.own import extern, tensor_expr_op, tensor_ir_op
from autosched.frontend.nn.op.reductions import argmax, argmin, argsort, cumsum, max, mean, min, sort, sum, take, topk
from autosched.frontend.nn.op.sampling import (
    multinomial_from_uniform, renormalize_top_p_top_k_prob, sample_top_p_top_k_from_sorted_prob,
)  # fmt: skip
from autosched.frontend.nn.op.shapes import (
    broadcast_to, chunk, concat, pad, permute, permute_dims, repeat, reshape, split, squeeze, stack, unsqueeze,
)  # fmt: skip

__all__ = [
    "abs", "add", "arange", "argmax", "argmin", "argsort", "astype", "broadcast_to", "ceil", "chunk", "clip",
    "concat", "conv1d", "conv1d_transpose", "conv2d", "conv3d", "cos", "cumsum", "debug_func", "divide", "empty",
    "equal", "erf", "exp", "extern", "floor", "full", "gelu", "greater", "greater_equal", "group_norm", "interpolate",
    "layer_norm", "less", "less_equal", "log", "matmul", "max", "maximum", "mean", "min", "minimum",
    "multinomial_from_uniform", "multiply", "negative", "not_equal", "ones", "pad", "permute", "permute_dims",
    "prelu", "print_", "relu", "relu6", "renormalize_top_p_top_k_prob", "repeat", "reshape", "rms_norm",
    "sample_top_p_top_k_from_sorted_prob", "scaled_dot_product_attention", "sigmoid", "silu", "sin", "softmax",
    "softplus", "sort", "split", "sqrt", "square", "squeeze", "stack", "subtract", "sum", "take", "tanh",
    "tensor_expr_op", "tensor_ir_op", "topk", "tril", "triu", "unsqueeze", "where", "wrap_nested", "zeros",
]  # fmt: skip

METHODS.update({name: globals()[name] for name in __all__})
