"""A multi-layer perceptron: 784 -> 128 -> 64 -> classes."""

from __future__ import annotations

import math

from autosched.ir import IRModule
from autosched.relay import op
from autosched.relay.expr import Function, GraphFunction, var
from autosched.relay.testing.init import create_workload
from autosched.runtime import NDArray


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> GraphFunction:
    """The network as a function of "data" and its weights."""
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    params, x, width = [data], op.nn.batch_flatten(data), math.prod(image_shape)
    for number, units in enumerate((128, 64, num_classes), 1):
        weight = var(f"fc{number}_weight", shape=(units, width), dtype=dtype)
        bias = var(f"fc{number}_bias", shape=(units,), dtype=dtype)
        params += [weight, bias]
        x = op.nn.bias_add(op.nn.dense(x, weight, units), bias, axis=-1)
        x, width = op.nn.relu(x) if number < 3 else op.nn.softmax(x), units
    return Function(params, x)


def get_workload(
    batch_size: int = 1, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> tuple[IRModule, dict[str, NDArray]]:
    """(module, seeded weights)."""
    return create_workload(get_net(batch_size, num_classes, image_shape, dtype))
