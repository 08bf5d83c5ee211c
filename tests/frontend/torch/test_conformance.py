"""Small PyTorch programs, imported by both ways and compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from autosched.frontend.torch import from_exported_program, from_fx
from autosched.relax import evaluate
from tests.spread import spread


class Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Wrapped1(Wrapped):
    def forward(self, x: Any) -> Any:
        return self.function(x)


class Wrapped2(Wrapped):
    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


class Wrapped3(Wrapped):
    def forward(self, x: Any, y: Any, z: Any) -> Any:
        return self.function(x, y, z)


IMAGE, ROWS, CUBE = (2, 6, 9, 7), (3, 8), (2, 3, 8)

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(8, 5), CUBE),
    "linear without bias": (lambda: nn.Linear(8, 5, bias=False), ROWS),
    "conv2d": (lambda: nn.Conv2d(6, 4, 3, padding=1), IMAGE),
    "conv2d strided": (lambda: nn.Conv2d(6, 4, (3, 2), stride=(2, 1), dilation=(1, 2), bias=False), IMAGE),
    "conv2d grouped": (lambda: nn.Conv2d(6, 4, 3, groups=2), IMAGE),
    "conv2d same": (lambda: nn.Conv2d(6, 4, 4, padding="same"), IMAGE),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1, stride=2), CUBE),
    "batch norm": (lambda: nn.BatchNorm2d(6), IMAGE),
    "layer norm": (lambda: nn.LayerNorm(8), CUBE),
    "layer norm over two": (lambda: nn.LayerNorm((3, 8)), CUBE),
    "group norm": (lambda: nn.GroupNorm(3, 6), IMAGE),
    "rms norm": (lambda: nn.RMSNorm(8), CUBE),
    "max pool": (lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    "average pool": (lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    "adaptive pool": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    "flatten": (lambda: nn.Flatten(), IMAGE),
    "softmax": (lambda: nn.Softmax(dim=1), CUBE),
    "log softmax": (lambda: nn.LogSoftmax(dim=-1), CUBE),
    **{
        kind.__name__: (kind, ROWS)
        for kind in (
            nn.ReLU,
            nn.ReLU6,
            nn.LeakyReLU,
            nn.ELU,
            nn.GELU,
            nn.SiLU,
            nn.Mish,
            nn.Sigmoid,
            nn.Tanh,
            nn.Softplus,
            nn.Hardsigmoid,
            nn.Hardswish,
            nn.Hardtanh,
            nn.Identity,
            nn.Dropout,
        )  # fmt: skip
    },
}

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "add": (lambda x, y: torch.add(x, y, alpha=2), (ROWS, ROWS)),
    "arithmetic": (lambda x, y: (x + 1) * y - 2 / (y * y + 1) + 3 - x, (ROWS, ROWS)),
    "broadcast": (lambda x, y: x * y, (CUBE, (8,))),
    "power": (lambda x: x**2 + (x * x + 0.1) ** 0.5 + torch.pow(x, 3), (ROWS,)),
    "unary": (lambda x: x.abs().sqrt() + x.exp().log() + (-x).sin() * x.cos() + torch.erf(x) + x.tanh(), (ROWS,)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=0.1) + torch.clamp(x, max=0.2), (ROWS,)),
    "compare": (lambda x, y: torch.where(x > y, x, y * 2), (ROWS, ROWS)),
    "masked fill": (lambda x, y: x.masked_fill(y > 0, -1.0), (ROWS, ROWS)),
    "matmul": (torch.matmul, ((2, 3, 4, 5), (2, 3, 5, 6))),
    "addmm": (lambda b, x, y: torch.addmm(b, x, y, beta=0.5, alpha=2.0), ((4,), (3, 5), (5, 4))),
    "einsum": (lambda x, y: torch.einsum("bhqd,bhkd->bhqk", x, y), ((2, 3, 4, 5), (2, 3, 6, 5))),
    "view": (lambda x: x.view(2, -1).reshape(4, 12).unsqueeze(1).squeeze(1).flatten(), (CUBE,)),
    "permute": (lambda x: x.permute(2, 0, 1).transpose(0, -1).contiguous(), (CUBE,)),
    "cat": (lambda x, y: torch.cat([x, y], dim=1) + torch.cat((y, x), -1), (ROWS, ROWS)),
    "stack": (lambda x, y: torch.stack([x, y], dim=1), (ROWS, ROWS)),
    "chunk": (lambda x: torch.chunk(x, 3, dim=1)[0] + x.chunk(3, 1)[1], ((2, 9),)),
    "split": (lambda x: torch.cat(x.split([2, 6], dim=-1)[::-1], dim=-1), (ROWS,)),
    "slices": (lambda x: x[:, 1:, ::2] + x[:, :-1, 1::2], (CUBE,)),
    "select": (lambda x: x[0] + x[:, 1].sum() + x[..., 2].mean(), (CUBE,)),
    "expand": (lambda x: x.unsqueeze(1).expand(-1, 4, -1), (ROWS,)),
    "repeat": (lambda x: x.repeat(2, 1, 3), (ROWS,)),
    "reduce": (lambda x: x.mean(1, True) + x.sum((0, 1)) + x.amax(-1, True) + x.var(-1, keepdim=True), (CUBE,)),
    "max along": (lambda x: x.max(dim=1)[0], (CUBE,)),
    "argmax": (lambda x: x.argmax(-1), (CUBE,)),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), (CUBE,)),
    "pool": (lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2, count_include_pad=False), (IMAGE,)),
    "activations": (lambda x: F.relu(x) + F.gelu(x, approximate="tanh") * F.leaky_relu(x, 0.2), (ROWS,)),
    "norm": (lambda x: F.layer_norm(x, (8,)), (CUBE,)),
    "attention": (F.scaled_dot_product_attention, ((2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8))),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((2, 4, 8), (2, 4, 8), (2, 4, 8)),
    ),
    "constants": (lambda x: x + torch.arange(8, dtype=torch.float32) + torch.full((3, 1), 2.0), (ROWS,)),
    "several results": (lambda x, y: (x + y, x * y), (ROWS, ROWS)),
    "shuffle": (lambda x: F.channel_shuffle(x, 3) + 1, (IMAGE,)),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), ((1, 8, 3, 5),)),
}  # fmt: skip

UNTRACED = {"constants"}  # what symbolic tracing turns into tensors of its own


def _inputs(shapes: tuple[tuple[int, ...], ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def _settle(model: nn.Module) -> nn.Module:
    """Weights and statistics that are not all zeros and ones."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if tensor.dtype.is_floating_point:
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + (0.5 if "var" in name else -0.5))
    return model.eval()


def _check(module: Any, model: nn.Module, inputs: list[torch.Tensor]) -> None:
    with torch.no_grad():
        expected = model(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    result = evaluate(module, [x.numpy() for x in inputs])
    result = result if isinstance(result, tuple | list) else (result,)
    assert len(result) == len(expected)
    for ours, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs.numpy(), rtol=1e-4, atol=1e-5)
        assert str(np.asarray(ours).dtype) == str(theirs.numpy().dtype)


@spread(2, "name", MODULES)
def test_modules(name):
    make, shape = MODULES[name]
    model = _settle(nn.Sequential(make()))
    inputs = _inputs((shape,))
    _check(from_fx(torch.fx.symbolic_trace(model), [(shape, "float32")]), model, inputs)
    program = torch.export.export(model, tuple(inputs))
    _check(from_exported_program(program), model, inputs)
    _check(from_exported_program(program.run_decompositions(), run_ep_decomposition=False), model, inputs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, shapes = FUNCTIONS[name]
    model = [Wrapped1, Wrapped2, Wrapped3][len(shapes) - 1](function)
    inputs = _inputs(shapes)
    if name not in UNTRACED:
        _check(from_fx(torch.fx.symbolic_trace(model), [(s, "float32") for s in shapes]), model, inputs)
    program = torch.export.export(model, tuple(inputs))
    _check(from_exported_program(program), model, inputs)


def test_embedding():
    model = _settle(nn.Sequential(nn.Embedding(10, 4)))
    indices = torch.tensor([[1, 9], [0, 3]])
    _check(from_fx(torch.fx.symbolic_trace(model), [((2, 2), "int64")]), model, [indices])
    _check(from_exported_program(torch.export.export(model, (indices,))), model, [indices])
