"""convolve_planes."""

import numpy as np
import pytest

import autosched
from autosched import relax
from autosched.relax import op
from autosched.relax.transform import ConvolvePlanes, DeadCodeElimination, FoldBatchnormToConv2D
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph
from tests.spread import spread

W = Weights()

CASES = [
    ((2, 4, 5, 6, 7), (6, 4, 3, 3, 3), {"padding": 1}),
    ((1, 3, 7, 5, 4), (5, 3, 3, 1, 2), {"strides": (2, 1, 3), "padding": (2, 0, 1, 0, 0, 0), "dilation": (2, 1, 1)}),
    ((2, 6, 4, 5, 6), (9, 2, 2, 3, 1), {"groups": 3, "padding": (0, 1, 0, 1, 1, 0)}),
    ((1, 8, 4, 6, 6), (8, 1, 3, 3, 3), {"groups": 8, "padding": 1}),
    ((2, 4, 5, 3, 4), (4, 4, 1, 3, 3), {"padding": (0, 1, 1)}),
    ((2, 4, 5, 3, 4), (4, 4, 1, 1, 1), {}),
    (
        (2, 4, 5, 3, 4),
        (4, 2, 3, 1, 1),
        {"groups": 2, "strides": (2, 1, 1), "padding": (1, 0, 0), "dilation": (2, 1, 1)},
    ),
    ((1, 4, 5, 4, 4), (4, 4, 1, 1, 1), {"strides": (1, 2, 1)}),
    ((1, 1, 4, 4, 20), (16, 1, 9, 9, 1), {"padding": (4, 4, 0)}),
]


@pytest.mark.parametrize(("data", "weight", "attrs"), CASES)
def test_images_give_the_same(data, weight, attrs):
    before = graph({"x": data}, lambda bb, x: op.nn.conv3d(x, W(*weight), **attrs))
    after = ConvolvePlanes()(before)
    assert_same_results(before, after)
    assert "nn.conv2d" in calls(after) and "nn.conv3d" not in calls(after)


@spread(2, "data, weight, attrs", CASES)
def test_kernels_read_their_own_memory(data, weight, attrs):
    """Built with checks of every access, and against the reference."""
    w = W(*weight)
    executable = autosched.build(graph({"x": data}, lambda bb, x: op.nn.conv3d(x, w, **attrs)), checks=True)
    x = np.random.default_rng(2).standard_normal(data).astype(np.float32)
    definition = op.nn.conv3d
    call = definition(relax.const(x), w, **attrs)
    want = definition.run_reference([x.astype(np.float64), w.data.astype(np.float64)], call.attrs)
    np.testing.assert_allclose(executable.run([x])[0].numpy(), want, rtol=0, atol=1e-4)


def residual():
    """Two convolutions with batch norm, a shortcut and joined channels."""

    def norm(bb, x, n):
        return bb.emit(
            relax.TupleGetItem(bb.emit(op.nn.batch_norm(x, W(n), W(n), W(n), W.positive(n), training=False)), 0)
        )

    def build(bb, x):
        first = bb.emit(op.nn.relu(norm(bb, op.nn.conv3d(x, W(4, 3, 3, 3, 3), padding=1), 4)))
        second = norm(bb, bb.emit(op.nn.conv3d(first, W(4, 4, 1, 3, 3), padding=(0, 1, 1))), 4)
        total = bb.emit(op.nn.relu(op.add(bb.emit(op.multiply(second, W(4, 1, 1, 1))), first)))
        both = bb.emit(op.concat([total, first], axis=1))
        return op.nn.conv3d(both, W(2, 8, 1, 1, 1))

    return graph({"x": (2, 3, 4, 5, 6)}, build)


def test_what_is_elementwise_stays_images():
    before = residual()
    after = DeadCodeElimination()(ConvolvePlanes()(FoldBatchnormToConv2D()(before)))
    assert_same_results(before, after)
    assert calls(after).count("permute_dims") == 2  # of the model's input, and of its output
    assert calls(after).count("nn.conv2d") == 3 and "multiply" not in calls(after)


def test_sums_with_other_volumes():
    def build(bb, x, y, scale, planes):
        z = bb.emit(op.nn.conv3d(x, W(4, 2, 3, 3, 3), padding=1))
        with_volume, scaled = bb.emit(op.add(z, y)), bb.emit(op.multiply(z, scale))
        return bb.emit(op.nn.relu(with_volume)), bb.emit(op.subtract(scaled, planes))

    shapes = {"x": (2, 2, 3, 4, 5), "y": (2, 4, 3, 4, 5), "scale": (4, 1, 4, 5), "planes": (3, 1, 1)}
    before = graph(shapes, build)
    assert_same_results(before, ConvolvePlanes()(before))


def test_weights_that_a_caller_gives():
    before = graph({"x": (1, 4, 3, 4, 5), "w": (6, 2, 2, 3, 1)}, lambda bb, x, w: op.nn.conv3d(x, w, groups=2))
    after = ConvolvePlanes()(before)
    assert_same_results(before, after)
    assert "nn.conv3d" not in calls(after)


def test_what_is_left():
    cut = graph({"x": (1, 2, 5, 5, 5)}, lambda bb, x: op.nn.conv3d(x, W(2, 2, 1, 1, 1), padding=(-1, 0, 0)))
    assert ConvolvePlanes()(cut) is cut
    flat = graph({"x": (1, 3, 5, 5)}, lambda bb, x: op.nn.conv2d(x, W(4, 3, 3, 3)))
    assert ConvolvePlanes()(flat) is flat
