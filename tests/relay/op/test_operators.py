"""Relay's operators against PyTorch and NumPy, by the references of the operators that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from autosched import relay
from autosched.ir import IRModule
from autosched.relax import evaluate
from autosched.relay.testing import mlp, resnet

RNG = np.random.default_rng(0)
IMAGE, WEIGHT = RNG.random((1, 4, 9, 9)), RNG.random((6, 4, 3, 3))
ROWS, SQUARE = RNG.random((5, 7)) - 0.5, RNG.random((2, 3, 4))
T = torch.tensor
nn = relay.nn


def nhwc(x: Any) -> Any:
    return x.transpose(0, 2, 3, 1)


CASES: list[tuple[Callable[..., Any], list[np.ndarray], Any]] = [
    (lambda x, w: nn.conv2d(x, w, 2, 1), [IMAGE, WEIGHT], F.conv2d(T(IMAGE), T(WEIGHT), stride=2, padding=1)),
    (
        lambda x, w: nn.conv2d(x, w, padding=1, data_layout="NHWC", kernel_layout="HWIO"),
        [nhwc(IMAGE), WEIGHT.transpose(2, 3, 1, 0)],
        F.conv2d(T(IMAGE), T(WEIGHT), padding=1).permute(0, 2, 3, 1),
    ),
    (lambda x, w: nn.dense(x, w), [ROWS, ROWS[:3]], ROWS @ ROWS[:3].T),
    (lambda a, b: nn.batch_matmul(a, b), [SQUARE, SQUARE], SQUARE @ SQUARE.transpose(0, 2, 1)),
    (lambda x, b: nn.bias_add(x, b), [IMAGE, np.arange(4.0)], IMAGE + np.arange(4.0).reshape(4, 1, 1)),
    (lambda x, b: nn.bias_add(x, b, axis=-1), [ROWS, np.arange(7.0)], ROWS + np.arange(7.0)),
    (lambda x: nn.leaky_relu(x, 0.1), [ROWS], F.leaky_relu(T(ROWS), 0.1)),
    (lambda x, a: nn.prelu(x, a), [IMAGE - 0.5, np.arange(4.0)], F.prelu(T(IMAGE - 0.5), T(np.arange(4.0)))),
    (lambda x: nn.softmax(x, 0), [ROWS], torch.softmax(T(ROWS), 0)),
    (lambda x: nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), [IMAGE], F.max_pool2d(T(IMAGE), 3, 2, 1)),
    (lambda x: nn.avg_pool2d(x, (3, 3), (3, 3)), [IMAGE], F.avg_pool2d(T(IMAGE), 3, 3)),
    (lambda x: nn.global_avg_pool2d(x), [IMAGE], IMAGE.mean((2, 3), keepdims=True)),
    (lambda x: nn.global_max_pool2d(x, "NHWC"), [nhwc(IMAGE)], nhwc(IMAGE).max((1, 2), keepdims=True)),
    (lambda x: nn.batch_flatten(x), [IMAGE], IMAGE.reshape(1, -1)),
    (lambda x: nn.pad(x, ((0, 0), (1, 2)), 3.0), [ROWS], np.pad(ROWS, ((0, 0), (1, 2)), constant_values=3)),
    (lambda x: nn.dropout(x), [ROWS], ROWS),
    (lambda x: relay.sum(x, axis=1, keepdims=True), [ROWS], ROWS.sum(1, keepdims=True)),
    (lambda x: relay.mean(x, axis=0, exclude=True), [ROWS], ROWS.mean(1)),
    (lambda x: relay.argmax(x, axis=1), [ROWS], ROWS.argmax(1)),
    (lambda x: relay.reshape(x, (0, -1)), [SQUARE], SQUARE.reshape(2, -1)),
    (lambda x: relay.reshape(x, (-3, 0)), [SQUARE], SQUARE.reshape(6, 4)),
    (lambda x: relay.reshape(x, (2, -2)), [SQUARE], SQUARE),
    (lambda x: relay.transpose(x), [SQUARE], SQUARE.T),
    (lambda x: relay.expand_dims(x, 1, 2), [ROWS], ROWS[:, None, None]),
    (lambda x: relay.squeeze(x), [ROWS[:1]], ROWS[0]),
    (lambda x, y: relay.concatenate([x, y], 1), [ROWS, ROWS], np.concatenate([ROWS, ROWS], 1)),
    (lambda x, y: relay.stack([x, y], 0), [ROWS, ROWS], np.stack([ROWS, ROWS])),
    (lambda x: relay.split(x, [2, 5], 1)[1], [ROWS], ROWS[:, 2:5]),
    (lambda x: relay.strided_slice(x, [1, 0], [4, 7], [2, 3]), [ROWS], ROWS[1:4:2, 0:7:3]),
    (lambda x: relay.strided_slice(x, [1, 2], [2, -1], slice_mode="size"), [ROWS], ROWS[1:3, 2:]),
    (lambda x: relay.take(x, relay.const(np.array([2, 0])), axis=1), [ROWS], ROWS[:, [2, 0]]),
    (lambda x: relay.repeat(x, 2, 1), [ROWS], ROWS.repeat(2, 1)),
    (lambda x: relay.tile(x, (2, 1)), [ROWS], np.tile(ROWS, (2, 1))),
    (lambda x: relay.reverse(x, 1), [ROWS], ROWS[:, ::-1]),
    (lambda x: relay.layout_transform(x, "NCHW", "NHWC"), [IMAGE], nhwc(IMAGE)),
    (lambda x: relay.clip(x, -0.1, 0.2), [ROWS], ROWS.clip(-0.1, 0.2)),
    (lambda x: relay.cast(x, "int32"), [ROWS * 9], (ROWS * 9).astype("int32")),
    (lambda x: relay.where(x > relay.const(0.0), x, -x), [ROWS], abs(ROWS)),
    (lambda x: x + relay.zeros_like(x) + relay.full(2.0, (7,)), [ROWS], ROWS + 2),
    (lambda x: 1.0 - x / 2.0, [ROWS], 1 - ROWS / 2),
]


@pytest.mark.parametrize(("write", "arrays", "expected"), CASES)
def test_operator(write: Callable[..., Any], arrays: list[np.ndarray], expected: Any) -> None:
    inputs = [np.asarray(a, np.float32) for a in arrays]
    params = [relay.var(f"x{i}", shape=a.shape) for i, a in enumerate(inputs)]
    result = evaluate(IRModule({"main": relay.Function(params, write(*params))}), inputs)
    assert result.shape == tuple(np.asarray(expected).shape)
    np.testing.assert_allclose(result, np.asarray(expected), rtol=1e-4, atol=1e-5)


def test_batch_norm_is_pytorch_s_in_eval_mode() -> None:
    arrays = [np.asarray(a, np.float32) for a in (IMAGE, *RNG.random((4, 4)))]
    params = [relay.var(f"x{i}", shape=a.shape) for i, a in enumerate(arrays)]
    result = evaluate(IRModule({"main": relay.Function(params, nn.batch_norm(*params)[0])}), arrays)
    x, gamma, beta, mean, var = map(T, arrays)
    np.testing.assert_allclose(result, F.batch_norm(x, mean, var, gamma, beta), rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    x, w = relay.var("x", shape=(1, 4, 9, 9)), relay.var("w", shape=(6, 4, 3, 3))
    with pytest.raises(ValueError, match="channels=5"):
        nn.conv2d(x, w, channels=5)
    with pytest.raises(ValueError, match="kernel_size"):
        nn.conv2d(x, w, kernel_size=5)
    with pytest.raises(ValueError, match="units=3"):
        nn.dense(relay.var("a", shape=(1, 2)), relay.var("b", shape=(4, 2)), units=3)
    with pytest.raises(TypeError):
        relay.add(x, "text")
    with pytest.raises(ValueError, match="reshape|shape"):
        relay.reshape(x, (5, 5))


def test_models_for_tutorials() -> None:
    mod, params = mlp.get_workload(2)
    assert mod["main"].ret_struct_info.static_shape == (2, 10) and len(params) == 6
    mod, params = resnet.get_workload(1, num_layers=50)
    assert mod["main"].ret_struct_info.static_shape == (1, 1000)
    assert sum(p.numpy().size for p in params.values()) > 25e6
    with pytest.raises(ValueError, match="no ResNet of 19"):
        resnet.get_workload(num_layers=19)
