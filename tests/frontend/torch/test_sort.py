"""Medians, k-th values and searches among boundaries, compared with PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import autosched
from autosched.driver.build.torch_programs import LateProgram
from autosched.runtime.dynamic import DynamicExecutable
from tests.spread import spread

NAN = float("nan")
Tensors = tuple[torch.Tensor, ...]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.uint8)


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def built(function: Callable[..., Any], inputs: Tensors, **options: Any) -> Any:
    program = torch.export.export(Function(function), inputs, **options)
    return autosched.build(program, target="cpu", records=[], threads=1)


def results(function: Callable[..., Any], inputs: Tensors, step: int = 2) -> list[np.ndarray]:
    """What a compiled function gives; its dtypes and shapes are PyTorch's, and every second value (step: or each)."""
    executable = built(function, inputs)
    assert not isinstance(executable, LateProgram)
    found, wanted = executable(*(x.numpy() for x in inputs)), function(*inputs)
    pairs = list(zip(found, wanted, strict=True)) if isinstance(wanted, tuple) else [(found, wanted)]
    for ours, theirs in pairs:
        assert str(ours.dtype) == str(theirs.dtype).removeprefix("torch.") and ours.shape == tuple(theirs.shape)
    for ours, theirs in pairs[::step]:
        np.testing.assert_array_equal(np.asarray(ours), theirs.numpy())
    return [np.asarray(ours) for ours, _ in pairs]


def sample(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Values of which several are equal."""
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 4 + 9
    return (values * 4).round().div(4).clamp(0, 40).to(dtype)


def picks(x: torch.Tensor, dim: int) -> Tensors:
    found = (
        torch.median(x, dim), torch.median(x, dim, keepdim=True), torch.nanmedian(x, dim), torch.kthvalue(x, 2, dim),
        torch.kthvalue(x, x.shape[dim], dim, keepdim=True),
    )  # fmt: skip
    return tuple(part for pick in found for part in pick)


# Every day each dtype and each shape.
@spread(
    3,
    "dtype,shape,dim",
    [(dtype, *at) for dtype in DTYPES for at in [((7,), 0), ((4, 6), -1), ((5, 3, 2), 0), ((2, 37, 3), 1)]],
)
def test_picks_along_an_axis(dtype, shape, dim):
    """All of them as one program."""
    x = sample(shape, dtype)
    found = results(lambda x: picks(x, dim), (x,))
    for values, positions in zip(found[::2], found[1::2], strict=True):
        if values.ndim < x.ndim:
            values, positions = (np.expand_dims(a, dim) for a in (values, positions))
        np.testing.assert_array_equal(np.take_along_axis(x.numpy(), positions, dim), values)


@pytest.mark.parametrize("median", [torch.median, torch.nanmedian])
def test_elements_that_are_no_numbers(median):
    x = torch.tensor([[3.0, NAN, 1.0, 2.0], [NAN] * 4, [4.0, 1.0, -torch.inf, torch.inf], [NAN, 5.0, NAN, NAN]])
    values, positions = results(lambda x: median(x, 1), (x,))
    np.testing.assert_array_equal(np.take_along_axis(x.numpy(), positions[:, None], 1)[:, 0], values)
    results(lambda x: (*torch.kthvalue(x, 3, 1), median(x)), (x,))
    results(median, (x[0],))


@pytest.mark.parametrize("shape", [(), (1,), (6, 5)])
def test_medians_of_all_elements(shape):
    results(torch.median, (sample(shape, torch.float32),))
    results(torch.nanmedian, (sample(shape, torch.int32),))


def test_medians_along_an_open_axis():
    size = torch.export.Dim("n", min=2, max=30)
    executable = built(lambda x: torch.median(x, 0), (torch.ones(5, 3),), dynamic_shapes=(({0: size},),))
    assert isinstance(executable, DynamicExecutable)
    for n in (5, 8):
        x = sample((n, 3), torch.float32, n)
        np.testing.assert_array_equal(executable(x.numpy())[0], torch.median(x, 0)[0])


# Every day each dtype, and each size from either side.
@spread(5, "dtype,right,size", [(d, right, n) for d in DTYPES for right in (False, True) for n in (1, 2, 33)])
def test_searches(dtype, right, size):
    line = torch.sort(sample((size,), dtype, 1))[0]
    lines = torch.sort(sample((3, size), dtype, 2))[0]
    x = sample((3, 19), dtype)

    def searches(line: torch.Tensor, lines: torch.Tensor, x: torch.Tensor) -> Tensors:
        return (
            torch.searchsorted(line, x, right=right),
            torch.searchsorted(lines, x, side="right" if right else "left", out_int32=True),
            torch.bucketize(x, line, right=right),
            torch.searchsorted(line, 9, right=right),
        )

    results(searches, (line, lines, x), step=1)


def test_searches_for_what_is_no_number_and_in_another_order():
    bounds = torch.tensor([-torch.inf, -1.0, 0.0, 2.0])
    x = torch.tensor([[NAN, torch.inf, -torch.inf], [2.0, -1.0, 0.5]])
    for right in (False, True):
        results(lambda a, x, right=right: torch.bucketize(x, a, right=right), (bounds, x))
    turned = torch.tensor([[4.0, 1.0, 3.0], [9.0, 0.0, 1.0]])
    order = turned.argsort(1)
    results(lambda a, o, x: torch.searchsorted(a, x, sorter=o), (turned, order, torch.tensor([[2.0], [1.0]])))


def test_many_boundaries_are_searched_by_pytorch():
    line, x = torch.arange(3000.0), torch.tensor([3.5, -1.0, 5000.0])
    executable = built(torch.searchsorted, (line, x))
    assert [call.op_name for call in executable.calls] == ["searchsorted"]
    np.testing.assert_array_equal(executable(line.numpy(), x.numpy()), torch.searchsorted(line, x))
