"""The kernels whose machine code `benchmarks.static_loops` reads: one of each kind that networks are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autosched import te, topi
from autosched.tir import PrimFunc, maximum

BLOCK = 16


def dense(m: int, k: int, n: int) -> PrimFunc:
    a, b, bias = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.placeholder((n,), name="bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="matmul")
    d = te.compute((m, n), lambda i, j: maximum(c[i, j] + bias[j], 0.0), name="relu")
    return te.create_prim_func([a, b, bias, d], "int64")


def conv(c: int, size: int, o: int, kernel: int, stride: int, groups: int = 1) -> PrimFunc:
    """Blocked channels, or plain ones where `c` is no multiple of a block; bias and ReLU behind."""
    plain, pad = c % BLOCK > 0, kernel // 2
    data = te.placeholder((1, c, size, size) if plain else (1, c // BLOCK, size, size, BLOCK), name="data")
    weight = te.placeholder((o, c // groups, kernel, kernel), name="weight")
    bias = te.placeholder((1, o // BLOCK, 1, 1, BLOCK), name="bias")
    layouts = ("NCHW" if plain else f"NCHW{BLOCK}c", f"NCHW{BLOCK}c")
    out = topi.conv2d(data, weight, (stride, stride), (pad,) * 4, (1, 1), groups, *layouts)
    relu = te.compute(
        out.shape, lambda b, q, y, x, r: maximum(out(b, q, y, x, r) + bias(0, q, 0, 0, r), 0.0), name="relu"
    )
    return te.create_prim_func([data, weight, bias, relu], "int64")


def depthwise(c: int, size: int, stride: int, kernel: int = 3) -> PrimFunc:
    return conv(c, size, c, kernel, stride, groups=c)


def attention(length: int, heads: int = 12, size: int = 64) -> PrimFunc:
    q, k, v = (te.placeholder((1, length, heads, size), name=name) for name in "qkv")
    out = topi.attention(q, k, v, None, size**-0.5, None, layouts=("BSHD",) * 4)
    return te.create_prim_func([q, k, v, out], "int64")


def rows(make: Callable[[te.Tensor], te.Tensor], *shape: int) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, make(x)], "int64")


def layer_norm(m: int, n: int) -> PrimFunc:
    x, gamma, beta = te.placeholder((m, n), name="x"), te.placeholder((n,), name="g"), te.placeholder((n,), name="b")
    return te.create_prim_func([x, gamma, beta, topi.layer_norm(x, gamma, beta, (1,), 1e-5, True, True)], "int64")


def pool(kind: str, size: int) -> PrimFunc:
    window, none = ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False), te.placeholder((1, 4, size, size, BLOCK), name="x")
    out = topi.max_pool2d(none, *window) if kind == "max" else topi.avg_pool2d(none, *window, False)
    return te.create_prim_func([none, out], "int64")


def transpose(shape: Sequence[int], axes: Sequence[int]) -> PrimFunc:
    return rows(lambda x: topi.transpose(x, tuple(axes)), *shape)


KERNELS: Mapping[str, Callable[[], PrimFunc]] = {
    "dense 512x512x512": lambda: dense(512, 512, 512),
    "dense 1024x1024x1024": lambda: dense(1024, 1024, 1024),
    "dense 128x768x3072": lambda: dense(128, 768, 3072),
    "dense 16x768x3072": lambda: dense(16, 768, 3072),
    "dense 4x768x3072": lambda: dense(4, 768, 3072),
    "dense 1x768x3072": lambda: dense(1, 768, 3072),
    "conv 3x3 56x56x64": lambda: conv(64, 56, 64, 3, 1),
    "conv 3x3 14x14x256": lambda: conv(256, 14, 256, 3, 1),
    "conv 3x3 7x7x512": lambda: conv(512, 7, 512, 3, 1),
    "conv 3x3 s2 28x28x128": lambda: conv(128, 28, 256, 3, 2),
    "conv 1x1 56x56 64-256": lambda: conv(64, 56, 256, 1, 1),
    "conv 1x1 14x14 256-1024": lambda: conv(256, 14, 1024, 1, 1),
    "conv 1x1 7x7 960-320": lambda: conv(960, 7, 320, 1, 1),
    "conv 7x7 s2 first": lambda: conv(3, 224, 64, 7, 2),
    "conv 3x3 s2 first": lambda: conv(3, 224, 32, 3, 2),
    "conv 3x3 grouped": lambda: conv(128, 28, 128, 3, 1, groups=4),
    "depthwise 112x112x32": lambda: depthwise(32, 112, 1),
    "depthwise 14x14x576": lambda: depthwise(576, 14, 1),
    "depthwise s2 56x56x144": lambda: depthwise(144, 56, 2),
    "attention 128": lambda: attention(128),
    "attention 512": lambda: attention(512),
    "softmax 384x512": lambda: rows(lambda x: topi.softmax(x, -1), 384, 512),
    "layer norm 128x768": lambda: layer_norm(128, 768),
    "exp": lambda: rows(topi.exp, 128, 768),
    "tanh": lambda: rows(topi.tanh, 128, 768),
    "erf": lambda: rows(topi.erf, 128, 768),
    "gelu": lambda: rows(topi.gelu, 128, 768),
    "relu": lambda: rows(topi.nn.relu, 64, 56, 56),
    "max pool 3x3 s2": lambda: pool("max", 112),
    "average pool 3x3 s2": lambda: pool("average", 56),
    "transpose 768x128": lambda: transpose((768, 128), (1, 0)),
}
