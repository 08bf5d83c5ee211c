"""Computes of operators, written with `te`: a file a family."""

from autosched.lazy_names import lazy_names
from autosched.topi import image, nn
from autosched.topi.attention import attention
from autosched.topi.attention_bytes import attention_bytes
from autosched.topi.kv_cache import cache_slide, cache_update, window_cache_length
from autosched.topi.broadcast import (
    add, atan2, bitwise_and, bitwise_or, bitwise_xor, broadcast_to, cast, div, divide, elemwise_sum, equal,
    floor_divide, floor_mod, floordiv, floormod, greater, greater_equal, left_shift, less, less_equal, logical_and,
    logical_or, maximum, minimum, mod, multiply, not_equal, power, right_shift, stretch, subtract, where,
)  # fmt: skip
from autosched.topi.conv2d import conv2d
from autosched.topi.conv_nd import conv_nd, conv_transpose_nd, plane_windows
from autosched.topi.compat import (
    acos, acosh, all, any, arange, argmax, argmin, argsort, asin, asinh, atan, atanh, clip, concatenate, cosh, cumprod,
    cumsum, expand_dims, eye, full, full_like, gather, gather_nd, isfinite, isinf, layout_transform, log2, log10,
    log_add_exp, logical_xor, matmul, matrix_set_diag, meshgrid, reshape, reverse_sequence, sequence_mask, shape, sinh,
    split, squeeze, strided_slice, take, tensordot, tile, topk, trilu, unravel_index,
)  # fmt: skip
from autosched.topi.create import counted, listed, ndarray_size, ones, ones_like, zeros, zeros_like
from autosched.topi.einsum import einsum
from autosched.topi.indexing import one_hot
from autosched.topi.linear import grouped_matmul, squared_distance
from autosched.topi.manipulate import expand_like, flip, pad, repeat, stack, transpose
from autosched.topi.nbits import grouped_matmul_nbits, matmul_nbits
from autosched.topi.norm import batch_norm, layer_norm, lrn, rms_norm
from autosched.topi.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from autosched.topi.reduction import max, mean, min, prod, sum, sum_abs, sum_squares, variance
from autosched.topi.select import (
    adv_index, collapse_sum, hamming_window, index_put, index_tensor, searchsorted, slice_scatter, sliding_window,
    sparse_to_dense, strided_set, within_index,
)  # fmt: skip
from autosched.topi.sort import sort
from autosched.topi.softmax import log_softmax, softmax
from autosched.topi.unary import (
    abs, bitwise_not, ceil, ceil_log2, cos, erf, exp, fast_erf, fast_exp, fast_tanh, floor, gelu, gelu_tanh,
    hard_sigmoid, identity, isnan, leaky_relu, log, logical_not, negative, reinterpret, relu, round, rsqrt, sigmoid,
    sign, silu, sin, sqrt, tan, tanh, trunc,
)  # fmt: skip

__getattr__, __dir__ = lazy_names(__name__)
