"""Relay's operators of neural networks: relax's with Relay's signatures."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import InvalidValueError, ShapeError
from autosched.relax import Constant, Expr, op
from autosched.relay.expr import info, unwrap
from autosched.relay.op.manipulate import reshape as reshape_to
from autosched.relay.op.nn_norm import (  # noqa: F401
    batch_norm,
    dropout,
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    lrn,
)  # fmt: skip
from autosched.relay.op.nn_windows import (  # noqa: F401
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    conv1d,
    conv2d,
    conv2d_transpose,
    conv3d,
    global_avg_pool2d,
    global_max_pool2d,
    max_pool1d,
    max_pool2d,
)  # fmt: skip


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


def batch_flatten(data: object) -> Expr:
    """All axes but the first as one."""
    x = unwrap(data)
    return reshape_to(x, (0, -1))


def pad(
    data: object, pad_width: Sequence[Sequence[int]], pad_value: Constant | float = 0, pad_mode: str = "constant"
) -> Expr:
    """Elements around a tensor: per axis (before, after)."""
    if pad_mode != "constant":
        raise InvalidValueError(f"pad: pad_mode '{pad_mode}' is not available", hint='use "constant"')
    value = pad_value.data.item() if isinstance(pad_value, Constant) else pad_value
    return op.nn.pad(unwrap(data), tuple(n for pair in pad_width for n in pair), pad_value=value)


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


def upsampling(
    data: object, scale_h: float = 1, scale_w: float = 1, layout: str = "NCHW", method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Expr:  # fmt: skip
    """An image enlarged. Raises ValueError for another layout than NCHW."""
    if layout != "NCHW":
        raise InvalidValueError(f"upsampling: layout '{layout}'", hint="use NCHW")
    x = unwrap(data)
    h, w = info(x).static_shape[2:]
    how = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}.get(method, method)
    mode = "align_corners" if align_corners else ("asymmetric" if how == "nearest_neighbor" else "half_pixel")
    return op.image.resize2d(
        x, (int(h * scale_h), int(w * scale_w)), layout=layout, method=how, coordinate_transformation_mode=mode,
        rounding_method="" if how != "nearest_neighbor" else "floor",
    )  # fmt: skip


def depth_to_space(data: object, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Expr:
    """Channels as blocks of an image."""
    x, b = unwrap(data), block_size
    n, c, h, w = info(x).static_shape
    if layout != "NCHW":
        raise InvalidValueError(f"depth_to_space: layout '{layout}'", hint="use NCHW")
    if mode == "CRD":
        return op.nn.pixel_shuffle(x, b)
    parts = op.reshape(x, (n, b, b, c // (b * b), h, w))
    return op.reshape(op.permute_dims(parts, [0, 3, 4, 1, 5, 2]), (n, c // (b * b), h * b, w * b))


def cross_entropy(predictions: object, targets: object) -> Expr:
    """-sum(targets log(predictions)) by the batch."""
    return op.nn.cross_entropy_with_logits(op.log(unwrap(predictions)), unwrap(targets))


def cross_entropy_with_logits(predictions: object, targets: object) -> Expr:
    """-sum(targets predictions) by the batch."""
    return op.nn.cross_entropy_with_logits(unwrap(predictions), unwrap(targets))
