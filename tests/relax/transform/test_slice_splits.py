"""Splits become slices where these are memory of what was split, or where all that reads them moves elements."""

import numpy as np
import pytest

import autosched
from autosched.relax import const, op
from autosched.relax.expr import Tuple, TupleGetItem
from autosched.relax.transform import SliceSplits
from tests.relax.transform.graphs import assert_same_results, calls, graph


def parts(bb, x, n: int, cut, axis: int):
    found = bb.emit(op.split(x, cut, axis=axis))
    return [bb.emit(TupleGetItem(found, i)) for i in range(n)]


def sliced(shape, n, cut, axis, read) -> bool:
    """Whether parts of exp(x), each read by a call that `read` makes, become slices."""
    module = graph(
        {"x": shape},
        lambda bb, x: Tuple(tuple(bb.emit(read(bb, p)) for p in parts(bb, bb.emit(op.exp(x)), n, cut, axis))),
    )
    result = SliceSplits()(module)
    assert_same_results(module, result)
    names = calls(result)
    assert ("split" in names) != ("strided_slice" in names)
    return "strided_slice" in names


def product(bb, x):
    return op.sum(x, axis=-1)


def turned(bb, x):
    return op.permute_dims(x)


@pytest.mark.parametrize(("shape", "n", "cut", "axis"), [((3, 4, 16), 3, 3, 0), ((1, 1, 6, 16), 3, (1, 3), 2)])
def test_parts_without_gaps(shape, n, cut, axis):
    assert sliced(shape, n, cut, axis, product)


@pytest.mark.parametrize(
    ("shape", "n", "cut", "axis"), [((4, 32), 2, 2, 1), ((3, 4, 5), 3, 3, 0), ((2, 4, 16), 2, 2, 1)]
)
def test_parts_with_gaps_or_not_aligned_stay_unless_they_are_moved(shape, n, cut, axis):
    assert not sliced(shape, n, cut, axis, product)
    assert sliced(shape, n, cut, axis, turned)


def test_a_part_that_is_read_twice_is_not_moved_on():
    def body(bb, x):
        a, b = parts(bb, bb.emit(op.exp(x)), 2, 2, 1)
        return Tuple((bb.emit(op.permute_dims(a)), bb.emit(op.permute_dims(b)), bb.emit(op.sum(b, axis=0))))

    module = graph({"x": (4, 32)}, body)
    assert "split" in calls(SliceSplits()(module))


def test_no_kernel_copies_the_parts():
    """A grouped layer of two depthwise convolutions: each reads its channels where the product wrote them."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((8, 1, k, k)).astype("float32") for k in (3, 5)]

    def body(bb, x):
        found = parts(bb, bb.emit(op.exp(x)), 2, 2, 1)
        return Tuple(
            tuple(
                bb.emit(op.nn.conv2d(p, const(w), padding=w.shape[-1] // 2, groups=8))
                for p, w in zip(found, weights, strict=True)
            )
        )

    module = graph({"x": (1, 16, 12, 12)}, body)
    built = autosched.build(module, target="cpu", threads=1)
    assert not any("split" in name for name in built.kernels)
    x = rng.standard_normal((1, 16, 12, 12)).astype("float32")
    expected = SliceSplits()(module)
    assert calls(expected).count("strided_slice") == 2
    wide = np.pad(np.exp(x), ((0, 0), (0, 0), (2, 2), (2, 2)))
    for i, result in enumerate(built(x)):
        k, edge = weights[i].shape[-1], (5 - weights[i].shape[-1]) // 2
        windows = np.lib.stride_tricks.sliding_window_view(wide[0, 8 * i : 8 * i + 8], (k, k), axis=(1, 2))
        windows = windows[:, edge : edge + 12, edge : edge + 12]
        np.testing.assert_allclose(
            result.numpy()[0], np.einsum("chwij,cij->chw", windows, weights[i][:, 0]), 1e-4, 1e-4
        )


def test_what_a_padded_layout_reads_is_memory_of_what_was_split():
    """A layout of more places than elements is a kernel of its own, which the slice cannot join."""

    def body(bb, x):
        found = parts(bb, bb.emit(op.exp(x)), 2, 2, 1)
        return Tuple(tuple(bb.emit(op.layout_transform(p, dst_layout="NCHW16c")) for p in found))

    module = graph({"x": (1, 24, 4, 4)}, body)
    built = autosched.build(module, target="cpu", threads=1)
    assert not any("split" in name or "slice" in name for name in built.kernels), built.kernels
    x = np.random.default_rng(0).standard_normal((1, 24, 4, 4)).astype("float32")
    for i, result in enumerate(built(x)):
        part = np.pad(np.exp(x[0, 12 * i : 12 * i + 12]), ((0, 4), (0, 0), (0, 0)))
        np.testing.assert_allclose(result.numpy()[0], part.reshape(1, 16, 4, 4).transpose(0, 2, 3, 1), 1e-5)
