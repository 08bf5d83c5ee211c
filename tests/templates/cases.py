"""Functions that templates schedule in the tests: sizes that do not divide, with and without epilogues."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autosched import te, topi
from autosched.te import Tensor
from autosched.tir import PrimFunc, Var, maximum


def relu(x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda *i: maximum(x(*i), 0.0), name="relu")


def dense(m: int, k: int, n: int, epilogue: bool = True) -> PrimFunc:
    a, b, bias = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b"), te.placeholder((n,), name="bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="matmul")
    if not epilogue:
        return te.create_prim_func([a, b, c], "int64")
    d = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="T_add")
    return te.create_prim_func([a, b, bias, relu(d)], "int64")


def batched(transposed: bool) -> PrimFunc:
    shape = (3, 13, 6) if transposed else (3, 6, 13)
    a, b = te.placeholder((3, 7, 6), name="a"), te.placeholder(shape, name="b")
    k = te.reduce_axis((0, 6), "k")
    right = (lambda h, j: b[h, j, k]) if transposed else (lambda h, j: b[h, k, j])
    c = te.compute((3, 7, 13), lambda h, i, j: te.sum(a[h, i, k] * right(h, j), axis=k), name="batch_matmul")
    return te.create_prim_func([a, b, c], "int64")


def conv(
    n: int,
    c: int,
    size: int,
    o: int,
    kernel: int,
    stride: int,
    pad: int,
    *,
    groups: int = 1,
    block: int = 16,
    first: bool = False,
) -> PrimFunc:
    shape = (n, c, size, size) if first else (n, c // block, size, size, block)
    data = te.placeholder(shape, name="data")
    weight = te.placeholder((o, c // groups, kernel, kernel), name="weight")
    bias = te.placeholder((1, o // block, 1, 1, block), name="bias")
    out = topi.conv2d(
        data, weight, (stride, stride), (pad,) * 4, (1, 1), groups,
        "NCHW" if first else f"NCHW{block}c", f"NCHW{block}c",
    )  # fmt: skip
    added = te.compute(out.shape, lambda b, q, y, x, r: out(b, q, y, x, r) + bias(0, q, 0, 0, r), name="T_add")
    return te.create_prim_func([data, weight, bias, relu(added)], "int64")


def bottleneck(
    n: int,
    c: int,
    size: tuple[int | Var, int | Var],
    hidden: int,
    kernel: int,
    stride: int,
    pads: tuple[int, int, int, int],
    *,
    block: int = 16,
    dilation: int = 1,
    act: Callable[[Tensor], Tensor] | None = relu,
) -> PrimFunc:
    """A 1x1 convolution with bias, `act`, a depthwise convolution with bias, relu."""
    layout = f"NCHW{block}c"
    data = te.placeholder((n, c // block, *size, block), name="data")
    expand = te.placeholder((hidden, c, 1, 1), name="expand")
    weight = te.placeholder((hidden, 1, kernel, kernel), name="weight")
    biases = [te.placeholder((1, hidden // block, 1, 1, block), name=f"bias{i}") for i in range(2)]

    def biased(x: Tensor, bias: Tensor) -> Tensor:
        return te.compute(x.shape, lambda b, q, i, j, r: x(b, q, i, j, r) + bias(0, q, 0, 0, r), name="T_add")

    image = topi.conv2d(data, expand, (1, 1), (0,) * 4, (1, 1), 1, layout, layout)
    image = image if act is None else act(biased(image, biases[0]))
    out = topi.conv2d(image, weight, (stride,) * 2, pads, (dilation,) * 2, hidden, layout, layout)
    given = [data, expand, *([] if act is None else biases[:1]), weight, biases[1]]
    return te.create_prim_func([*given, relu(biased(out, biases[1]))], "int64")


def silu(x: Tensor) -> Tensor:
    power = te.compute(x.shape, lambda *i: te.exp(-x(*i)), name="T_exp")
    return te.compute(x.shape, lambda *i: x(*i) / (1.0 + power(*i)), name="T_silu")


def plain_conv(kernel: int = 3, stride: int = 1, size: int = 9) -> PrimFunc:
    data, weight = (
        te.placeholder((2, 6, size, size), name="data"),
        te.placeholder((10, 3, kernel, kernel), name="weight"),
    )
    out = topi.conv2d(data, weight, (stride, stride), (kernel // 2,) * 4, (1, 1), 2)
    return te.create_prim_func([data, weight, relu(out)], "int64")


def pool(kind: str, *channels: int) -> PrimFunc:
    data = te.placeholder((1, channels[0], 9, 9, *channels[1:]), name="data")
    f = topi.max_pool2d if kind == "max" else topi.avg_pool2d
    args = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "dilation": (1, 1), "ceil_mode": False}
    if kind == "avg":
        args["count_include_pad"] = False
    return te.create_prim_func([data, f(data, **args)], "int64")


def softmax(*shape: int) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.softmax(x, -1)], "int64")


def attention(
    rows: int,
    columns: int,
    size: int,
    masked: bool,
    layouts: tuple[str, ...] = ("BSHD",) * 4,
    causal: str | None = None,
) -> PrimFunc:
    sizes = {"B": 2, "S": rows, "H": 3, "D": size}
    q = te.placeholder([sizes[x] for x in layouts[0]], name="q")
    sizes["S"] = columns
    k, v = (te.placeholder([sizes[x] for x in layouts[n]], name="kv"[n - 1]) for n in (1, 2))
    bias = te.placeholder((2, 1, 1, columns), name="bias") if masked else None
    out = topi.attention(q, k, v, bias, size**-0.5, causal, layouts=layouts)
    return te.create_prim_func([q, k, v, *([bias] if bias is not None else []), out], "int64")


def mean(*shape: int) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, topi.mean(x, (len(shape) - 1,), True)], "int64")


def global_mean() -> PrimFunc:
    x = te.placeholder((2, 3, 7, 7, 16), name="x")
    return te.create_prim_func([x, topi.mean(x, (2, 3), True)], "int64")


def chain(*shape: int) -> PrimFunc:
    x, y = te.placeholder(shape, name="x"), te.placeholder((shape[-1],), name="y")
    a = te.compute(shape, lambda *i: x(*i) * y(i[-1]), name="T_multiply")
    b = te.compute(shape, lambda *i: te.exp(a(*i)), name="T_exp")
    return te.create_prim_func([x, y, relu(b)], "int64")


def transpose() -> PrimFunc:
    x = te.placeholder((5, 7, 3, 9), name="x")
    return te.create_prim_func([x, topi.transpose(x, (0, 2, 1, 3))], "int64")


def turned(shape: tuple[int, ...], axes: tuple[int, ...]) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, relu(topi.transpose(x, axes))], "int64")


def plain(*shape: int) -> PrimFunc:
    x = te.placeholder(shape, name="x")
    return te.create_prim_func([x, relu(x)], "int64")


def relayout(to_blocks: bool) -> PrimFunc:
    blocked = lambda n, c, h, w: (n, c // 16, h, w, c % 16)  # noqa: E731
    plain = lambda n, c, h, w, b: (n, c * 16 + b, h, w)  # noqa: E731
    x = te.placeholder((1, 32, 9, 21) if to_blocks else (1, 2, 9, 21, 16), name="x")
    shape = (1, 2, 9, 21, 16) if to_blocks else (1, 32, 9, 21)
    y = te.compute(shape, lambda *i: x(*(plain(*i) if to_blocks else blocked(*i))), name="T_layout_trans")
    return te.create_prim_func([x, y], "int64")


def concat() -> PrimFunc:
    parts = [te.placeholder((1, c, 5, 5, 16), name=f"p{c}") for c in (2, 1, 3)]
    return te.create_prim_func([*parts, topi.concatenate(parts, 1)], "int64")


CASES: Mapping[str, tuple[str, Callable[[], PrimFunc]]] = {
    "dense": ("matmul", lambda: dense(19, 33, 37)),
    "dense_plain": ("matmul", lambda: dense(8, 16, 24, epilogue=False)),
    "dense_row": ("matmul", lambda: dense(1, 20, 30)),
    "dense_one": ("matmul", lambda: dense(1, 1, 1)),
    "batched": ("matmul", lambda: batched(False)),
    "batched_transposed": ("matmul", lambda: batched(True)),
    "conv3": ("conv2d", lambda: conv(1, 32, 7, 32, 3, 1, 1)),
    "conv3_batch": ("conv2d", lambda: conv(3, 16, 5, 16, 3, 1, 1)),
    "conv_stride": ("conv2d", lambda: conv(1, 16, 9, 32, 3, 2, 1)),
    "conv1": ("conv2d", lambda: conv(1, 32, 5, 48, 1, 1, 0)),
    "conv_first": ("conv2d", lambda: conv(1, 3, 12, 16, 5, 2, 2, first=True)),
    "conv_grouped": ("conv2d", lambda: conv(1, 32, 6, 32, 3, 1, 1, groups=2)),
    "conv_groups_in_block": ("conv2d", lambda: conv(1, 32, 9, 32, 3, 2, 1, groups=8)),
    "conv_block8": ("conv2d", lambda: conv(1, 16, 6, 24, 3, 1, 1, block=8)),
    "conv1_tiles": ("conv2d", lambda: conv(2, 32, 13, 48, 1, 1, 0)),
    "conv1_stride": ("conv2d", lambda: conv(1, 32, 9, 48, 1, 2, 0)),
    "conv1_plain_stride": ("conv_plain", lambda: plain_conv(1, 2)),
    "conv_rows": ("conv2d", lambda: conv(1, 16, 37, 16, 3, 2, 1)),
    "depthwise": ("depthwise", lambda: conv(1, 32, 7, 32, 3, 1, 1, groups=32)),
    "depthwise_stride": ("depthwise", lambda: conv(2, 16, 9, 16, 3, 2, 1, groups=16)),
    "depthwise_tiles": ("depthwise", lambda: conv(1, 16, 29, 16, 5, 1, 2, groups=16)),
    "depthwise_inside": ("depthwise", lambda: conv(1, 16, 11, 16, 3, 1, 0, groups=16)),
    "bottleneck": ("expand_depthwise", lambda: bottleneck(1, 16, (7, 7), 48, 3, 1, (1,) * 4)),
    "bottleneck_stride": ("expand_depthwise", lambda: bottleneck(2, 32, (9, 11), 32, 3, 2, (0, 0, 1, 1))),
    "bottleneck_wide": ("expand_depthwise", lambda: bottleneck(1, 16, (29, 6), 16, 5, 1, (2,) * 4, act=None)),
    "conv_plain": ("conv_plain", plain_conv),
    "conv_plain1": ("conv_plain", lambda: plain_conv(1, size=13)),
    "conv_plain_stride": ("window", lambda: plain_conv(3, 2)),
    "max_pool": ("window", lambda: pool("max", 2, 16)),
    "avg_pool": ("window", lambda: pool("avg", 2, 16)),
    "max_pool_plain": ("window", lambda: pool("max", 5)),
    "global_mean": ("columns", global_mean),
    "softmax": ("rows", lambda: softmax(5, 37)),
    "softmax_wide": ("rows", lambda: softmax(2, 3, 128)),
    "attention": ("attention", lambda: attention(16, 32, 16, False)),
    "attention_ragged": ("attention", lambda: attention(13, 21, 10, True)),
    "attention_heads": ("attention", lambda: attention(9, 17, 8, False, ("BHSD",) * 4)),
    "attention_keys": ("attention", lambda: attention(1, 24, 8, True, ("BHSD", "BHDS", "BHSD", "BSHD"))),
    "attention_one_key": ("attention", lambda: attention(3, 1, 8, True)),
    "attention_one_element": ("attention", lambda: attention(5, 9, 1, False, ("BHSD",) * 4)),
    "attention_causal": ("attention", lambda: attention(67, 67, 10, True, causal="TopLeft")),
    "attention_causal_wide": ("attention", lambda: attention(5, 130, 8, False, ("BHSD",) * 4, "BottomRight")),
    "attention_causal_tall": ("attention", lambda: attention(70, 33, 8, False, causal="TopLeft")),
    "mean": ("rows", lambda: mean(4, 3, 50)),
    "chain": ("elementwise", lambda: chain(3, 5, 21)),
    "chain_scalar_row": ("elementwise", lambda: chain(7, 1)),
    "transpose": ("elementwise", transpose),
    "transpose_squares": ("elementwise", lambda: turned((2, 3, 35, 21), (0, 3, 1, 2))),
    "transpose_wide": ("elementwise", lambda: turned((64, 96), (1, 0))),
    "to_blocks": ("elementwise", lambda: relayout(True)),
    "from_blocks": ("elementwise", lambda: relayout(False)),
    "relu_odd_planes": ("elementwise", lambda: plain(1, 512, 14, 14)),
    "relu_planes": ("elementwise", lambda: plain(64, 7, 16)),
    "softmax_row": ("rows", lambda: softmax(1, 1000)),
    "concat": ("elementwise", concat),
}
