"""ResNet v2 (He et al. 2016, identity mappings): 18 to 152 layers for images, small ones for 32 by 32."""

from __future__ import annotations

from autosched.errors import InvalidValueError
from autosched.ir import IRModule
from autosched.relax import Expr, Var
from autosched.relay import op
from autosched.relay.expr import Function, GraphFunction, info, var
from autosched.relay.testing.init import create_workload
from autosched.runtime import NDArray

_UNITS = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
}  # fmt: skip


class _Net:
    """Makes layers and collects their weights."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.params: list[Var] = []

    def weight(self, name: str, shape: tuple[int, ...]) -> Var:
        self.params.append(var(name, shape=shape, dtype=self.dtype))
        return self.params[-1]

    def conv(self, x: Expr, name: str, channels: int, kernel: int, stride: int) -> Expr:
        inputs = info(x).static_shape[1]
        weight = self.weight(f"{name}_weight", (channels, inputs, kernel, kernel))
        return op.nn.conv2d(x, weight, stride, kernel // 2, channels=channels, kernel_size=(kernel, kernel))

    def norm(self, x: Expr, name: str) -> Expr:
        size = info(x).static_shape[1]
        gamma, beta, mean, var = (self.weight(f"{name}_{n}", (size,)) for n in ("gamma", "beta", "mean", "var"))
        return op.nn.batch_norm(x, gamma, beta, mean, var, epsilon=2e-5)[0]

    def unit(self, x: Expr, name: str, channels: int, stride: int, same: bool, bottleneck: bool) -> Expr:
        """A residual unit: normalise and activate before every convolution."""
        first = op.nn.relu(self.norm(x, f"{name}_bn1"))
        if bottleneck:
            y = self.conv(first, f"{name}_conv1", channels // 4, 1, stride)
            y = self.conv(op.nn.relu(self.norm(y, f"{name}_bn2")), f"{name}_conv2", channels // 4, 3, 1)
            y = self.conv(op.nn.relu(self.norm(y, f"{name}_bn3")), f"{name}_conv3", channels, 1, 1)
        else:
            y = self.conv(first, f"{name}_conv1", channels, 3, stride)
            y = self.conv(op.nn.relu(self.norm(y, f"{name}_bn2")), f"{name}_conv2", channels, 3, 1)
        return op.add(y, x if same else self.conv(first, f"{name}_sc", channels, 1, stride))


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> GraphFunction:
    """The network as a function of "data" and its weights. Raises InvalidValueError for an unknown depth."""
    bottleneck = num_layers >= 50
    if image_shape[1] <= 32:
        if (num_layers - 2) % 6:
            raise InvalidValueError(f"no ResNet of {num_layers} layers for small images", hint="8, 14, 20, …")
        units: tuple[int, ...] = ((num_layers - 2) // 6,) * 3
        filters, bottleneck = [16, 16, 32, 64], False
    elif num_layers in _UNITS:
        units = _UNITS[num_layers]
        filters = [64, 256, 512, 1024, 2048] if bottleneck else [64, 64, 128, 256, 512]
    else:
        raise InvalidValueError(f"no ResNet of {num_layers} layers", hint=f"there are {', '.join(map(str, _UNITS))}")
    net = _Net(dtype)
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    x = net.norm(data, "bn_data")
    if image_shape[1] <= 32:
        x = net.conv(x, "conv0", filters[0], 3, 1)
    else:
        x = op.nn.relu(net.norm(net.conv(x, "conv0", filters[0], 7, 2), "bn0"))
        x = op.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1))
    for stage, count in enumerate(units):
        for number in range(count):
            stride = 2 if number == 0 and stage > 0 else 1
            name = f"stage{stage + 1}_unit{number + 1}"
            x = net.unit(x, name, filters[stage + 1], stride, number > 0, bottleneck)
    x = op.nn.relu(net.norm(x, "bn1"))
    flat = op.nn.batch_flatten(op.nn.global_avg_pool2d(x))
    weight = net.weight("fc1_weight", (num_classes, flat.struct_info.static_shape[1]))  # type: ignore[union-attr]
    x = op.nn.bias_add(op.nn.dense(flat, weight), net.weight("fc1_bias", (num_classes,)), axis=-1)
    return Function([data, *net.params], op.nn.softmax(x))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, NDArray]]:
    """(module, seeded weights)."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, dtype))
