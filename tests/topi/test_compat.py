"""Operators of `topi` with TVM's arguments against NumPy, computed by the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from autosched import te, topi
from autosched.errors import InvalidValueError, ShapeError
from autosched.te import create_prim_func
from autosched.tir.evaluate import evaluate

Array = Any
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype("float32")


X, V, W = floats(4, 6), floats(6), floats(2, 3, 4)
IMAGES = floats(2, 4, 6, 6)
I = np.array([[0, 5, 3], [2, 2, 1]], "int32")  # noqa: E741
AT = np.array([[0, 3, 1], [5, 2, 0]], "int32")
LENGTHS = np.array([2, 3, 1], "int32")


def run(f: Callable[..., Any], *arrays: Array) -> list[Array]:
    inputs = [te.placeholder(a.shape, name=f"in{n}", dtype=str(a.dtype)) for n, a in enumerate(arrays)]
    made = f(*inputs)
    outputs = list(made) if isinstance(made, list | tuple) else [made]
    return list(evaluate(create_prim_func([*inputs, *outputs], "int64"), list(arrays)))


def to_depth(x: Array, b: int) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


def grouped(x: Array, groups: int) -> Array:
    y = x.reshape(x.shape[0], groups, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape)


CASES: dict[str, tuple[Callable[..., Any], Sequence[Array], Any]] = {
    "strided_slice": (lambda x: topi.strided_slice(x, [0, 2], [4, 6], [1, 2]), [X], X[0:4, 2:6:2]),
    "strided_slice back": (lambda x: topi.strided_slice(x, [3], [-5], [-2]), [X], X[3::-2]),
    "strided_slice axes": (lambda x: topi.strided_slice(x, [1], [-1], axes=[1]), [X], X[:, 1:-1]),
    "strided_slice size": (lambda x: topi.strided_slice(x, [1, 2], [2, -1], slice_mode="size"), [X], X[1:3, 2:]),
    "split": (lambda x: topi.split(x, 3, 1), [X], np.split(X, 3, 1)),
    "split at": (lambda x: topi.split(x, [1, 4], axis=-1), [X], np.split(X, [1, 4], 1)),
    "squeeze": (lambda x: topi.squeeze(topi.expand_dims(x, 1, 2), axis=[1]), [X], X[:, None]),
    "reshape": (lambda x: topi.reshape(x, (3, -1)), [X], X.reshape(3, -1)),
    "tile": (lambda x: topi.tile(x, (2, 1, 3)), [X], np.tile(X, (2, 1, 3))),
    "tile last": (lambda x: topi.tile(x, (3,)), [X], np.tile(X, (3,))),
    "transpose layout": (lambda x: topi.layout_transform(x, "NCHW", "NHWC"), [IMAGES], IMAGES.transpose(0, 2, 3, 1)),
    "block layout": (
        lambda x: topi.layout_transform(x, "NCHW", "NCHW2c"), [IMAGES],
        IMAGES.reshape(2, 2, 2, 6, 6).transpose(0, 1, 3, 4, 2),
    ),
    "meshgrid": (lambda x, y: topi.meshgrid([x, y], "xy"), [V, X[0, :3]], np.meshgrid(V, X[0, :3])),
    "take": (lambda x, i: topi.take(x, i, axis=1), [X, I], np.take(X, I, 1)),
    "take of all": (lambda x, i: topi.take(x, i), [X, I], np.take(X, I)),
    "take clipped": (lambda x, i: topi.take(x, i, 0, mode="clip"), [X, I], np.take(X, I, 0, mode="clip")),
    "gather": (lambda x, i: topi.gather(x, 1, i), [X[:2], I], np.take_along_axis(X[:2], I.astype("int64"), 1)),
    "gather_nd": (topi.gather_nd, [X, AT], X[AT[0], AT[1]]),
    "reverse_sequence": (
        lambda x, n: topi.reverse_sequence(x, n, 1, 0), [X[:3], LENGTHS],
        np.stack([np.r_[row[:n][::-1], row[n:]] for row, n in zip(X, LENGTHS)]),
    ),
    "sequence_mask": (
        lambda x, n: topi.sequence_mask(x, n, -1, 1), [X[:3], LENGTHS],
        np.where(np.arange(6) < LENGTHS[:, None], X[:3], -1),
    ),
    "matrix_set_diag": (
        lambda x, d: topi.matrix_set_diag(x, d, 1), [X, V[:4]],
        np.where(np.arange(6) == np.arange(4)[:, None] + 1, V[:4, None], X),
    ),
    "trilu": (lambda x: topi.trilu(x, 1, True), [X], np.triu(X, 1)),
    "tril": (lambda x: topi.trilu(x, -1, False), [X], np.tril(X, -1)),
    "argmax": (lambda x: topi.argmax(x, 1), [X], X.argmax(1).astype("int32")),
    "argmax of all": (topi.argmax, [X], np.int32(X.argmax())),
    "argmin": (lambda x: topi.argmin(x, 0, keepdims=True), [X], X.argmin(0)[None].astype("int32")),
    "all": (lambda x: topi.all(x, 1), [X > -1], (X > -1).all(1)),
    "any": (lambda x: topi.any(x, 0, True), [X > 1], (X > 1).any(0, keepdims=True)),
    "cumsum": (lambda x: topi.cumsum(x, 1), [X], X.cumsum(1)),
    "cumsum of all": (topi.cumsum, [X], X.cumsum()),
    "cumprod exclusive": (
        lambda x: topi.cumprod(x, 0, exclusive=True), [X], np.concatenate([np.ones((1, 6), "f"), X.cumprod(0)[:-1]]),
    ),
    "argsort": (lambda x: topi.argsort(x, axis=1, dtype="int32"), [X], X.argsort(1).astype("int32")),
    "argsort down": (lambda x: topi.argsort(x, is_ascend=0), [X], (-X).argsort(1).astype("float32")),
    "topk": (lambda x: topi.topk(x, 2), [X], [-np.sort(-X)[:, :2], (-X).argsort(1)[:, :2]]),
    "matmul": (lambda x, y: topi.matmul(x, y, True, True), [X, W[0, :, :4]], X.T @ W[0].T),
    "nn.matmul": (
        lambda x, y, b: topi.nn.matmul(x, y, b, transpose_b=True), [X, X, V[:4]], X @ X.T + V[:4],
    ),
    "tensordot": (lambda x, y: topi.tensordot(x, y, 1), [W, X], np.tensordot(W, X, 1)),
    "tensordot axes": (
        lambda x, y: topi.tensordot(x, y, ((2, 1), (0, 1))), [W, X[:, :3]], np.tensordot(W, X[:, :3], ((2, 1), (0, 1))),
    ),
    "asinh": (topi.asinh, [X], np.arcsinh(X)),
    "log2": (topi.log2, [np.abs(X)], np.log2(np.abs(X))),
    "isfinite": (topi.isfinite, [np.array([1, np.inf, np.nan, -np.inf], "f")], np.array([1, 0, 0, 0], bool)),
    "isinf": (topi.isinf, [np.array([1, np.inf, np.nan, -np.inf], "f")], np.array([0, 1, 0, 1], bool)),
    "logical_xor": (topi.logical_xor, [X > 0, X > 1], (X > 0) ^ (X > 1)),
    "log_add_exp": (topi.log_add_exp, [X * 90, X[::-1] * 90], np.logaddexp(X * 90, X[::-1] * 90)),
    "dilate": (lambda x: topi.nn.dilate(x, (2, 1)), [X], np.insert(X, [1, 2, 3], 0, 0)),
    "unravel_index": (
        topi.unravel_index, [I, np.array([2, 3], "int32")], np.stack(np.unravel_index(I, (2, 3))).astype("int32"),
    ),
    "eye": (lambda x: topi.add(x, topi.eye(4, 6, 1)), [X], X + np.eye(4, 6, 1, "f")),
    "arange": (lambda x: topi.add(x, topi.arange(6)), [X], X + np.arange(6, dtype="f")),
    "pad": (lambda x: topi.nn.pad(x, [1, 2], pad_value=3.0), [X], np.pad(X, ((1, 1), (2, 2)), constant_values=3)),
    "mirror_pad": (lambda x: topi.nn.mirror_pad(x, [1, 2], [0, 3]), [X], np.pad(X, ((1, 0), (2, 3)), "symmetric")),
    "mirror_pad reflect": (
        lambda x: topi.nn.mirror_pad(x, [3, 2], mode="REFLECT"), [X], np.pad(X, ((3, 3), (2, 2)), "reflect"),
    ),
    "softplus": (topi.nn.softplus, [X * 30], np.logaddexp(X * 30, 0)),
    "prelu": (lambda x, s: topi.nn.prelu(x, s), [X, V], np.where(X > 0, X, X * V)),
    "space_to_depth": (lambda x: topi.nn.space_to_depth(x, 2), [IMAGES], to_depth(IMAGES, 2)),
    "depth_to_space": (lambda x: topi.nn.depth_to_space(topi.nn.space_to_depth(x, 3), 3), [IMAGES], IMAGES),
    "group_norm": (
        lambda x, g, b: topi.nn.group_norm(x, g, b, 2, 1, [2, 3]), [IMAGES, V[:4], X[0, :4]],
        grouped(IMAGES, 2) * V[:4, None, None] + X[0, :4, None, None],
    ),
    "instance_norm": (
        lambda x, g, b: topi.nn.instance_norm(x, g, b, 1, [2, 3]), [IMAGES, V[:4], X[0, :4]],
        grouped(IMAGES, 4) * V[:4, None, None] + X[0, :4, None, None],
    ),
    "layer_norm": (
        lambda x, g: topi.nn.layer_norm(x, g, None, [1]), [X, V],
        (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5) * V,
    ),
    "pool1d": (
        lambda x: topi.nn.pool1d(x, [2], [2], [1], [0, 0], "max"), [W], W.reshape(2, 3, 2, 2).max(3),
    ),
    "pool2d NHWC": (
        lambda x: topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0] * 4, "max", layout="NHWC"), [IMAGES[..., None][:, 0]],
        IMAGES[:, 0].reshape(2, 3, 2, 3, 2).max((2, 4))[..., None],
    ),
    "pool3d": (
        lambda x: topi.nn.pool3d(x, [1, 2, 2], [1, 2, 2], [1] * 3, [0] * 6, "avg", layout="NDHWC"), [IMAGES[..., None]],
        IMAGES.reshape(2, 4, 3, 2, 3, 2).mean((3, 5))[..., None],
    ),
    "pool_grad": (
        lambda g, x: topi.nn.pool_grad(g, x, [2, 2], [2, 2], [0] * 4, "avg"), [IMAGES[:, :, :3, :3], IMAGES],
        IMAGES[:, :, :3, :3].repeat(2, 2).repeat(2, 3) / 4,
    ),
    "reflect_pad": (lambda x: topi.nn.reflect_pad(x, [3, 2]), [X], np.pad(X, ((3, 3), (2, 2)), "reflect")),
    "circular_pad": (lambda x: topi.nn.circular_pad(x, [3, 2]), [X], np.pad(X, ((3, 3), (2, 2)), "wrap")),
    "batch and space": (
        lambda x: topi.nn.batch_to_space_nd(
            topi.nn.space_to_batch_nd(x, [2, 3], [1, 0], [1, 0]), [2, 3], [1, 0], [1, 0]
        ), [IMAGES.transpose(0, 2, 3, 1)], IMAGES.transpose(0, 2, 3, 1),
    ),
    "scale_shift": (
        lambda x, a, b: topi.nn.scale_shift_nchw(x, a, b), [IMAGES, V[:4], X[0, :4]],
        IMAGES * V[:4, None, None] + X[0, :4, None, None],
    ),
    "fifo_buffer": (
        lambda x, b: topi.nn.fifo_buffer(x, b, 1), [X[:, :2], X], np.concatenate([X[:, 2:], X[:, :2]], 1),
    ),
    "searchsorted": (
        lambda a, v: topi.searchsorted(a, v, True), [np.sort(V), X], np.searchsorted(np.sort(V), X, "right"),
    ),
    "sort": (lambda x: topi.sort(x, 0, False), [X], -np.sort(-X, 0)),
    "strided_set": (
        lambda x, v: topi.strided_set(x, v, [1, 5], [4, 0], [2, -2]), [X, X[:2, :3]],
        np.stack([X[0], np.where([0, 1, 0, 1, 0, 1], X[0, [0, 2, 0, 1, 0, 0]], X[1]), X[2],
                  np.where([0, 1, 0, 1, 0, 1], X[1, [0, 2, 0, 1, 0, 0]], X[3])]),
    ),
    "sliding_window": (
        lambda x: topi.sliding_window(x, 1, [3], [2]), [X],
        np.lib.stride_tricks.sliding_window_view(X, 3, 1)[:, ::2],
    ),
    "collapse_sum": (lambda x: topi.collapse_sum(x, (1, 4)), [W], W.sum((0, 1), keepdims=True)[0]),
    "adaptive max": (
        lambda x: topi.nn.adaptive_pool(x, (2, 3), "max"), [IMAGES],
        IMAGES.reshape(2, 4, 2, 3, 3, 2).max((3, 5)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    f, arrays, expected = CASES[name]
    results = run(f, *map(np.ascontiguousarray, arrays))
    wanted = list(expected) if isinstance(expected, list | tuple) else [expected]
    assert len(results) == len(wanted)
    for result, right in zip(results, wanted, strict=True):
        assert result.shape == np.shape(right)
        if np.asarray(right).dtype.kind in "ib" and name != "topk":  # the evaluator computes floats as float64
            assert result.dtype == np.asarray(right).dtype
        np.testing.assert_allclose(result, right, rtol=2e-5, atol=2e-5)


def test_convolutions_in_other_layouts() -> None:
    weight = floats(3, 4, 3, 3)
    plain = run(lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1), IMAGES, weight)[0]
    last = run(
        lambda x, w: topi.nn.conv2d(x, w, 1, 1, 1, data_layout="NHWC"),
        np.ascontiguousarray(IMAGES.transpose(0, 2, 3, 1)), np.ascontiguousarray(weight.transpose(2, 3, 1, 0)),
    )[0]  # fmt: skip
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), plain, rtol=1e-4, atol=1e-5)
    flat = run(lambda x, w: topi.nn.conv1d_ncw(x, w, 2, 1), IMAGES[:, :, 0].copy(), weight[:, :, 0].copy())[0]
    rows = run(lambda x, w: topi.nn.conv2d(x, w, 2, (0, 1)), IMAGES[:, :, :1].copy(), weight[:, :, :1].copy())[0]
    np.testing.assert_allclose(flat, rows[:, :, 0], rtol=1e-4, atol=1e-5)


def test_what_is_not_there_is_refused() -> None:
    x = te.placeholder((4, 6), name="x")
    with pytest.raises(ShapeError, match="4 elements in 3 equal pieces"):
        topi.split(x, 3)
    with pytest.raises(InvalidValueError, match="batch_dims"):
        topi.take(x, x, 0, 1)
    with pytest.raises(InvalidValueError, match="data_layout 'NCHW4c'"):
        topi.nn.conv2d(x, x, data_layout="NCHW4c")
    with pytest.raises(InvalidValueError, match="slice_mode"):
        topi.strided_slice(x, [0], [1], slice_mode="begin")
    with pytest.raises(InvalidValueError, match="training"):
        topi.nn.batch_norm(x, x, x, x, x, training=True)
