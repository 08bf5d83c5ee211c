"""Rules for gradients, compared with PyTorch's operators."""

from typing import Any

import pytest
import torch

from autosched.frontend.torch.backward_rules import backward_rules

ATEN = torch.ops.aten
CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {  # data, weight, arguments
    "lines": ((2, 3, 9), (4, 3, 3), {"stride": [2], "padding": [1]}),
    "elements behind the last window": ((2, 4, 8, 9), (4, 2, 3, 2), {"stride": [3, 2], "groups": 2}),
    "apart": ((1, 2, 9, 8), (3, 2, 3, 3), {"dilation": [2, 1], "padding": [2, 0]}),
    "depthwise": ((2, 3, 6, 6), (6, 1, 3, 3), {"groups": 3, "padding": [1]}),
    "volumes": ((1, 2, 5, 4, 6), (3, 2, 2, 3, 3), {"stride": [2, 1, 2], "padding": [0, 1, 1]}),
    "transposed": ((2, 4, 5, 4), (4, 3, 3, 3), {"transposed": True, "stride": [2, 2], "output_padding": [1, 0]}),
    "transposed in groups": ((2, 4, 5), (4, 3, 3), {"transposed": True, "groups": 2, "padding": [1], "stride": [2]}),
}


def agree(op: Any, *args: Any, **kwargs: Any) -> None:
    for ours, theirs in zip(backward_rules()[op](*args, **kwargs), op(*args, **kwargs), strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    torch.manual_seed(0)
    shape, of_weight, given = CONVOLUTIONS[name]
    dims = len(shape) - 2
    zeros = [0] * dims
    wanted = {"stride": [1] * dims, "padding": zeros, "dilation": [1] * dims, "transposed": False}
    args = (*{**wanted, "output_padding": zeros, "groups": 1, **given}.values(),)
    data, weight = torch.randn(shape), torch.randn(of_weight)
    grad = torch.randn_like(ATEN.convolution(data, weight, None, *args))
    for mask in ([True] * 3, [False, True, False], [True, False, False]):
        sizes = [grad.shape[1]] if mask[2] else None
        agree(ATEN.convolution_backward.default, grad, data, weight, sizes, *args, mask)


AVERAGES: dict[str, tuple[int, tuple[Any, ...]]] = {  # dimensions, arguments
    "plain": (2, ([2, 3], [], [0, 0], False, True, None)),
    "overlapping windows": (2, ([3, 3], [2, 1], [1, 1], False, True, None)),
    "windows beyond the end": (2, ([3, 2], [2, 3], [1, 0], True, False, None)),
    "padding that counts": (3, ([2, 3, 3], [2, 2, 2], [1, 0, 1], True, True, None)),
    "elements that no window reads": (3, ([1, 2, 2], [2, 3, 4], [0, 0, 0], False, True, 3)),
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name):
    torch.manual_seed(0)
    dims, args = AVERAGES[name]
    x = torch.randn(2, 3, *(5, 8, 7)[:dims])
    op = getattr(ATEN, f"avg_pool{dims}d")
    backward = getattr(ATEN, f"avg_pool{dims}d_backward").default
    grad = torch.randn_like(op(x, *args))
    torch.testing.assert_close(backward_rules()[backward](grad, x, *args), backward(grad, x, *args))


@pytest.mark.parametrize("dims", [2, 3])
def test_pools_of_windows_that_follow_from_sizes(dims):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(5, 8, 7)[:dims])
    averages, maxima = (
        getattr(ATEN, f"{n}{dims}d_backward").default for n in ("_adaptive_avg_pool", "adaptive_max_pool")
    )
    for wanted in ((2, 3, 4), (5, 8, 7), (7, 4, 3)):
        largest, places = getattr(ATEN, f"adaptive_max_pool{dims}d")(x, wanted[:dims])
        grad = torch.randn_like(largest)
        for op, args in ((averages, (grad, x)), (maxima, (grad, x, places))):
            torch.testing.assert_close(backward_rules()[op](*args), op(*args))


def test_maxima_of_volumes():
    torch.manual_seed(0)
    x, args = torch.randn(2, 3, 6, 8, 7), ([3, 3, 2], [2, 2, 2], [1, 1, 0], [1, 1, 2], False)
    largest, places = ATEN.max_pool3d_with_indices(x, *args)
    op, grad = ATEN.max_pool3d_with_indices_backward.default, torch.randn_like(largest)
    torch.testing.assert_close(backward_rules()[op](grad, x, *args, places), op(grad, x, *args, places))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, torch.inf])
def test_distances(p):
    torch.manual_seed(0)
    x, y = torch.randn(2, 4, 3), torch.randn(2, 5, 3)
    x[0, 1], x[1, 2, 0] = y[0, 2], y[1, 3, 0]
    distances = ATEN._cdist_forward(x, y, p, None)
    op, args = ATEN._cdist_backward.default, (torch.randn_like(distances), x, y, p, distances)
    torch.testing.assert_close(backward_rules()[op](*args), op(*args))


@pytest.mark.parametrize("kind", ["plain", "causal", "masked", "shared heads"])
def test_attention(kind):
    torch.manual_seed(0)
    heads = 6 if kind == "shared heads" else 3
    query, key, value, grad = (torch.randn(2, h, n, 8) for h, n in ((heads, 5), (3, 7), (3, 7), (heads, 5)))
    seen = torch.rand(2, 1, 5, 7) > 0.4
    seen[0, 0, 1] = False  # a query that sees no key
    mask = torch.where(seen, torch.randn(2, 1, 5, 7), -torch.inf)
    options = {"attn_mask": mask if kind == "masked" else None, "scale": 0.3}
    forward = ATEN._scaled_dot_product_flash_attention_for_cpu.default
    found = forward(query, key, value, 0.0, kind == "causal", **options)
    op = ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default
    agree(op, grad, query, key, value, *found, 0.0, kind == "causal", **options)


@pytest.mark.parametrize("mode", [0, 1])
def test_rows_of_bags_are_divided_by_their_own_frequency(mode):
    """As PyTorch has it on GPUs: its kernel for CPUs takes counts of other rows."""
    indices, offsets, table = torch.tensor([1, 2, 5, 1, 0, 2, 2]), torch.tensor([0, 3, 3, 5]), torch.randn(6, 4)
    found, *saved = ATEN._embedding_bag(table, indices, offsets, False, mode)
    rule, args = backward_rules()[ATEN._embedding_bag_backward.default], (found, indices, offsets, *saved, 6)
    whole, divided = (rule(*args, by_frequency, mode, False, None) for by_frequency in (False, True))
    torch.testing.assert_close(divided, whole / torch.tensor([[1], [2], [3], [1], [1], [1]]))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_bags_of_embeddings(mode):
    torch.manual_seed(0)
    table, indices, offsets = torch.randn(6, 4), torch.tensor([1, 2, 5, 1, 0, 2, 2]), torch.tensor([0, 3, 3, 5])
    factors = torch.randn(7) if mode == 0 else None
    for padding in (-1, 2):
        found, *saved = ATEN._embedding_bag(table, indices, offsets, False, mode, False, factors, False, padding)
        grad, rest = torch.randn_like(found), (False, mode, False, factors, padding)
        backward = ATEN._embedding_bag_backward.default
        args = grad, indices, offsets, *saved, 6, *rest
        torch.testing.assert_close(backward_rules()[backward](*args), backward(*args))
        if mode == 0:
            backward = ATEN._embedding_bag_per_sample_weights_backward.default
            args = grad, table, indices, offsets, saved[0], mode, padding
            torch.testing.assert_close(backward_rules()[backward](*args), backward(*args))
