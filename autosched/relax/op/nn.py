"""Operators of neural networks, under the names of TVM's `relax.op.nn`."""

from autosched.relax.op.attention import attention
from autosched.relax.op.conv2d import conv2d
from autosched.relax.op.conv_nd import conv1d, conv1d_transpose, conv2d_transpose, conv3d, conv3d_transpose
from autosched.relax.op.manipulate import pad
from autosched.relax.op.norm import batch_norm, dropout, layer_norm, log_softmax, lrn, rms_norm, softmax
from autosched.relax.op.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from autosched.relax.op.unary import gelu, gelu_tanh, hard_sigmoid, leakyrelu, relu, silu

__all__ = [
    "adaptive_avg_pool2d", "attention", "avg_pool2d", "batch_norm", "conv1d", "conv1d_transpose", "conv2d",
    "conv2d_transpose", "conv3d", "conv3d_transpose", "dropout", "gelu", "gelu_tanh", "hard_sigmoid",
    "layer_norm", "leakyrelu", "log_softmax", "lrn", "max_pool2d", "pad", "relu", "rms_norm", "silu", "softmax",
]  # fmt: skip
