"""Relay's operators; those of neural networks are in `nn`."""

from autosched.relay.op import nn
from autosched.relay.op.tensor import (
    abs, add, arange, argmax, argmin, broadcast_to, cast, ceil, clip, concatenate, copy, cos, divide, equal, erf, exp,
    expand_dims, floor, floor_divide, full, full_like, greater, greater_equal, identity, layout_transform, less,
    less_equal, log, logical_and, logical_not, logical_or, max, maximum, mean, min, minimum, multiply, ndarray_size,
    negative, not_equal, ones, ones_like, power, prod, repeat, reshape, reverse, round, rsqrt, shape_of, sigmoid, sign,
    sin, split, sqrt, squeeze, stack, strided_slice, subtract, sum, take, tanh, tile, transpose, variance, where, zeros,
    zeros_like,
)  # fmt: skip
