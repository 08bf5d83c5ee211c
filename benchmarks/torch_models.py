"""Networks written in PyTorch for the benchmarks: MLP, ResNets, MobileNetV2 and a BERT-like encoder.

The definitions follow the papers; they need no torchvision and no downloads.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def mlp() -> nn.Module:
    """784-256-10 with ReLU between."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut. Source: He et al. 2015, figure 2."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        result: Tensor = self.relu(out + self.shortcut(x))
        return result


def resnet18(width: int = 64, classes: int = 1000, repeats: tuple[int, int, int, int] = (2, 2, 2, 2)) -> nn.Module:
    """ResNet-18 for 224x224 images; `width` channels behind the first layer. Source: He et al. 2015, table 1."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels_in = width
    for stage, repeat in enumerate(repeats):
        for index in range(repeat):
            layers.append(BasicBlock(channels_in, width << stage, 2 if stage and index == 0 else 1))
            channels_in = width << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)]
    return nn.Sequential(*layers)


def resnet34() -> nn.Module:
    """ResNet-34 for 224x224 images. Source: He et al. 2015, table 1."""
    return resnet18(repeats=(3, 4, 6, 3))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut. Source: He et al. 2015, figure 5."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        inner = channels // 4
        self.layers = nn.Sequential(
            nn.Conv2d(channels_in, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, channels, 1, bias=False), nn.BatchNorm2d(channels),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (self.layers(x) + self.shortcut(x)).relu()
        return out


def resnet50(repeats: tuple[int, int, int, int] = (3, 4, 6, 3)) -> nn.Module:
    """ResNet-50 for 224x224 images, 1000 classes, strides in the 3x3 convolutions. Source: He et al. 2015, table 1."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels_in = 64
    for stage, repeat in enumerate(repeats):
        for index in range(repeat):
            layers.append(Bottleneck(channels_in, 256 << stage, 2 if stage and index == 0 else 1))
            channels_in = 256 << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*layers)


def resnet101() -> nn.Module:
    """ResNet-101 for 224x224 images. Source: He et al. 2015, table 1."""
    return resnet50(repeats=(3, 4, 23, 3))


class InvertedResidual(nn.Module):
    """Widen by 1x1, depthwise 3x3, narrow by 1x1. Source: Sandler et al. 2018, table 1."""

    def __init__(self, channels_in: int, channels: int, stride: int, widen: int):
        super().__init__()
        hidden = channels_in * widen
        self.residual = stride == 1 and channels_in == channels
        layers: list[nn.Module] = []
        if widen != 1:
            layers += [nn.Conv2d(channels_in, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
            nn.Conv2d(hidden, channels, 1, bias=False), nn.BatchNorm2d(channels),
        ]  # fmt: skip
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return x + out if self.residual else out


def mobilenet_v2(divide: int = 1, classes: int = 1000) -> nn.Module:
    """MobileNetV2 for 224x224 images, its channels divided by a number. Source: Sandler et al. 2018, table 2."""
    first, last = 32 // divide, 1280 // divide
    layers: list[nn.Module] = [nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU6()]
    channels_in = first
    for widen, channels, repeat, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        channels = channels // divide
        for index in range(repeat):
            layers.append(InvertedResidual(channels_in, channels, stride if index == 0 else 1, widen))
            channels_in = channels
    layers += [nn.Conv2d(channels_in, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU6()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes)]
    return nn.Sequential(*layers)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward part, each with a shortcut and a norm after it. Source: Devlin et al. 2018."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.project = nn.Linear(hidden, hidden)
        self.norm1 = nn.LayerNorm(hidden, eps=1e-12)
        self.widen = nn.Linear(hidden, 4 * hidden)
        self.narrow = nn.Linear(4 * hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-12)

    def split_heads(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        return x.reshape(batch, tokens, self.heads, hidden // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        query, key, value = (self.split_heads(layer(x)) for layer in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / (hidden // self.heads) ** 0.5
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, tokens, hidden)
        x = self.norm1(x + self.project(mixed))
        result: Tensor = self.norm2(x + self.narrow(nn.functional.gelu(self.widen(x))))
        return result


def bert(layers: int = 4, hidden: int = 768, heads: int = 12) -> nn.Module:
    """A BERT-like encoder on embedded tokens, [batch, tokens, hidden] in and out."""
    return nn.Sequential(*(EncoderLayer(hidden, heads) for _ in range(layers)))


# name -> (definition, shape of one example)
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (784,)),
    "resnet18": (resnet18, (3, 224, 224)),
    "resnet50": (resnet50, (3, 224, 224)),
    "mobilenet_v2": (mobilenet_v2, (3, 224, 224)),
    "bert": (bert, (128, 768)),
}


def example(name: str, batch: int) -> Tensor:
    """An input of a model's shape; its values do not matter to the exporter."""
    return torch.zeros(batch, *MODELS[name][1])
