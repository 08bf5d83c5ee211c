"""convolve_rows."""

import numpy as np
import pytest

from autosched import relax
from autosched.relax import op
from autosched.relax.transform import ConvolveRows, DeadCodeElimination, RemoveIdentity, SinkViews
from autosched.tir.expr import Var
from tests.relax.transform.graphs import Weights, assert_same_results, calls, graph

W = Weights()
TOKENS, ROWS = {"x": (2, 12, 16)}, {"x": (2, 3, 4, 16)}


def _after(shapes, build, block=8):
    before = graph(shapes, build)
    after = before
    for p in (ConvolveRows(block), DeadCodeElimination(), SinkViews(), RemoveIdentity(), DeadCodeElimination()):
        after = p(after)
    assert_same_results(before, after)
    return calls(after)


def _mixed(bb, x):
    """What stands between the two products of SegFormer's and PVT's feed-forward layers."""
    image = op.reshape(op.permute_dims(x, axes=(0, 2, 1)), (2, 16, 3, 4))
    conv = op.add(op.nn.conv2d(image, W(16, 1, 3, 3), padding=1, groups=16), W(1, 16, 1, 1))
    return op.permute_dims(op.reshape(conv, (2, 16, 12)), axes=(0, 2, 1))


def test_tokens_are_convolved_as_they_are():
    names = _after(TOKENS, lambda bb, x: op.nn.gelu(_mixed(bb, x)))
    assert names == ["reshape", "nn.conv2d", "add", "nn.gelu", "reshape"]


def test_rows_stay_rows_through_a_stage_of_blocks():
    """ConvNeXt: images of the sum of two blocks' rows."""

    def build(bb, x):
        image = bb.emit(op.permute_dims(x, axes=(0, 3, 1, 2)))
        for _ in range(2):
            conv = op.nn.conv2d(image, W(16, 1, 7, 7), padding=3, groups=16)
            rows = op.nn.layer_norm(op.permute_dims(conv, axes=(0, 2, 3, 1)), W(16), W(16), axes=-1)
            image = bb.emit(op.add(image, op.permute_dims(op.matmul(rows, W(16, 16)), axes=(0, 3, 1, 2))))
        return op.permute_dims(image, axes=(0, 2, 3, 1))

    assert "permute_dims" not in _after(ROWS, build)


def test_an_image_in_front_of_blocks_is_turned_once():
    """A stage of ConvNeXt or EdgeNeXt behind a convolution: its first block's image and sum are turned, none later."""

    def build(bb, x):
        image = x
        for _ in range(3):
            conv = op.nn.conv2d(image, W(16, 1, 7, 7), padding=3, groups=16)
            rows = op.nn.layer_norm(op.permute_dims(conv, axes=(0, 2, 3, 1)), W(16), W(16), axes=-1)
            image = bb.emit(op.add(image, op.permute_dims(op.matmul(rows, W(16, 16)), axes=(0, 3, 1, 2))))
        return op.permute_dims(image, axes=(0, 2, 3, 1))

    assert _after({"x": (1, 16, 4, 5)}, build).count("permute_dims") == 2


def test_a_sum_that_is_read_as_an_image_alone_is_one():
    def build(bb, x, y):
        image = bb.emit(op.add(op.permute_dims(x, axes=(0, 3, 1, 2)), y))
        return op.nn.conv2d(image, W(8, 16, 3, 3), padding=1)

    assert _after({"x": (1, 4, 5, 16), "y": (1, 16, 4, 5)}, build) == ["permute_dims", "add", "nn.conv2d"]


def test_steps_of_a_sequence():
    def build(bb, x):
        image = op.expand_dims(op.permute_dims(x, axes=(0, 2, 1)), axis=2)
        conv = op.nn.conv2d(image, W(16, 1, 1, 5), padding=(0, 2), groups=16)
        return op.permute_dims(op.squeeze(op.nn.silu(conv), axis=2), axes=(0, 2, 1))

    assert "permute_dims" not in _after(TOKENS, build)


@pytest.mark.parametrize("stride", [1, 2])
def test_an_image_is_made_for_others_that_read_it(stride):
    def build(bb, x):
        image = bb.emit(op.permute_dims(x, axes=(0, 3, 1, 2)))
        conv = bb.emit(op.nn.conv2d(image, W(16, 1, 3, 3), padding=1, groups=16, strides=stride))
        scaled = bb.emit(op.multiply(conv, op.sigmoid(op.mean(conv, axis=(2, 3), keepdims=True))))
        return op.permute_dims(scaled, axes=(0, 2, 3, 1)), op.nn.max_pool2d(conv, pool_size=2)

    names = _after(ROWS, build)
    assert names.count("permute_dims") == 1 and names.count("nn.conv2d") == 1


def test_others_stay():
    def convolution(channels, *weight, groups):
        def build(bb, x):
            return op.nn.conv2d(op.permute_dims(x, axes=(0, 3, 1, 2)), W(*weight), groups=groups)

        return _after({"x": (1, 4, 5, channels)}, build)

    image = ["permute_dims", "nn.conv2d"]
    assert convolution(12, 12, 1, 3, 3, groups=12) == image  # no whole vectors
    assert convolution(16, 8, 16, 3, 3, groups=1) == convolution(16, 16, 8, 3, 3, groups=2) == image
    assert _after({"x": (1, 16, 4, 5)}, lambda bb, x: op.nn.conv2d(x, W(16, 1, 3, 3), groups=16)) == ["nn.conv2d"]

    def beside(bb, x, y):
        return op.add(op.permute_dims(x, axes=(0, 3, 1, 2)), y)

    assert _after({"x": (1, 4, 5, 16), "y": (1, 16, 4, 5)}, beside) == ["permute_dims", "add"]


def test_views_that_move_pixels_are_no_images_of_rows():
    def build(bb, x):
        turned = op.reshape(op.permute_dims(x, axes=(0, 2, 1)), (2, 8, 6, 4))  # other channels
        conv = op.nn.conv2d(turned, W(8, 1, 3, 3), padding=1, groups=8)
        return op.permute_dims(conv, axes=(0, 2, 3, 1))

    assert _after(TOKENS, build).count("permute_dims") == 2


def test_operands_that_are_broadcast_are_turned_with_the_rows():
    def build(bb, x):
        image = op.permute_dims(x, axes=(0, 3, 1, 2))
        for operand in (W(16, 1, 1), W(3, 4), relax.const(2.0), relax.const(np.float32([[[[0.5]]]]))):
            image = bb.emit(op.multiply(image, operand))
        return op.permute_dims(image, axes=(0, 2, 3, 1))

    assert _after(ROWS, build) == ["multiply"] * 4


def test_views_of_open_sizes_stay():
    n, tokens = Var("n", "int64"), Var("tokens", "int64")
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorStructInfo((n, tokens, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            parts = builder.emit(op.reshape(x, (n, tokens, 2, 8)))
            out = builder.emit_output(op.permute_dims(parts, (0, 2, 1, 3)))
        builder.emit_func_output(out)
    assert calls(ConvolveRows(8)(builder.get())) == ["reshape", "permute_dims"]
