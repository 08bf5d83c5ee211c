"""The chains of `chains.py` in PyTorch, each operator the fastest way that PyTorch's own compiler would call it.

Convolutions and products are oneDNN's with weights packed ahead and bias, sum and ReLU fused; products also MKL's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.chains import Conv

Run = Callable[[], object]


def is_there() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def _inference(function: Run) -> Run:
    import torch

    return torch.inference_mode()(function)


def conv_chain(conv: Conv, count: int) -> Run:
    import torch

    with torch.inference_mode():
        x = torch.randn(conv.shape).to(memory_format=torch.channels_last)
        args = ([conv.pad] * 2, [conv.stride] * 2, [1, 1], conv.groups)
        reorder = torch._C._nn.mkldnn_reorder_conv2d_weight
        weights, biases = [], []
        for _ in range(count):
            natural = torch.randn(conv.weight_shape) * conv.scale
            weights.append(reorder(natural.to_mkldnn(), *args, list(conv.shape)))
            biases.append(torch.randn(conv.c_out) * 0.1)
        y = torch.randn(conv.out_shape).to(memory_format=torch.channels_last)
    plain = torch.ops.mkldnn._convolution_pointwise
    fused = torch.ops.mkldnn._convolution_pointwise.binary

    def follow() -> object:
        value = x
        for w, b in zip(weights, biases, strict=True):
            value = plain(value, w, b, *args, "relu", [], "")
        return value

    def fan() -> object:
        value = y
        for w, b in zip(weights, biases, strict=True):
            value = fused(x, value, w, b, *args, "add", None, "relu", [], None)
        return value

    return _inference(follow if conv.is_square else fan)


def matmul_chains(m: int, widths: Sequence[int], count: int) -> dict[str, Run]:
    """In oneDNN with packed weights, and in MKL."""
    import torch

    sizes = list(zip(widths, [*widths[1:], widths[0]], strict=True)) * count
    with torch.inference_mode():
        x = torch.randn(m, widths[0])
        natural = [torch.randn(k, n) / k**0.5 for k, n in sizes]
        packed = [torch.ops.mkldnn._reorder_linear_weight(w.t().contiguous(), m) for w in natural]
        outs = [torch.empty(m, n) for _, n in sizes]
    linear = torch.ops.mkldnn._linear_pointwise

    def onednn() -> object:
        value = x
        for w in packed:
            value = linear(value, w, None, "none", [], "")
        return value

    def mkl() -> object:
        value = x
        for w, out in zip(natural, outs, strict=True):
            value = torch.mm(value, w, out=out)
        return value

    return {"torch": _inference(onednn), "MKL": _inference(mkl)}


def attention_chain(heads: int, tokens: int, width: int, count: int) -> Run:
    import torch

    q, *rest = (torch.randn(1, heads, tokens, width) for _ in range(1 + 2 * count))

    def run() -> object:
        value = q
        for k, v in zip(rest[::2], rest[1::2], strict=True):
            value = torch.nn.functional.scaled_dot_product_attention(value, k, v)
        return value

    return _inference(run)


def follow(shape: Sequence[int], operation: Callable[[Any], Any], count: int) -> Run:
    """The operation `count` times on its own result."""
    import torch

    x = torch.randn(tuple(shape))

    def run() -> object:
        value = x
        for _ in range(count):
            value = operation(value)
        return value

    return _inference(run)


def apart(shapes: Sequence[Sequence[int]], operation: Callable[..., Any], count: int, *, last: bool = False) -> Run:
    """The operation on `count` sets of inputs; `last`: with the channels last in memory."""
    import torch

    def tensor(shape: Sequence[int]) -> Any:
        made = torch.randn(tuple(shape))
        return made.to(memory_format=torch.channels_last) if last else made

    with torch.inference_mode():
        sets = [[tensor(shape) for shape in shapes] for _ in range(count)]
        outs = [operation(*inputs, out=None) for inputs in sets]

    def run() -> None:
        for inputs, out in zip(sets, outs, strict=True):
            operation(*inputs, out=out)

    return _inference(run)


def gelu(x: Any, out: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x) if out is None else torch.ops.aten.gelu.out(x, out=out)


def add_relu(x: Any, y: Any, out: Any) -> Any:
    import torch

    return torch.relu_(torch.add(x, y, out=out))


def transpose(permutation: Sequence[int]) -> Callable[..., Any]:
    return lambda x, out: x.permute(*permutation).contiguous() if out is None else out.copy_(x.permute(*permutation))


def concat(*inputs: Any, out: Any) -> Any:
    import torch

    return torch.cat(inputs, 1, out=out)


def max_pool(x: Any, out: Any) -> Any:
    import torch

    return torch.nn.functional.max_pool2d(x, 3, 2, 1)


def average_pool(x: Any, out: Any) -> Any:
    import torch

    return torch.nn.functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False)


def global_pool(x: Any, out: Any) -> Any:
    return x.mean((2, 3), keepdim=True)
