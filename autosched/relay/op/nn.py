"""Relay's operators of neural networks: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched.errors import InvalidValueError, ShapeError, refuse
from autosched.lazy_names import resolve
from autosched.relax import Constant, Expr, op
from autosched.relay.expr import TupleWrapper, unwrap
from autosched.relay.op.tensor import info
from autosched.relay.op.tensor import reshape as reshape_to

Pair = int | Sequence[int]


def conv2d(
    data: object,
    weight: object,
    strides: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Pair | None = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Expr:
    """2-D convolution. Raises ShapeError where `channels` or `kernel_size` do not fit the weight."""
    x, w = unwrap(data), unwrap(weight)
    if data_layout == "NHWC":
        x = op.permute_dims(x, [0, 3, 1, 2])
    if kernel_layout != "OIHW":
        w = op.permute_dims(w, [kernel_layout.index(axis) for axis in "OIHW"])
    shape = info(w).static_shape
    size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else kernel_size
    if channels is not None and channels != shape[0]:
        raise ShapeError(f"conv2d: channels={channels}, and the weight has {shape[0]}")
    if size is not None and tuple(size) != shape[2:]:
        raise ShapeError(f"conv2d: kernel_size={tuple(size)}, and the weight's is {shape[2:]}")
    layout = data_layout if data_layout != "NHWC" else "NCHW"
    result = op.nn.conv2d(
        x, w, strides, padding, dilation, groups, layout, "OIHW", "" if data_layout == "NHWC" else out_layout,
        out_dtype or None,
    )  # fmt: skip
    return op.permute_dims(result, [0, 2, 3, 1]) if (out_layout or data_layout) == "NHWC" else result


def dense(data: object, weight: object, units: int | None = None, out_dtype: str = "") -> Expr:
    """data · weightᵀ, the weight [units, in]."""
    x, w = unwrap(data), unwrap(weight)
    if units is not None and units != info(w).static_shape[0]:
        raise ShapeError(f"dense: units={units}, and the weight has {info(w).static_shape[0]}")
    return op.matmul(x, op.permute_dims(w, None), out_dtype or None)


def matmul(
    tensor_a: object,
    tensor_b: object,
    units: int | None = None,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Expr:
    """The product of two matrices. Raises ShapeError where it has not `units` columns."""
    a, b = unwrap(tensor_a), unwrap(tensor_b)
    columns = info(b).static_shape[-2 if transpose_b else -1] if units is not None else None
    if units != columns:
        raise ShapeError(f"matmul: units={units}, and the second matrix has {columns} columns")
    return op.matmul(_turned(a) if transpose_a else a, _turned(b) if transpose_b else b, out_dtype or None)


def batch_matmul(
    tensor_a: object, tensor_b: object, out_dtype: str = "", transpose_a: bool = False, transpose_b: bool = True
) -> Expr:
    """Products of two batches of matrices, the second transposed unless `transpose_b` says otherwise."""
    return matmul(tensor_a, tensor_b, None, out_dtype, transpose_a, transpose_b)


def _turned(x: Expr) -> Expr:
    axes = list(range(info(x).ndim))
    return op.permute_dims(x, [*axes[:-2], axes[-1], axes[-2]])


def bias_add(data: object, bias: object, axis: int = 1) -> Expr:
    """A vector added along an axis."""
    x, b = unwrap(data), unwrap(bias)
    after = info(x).ndim - axis % info(x).ndim - 1
    return op.add(x, op.expand_dims(b, list(range(1, after + 1))) if after else b)


def relu(data: object) -> Expr:
    """max(x, 0)."""
    return op.nn.relu(unwrap(data))


def leaky_relu(data: object, alpha: float = 0.01) -> Expr:
    """x, or alpha · x where x is negative."""
    return op.nn.leakyrelu(unwrap(data), alpha)


def prelu(data: object, alpha: object, axis: int = 1) -> Expr:
    """x, or alpha · x where x is negative, with an alpha per channel."""
    x, a = unwrap(data), unwrap(alpha)
    after = info(x).ndim - axis % info(x).ndim - 1
    scaled = op.multiply(x, op.expand_dims(a, list(range(1, after + 1))) if after else a)
    return op.where(op.less(x, op.zeros((), info(x).dtype)), scaled, x)


def softmax(data: object, axis: int = -1) -> Expr:
    """exp(x) by its sum along an axis."""
    return op.nn.softmax(unwrap(data), axis)


def fast_softmax(data: object, axis: int = -1) -> Expr:
    """The same as `softmax`."""
    return softmax(data, axis)


def log_softmax(data: object, axis: int = -1) -> Expr:
    """The logarithm of `softmax`."""
    return op.nn.log_softmax(unwrap(data), axis)


def refuse_out_layout(out_layout: str, layout: str) -> None:
    """Raises InvalidValueError for a result in another layout than the data."""
    refuse("pool2d", hint="the result has the data's layout", out_layout=out_layout not in ("", layout))


def _window(pool: Callable[..., Expr], data: object, layout: str, *args: object) -> Expr:
    x = unwrap(data)
    if layout == "NHWC":
        return op.permute_dims(pool(op.permute_dims(x, [0, 3, 1, 2]), *args), [0, 2, 3, 1])
    return pool(x, *args)


def max_pool2d(
    data: object,
    pool_size: Pair = (1, 1),
    strides: Pair = (1, 1),
    dilation: Pair = (1, 1),
    padding: Pair = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
) -> Expr:
    """The largest of each window."""
    refuse_out_layout(out_layout, layout)
    return _window(op.nn.max_pool2d, data, layout, pool_size, strides, padding, dilation, ceil_mode)


def avg_pool2d(
    data: object,
    pool_size: Pair = (1, 1),
    strides: Pair = (1, 1),
    dilation: Pair = (1, 1),
    padding: Pair = (0, 0),
    layout: str = "NCHW",
    out_layout: str = "",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Expr:
    """The mean of each window."""
    refuse_out_layout(out_layout, layout)

    def pool(x: object, *args: object) -> Expr:
        return op.nn.avg_pool2d(x, *args, count_include_pad=count_include_pad)

    return _window(pool, data, layout, pool_size, strides, padding, dilation, ceil_mode)


def _image_axes(layout: str) -> list[int]:
    return [layout.index("H"), layout.index("W")]


def global_avg_pool2d(data: object, layout: str = "NCHW", out_layout: str = "") -> Expr:
    """The mean of each channel."""
    refuse_out_layout(out_layout, layout)
    return op.mean(unwrap(data), _image_axes(layout), True)


def global_max_pool2d(data: object, layout: str = "NCHW", out_layout: str = "") -> Expr:
    """The largest of each channel."""
    refuse_out_layout(out_layout, layout)
    return op.max(unwrap(data), _image_axes(layout), True)


def adaptive_avg_pool2d(
    data: object, output_size: int | Sequence[int] | None = None, layout: str = "NCHW", out_layout: str = ""
) -> Expr:
    """Means of as many windows as the output has elements."""
    refuse_out_layout(out_layout, layout)
    return _window(lambda x: op.nn.adaptive_avg_pool2d(x, output_size), data, layout)


def batch_flatten(data: object) -> Expr:
    """All axes but the first as one."""
    x = unwrap(data)
    return reshape_to(x, (0, -1))


def batch_norm(
    data: object,
    gamma: object,
    beta: object,
    moving_mean: object,
    moving_var: object,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """Normalisation with the moving statistics: (result, mean, variance)."""
    tensors = [unwrap(x) for x in (data, gamma, beta, moving_mean, moving_var)]
    return TupleWrapper(op.nn.batch_norm(*tensors, axis, epsilon, center, scale, training=False), 3)


def layer_norm(
    data: object,
    gamma: object,
    beta: object,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Normalisation along an axis."""
    return op.nn.layer_norm(unwrap(data), unwrap(gamma), unwrap(beta), axis, epsilon, center, scale)


def lrn(data: object, size: int = 5, axis: int = 1, bias: float = 2, alpha: float = 1e-5, beta: float = 0.75) -> Expr:
    """Local response normalisation."""
    return op.nn.lrn(unwrap(data), size, axis, alpha, beta, bias)


def dropout(data: object, rate: float = 0.5) -> Expr:
    """The data itself: nothing is dropped when a model runs. Raises ValueError for a rate outside of [0, 1)."""
    if not 0 <= rate < 1:
        raise InvalidValueError(f"dropout: rate {rate}", hint="a rate lies in [0, 1)")
    return op.identity(unwrap(data))


def pad(
    data: object, pad_width: Sequence[Sequence[int]], pad_value: Constant | float = 0, pad_mode: str = "constant"
) -> Expr:
    """Elements around a tensor: per axis (before, after)."""
    if pad_mode != "constant":
        raise InvalidValueError(f"pad: pad_mode '{pad_mode}' is not available", hint='use "constant"')
    value = pad_value.data if isinstance(pad_value, Constant) else pad_value
    return op.nn.pad(unwrap(data), tuple(n for pair in pad_width for n in pair), pad_value=float(value))


def gelu(data: object) -> Expr:
    """x times the normal distribution's cumulative function."""
    return op.nn.gelu(unwrap(data))


def silu(data: object) -> Expr:
    """x · sigmoid(x)."""
    return op.nn.silu(unwrap(data))


def space_to_depth(data: object, block_size: int, layout: str = "NCHW") -> Expr:
    """Blocks of an image as channels."""
    if layout != "NCHW":
        raise InvalidValueError(f"space_to_depth: layout '{layout}'", hint="use NCHW")
    x, b = unwrap(data), block_size
    n, c, h, w = info(x).static_shape
    parts = reshape_to(x, (n, c, h // b, b, w // b, b))
    return op.reshape(op.permute_dims(parts, [0, 3, 5, 1, 2, 4]), (n, c * b * b, h // b, w // b))


def __getattr__(name: str) -> object:
    """The operators of `more_nn`, which is written with those here."""
    if name.startswith("_"):
        raise AttributeError(name)
    more = resolve("autosched.relay.op.more_nn")
    if name not in more.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(more, name)
