"""Small networks whose channels and rows fill vectors of 16 lanes, and some that leave lanes over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autosched import relax
from autosched.ir import IRModule
from autosched.relax import op
from tests.relax.transform.graphs import Weights, graph, small_network

nn = op.nn


class _Scaled(Weights):
    """Constants that keep values near 1: divided by the square root of what is summed."""

    def __call__(self, *shape: int) -> relax.Constant:
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        return relax.const((self.rng.standard_normal(shape) / np.sqrt(max(fan_in, 1))).astype(np.float32))


def _normalised(bb: relax.BlockBuilder, w: _Scaled, x: Any, channels: int) -> Any:
    norm = nn.batch_norm(x, w.positive(channels), w(channels), w(channels), w.positive(channels), training=False)
    return bb.emit(relax.TupleGetItem(bb.emit(norm), 0))


def residual() -> IRModule:
    """A first layer with stride, a pool, two residual blocks (one with stride and 1x1 shortcut), a classifier."""
    w = _Scaled()

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        def conv(data: Any, outputs: int, inputs: int, kernel: int, stride: int = 1) -> Any:
            made = nn.conv2d(data, w(outputs, inputs, kernel, kernel), strides=stride, padding=kernel // 2)
            return _normalised(bb, w, bb.emit(made), outputs)

        x = bb.emit(nn.relu(conv(x, 32, 3, 7, 2)))
        x = bb.emit(nn.max_pool2d(x, pool_size=3, strides=2, padding=1))
        x = bb.emit(nn.relu(op.add(conv(bb.emit(nn.relu(conv(x, 32, 32, 3))), 32, 32, 3), x)))
        inner = conv(bb.emit(nn.relu(conv(x, 64, 32, 3, 2))), 64, 64, 3)
        x = bb.emit(nn.relu(op.add(inner, conv(x, 64, 32, 1, 2))))
        x = op.reshape(bb.emit(nn.adaptive_avg_pool2d(x, output_size=1)), (2, 64))
        return nn.softmax(op.add(op.matmul(x, w(64, 37)), w(37)))

    return graph({"x": (2, 3, 45, 45)}, build)


def inverted() -> IRModule:
    """Expansion, depthwise convolution with stride, squeeze and excite, projection: 24 and 72 channels."""
    w = _Scaled(1)

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        x = bb.emit(nn.relu6(_normalised(bb, w, bb.emit(nn.conv2d(x, w(24, 3, 3, 3), strides=2, padding=1)), 24)))
        for stride, kernel in ((1, 3), (2, 5)):
            y = bb.emit(nn.silu(_normalised(bb, w, bb.emit(nn.conv2d(x, w(72, 24, 1, 1))), 72)))
            y = nn.conv2d(y, w(72, 1, kernel, kernel), strides=stride, padding=kernel // 2, groups=72)
            y = bb.emit(nn.silu(_normalised(bb, w, bb.emit(y), 72)))
            s = bb.emit(nn.relu(nn.conv2d(nn.adaptive_avg_pool2d(y, output_size=1), w(18, 72, 1, 1))))
            y = bb.emit(op.multiply(y, op.sigmoid(nn.conv2d(s, w(72, 18, 1, 1)))))
            y = _normalised(bb, w, bb.emit(nn.conv2d(y, w(24, 72, 1, 1))), 24)
            x = bb.emit(op.add(x, y)) if stride == 1 else y
        return x

    return graph({"x": (1, 3, 29, 31)}, build)


def transformer() -> IRModule:
    """Layer norm, attention of three heads, GELU, tanh: 21 rows of 48 values."""
    w = _Scaled(2)

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        for _ in range(2):
            y = bb.emit(nn.layer_norm(x, w.positive(48), w(48), axes=-1))
            q, k, v = (op.reshape(op.add(op.matmul(y, w(48, 48)), w(48)), (2, 21, 3, 16)) for _ in range(3))
            y = op.matmul(op.reshape(bb.emit(nn.attention(q, k, v)), (2, 21, 48)), w(48, 48))
            x = bb.emit(op.add(x, y))
            y = bb.emit(nn.layer_norm(x, w.positive(48), w(48), axes=-1))
            y = bb.emit(nn.gelu(op.add(op.matmul(y, w(48, 150)), w(150))))
            x = bb.emit(op.add(x, op.matmul(y, w(150, 48))))
        return op.tanh(op.matmul(op.mean(x, axis=1), w(48, 5)))

    return graph({"x": (2, 21, 48)}, build)


def decoder() -> IRModule:
    """Transposed convolution, concatenation, resizing, instance norm, dilation, grouped convolution."""
    w = _Scaled(3)

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        down = bb.emit(nn.leakyrelu(nn.conv2d(x, w(32, 16, 3, 3), strides=2, padding=1)))
        deep = bb.emit(nn.conv2d(down, w(32, 8, 3, 3), padding=2, dilation=2, groups=4))
        up = bb.emit(nn.conv2d_transpose(bb.emit(nn.relu(deep)), w(32, 16, 2, 2), strides=2))
        x = bb.emit(op.concat([up, x], axis=1))
        x = bb.emit(nn.instance_norm(x, w.positive(32), w(32), axes=(2, 3)))
        x = bb.emit(op.image.resize2d(nn.relu(x), (27, 33)))
        return op.sigmoid(nn.conv2d(x, w(3, 32, 3, 3), padding=1))

    return graph({"x": (1, 16, 18, 22)}, build)


def sound() -> IRModule:
    """Convolutions over one axis, plain, depthwise and transposed; group norm; a log of a softmax."""
    w = _Scaled(4)

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        x = bb.emit(nn.gelu(nn.conv1d(x, w(48, 1, 10), strides=5)))
        x = bb.emit(nn.conv1d(x, w(48, 1, 7), padding=3, groups=48))
        x = bb.emit(nn.group_norm(x, w.positive(48), w(48), num_groups=6, channel_axis=1, axes=(2,)))
        x = bb.emit(nn.relu(nn.conv1d(x, w(32, 48, 3), strides=2, padding=1)))
        x = bb.emit(nn.conv1d_transpose(x, w(32, 20, 4), strides=2, padding=1))
        return nn.log_softmax(op.permute_dims(x, axes=(0, 2, 1)))

    return graph({"x": (1, 1, 253)}, build)


def video() -> IRModule:
    """Convolutions over three axes, plain and transposed."""
    w = _Scaled(5)

    def build(bb: relax.BlockBuilder, x: Any) -> Any:
        x = bb.emit(nn.relu(nn.conv3d(x, w(32, 3, 3, 3, 3), padding=1, strides=(1, 2, 2))))
        x = bb.emit(nn.relu(nn.conv3d(x, w(20, 32, 3, 1, 1), padding=(1, 0, 0))))
        return nn.conv3d_transpose(x, w(20, 5, 2, 2, 2), strides=2)

    return graph({"x": (1, 3, 4, 13, 11)}, build)


NETWORKS: Mapping[str, Callable[[], IRModule]] = {
    "small": small_network,
    "residual": residual,
    "inverted": inverted,
    "transformer": transformer,
    "decoder": decoder,
    "sound": sound,
    "video": video,
}
