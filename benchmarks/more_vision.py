"""Image networks in PyTorch that no other table shows, by the papers; no torchvision, no downloads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.torch_models import EncoderLayer


def conv(
    channels_in: int, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    """A convolution with "same" padding, batch norm and an activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels_in, channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(channels),
    ]
    return nn.Sequential(*layers, *([act] if act is not None else []))


def head(channels: int, classes: int = 1000) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Add(nn.Module):
    """A body, a shortcut around it, and what follows their sum."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None):
        super().__init__()
        self.body, self.shortcut, self.after = body, shortcut or nn.Identity(), after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.after(self.body(x) + self.shortcut(x))
        return out


class SqueezeExcite(nn.Module):
    """Channels scaled by what two small layers make of their means. Source: Hu et al. 2017."""

    def __init__(self, channels: int, squeezed: int, act: nn.Module, gate: nn.Module):
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, squeezed, 1), act, nn.Conv2d(squeezed, channels, 1), gate
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale(x)


def mbconv(
    channels_in: int, hidden: int, channels: int, kernel: int, stride: int, act: type[nn.Module], se: nn.Module | None
) -> nn.Module:
    layers: list[nn.Module] = [conv(channels_in, hidden, act=act())] if hidden != channels_in else []
    layers.append(conv(hidden, hidden, kernel, stride, hidden, act()))
    layers += [se] if se is not None else []
    body = nn.Sequential(*layers, conv(hidden, channels))
    return Add(body) if stride == 1 and channels_in == channels else body


def efficientnet_b0() -> nn.Module:
    """SiLU, squeeze and excite, 5x5 depthwise. Source: Tan, Le 2019, table 1."""
    layers: list[nn.Module] = [conv(3, 32, 3, 2, act=nn.SiLU())]
    last = 32
    for widen, channels, repeat, stride, kernel in (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):  # fmt: skip
        for i in range(repeat):
            se = SqueezeExcite(last * widen, max(1, last // 4), nn.SiLU(), nn.Sigmoid())
            layers.append(mbconv(last, last * widen, channels, kernel, stride if i == 0 else 1, nn.SiLU, se))
            last = channels
    return nn.Sequential(*layers, conv(320, 1280, act=nn.SiLU()), head(1280))


def mobilenet_v3_small() -> nn.Module:
    """Hard swish, hard sigmoid, squeeze and excite. Source: Howard et al. 2019, table 2."""
    layers: list[nn.Module] = [conv(3, 16, 3, 2, act=nn.Hardswish())]
    last = 16
    for kernel, hidden, channels, se, hard, stride in (
        (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
        (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
        (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
        (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
    ):  # fmt: skip
        squeeze = SqueezeExcite(hidden, max(8, hidden // 32 * 8), nn.ReLU(), nn.Hardsigmoid()) if se else None
        layers.append(mbconv(last, hidden, channels, kernel, stride, nn.Hardswish if hard else nn.ReLU, squeeze))
        last = channels
    layers += [conv(96, 576, act=nn.Hardswish()), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(576, 1024), nn.Hardswish(), nn.Linear(1024, 1000))


class LayerNorm2d(nn.LayerNorm):
    """A norm over the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """7x7 depthwise, then a feed-forward part on channels last. Source: Liu et al. 2022, figure 4."""

    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.widen, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        out = self.gamma * self.narrow(functional.gelu(self.widen(out)))
        return x + out.permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), LayerNorm2d(96, eps=1e-6)]
    for stage, (channels, depth) in enumerate(((96, 3), (192, 3), (384, 9), (768, 3))):
        if stage:
            layers += [LayerNorm2d(channels // 2, eps=1e-6), nn.Conv2d(channels // 2, channels, 2, 2)]
        layers += [ConvNextBlock(channels) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))


class Bottleneck(nn.Sequential):
    """1x1, grouped 3x3, 1x1, perhaps with squeeze and excite. Source: Xie et al. 2016; Radosavovic et al. 2020."""

    def __init__(self, channels_in: int, hidden: int, channels: int, stride: int, groups: int, squeezed: int = 0):
        se = [SqueezeExcite(hidden, squeezed, nn.ReLU(), nn.Sigmoid())] if squeezed else []
        super().__init__(
            conv(channels_in, hidden, act=nn.ReLU()), conv(hidden, hidden, 3, stride, groups, nn.ReLU()),
            *se, conv(hidden, channels),
        )  # fmt: skip


def resnext50() -> nn.Module:
    """ResNeXt-50 32x4d. Source: Xie et al. 2016, table 1."""
    layers: list[nn.Module] = [conv(3, 64, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
    last = 64
    for stage, (channels, depth) in enumerate(((256, 3), (512, 4), (1024, 6), (2048, 3))):
        for i in range(depth):
            stride = 2 if stage and i == 0 else 1
            body = Bottleneck(last, channels // 2, channels, stride, 32)
            layers.append(Add(body, conv(last, channels, stride=stride) if i == 0 else None, nn.ReLU()))
            last = channels
    return nn.Sequential(*layers, head(last))


def regnety_400mf() -> nn.Module:
    """Groups of 8 channels, squeeze and excite. Source: Radosavovic et al. 2020, table 9."""
    layers: list[nn.Module] = [conv(3, 32, 3, 2, act=nn.ReLU())]
    last = 32
    for channels, depth in ((48, 1), (104, 3), (208, 6), (440, 6)):
        for i in range(depth):
            stride = 2 if i == 0 else 1
            body = Bottleneck(last, channels, channels, stride, channels // 8, last // 4)
            layers.append(Add(body, conv(last, channels, stride=stride) if i == 0 else None, nn.ReLU()))
            last = channels
    return nn.Sequential(*layers, head(last))


class Ghost(nn.Module):
    """Half the channels by 1x1, the other half from those by depthwise 3x3. Source: Han et al. 2019, figure 1."""

    def __init__(self, channels_in: int, channels: int, act: bool):
        super().__init__()
        self.primary = conv(channels_in, channels // 2, act=nn.ReLU() if act else None)
        self.cheap = conv(channels // 2, channels // 2, 3, 1, channels // 2, nn.ReLU() if act else None)

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        return torch.cat((first, self.cheap(first)), 1)


def ghostnet() -> nn.Module:
    """A GhostNet of eight bottlenecks."""
    layers: list[nn.Module] = [conv(3, 16, 3, 2, act=nn.ReLU())]
    last = 16
    for hidden, channels, stride, kernel in (
        (16, 16, 1, 3), (48, 24, 2, 3), (72, 24, 1, 3), (72, 40, 2, 5), (120, 40, 1, 5), (240, 80, 2, 3),
        (200, 80, 1, 3), (480, 112, 1, 3),
    ):  # fmt: skip
        body: list[nn.Module] = [Ghost(last, hidden, True)]
        shortcut: nn.Module | None = None
        if stride == 2:
            body.append(conv(hidden, hidden, kernel, 2, hidden))
            shortcut = nn.Sequential(conv(last, last, kernel, 2, last), conv(last, channels))
        elif last != channels:
            shortcut = nn.Sequential(conv(last, last, kernel, 1, last), conv(last, channels))
        layers.append(Add(nn.Sequential(*body, Ghost(hidden, channels, False)), shortcut))
        last = channels
    return nn.Sequential(*layers, conv(last, 960, act=nn.ReLU()), head(960))


def double(channels_in: int, channels: int) -> nn.Sequential:
    return nn.Sequential(conv(channels_in, channels, 3, act=nn.ReLU()), conv(channels, channels, 3, act=nn.ReLU()))


class UNet(nn.Module):
    """Down, up and concatenations between; up by transposed convolution, or by interpolation to the other's size.

    Source: Ronneberger, Fischer, Brox 2015, figure 1.
    """

    def __init__(self, mode: str, width: int = 16):
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        self.mode = mode
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) if mode == "transposed" else nn.Conv2d(b, a, 1)
            for a, b in zip(sizes, sizes[1:], strict=False)
        )
        self.merge = nn.ModuleList(double(2 * a, a) for a in sizes[:-1])
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level, layer in enumerate(self.down):
            x = layer(x if level == 0 else functional.max_pool2d(x, 2))
            kept.append(x)
        for level in reversed(range(len(self.up))):
            x = self.up[level](x)
            if self.mode != "transposed":
                corners = False if self.mode == "bilinear" else None
                x = functional.interpolate(x, size=kept[level].shape[2:], mode=self.mode, align_corners=corners)
            x = self.merge[level](torch.cat((kept[level], x), 1))
        out: Tensor = self.last(x)
        return torch.sigmoid(out)


def unet() -> nn.Module:
    return UNet("transposed")


def unet_bilinear() -> nn.Module:
    return UNet("bilinear")


def espcn() -> nn.Module:
    """Threefold super-resolution by pixel shuffle. Source: Shi et al. 2016."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 5, padding=2), nn.Tanh(), nn.Conv2d(64, 32, 3, padding=1), nn.Tanh(),
        nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3),
    )  # fmt: skip


class TinyYolo(nn.Module):
    """Leaky ReLU, max pools, two scales, sigmoid of all boxes together. Source: Redmon, Farhadi 2018 (YOLOv3-tiny)."""

    def __init__(self, width: int = 16, outputs: int = 255):
        super().__init__()
        leaky = nn.LeakyReLU(0.1)
        sizes = [3, *(width * 2**i for i in range(5))]
        self.front = nn.Sequential(
            *(
                layer
                for a, b in zip(sizes, sizes[1:], strict=False)
                for layer in ([nn.MaxPool2d(2)] if a != 3 else []) + [conv(a, b, 3, act=leaky)]
            )
        )
        c = sizes[-1]
        self.deep = nn.Sequential(nn.MaxPool2d(2), conv(c, 2 * c, 3, act=leaky), conv(2 * c, c, act=leaky))
        self.coarse = nn.Sequential(conv(c, 2 * c, 3, act=leaky), nn.Conv2d(2 * c, outputs, 1))
        self.lift = nn.Sequential(conv(c, c // 2, act=leaky), nn.Upsample(scale_factor=2))
        self.fine = nn.Sequential(conv(c + c // 2, c, 3, act=leaky), nn.Conv2d(c, outputs, 1))

    def forward(self, x: Tensor) -> Tensor:
        early = self.front(x)
        deep = self.deep(early)
        scales = (self.coarse(deep), self.fine(torch.cat((self.lift(deep), early), 1)))
        boxes = [s.reshape(s.shape[0], 3, -1, s.shape[2] * s.shape[3]).transpose(2, 3) for s in scales]
        merged = torch.cat([b.reshape(b.shape[0], -1, b.shape[3]) for b in boxes], 1)
        return torch.cat((merged[..., :2].sigmoid(), merged[..., 2:4].exp(), merged[..., 4:].sigmoid()), -1)


class PreNormLayer(EncoderLayer):
    """The encoder's layer with its norms before. Source: Dosovitskiy et al. 2020, equation 2."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        out: Tensor = x + self.narrow(functional.gelu(self.widen(self.norm2(x))))
        return out

    def attend(self, x: Tensor) -> Tensor:
        query, key, value = (self.split_heads(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = functional.scaled_dot_product_attention(query, key, value)
        out: Tensor = self.project(mixed.transpose(1, 2).reshape(x.shape))
        return out


class ViT(nn.Module):
    """Patches by a strided convolution, a class token, pre-norm layers. Source: Dosovitskiy et al. 2020."""

    def __init__(self, image: int = 224, patch: int = 16, hidden: int = 384, heads: int = 6, layers: int = 12):
        super().__init__()
        self.embed = nn.Conv2d(3, hidden, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, hidden))
        self.position = nn.Parameter(0.1 * torch.randn(1, (image // patch) ** 2 + 1, hidden))
        self.layers = nn.Sequential(*(PreNormLayer(hidden, heads) for _ in range(layers)))
        self.norm, self.classify = nn.LayerNorm(hidden), nn.Linear(hidden, 1000)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), patches), 1) + self.position
        out: Tensor = self.classify(self.norm(self.layers(x))[:, 0])
        return out


def vit_s16() -> nn.Module:
    return ViT()


class SwinBlock(nn.Module):
    """Attention within windows, every other block's windows shifted. Source: Liu et al. 2021, figure 3."""

    def __init__(self, channels: int, heads: int, side: int, window: int, shift: int):
        super().__init__()
        self.heads, self.side, self.window, self.shift = heads, side, window, shift
        self.norm1, self.norm2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.project = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.widen, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        area = window * window
        self.bias = nn.Parameter(0.1 * torch.randn(1, heads, area, area))
        region = torch.zeros(side, side)
        for n, part in enumerate((slice(0, -window), slice(-window, -shift), slice(-shift, None)) if shift else ()):
            region[part] += 3 * n
            region[:, part] += n
        cells = self.windows(region.reshape(1, side, side, 1)).reshape(-1, area)
        hidden = (cells.unsqueeze(1) != cells.unsqueeze(2)).float() * -100.0
        self.register_buffer("mask", hidden.unsqueeze(1) if shift else None)

    def windows(self, x: Tensor) -> Tensor:
        batch, side, _, channels = x.shape
        n, w = side // self.window, self.window
        return x.reshape(batch, n, w, n, w, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)

    def attend(self, x: Tensor) -> Tensor:
        count, area, channels = x.shape
        split = self.qkv(x).reshape(count, area, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = split[0], split[1], split[2]
        scores = query * (channels // self.heads) ** -0.5 @ key.transpose(-2, -1) + self.bias
        if self.mask is not None:
            n = self.mask.shape[0]
            scores = scores.reshape(-1, n, self.heads, area, area) + self.mask
            scores = scores.reshape(count, self.heads, area, area)
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(count, area, channels)
        out: Tensor = self.project(mixed)
        return out

    def forward(self, x: Tensor) -> Tensor:
        batch, side, _, channels = x.shape
        n, w = side // self.window, self.window
        moved = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.norm1(x)
        out = self.attend(self.windows(moved)).reshape(batch, n, n, w, w, channels)
        out = out.permute(0, 1, 3, 2, 4, 5).reshape(x.shape)
        x = x + (torch.roll(out, (self.shift, self.shift), (1, 2)) if self.shift else out)
        result: Tensor = x + self.narrow(functional.gelu(self.widen(self.norm2(x))))
        return result


class PatchMerging(nn.Module):
    """Four neighbours become one with twice the channels. Source: Liu et al. 2021, section 3.1."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm, self.reduce = nn.LayerNorm(4 * channels), nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        out: Tensor = self.reduce(self.norm(torch.cat(parts, -1)))
        return out


class Swin(nn.Module):
    """Swin-tiny's first stages."""

    def __init__(self, depths: Sequence[int] = (2, 2, 2), channels: int = 96, side: int = 56, window: int = 7):
        super().__init__()
        self.embed = nn.Conv2d(3, channels, 4, 4)
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(PatchMerging(channels))
                channels, side = 2 * channels, side // 2
            shifts = [(0, window // 2)[n % 2] for n in range(depth)]
            layers += [SwinBlock(channels, channels // 32, side, window, shift) for shift in shifts]
        self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(channels)
        self.classify = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.layers(self.embed(x).permute(0, 2, 3, 1)))
        out: Tensor = self.classify(x.mean((1, 2)))
        return out


def swin() -> nn.Module:
    return Swin()
