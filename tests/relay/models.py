"""A small convolution network in Relay's way of writing, for the tests of executors."""

from __future__ import annotations

import numpy as np
import torch

from autosched import relay
from autosched.ir import IRModule

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.random((4, 3, 3, 3), dtype=np.float32), "b": RNG.random(4, dtype=np.float32)}
X = RNG.random((1, 3, 8, 8), dtype=np.float32)


def convolution() -> IRModule:
    """relu(conv(x, w) + b) flattened, + 1."""
    x = relay.var("x", shape=(1, 3, 8, 8))
    w, b = relay.var("w", shape=(4, 3, 3, 3)), relay.var("b", shape=(4,))
    y = relay.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
    y = relay.nn.batch_flatten(relay.nn.relu(relay.nn.bias_add(y, b)))
    return IRModule.from_expr(relay.Function([x, w, b], y + relay.const(1.0)))


def expected() -> np.ndarray:
    """What it gives on X, by PyTorch."""
    w, b = torch.tensor(PARAMS["w"]), torch.tensor(PARAMS["b"])
    y = torch.relu(torch.nn.functional.conv2d(torch.tensor(X), w, b, padding=1)).flatten(1) + 1
    return y.numpy()  # type: ignore[no-any-return]
