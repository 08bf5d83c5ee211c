import pytest

from autosched.relax import op
from autosched.relax.transform import DeadCodeElimination, FoldBatchnormToConv2D, SumConvolutions
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()
IMAGE = {"x": (1, 4, 7, 6)}


def _summed(module, expected):
    result = DeadCodeElimination()(SumConvolutions()(FoldBatchnormToConv2D()(module)))
    assert_same_results(module, result)
    assert calls(result) == expected


def _conv(x, out, kernel, groups=1, **attrs):
    return op.nn.conv2d(x, W(out, 4 // groups, *kernel), groups=groups, **attrs)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_branches_of_training(groups):
    def build(bb, x):
        wide = op.add(_conv(x, 4, (3, 3), groups, padding=1), W(1, 4, 1, 1))
        point = op.subtract(_conv(x, 4, (1, 1), groups), W(4, 1, 1))
        return op.add(op.add(point, wide), op.add(op.multiply(x, W(1, 4, 1, 1)), W(1, 4, 1, 1)))

    _summed(graph(IMAGE, build), ["nn.conv2d", "add"])


@pytest.mark.parametrize(
    "small, padding, strides",
    [((1, 1), 0, 2), ((3, 1), (1, 0, 1, 0), 2), ((1, 3), (0, 1, 0, 1), 1), ((2, 2), (0, 0, 1, 1), 2)],
)
def test_taps_of_smaller_windows(small, padding, strides):
    def build(bb, x):
        return op.add(
            _conv(x, 5, small, padding=padding, strides=strides), _conv(x, 5, (3, 3), padding=1, strides=strides)
        )

    _summed(graph(IMAGE, build), ["nn.conv2d"])


@pytest.mark.parametrize(
    "what", ["unary", "crossed", "strides", "groups", "image", "shared", "dilation", "scale alone", "shape"]
)
def test_what_is_no_single_convolution_stays(what):
    def build(bb, x):
        if what == "unary":
            return op.add(op.nn.relu(x), _conv(x, 4, (1, 1)))
        if what == "scale alone":
            return op.add(op.multiply(x, W(4, 1, 1)), op.multiply(x, W(4, 1, 1)))
        a = bb.emit(
            _conv(x, 4, (3, 1) if what == "crossed" else (3, 3), padding=(1, 0, 1, 0) if what == "crossed" else 1)
        )
        if what == "crossed":
            b = _conv(x, 4, (1, 3), padding=(0, 1, 0, 1))
        elif what == "strides":
            b = _conv(x, 4, (3, 3), strides=(7, 6), padding=1 - 1)
        elif what == "shape":
            b = _conv(x, 1, (1, 1))
        elif what == "dilation":
            b = _conv(x, 4, (3, 3), padding=2, dilation=2)
        else:
            y = bb.emit(op.nn.relu(x)) if what == "image" else x
            b = _conv(y, 4, (1, 1), groups=2 if what == "groups" else 1)
        out = bb.emit(op.add(a, b))
        return (out, a) if what == "shared" else out

    module = graph(IMAGE, build)
    _summed(module, calls(module))
