"""Convolution and transposed convolution over one to three dimensions, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te, topi
from autosched.errors import ShapeError
from autosched.tir.evaluate import evaluate
from autosched.topi.conv_nd import Spatial, conv_transpose_shape

torch = pytest.importorskip("torch")


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s).astype("float32") for s in shapes]


@pytest.mark.parametrize(
    ("data", "weight", "strides", "padding", "dilation", "groups"),
    [
        ((2, 4, 11), (6, 2, 3), (2,), (1,), (2,), 2),
        ((1, 4, 6, 7), (6, 4, 3, 2), (1, 2), (1, 0), (1, 2), 1),
        ((1, 4, 5, 6, 4), (4, 2, 3, 1, 2), (2, 1, 1), (1, 0, 1), (1, 1, 2), 2),
    ],
)
def test_convolution(data, weight, strides, padding, dilation, groups) -> None:
    x, w = draw(data, weight)
    tx, tw = te.placeholder(data, name="x"), te.placeholder(weight, name="w")
    y = topi.conv_nd(tx, tw, Spatial(strides, padding * 2, dilation), groups)
    (got,) = evaluate(te.create_prim_func([tx, tw, y]), [x, w])
    convolve = getattr(torch.nn.functional, f"conv{len(strides)}d")
    want = convolve(torch.tensor(x), torch.tensor(w), None, strides, padding, dilation, groups).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("data", "weight", "strides", "padding", "extra", "dilation", "groups"),
    [
        ((2, 4, 6), (4, 3, 3), (2,), (1,), (1,), (1,), 2),
        ((1, 3, 4, 5), (3, 2, 4, 4), (2, 2), (1, 1), (0, 0), (1, 1), 1),
        ((1, 4, 4, 3), (4, 2, 3, 2), (3, 1), (1, 0), (2, 0), (2, 1), 2),
        ((1, 2, 5, 5), (2, 2, 1, 1), (1, 1), (2, 2), (0, 0), (1, 1), 1),
        ((1, 2, 2, 3, 2), (2, 3, 2, 2, 3), (2, 2, 2), (0, 1, 1), (1, 0, 1), (1, 1, 1), 1),
    ],
)
def test_transposed_convolution(data, weight, strides, padding, extra, dilation, groups) -> None:
    x, w = draw(data, weight)
    tx, tw = te.placeholder(data, name="x"), te.placeholder(weight, name="w")
    y = topi.conv_transpose_nd(tx, tw, Spatial(strides, padding * 2, dilation), extra, groups)
    (got,) = evaluate(te.create_prim_func([tx, tw, y]), [x, w])
    convolve = getattr(torch.nn.functional, f"conv_transpose{len(strides)}d")
    want = convolve(torch.tensor(x), torch.tensor(w), None, strides, padding, extra, groups, dilation).numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)


def test_shapes_that_do_not_fit() -> None:
    one = Spatial((1,), (0, 0), (1,))
    with pytest.raises(ShapeError, match="groups"):
        topi.conv_nd(te.placeholder((1, 3, 5)), te.placeholder((4, 2, 3)), one)
    with pytest.raises(ShapeError, match="dimensions"):
        topi.conv_nd(te.placeholder((1, 3, 5, 5)), te.placeholder((4, 3, 3)), one)
    with pytest.raises(ShapeError, match="output_padding"):
        conv_transpose_shape((1, 3, 5), (3, 4, 3), one, (1,), 1)
    with pytest.raises(ShapeError, match="leaves nothing"):
        conv_transpose_shape((1, 3, 2), (3, 4, 1), Spatial((1,), (1, 1), (1,)), (0,), 1)
