"""Operators of neural networks, under the names of TVM's `relax.op.nn`."""

from autosched.relax.op.activations import prelu, selu, softplus
from autosched.relax.op.attention import attention, attention_bias
from autosched.relax.op.attention_bytes import attention_bytes
from autosched.relax.op.col2im import col2im
from autosched.relax.op.conv2d import conv2d
from autosched.relax.op.conv_nd import (
    conv1d,
    conv1d_transpose,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    plane_windows,
)
from autosched.relax.op.group_norm import group_norm, instance_norm
from autosched.relax.op.kv_cache import cache_slide, cache_update, cached_attention, window_cache_length
from autosched.relax.op.losses import cross_entropy_with_logits, nll_loss
from autosched.relax.op.manipulate import pad
from autosched.relax.op.nbits import grouped_matmul_nbits, matmul_nbits
from autosched.relax.op.nn_manipulate import batch_flatten, depth_to_space, pixel_shuffle
from autosched.relax.op.norm import batch_norm, dropout, layer_norm, log_softmax, lrn, rms_norm, softmax
from autosched.relax.op.numbers import relu6
from autosched.relax.op.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from autosched.relax.op.pool_nd import (
    adaptive_avg_pool1d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool3d,
    max_pool1d,
    max_pool3d,
)  # fmt: skip
from autosched.relax.op.unary import gelu, gelu_tanh, hard_sigmoid, leakyrelu, relu, silu

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "attention", "attention_bias",
    "attention_bytes", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_flatten", "batch_norm", "cache_slide",
    "cache_update", "cached_attention", "col2im", "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose",
    "conv3d", "conv3d_transpose", "cross_entropy_with_logits", "depth_to_space", "dropout", "gelu", "gelu_tanh",
    "group_norm", "grouped_matmul_nbits", "hard_sigmoid", "instance_norm", "layer_norm", "leakyrelu",
    "log_softmax", "lrn", "matmul_nbits", "max_pool1d", "max_pool2d", "max_pool3d", "nll_loss", "pad",
    "pixel_shuffle", "plane_windows", "prelu", "relu", "relu6", "rms_norm", "selu", "silu", "softmax",
    "softplus", "window_cache_length",
]  # fmt: skip
