"""The rows of `make bench-kernels`: shapes of well-known networks, in groups that each have a bar."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from benchmarks import chains, torch_chains
from benchmarks.chains import Conv, GraphBuilder
from benchmarks.torch_chains import Run

LARGE_FLOPS = 8e8  # layers with more than this are measured in chains of LARGE_LAYERS
LAYERS, LARGE_LAYERS = 9, 4


@dataclass(frozen=True)
class Row:
    """One line of the table.

    model   the chain of so many layers as ONNX
    torch   the same in PyTorch, by the name of the library
    bar     ours / the best peer may be so much
    flops, size_bytes  of one layer
    layers  the longer chain
    """

    group: str
    name: str
    model: Callable[[int], onnx.ModelProto]
    torch: Callable[[int], Mapping[str, Run]]
    bar: float
    flops: int = 0
    size_bytes: int = 0
    layers: int = LAYERS
    per_layer: int = 1  # operators in a layer of the chain: times and flops are those of one


def conv_row(group: str, conv: Conv, bar: float) -> Row:
    kind = "dw " if conv.groups == conv.c_in else f"g{conv.groups} " if conv.groups > 1 else ""
    stride = f" s{conv.stride}" if conv.stride > 1 else ""
    name = f"{kind}{conv.kernel}x{conv.kernel}{stride} {conv.size}x{conv.size} {conv.c_in}->{conv.c_out}"
    layers = LARGE_LAYERS if conv.flops > LARGE_FLOPS else LAYERS
    return Row(
        group, name, conv.chain, lambda n: {"torch": torch_chains.conv_chain(conv, n)}, bar, conv.flops, layers=layers
    )


CONV3 = tuple(
    conv_row("conv3x3", Conv(size, c, c, 3, 1, 1), bar)
    for size, c, bar in ((56, 64, 0.35), (28, 128, 0.33), (14, 256, 0.45), (7, 512, 0.65))
)
DEPTHWISE = (Conv(112, 32, 32, 3, 1, 1, 32), Conv(56, 144, 144, 3, 1, 1, 144), Conv(14, 576, 576, 3, 1, 1, 576),
             Conv(7, 960, 960, 3, 1, 1, 960))  # fmt: skip
CONVS = (
    *(Conv(56, 64, 256, 1), Conv(28, 512, 128, 1), Conv(14, 256, 1024, 1), Conv(7, 2048, 512, 1)),  # ResNet-50
    *(Conv(56, 64, 128, 3, 2, 1), Conv(28, 128, 256, 3, 2, 1), Conv(14, 256, 512, 3, 2, 1)),  # ResNet-18
    *(Conv(56, 256, 512, 1, 2), Conv(14, 1024, 2048, 1, 2)),  # shortcuts of ResNet-50
    *(Conv(224, 3, 64, 7, 2, 3), Conv(224, 3, 32, 3, 2, 1), Conv(224, 3, 64, 3, 2), Conv(224, 3, 64, 3, 1, 1)),
    *(Conv(112, 64, 128, 3, 1, 1), Conv(28, 512, 512, 3, 1, 1)),  # VGG-19
    *(Conv(55, 16, 64, 3, 1, 1), Conv(13, 512, 1000, 1)),  # SqueezeNet
    *(Conv(28, 96, 128, 3, 1, 1), Conv(28, 16, 32, 5, 1, 2), Conv(14, 480, 192, 1)),  # Inception
    *DEPTHWISE,
    Conv(56, 144, 144, 3, 2, 1, 144),  # MobileNetV2
    Conv(56, 128, 128, 3, 1, 1, 32),  # ResNeXt
)
CONV_ROWS = tuple(conv_row("conv", conv, 0.65 if conv in DEPTHWISE else 1.08) for conv in CONVS)


def matmul_row(group: str, m: int, widths: Sequence[int], bar: float) -> Row:
    per_layer = len(widths)
    flops = 2 * m * widths[0] * widths[-1]
    name = f"M={m} {'<->'.join(map(str, widths))}" if per_layer > 1 else f"{m} square"
    return Row(
        group,
        name,
        lambda n: chains.matmul_chain(m, widths, n),
        lambda n: torch_chains.matmul_chains(m, widths, n),
        bar,
        flops,
        4 * widths[0] * widths[-1],
        LARGE_LAYERS if flops > LARGE_FLOPS else LAYERS,
        per_layer,
    )


MATMULS = (
    *(matmul_row("matmul", n, (n,), 1.06) for n in (512, 768, 1024, 1536)),
    matmul_row("matmul", 128, (768, 3072), 1.06),
)
SMALL_MATMULS = tuple(matmul_row("matmul-cold", m, (768, 3072), bar) for m, bar in ((1, 0.95), (4, 0.80), (16, 0.75)))


def attention_row(tokens: int) -> Row:
    sizes = (12, tokens, 64)
    return Row(
        "memory",
        f"attention 12x64, {tokens} tokens",
        lambda n: chains.attention_chain(*sizes, n),
        lambda n: {"torch": torch_chains.attention_chain(*sizes, n)},
        1.1,
        flops=4 * 12 * tokens * tokens * 64,
        layers=LARGE_LAYERS if tokens > 256 else LAYERS,
    )


def follow_row(
    name: str, shape: tuple[int, ...], layer: chains.Layer, operation: Callable[[], Callable[..., object]]
) -> Row:
    """A row whose layers follow each other, of an operator that is not fused with its own kind."""
    size = 8
    for extent in shape:
        size *= extent
    return Row(
        "memory",
        f"{name} {'x'.join(map(str, shape))}",
        lambda n: chains.follow(shape, layer, n),
        lambda n: {"torch": torch_chains.follow(shape, operation(), n)},
        1.1,
        size_bytes=size,
    )


def softmax_row(*shape: int) -> Row:
    def operation() -> Callable[..., object]:
        import torch

        return lambda x: torch.softmax(x, -1)

    return follow_row("softmax", shape, lambda b, x: b.call("Softmax", x, axis=-1), operation)


def norm_row(*shape: int) -> Row:
    def layer(builder: GraphBuilder, x: str) -> str:
        scale, bias = builder.weight(shape[-1:], 1.0), builder.weight(shape[-1:], 0.1)
        return builder.call("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    def operation() -> Callable[..., object]:
        import torch

        scale, bias = torch.randn(shape[-1]), torch.randn(shape[-1])
        return lambda x: torch.nn.functional.layer_norm(x, shape[-1:], scale, bias, 1e-5)

    return follow_row("LayerNorm", shape, layer, operation)


def apart_row(
    name: str,
    shapes: Sequence[tuple[int, ...]],
    layer: Callable[[GraphBuilder, Sequence[str]], str],
    operation: Callable[..., object],
    *,
    out_elements: int = 0,
    last: bool = False,
) -> Row:
    """A row whose layers have inputs and outputs of their own."""
    counts = []
    for shape in shapes:
        counts.append(1)
        for extent in shape:
            counts[-1] *= extent
    return Row(
        "memory",
        f"{name} {' + '.join('x'.join(map(str, shape)) for shape in dict.fromkeys(shapes))}",
        lambda n: chains.apart(shapes, layer, n),
        lambda n: {"torch": torch_chains.apart(shapes, operation, n, last=last)},
        1.1,
        size_bytes=4 * (sum(counts) + (out_elements or counts[0])),
    )


def gelu_row(*shape: int) -> Row:
    return apart_row("GELU", [shape], lambda b, x: chains.gelu(b, x[0]), torch_chains.gelu)


def add_row(*shape: int) -> Row:
    return apart_row("add+ReLU", [shape, shape], lambda b, x: b.call("Relu", b.call("Add", *x)), torch_chains.add_relu)


def transpose_row(shape: tuple[int, ...], permutation: tuple[int, ...]) -> Row:
    name = f"transpose {','.join(map(str, permutation))}"
    return apart_row(
        name, [shape], lambda b, x: b.call("Transpose", x[0], perm=permutation), torch_chains.transpose(permutation)
    )


def concat_row(*shapes: tuple[int, ...]) -> Row:
    total = sum(shape[1] * shape[2] * shape[3] for shape in shapes)
    return apart_row(
        "concat", shapes, lambda b, x: b.call("Concat", *x, axis=1), torch_chains.concat, out_elements=total
    )


MEMORY = (
    attention_row(128),
    attention_row(512),
    softmax_row(12, 128, 128),
    softmax_row(12, 512, 512),
    softmax_row(128, 1000),
    norm_row(128, 768),
    norm_row(512, 768),
    gelu_row(128, 3072),
    gelu_row(512, 3072),
    add_row(1, 256, 56, 56),
    add_row(1, 1024, 14, 14),
    add_row(128, 768),
    transpose_row((1, 128, 12, 64), (0, 2, 1, 3)),
    transpose_row((1, 12, 512, 64), (0, 1, 3, 2)),
    transpose_row((1, 64, 56, 56), (0, 2, 3, 1)),
    apart_row("max pool 3x3 s2", [(1, 64, 112, 112)],
              lambda b, x: b.call("MaxPool", x[0], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
              torch_chains.max_pool, out_elements=64 * 56 * 56, last=True),
    apart_row("average pool 3x3 s1", [(1, 192, 28, 28)],
              lambda b, x: b.call("AveragePool", x[0], kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4),
              torch_chains.average_pool, last=True),
    apart_row("global pool", [(1, 2048, 7, 7)], lambda b, x: b.call("GlobalAveragePool", x[0]),
              torch_chains.global_pool, out_elements=2048, last=True),
    concat_row((1, 64, 28, 28), (1, 128, 28, 28), (1, 32, 28, 28), (1, 32, 28, 28)),
    concat_row((1, 64, 55, 55), (1, 64, 55, 55)),
)  # fmt: skip

ROWS = (*CONV3, *CONV_ROWS, *MATMULS, *SMALL_MATMULS, *MEMORY)
GROUPS = {
    "conv3x3": "conv 3x3 stride 1 (bars .35, .33, .45, .65)",
    "conv": "conv2d of well-known networks (bars: geometric mean <= .85, none above 1.08, depthwise stride 1 <= .65)",
    "matmul": "matmul (bars: geometric mean <= 1.03, none above 1.06)",
    "matmul-cold": "matmul with cold weights (bars: M = 1, 4, 16 <= .95, .80, .75)",
    "memory": "attention and operators bound by memory (bars: geometric mean <= .85, none above 1.1)",
}
