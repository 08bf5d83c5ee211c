"""Gradients of operators that PyTorch's rules leave whole, as operators that have converters."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def backward_rules() -> dict[object, Callable[..., object]]:
    """For each such operator how it is taken apart."""
    import torch

    aten = torch.ops.aten
    return {
        aten.convolution_backward.default: _convolution_backward,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
        aten.avg_pool2d_backward.default: functools.partial(_average_backward, 2),
        aten.avg_pool3d_backward.default: functools.partial(_average_backward, 3),
        aten._adaptive_avg_pool2d_backward.default: functools.partial(_adaptive_average_backward, 2),
        aten._adaptive_avg_pool3d_backward.default: functools.partial(_adaptive_average_backward, 3),
        aten.adaptive_max_pool2d_backward.default: functools.partial(_maximum_backward, 2),
        aten.adaptive_max_pool3d_backward.default: functools.partial(_maximum_backward, 3),
        aten.max_pool3d_with_indices_backward.default: functools.partial(_maximum_backward, 3),
        aten._cdist_backward.default: _distances_backward,
        aten._embedding_bag_backward.default: _bags_backward,
        aten._embedding_bag_per_sample_weights_backward.default: _bag_weights_backward,
    }


def _convolution_backward(
    grad_output: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, bias_sizes: Sequence[int] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """(of the data by a convolution the other way, of the weight by one over the batch, of the bias by a sum)."""
    import torch

    dims = weight.dim() - 2
    stride, padding, dilation = (list(v) * (dims if len(v) == 1 else 1) for v in (stride, padding, dilation))
    of_data = of_weight = of_bias = None
    if output_mask[0]:
        extra = [0] * dims
        if not transposed:  # elements behind the last window
            extra = [
                n + 2 * p - d * (k - 1) - 1 - (m - 1) * s
                for n, m, k, s, p, d in zip(
                    input.shape[2:], grad_output.shape[2:], weight.shape[2:], stride, padding, dilation
                )
            ]
        of_data = torch.ops.aten.convolution(
            grad_output, weight, None, stride, padding, dilation, not transposed, extra, groups
        )
    if output_mask[1]:
        wide, small = (grad_output, input) if transposed else (input, grad_output)
        n = wide.shape[0]
        data = wide.unflatten(1, (groups, -1)).transpose(0, 2).flatten(1, 2)  # [channels of a group, groups * N, …]
        taps = small.transpose(0, 1)
        found = torch.ops.aten.convolution(data, taps, None, dilation, padding, stride, False, [0] * dims, groups)
        assert data.shape[1] == groups * n, "the batch is what the groups share"
        for d, k in enumerate(weight.shape[2:]):
            found = found.narrow(2 + d, 0, k)
        of_weight = found.transpose(0, 1)
    if output_mask[2]:
        of_bias = grad_output.sum([0, *range(2, grad_output.dim())])
    return of_data, of_weight, of_bias


def _average_backward(
    dims: int, grad_output: torch.Tensor, input: torch.Tensor, kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], ceil_mode: bool, count_include_pad: bool, divisor: int | None,
) -> torch.Tensor:  # fmt: skip
    """What a window gets is shared among its elements, by a convolution the other way whose weights are ones."""
    import torch

    kernel, stride, padding = (list(v) * (dims if len(v) == 1 else 1) for v in (kernel, stride or kernel, padding))
    sizes, counts = input.shape[-dims:], grad_output.shape[-dims:]
    share = grad_output if divisor is None else grad_output / divisor
    found = []
    for d, (n, m, k, s, p) in enumerate(zip(sizes, counts, kernel, stride, padding)):
        if divisor is None:
            first = torch.arange(m, device=share.device) * s - p
            low, high = (-p, n + p) if count_include_pad else (0, n)
            elements = (first + k).clamp(max=high) - first.clamp(min=low)
            share = share / elements.to(share.dtype).reshape(-1, *[1] * (dims - 1 - d))
        found.append((p, n, max(p + n - (m - 1) * s - k, 0)))
    ones = torch.ones([1, 1, *kernel], dtype=share.dtype, device=share.device)
    zeros = [0] * dims
    wide = torch.ops.aten.convolution(
        share.reshape(-1, 1, *counts), ones, None, stride, zeros, [1] * dims, True, zeros, 1
    )  # fmt: skip
    wide = torch.nn.functional.pad(wide, [x for *_, missing in reversed(found) for x in (0, missing)])
    for d, (begin, size, _) in enumerate(found):
        wide = wide.narrow(2 + d, begin, size)
    return wide.reshape(input.shape)


def _adaptive_average_backward(dims: int, grad_output: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """What a window gets is shared among its elements, by a product for each dimension."""
    import torch

    found = grad_output
    for d in range(-dims, 0):
        n, m = input.shape[d], grad_output.shape[d]
        at, window = torch.arange(n, device=found.device), torch.arange(m, device=found.device).unsqueeze(1)
        first, end = window * n // m, ((window + 1) * n + m - 1) // m
        shares = ((at >= first) & (at < end)) / (end - first)  # [m, n]
        found = (found.transpose(d, -1) @ shares.to(found.dtype)).transpose(d, -1)
    return found


def _maximum_backward(dims: int, grad_output: torch.Tensor, input: torch.Tensor, *given: Any) -> torch.Tensor:
    """What a window gets goes to its largest element, whose place in the image is what the last argument says."""
    import torch

    places, grad = given[-1].flatten(-dims), grad_output.flatten(-dims)
    zeros = torch.zeros_like(input, memory_format=torch.contiguous_format).flatten(-dims)
    return zeros.scatter_add(-1, places, grad).view(input.shape)


def _distances_backward(
    grad: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, p: float, cdist: torch.Tensor
) -> torch.Tensor:
    """Of the points x1 [..., n, d] by their p-norm distances [..., n, m] from x2 [..., m, d]; 0 where points agree."""
    import torch

    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    distance, of_distance = cdist.unsqueeze(-1), grad.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x1)
    if p == 1:
        rate = apart.sign()
    elif math.isinf(p):
        rate = torch.where(apart.abs() == distance, apart.sign(), 0.0)
    else:
        size = apart if p == 2 else apart.sign() * apart.abs() ** (p - 1)
        rate = torch.where((distance == 0) | (apart == 0), 0.0, size / distance ** (p - 1))
    return (of_distance * rate).sum(-2)


_MEAN, _MAX = 1, 2  # modes of bags of embeddings


def _bags_backward(
    grad: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, offset2bag: torch.Tensor, bag_size: torch.Tensor,
    maximum_indices: torch.Tensor, num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool,
    per_sample_weights: torch.Tensor | None, padding_idx: int = -1,
) -> torch.Tensor:  # fmt: skip
    """Of the table: a row gets what each bag with it gets. Tables without most of their rows are left to PyTorch.

    scale_grad_by_freq  divides by how often the row's own index is there, as PyTorch does on GPUs; on CPUs its kernel
                        takes counts of other rows (https://github.com/pytorch/pytorch/issues/190063)
    """
    import torch

    if sparse:
        return NotImplemented
    zeros = torch.zeros([num_weights, grad.shape[1]], dtype=grad.dtype, device=grad.device)
    if mode == _MAX:
        given = torch.where(bag_size.unsqueeze(1) > 0, grad, 0.0)
        return zeros.scatter_add(0, maximum_indices.clamp(min=0), given)
    bag, counts = _bags(indices, offsets), (indices != padding_idx).to(grad.dtype)
    if mode == _MEAN:
        sizes = torch.zeros([grad.shape[0]], dtype=grad.dtype, device=grad.device).index_add(0, bag, counts)
        grad = grad / sizes.clamp(min=1).unsqueeze(1)
    share = counts if per_sample_weights is None else counts * per_sample_weights
    if scale_grad_by_freq:
        often = zeros.new_zeros([num_weights]).index_add(0, indices, torch.ones_like(counts))
        share = share / often[indices]
    return zeros.index_add(0, indices, grad[bag] * share.unsqueeze(1))


def _bag_weights_backward(
    grad: torch.Tensor, weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, offset2bag: torch.Tensor,
    mode: int, padding_idx: int = -1,
) -> torch.Tensor:  # fmt: skip
    """Of the factors of rows in a sum."""
    import torch

    found = (grad[_bags(indices, offsets)] * weight[indices]).sum(1)
    return torch.where(indices == padding_idx, 0.0, found)


def _bags(indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The bag of each index, by where bags begin; one without indices begins where the next one does."""
    import torch

    at = torch.arange(indices.shape[0], device=indices.device, dtype=offsets.dtype)
    return (at.unsqueeze(1) >= offsets).sum(1) - 1


def _attention_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, dropout_p: float, is_causal: bool, *, attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Of queries, keys and values; the weights are computed anew, as PyTorch's operator does.

    Source: Dao et al. 2022, section 3, by whole matrices.
    """
    import torch

    dtype = query.dtype
    q, k, v, g = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value, grad_out))
    sharing = q.shape[1] // k.shape[1]  # queries' heads for one of the keys
    if sharing > 1:
        k, v = k.repeat_interleave(sharing, 1), v.repeat_interleave(sharing, 1)
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.mT * factor
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    if attn_mask is not None:  # of numbers
        scores = scores + attn_mask
    weights = torch.ops.aten._safe_softmax(scores, -1)
    of_weights = g @ v.mT
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * factor
    of_query, of_key, of_value = of_scores @ k, of_scores.mT @ q, weights.mT @ g
    if sharing > 1:
        of_key, of_value = of_key.unflatten(1, (-1, sharing)).sum(2), of_value.unflatten(1, (-1, sharing)).sum(2)
    return of_query.to(dtype), of_key.to(dtype), of_value.to(dtype)
