import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.transform import DeadCodeElimination, DecomposeOpsForInference, FoldBatchnormToConv2D
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()


def _norm(bb, x, channels, **attrs):
    values = (W(channels), W(channels), W(channels), W.positive(channels))
    return bb.emit(relax.TupleGetItem(bb.emit(op.nn.batch_norm(x, *values, training=False, **attrs)), 0))


def _folded(module, expected):
    result = DeadCodeElimination()(FoldBatchnormToConv2D()(module))
    assert_same_results(module, result)
    assert calls(result) == expected


CONV = {"x": (1, 3, 5, 5)}


def test_batch_norm_folds_into_the_convolution():
    _folded(graph(CONV, lambda bb, x: _norm(bb, op.nn.conv2d(x, W(4, 3, 3, 3)), 4)), ["nn.conv2d", "add"])
    _folded(graph(CONV, lambda bb, x: _norm(bb, op.nn.conv2d(x, W(3, 1, 3, 3), groups=3), 3)), ["nn.conv2d", "add"])


def test_bias_and_a_second_scale_fold_as_well():
    def build(bb, x):
        conv = op.add(op.nn.conv2d(x, W(4, 3, 3, 3)), W(1, 4, 1, 1))
        scaled = op.multiply(_norm(bb, conv, 4), W(4, 1, 1))
        return op.divide(op.subtract(scaled, W(1, 4, 1, 1)), relax.const(2.0))

    _folded(graph(CONV, build), ["nn.conv2d", "add"])


def test_dense_layers_fold_along_columns():
    build = lambda bb, x: op.multiply(op.add(op.matmul(x, W(4, 3)), W(3)), W(3))  # noqa: E731
    _folded(graph({"x": (2, 4)}, build), ["matmul", "add"])


def test_without_a_convolution_two_calls_remain():
    _folded(graph(CONV, lambda bb, x: _norm(bb, x, 3)), ["multiply", "add"])
    _folded(graph({"x": (4, 3)}, lambda bb, x: _norm(bb, x, 3, axis=-1)), ["multiply", "add"])


def test_two_norms_in_a_row_are_one():
    _folded(graph(CONV, lambda bb, x: op.nn.relu(_norm(bb, _norm(bb, x, 3), 3))), ["multiply", "add", "nn.relu"])
    _folded(graph(CONV, lambda bb, x: op.multiply(op.multiply(x, W(3, 1, 1)), W(5, 5))), ["multiply", "multiply"])


def test_a_convolution_that_others_read_stays():
    def build(bb, x):
        conv = bb.emit(op.nn.conv2d(x, W(4, 3, 3, 3)))
        return _norm(bb, conv, 4), op.nn.relu(conv)

    _folded(graph(CONV, build), ["nn.conv2d", "multiply", "add", "nn.relu"])


@pytest.mark.parametrize("factor", [(1, 1, 3, 3), (2, 4, 1, 1)])
def test_factors_that_are_not_per_channel_stay(factor):
    module = graph({"x": (2, 3, 5, 5)}, lambda bb, x: op.multiply(op.nn.conv2d(x, W(4, 3, 3, 3)), W(*factor)))
    _folded(module, ["nn.conv2d", "multiply"])


def test_statistics_that_are_parameters():
    shapes = {"x": (2, 3, 2, 2), "g": (3,), "b": (3,), "m": (3,), "v": (3,)}

    def build(bb, x, g, b, m, v):
        spread = bb.emit(op.multiply(v, v))
        return relax.TupleGetItem(bb.emit(op.nn.batch_norm(x, g, b, m, spread, training=False)), 0)

    module = graph(shapes, build)
    result = DecomposeOpsForInference()(module)
    assert_same_results(module, result)
    assert "nn.batch_norm" not in calls(result)


def test_factor_of_zero_and_infinity():
    module = graph({"x": (2, 4)}, lambda bb, x: op.divide(op.matmul(x, W(4, 3)), relax.const(np.zeros(3, np.float32))))
    assert calls(FoldBatchnormToConv2D()(module)) == ["matmul", "divide"]
