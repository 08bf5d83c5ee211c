"""Einstein sums and pooling over one and three dimensions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from autosched.errors import ImportModelError
from autosched.frontend.onnx import from_onnx
from tests.frontend.onnx_models import make, node
from tests.frontend.test_functions import run


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]),
        ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("i,j->ji", [(3,), (4,)]),
        ("ij->j", [(3, 4)]),
        ("ij,ij->", [(3, 4), (3, 4)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
        ("bhqd,bhkd->bhqk", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("bii,ij->bj", [(2, 3, 3), (3, 5)]),
        ("ijiji->j", [(2, 3, 2, 3, 2)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(len(shapes))]
    feeds = {n: rng.standard_normal(s).astype("float32") for n, s in zip(names, shapes, strict=True)}
    inputs = dict(zip(names, shapes, strict=True))
    model = make([node("Einsum", " ".join(names), "y", equation=equation)], inputs, ["y"])
    (got,) = run(model, **feeds)
    np.testing.assert_allclose(got, np.einsum(equation, *feeds.values()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation, message", [("ij->ii", "twice"), ("ij,jk->ik", "terms"), ("ijk->i", "names 3 axes")])
def test_einsum_that_does_not_fit(equation: str, message: str) -> None:
    with pytest.raises(ImportModelError, match=message):
        from_onnx(make([node("Einsum", "x", "y", equation=equation)], {"x": (3, 3)}, ["y"]))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("shape", [(2, 3, 9), (1, 2, 5, 6, 7)])
def test_pooling_over_one_and_three_dimensions(op: str, shape: tuple[int, ...]) -> None:
    rank = len(shape) - 2
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    (got,) = run(make([node(op, "x", "y", kernel_shape=[3] * rank, strides=[2] * rank)], {"x": shape}, ["y"]), x=x)
    axes = tuple(range(2, 2 + rank))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3,) * rank, axes)
    windows = windows[(slice(None), slice(None), *[slice(None, None, 2)] * rank)]
    reduce = np.max if op == "MaxPool" else np.mean
    np.testing.assert_allclose(got, reduce(windows, axis=tuple(range(-rank, 0))), rtol=1e-5, atol=1e-6)
