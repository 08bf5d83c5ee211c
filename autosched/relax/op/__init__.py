"""The operators; the whole table is `registry.OPERATORS`."""

from autosched.relax.op import grad, image, nn
from autosched.relax.op.arrange import (
    collapse_sum_like, collapse_sum_to, flip, masked_fill, outer, repeat, stack,
)  # fmt: skip
from autosched.relax.op.binary import (
    add,
    broadcast_to,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    not_equal,
    power,
    stretch,
    subtract,
    where,
)
from autosched.relax.op.call import (
    CALL_TIR, assert_op, call_dps_packed, call_inplace_packed, call_packed, call_pure_packed, call_tir,
    call_tir_inplace, is_call_tir, null_value, print, shape_of, tir_inputs, tir_target,
)  # fmt: skip
from autosched.relax.op.create import arange, full, ones, size_range, size_values, zeros
from autosched.relax.op.data_sizes import (
    dynamic_strided_slice, nonzero, shape_to_tensor, tensor_to_shape, unique,
)  # fmt: skip
from autosched.relax.op.devices import to_vdevice
from autosched.relax.op.create_like import (
    eye, eye_like, full_like, one_hot, ones_like, tril, triu, zeros_like,
)  # fmt: skip
from autosched.relax.op.functions import (
    atan2, copysign, digamma, erfc, erfinv, exp2, expm1, floor_quotient, hypot, lgamma, log1p, log2, log10,
)  # fmt: skip
from autosched.relax.op.indexing import gather_elements, gather_nd, take, take_along_axis
from autosched.relax.op.layout import layout_transform
from autosched.relax.op.products import einsum, grouped_matmul, linear, matmul, squared_distance
from autosched.relax.op.quantize import dequantize, quantize
from autosched.relax.op.manipulate import (
    concat,
    expand_dims,
    flatten,
    permute_dims,
    reshape,
    split,
    squeeze,
    sized_slice,
    strided_slice,
    tile,
)
from autosched.relax.op.numbers import (
    bitwise_and, bitwise_not, bitwise_or, bitwise_xor, ewise_fma, floor_mod, isfinite, isinf, isnan, left_shift,
    log_add_exp, logical_xor, mod, right_shift, square, trunc,
)  # fmt: skip
from autosched.relax.op.reduce import argmax, argmin, max, mean, min, prod, std, sum, sum_abs, sum_squares, variance
from autosched.relax.op.registry import OPERATORS, OpDef, Sample, define_op, definition_of, get_op, remake, sample
from autosched.relax.op.select import (
    bucketize, hamming_window, index_put, index_tensor, median, meshgrid, multinomial_from_uniform, reverse_sequence,
    size, slice_scatter,
)  # fmt: skip
from autosched.relax.op.scatter import scatter_elements, scatter_nd, write_at
from autosched.relax.op.sort import argsort, cumprod, cumsum, sort, topk
from autosched.relax.op.trees import feature_bits, most_nodes, tree_levels
from autosched.relax.op.unary import acos, acosh, asin, asinh, atan, atanh, cosh, sinh, tan
from autosched.relax.op.unary import (
    abs, astype, ceil, clip, cos, erf, exp, floor, identity, log, logical_not, negative, round, rsqrt, sigmoid, sign,
    sin, sqrt, tanh,
)  # fmt: skip
